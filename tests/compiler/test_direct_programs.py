"""One-sided programs as Python sees them."""

from __future__ import annotations

import pytest

import gc3
from gc3 import _core

GET = """direct "get" version 1
collective allgather ranks 2 chunks 1
halves 1
channel 0 from 0 to 1
channel 1 from 1 to 0

rank 0
  tb 0
    0 signal 0 relaxed
    1 wait 1 relaxed
    2 sync
    3 move in[0] -> out[0]
    4 move 1:in[0] -> out[1]
    5 sync
    6 signal 0
    7 wait 1

rank 1
  tb 0
    0 signal 1 relaxed
    1 wait 0 relaxed
    2 sync
    3 move in[0] -> out[1]
    4 move 0:in[0] -> out[0]
    5 sync
    6 signal 1
    7 wait 0
"""


def test_the_text_form_and_the_proof() -> None:
    program = _core.DirectProgram.from_text(GET)
    assert program.to_text() == GET
    assert program == _core.DirectProgram.from_text("# a remark\n" + GET)
    assert program != _core.DirectProgram.from_text(GET.replace('"get"', '"other"'))
    assert (program.name, program.collective.name, program.rank_count) == ("get", "allgather", 2)
    assert (program.threadblock_count, program.step_count, program.operand_count) == (2, 16, 8)
    assert program.threadblocks_per_rank == [1, 1]
    assert _core.verify(program).ok
    racy = _core.verify(_core.DirectProgram.from_text(GET.replace("0 signal 1 relaxed", "0 sync")), max_diagnostics=1)
    assert len(racy.diagnostics) == 1


def test_a_wrong_line_is_named() -> None:
    with pytest.raises(gc3.UserError, match="expected an operation, found 'send'") as caught:
        _core.DirectProgram.from_text(GET.replace("2 sync", "2 send"), "get.txt")
    assert "get.txt:11" in str(caught.value)
