"""A program from a file is proven before its first run, in every way to run it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import gc3
import ranks
from gc3.comm.tool_ranks import Ranks
from gc3.runtime.program import Program

# Rank 0 gets nothing from rank 1. No engine can detect that.
WRONG = """program "wrong" version 1
collective allreduce ranks 2 chunks 1 in place
protocol Simple instances 1 slots 1

rank 0
  tb 0 channel 0 send 1
    0 send out[0]

rank 1
  tb 0 channel 0 recv 0
    0 recv -> out[0]
"""
DATA = [np.array([1.0]), np.array([2.0])]


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The file of a program that claims to be an AllReduce."""
    file = tmp_path / "wrong.txt"
    file.write_text(WRONG)
    return file


def test_programs_of_files_are_proven_before_they_run(wrong: Path) -> None:
    uses = {
        "run": lambda p: p.run(DATA),
        "time": lambda p: p.time(DATA, warmup=0, iterations=1),
        "record": lambda p: p.record(DATA, most=1),
        "a copy": lambda p: copy.copy(p).run(DATA),
        "processes": Ranks,
        "CUDA": gc3.cuda.Engine,
    }
    for name, use in uses.items():
        with pytest.raises(gc3.UserError) as caught:
            use(Program.load(wrong))
        assert caught.value.code == "GC3-V008", name


def test_a_proof_holds_for_as_many_slots_and_more(tmp_path: Path) -> None:
    """Two ranks that send twice before they receive need two slots, even if the file says otherwise."""
    steps = "    0 send in[0]\n    1 send in[1]\n    2 rrc in[0] -> out[0]\n    3 rrc in[1] -> out[1]\n"
    text = 'program "two" version 1\ncollective allreduce ranks 2 chunks 2\nprotocol Simple instances 1 slots 1\n'
    for rank, peer in ((0, 1), (1, 0)):
        text += f"\nrank {rank}\n  tb 0 channel 0 send {peer} recv {peer}\n{steps}"
    file = tmp_path / "two.txt"
    file.write_text(text)
    program = Program.load(file)
    assert gc3.verify(program, slots=2).ok
    with pytest.raises(gc3.UserError) as caught:
        program.run(DATA)
    assert caught.value.code == "GC3-V005"
    assert [float(out[0]) for out in program.run(DATA, slots=2) if out is not None] == [3, 3]


def test_a_file_without_a_proof_runs_only_if_it_is_trusted(wrong: Path) -> None:
    program = Program.load(wrong)
    program.trust()
    assert [out[0] for out in program.run(DATA) if out is not None] == [1, 1]


def test_communicators_prove_programs_of_files(wrong: Path) -> None:
    ranks.run(ranks.program("refuse_wrong_program"), 2, arguments=[wrong])
