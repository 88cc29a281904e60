"""One-sided programs between processes."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gc3
import ranks
from gc3.comm import programs
from gc3.comm.selection import parse
from gc3.comm.spec import Spec
from gc3.datatypes import PreMulSum
from gc3.tune.space import one_sided

PART = 9  # of the library, so many parts of which the usual run tests one for each number of ranks


@pytest.mark.parametrize("size", [2, *(pytest.param(n, marks=pytest.mark.python_only) for n in (3, 4))])
def test_library_programs_compute_what_numpy_does(size: int) -> None:
    ranks.run(ranks.program("one_sided"), size, arguments=[PART, size])


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_library_programs_compute_what_numpy_does(size: int) -> None:
    ranks.run(ranks.program("one_sided"), size, arguments=[1, 0])


def test_they_run_among_other_calls(tmp_path: Path) -> None:
    row = {
        "collective": "allreduce",
        "size": [1024, None],
        "program": {"algorithm": "direct_allreduce", "memory": "direct"},
    }
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    for text in ranks.run(ranks.program("one_sided_calls"), 3, arguments=[table]):
        assert "GC3-R010 the ranks make different calls" in text
        assert "allreduce of 5 float32" in text
        assert "allreduce of 6 float32" in text


def test_a_row_keeps_its_memory() -> None:
    program = {"algorithm": "ring_allreduce", "memory": "direct"}
    data = {"format": "gc3-selection-1", "rows": [{"collective": "allreduce", "program": program}]}
    (row,) = parse(json.dumps(data), "mine.json")
    assert row.data()["program"]["memory"] == "direct"
    for wrong in ({"memory": "shared"}, {"protocol": "LL"}):
        data["rows"] = [{"collective": "allreduce", "program": program | wrong}]
        with pytest.raises(gc3.UserError, match="expected 'fifo', or 'direct', which needs the protocol Simple"):
            parse(json.dumps(data), "mine.json")


def test_the_file_of_a_program_has_a_one_sided_form(tmp_path: Path) -> None:
    """As those that gc3 synth best writes beside its table, and gc3 tune --with tries."""
    program = gc3.compile(gc3.algorithms.load("direct_allreduce"), R=2, in_place=False)
    table = tmp_path / "mine.json"
    file = Spec(programs.write(program, table), (), memory="direct")
    row = {"collective": "allreduce", "ranks": [2, 2], "in_place": False, "program": file.data()}
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    assert one_sided([replace(file, memory="fifo", slots=4)]) == [file]

    def body(comm: gc3.Communicator) -> tuple[str, list[float]]:
        result = comm.all_reduce(comm.register(np.arange(3.0)))
        assert comm.register(result) is result
        return str(comm.explain("allreduce", 3, "float64")), result.tolist()

    for said, result in ranks.call(body, 2, table=str(table)):
        assert result == [0, 2, 4]
        assert said.splitlines()[0].endswith(", direct on registered memory")
        assert "\n  on registered memory: direct_allreduce\n" in said


def test_messages_in_its_place_multiply_by_a_factor_once(tmp_path: Path) -> None:
    table = tmp_path / "mine.json"
    row = {"collective": "allreduce", "program": {"algorithm": "direct_allreduce", "memory": "direct"}}
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))

    def body(comm: gc3.Communicator) -> list[float]:
        found: list[float] = []
        for x in (np.full(8, comm.rank + 1.0), comm.register(np.full(8, comm.rank + 1.0))):
            for _ in range(2):
                x[:] = comm.rank + 1
                comm.all_reduce(x, out=x, op=PreMulSum(0.5))
                found.append(x[0])
        return found

    assert ranks.call(body, 2, table=str(table)) == [[1.5] * 4] * 2


def test_mistakes_with_registered_memory() -> None:
    for number in range(3):
        found = ranks.start(ranks.program("registered_mistakes"), 3, arguments=[0.07 * number]).finish()
        assert len({text.split("GC3-R009")[0] for _, text in found}) == 1, found  # what the first to see it has said
        for rank, (status, text) in enumerate(found):
            # It names those that have begun: two of the three, or all.
            assert sum(f"rank {r}: allreduce of {10 + r} float64" in text for r in range(3)) >= 2, text
            if rank == 1:
                assert status == -signal.SIGKILL, text
                continue
            assert status == 0, text
            assert text.splitlines()[-2].startswith("GC3-R009 a rank is gone: rank 1 (process "), text
            assert text.endswith("done\n")
