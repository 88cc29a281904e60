"""`make readme` finds what it replaces in README.md."""

from __future__ import annotations

import pytest

import readme

pytestmark = pytest.mark.python_only


def test_outputs_and_machine_are_replaced() -> None:
    text = readme.README.read_text()
    outputs = {begin: f"a first line\n\n{begin} as measured\n\n" for begin in readme.BLOCKS}
    new = readme.updated(text, outputs, "a processor, 2 cores")
    for begin in readme.BLOCKS:
        assert readme.block(new, begin)[0] == f"{begin} as measured\n"
    assert new.count("(on a processor, 2 cores):\n\n```text\n") == len(readme.BLOCKS)
    same = {begin: readme.block(text, begin)[0] for begin in readme.BLOCKS}
    again = readme.updated(new, same, "two cores of an Intel Xeon, model 143")
    assert again == readme.updated(text, same, "two cores of an Intel Xeon, model 143")


def test_a_command_that_prints_something_else_changes_nothing() -> None:
    begin = next(iter(readme.BLOCKS))
    with pytest.raises(ValueError, match="no line of the output begins with"):
        readme.updated(readme.README.read_text(), {begin: "Traceback"}, "a processor")
    with pytest.raises(ValueError, match="0 blocks"):
        readme.block("no block", begin)
