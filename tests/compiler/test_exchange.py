"""Programs in the exchange format: the library's in both dialects, and files that production runtimes ship."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gc3
from gc3 import _core
from gc3.algorithms import load
from gc3.runtime.checking import Case
from gc3.runtime.program import Program

SHIPPED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "msccl-xml"
FILES = sorted(SHIPPED.rglob("*.xml"))
TARGETS = {"msccl": ("msccl",), "rccl": ("azure", "rccl")}

LIBRARY: list[tuple[str, dict[str, int]]] = [
    ("ring_allreduce", {"R": 4}),
    ("allpairs_allreduce", {"R": 3}),
    ("hierarchical_allreduce", {"N": 2, "G": 3}),
    ("two_step_alltoall", {"N": 2, "G": 3}),
]


def check_runs(program: Program, dtypes: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """Runs `program` and compares every element with the reference."""
    for dtype in dtypes:
        for count in counts:
            case = Case(program.collective, count, dtype)
            inputs = case.inputs()
            outputs = program.run(inputs, outputs=case.poisoned_outputs(), count=count, dtype=dtype)
            compared = case.compare(inputs, outputs)
            assert compared.ok, (dtype, count)
            assert compared.elements > 0


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize(("name", "parameters"), LIBRARY)
def test_library_through_xml(name: str, parameters: dict[str, int], protocol: str) -> None:
    """Reading a written file gives the same program, in both dialects."""
    program = gc3.compile(load(name), protocol=protocol, instances=2, **parameters)  # pyright: ignore[reportArgumentType]
    for dialect in TARGETS:
        assert _core.Program.from_xml(program.core.to_xml(dialect)) == program.core


def test_alltonext_needs_to_be_told() -> None:
    """The format has no name for it: 'custom' in one dialect, none in the other."""
    program = gc3.compile(load("alltonext"), N=2, G=2).core
    xml = program.to_xml("msccl")
    with pytest.raises(gc3.UserError, match="GC3-I008"):
        _core.Program.from_xml(xml)
    assert _core.Program.from_xml(xml, collective=program.collective) == program
    with pytest.raises(gc3.UserError, match="GC3-I009"):
        program.to_xml("rccl")


@pytest.mark.skipif(not FILES, reason="the shipped files are not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_files(path: Path) -> None:
    """They are proven, give right results, survive a round trip, and fit the runtimes they were made for."""
    file = _core.read_xml(path.read_bytes(), path.name)
    program = Program(file.program)
    assert file.max_bytes > 0
    assert program.verify().ok
    for dialect, targets in TARGETS.items():
        for target in targets:
            xml = program.core.to_xml(dialect, target, file.min_bytes, file.max_bytes)
            again = _core.read_xml(xml)
            assert again.program == program.core
            assert (again.in_place, again.max_bytes) == (file.in_place, file.max_bytes)
    check_runs(program, ("float32", "int32", "float16"), (1, 257, 4096))


@pytest.mark.skipif(not FILES, reason="the shipped files are not here")
def test_a_wrong_file_is_refused_with_the_reason() -> None:
    """The verifier finds a copy to the wrong place, the reader a wait for a missing step."""
    xml = next(f for f in FILES if f.stem.startswith("alltoall")).read_text()
    moved = _core.Program.from_xml(xml.replace('dstbuf="o" dstoff="0"', 'dstbuf="o" dstoff="1"', 1))
    assert not _core.verify(moved).ok
    hung = xml.replace('depid="-1" deps="-1"', 'depid="1" deps="0"', 1)
    with pytest.raises(gc3.UserError, match="neither it nor a later step has hasdep=1"):
        _core.Program.from_xml(hung)


def test_large_file_round_trip() -> None:
    """A program of 20,000 steps keeps all of them."""
    program = gc3.compile(load("two_step_alltoall"), N=8, G=8).core
    again = _core.Program.from_xml(program.to_xml("rccl"))
    assert again == program
    assert int(np.sum(again.instructions_per_rank)) == program.instruction_count
