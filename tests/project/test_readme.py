"""`make readme` finds what it replaces in README.md."""

from __future__ import annotations

import pytest

import readme

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
