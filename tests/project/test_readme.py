"""`make readme` finds what it replaces in README.md."""

from __future__ import annotations

import pytest

import readme
from generated import ROOT

pytestmark = pytest.mark.python_only


@pytest.mark.parametrize("begin", readme.BLOCKS)
def test_output_and_machine_are_replaced(begin: str) -> None:
    text = readme.BLOCKS[begin][0].read_text()
    new = readme.updated(text, begin, f"a first line\n\n{begin} as measured\n\n", "a processor, 2 cores")
    assert readme.block(new, begin)[0] == f"{begin} as measured\n"
    assert new.count("(on a processor, 2 cores):\n\n```text\n") == 1
    again = readme.updated(new, begin, readme.block(text, begin)[0], "two cores of an Intel Xeon, model 143")
    assert again == readme.updated(text, begin, readme.block(text, begin)[0], "two cores of an Intel Xeon, model 143")


def test_a_command_that_prints_something_else_changes_nothing() -> None:
    begin, (page, _) = next(iter(readme.BLOCKS.items()))
    with pytest.raises(ValueError, match="no line of the output begins with"):
        readme.updated(page.read_text(), begin, "Traceback", "a processor")
    with pytest.raises(ValueError, match="0 blocks"):
        readme.block("no block", begin)


def test_the_picture_is_drawn_by_the_command_that_the_page_shows() -> None:
    text = (ROOT / "README.md").read_text()
    command = readme.drawing(text)
    assert command[:2] == ["gc3", "sim"]
    assert command[-1] == "--picture"
    assert f"]({readme.PICTURE})" in text
    drawn = (ROOT / readme.PICTURE).read_text()
    for spec in (word for word in command[2:] if "_allreduce" in word):
        assert spec in drawn
    with pytest.raises(ValueError, match="--picture FILE"):
        readme.drawing("no command")
