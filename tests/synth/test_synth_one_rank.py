"""Schedules that one rank stands for: the same as those of all ranks, bounds by ports, and machines of many ranks."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Finished

import gc3 as library
from gc3 import synth, topologies
from gc3.cli import synth_files
from gc3.cli.main import main
from gc3.runtime.classes import ClassProgram
from gc3.sim import platform
from gc3.synth import OneRankResult, Solvers, one_rank_schedules
from gc3.synth.compose.one_rank import COLLECTIVES
from gc3.synth.problem import demand
from gc3.tune import bound


def gc3(line: str) -> Finished:
    return CliRunner().invoke(main, line.split(), catch_exceptions=False)


def _chunks_sent(made: OneRankResult) -> list[set[tuple[int, int, int]]]:
    """What the schedule of all ranks has in each step: the chunk, the sender and the receiver."""
    ranks, count = made.machine.topology.rank_count, made.blocks
    steps: list[set[tuple[int, int, int]]] = []
    for sends in made.sends():
        block = {(origin if target < 0 else origin * ranks + target, src, dst) for origin, target, src, dst in sends}
        steps.append({(number * count + k, src, dst) for number, src, dst in block for k in range(count)})
    return steps


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(
    ("machine", "unit"), [("dgx_h100:N=3", None), ("ndv4:N=2", 25e9), ("hierarchical:N=5,G=1", None)]
)
def test_it_is_the_schedule_of_all_ranks(solvers: Solvers, name: str, machine: str, unit: float | None) -> None:
    topology = topologies.load(machine)
    task = synth.Task(synth.Session(synth.Network.of(topology, unit), solvers), name)
    whole = task.hierarchical(2 * task.unit).result
    made = next(one_rank_schedules(topology, name, 2, unit=unit))
    assert whole is not None
    assert made.cost == whole.cost
    assert made.rounds == whole.schedule.rounds
    assert _chunks_sent(made) == [set(step) for step in whole.schedule.steps]
    program = made.program()
    assert isinstance(program, ClassProgram)
    assert program.verify().transfers == library.Program(program.core).verify().transfers


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("machine", ["dgx1:N=3", "hierarchical:N=7,G=2", "lassen:N=2"])
def test_programs_of_few_peers_are_proven_and_run(name: str, machine: str) -> None:
    found = list(one_rank_schedules(topologies.load(machine), name))
    assert [len(made.steps) for made in found] == sorted(len(made.steps) for made in found)
    for made in found:
        for in_place in (False, True)[: 1 if name == "alltoall" else 2]:
            assert synth_files.run(made, made.program(in_place=in_place), 1 << 12) > 0
    few = found[-1].peers
    assert all(made.peers <= few for made in one_rank_schedules(topologies.load(machine), name, peers=few))


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("dgx1", "there is one node"),
        ("hierarchical:N=4,G=2,rack=2", "node 1 shares NICs or links"),
        ("ndv2:N=2,without=0-1", "node 1 differs from node 0"),
        ("ndv2:N=2,without=0", "nodes have different numbers of ranks"),
        ("torus:X=4,Y=2", "there is one node"),
    ],
)
def test_nodes_that_are_not_alike_are_refused(machine: str, said: str) -> None:
    with pytest.raises(library.UserError, match=f"GC3-L017 bad argument: .*{said}"):
        next(one_rank_schedules(topologies.load(machine), "allgather"))


def test_nodes_that_are_linked_by_their_ranks_are_refused() -> None:
    ring = topologies.load("ring:R=4")
    nodes = replace(ring, ranks=tuple(replace(rank, node=number // 2) for number, rank in enumerate(ring.ranks)))
    with pytest.raises(library.UserError, match="of different nodes are linked"):
        next(one_rank_schedules(nodes, "allgather"))


@pytest.mark.parametrize(
    "machine",
    [
        "torus:X=4,Y=3",
        *(
            pytest.param(machine, marks=pytest.mark.python_only)
            for machine in ("dgx_h100:N=2", "ndv4:N=2", "ndv2:N=3", "mi300x:N=2")
        ),
    ],
)
def test_the_bound_of_ports_is_never_above_that_of_the_network(
    solvers: Solvers, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = platform(machine)
    until = time.monotonic() + 100
    known = {name: bound.link_bound(on, name, 1, solvers, until) for name in demand.NAMES}
    monkeypatch.setattr(bound, "MOST_PAIRS", 0)
    for name, whole in known.items():
        by_ports = bound.link_bound(on, name, 1, solvers, until)
        assert by_ports.seconds_per_byte <= whole.seconds_per_byte * (1 + 1e-9)
        if name in ("allgather", "reducescatter", "allreduce", "broadcast", "reduce", "gather", "scatter"):
            assert by_ports.seconds_per_byte == pytest.approx(whole.seconds_per_byte)


@pytest.mark.parametrize("name", ["allreduce", "alltoall"])
@pytest.mark.python_only
def test_4096_ranks_are_synthesized_and_proven(name: str, tmp_path: Path) -> None:
    file = tmp_path / "made.gc3"
    found = json.loads(gc3(f"synth {name} -t dgx_h100:N=512 --hierarchical --json -o {file}").output)
    assert found["program"]["ranks"] == 4096
    assert found["program"]["classes"] == 1
    assert found["least_rounds"] <= found["rounds"]
    assert library.Program.load(file).verify().ok


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("allgather --pipelined", 1, "find schedules that one rank stands for"),
        ("broadcast --hierarchical", 1, "the ranks of broadcast do not do the same"),
        ("allgather --hierarchical --pipelined", 2, "leave out --pipelined"),
        ("allgather --hierarchical --run", 2, "leave out --run"),
        ("allgather:max_threadblocks=2 --hierarchical", 1, "GC3-C001"),
    ],
)
def test_what_many_ranks_lack_is_one_message(options: str, code: int, said: str) -> None:
    result = gc3(f"synth {options} -t dgx_h100:N=256")
    assert result.exit_code == code
    assert said in result.output


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of 4 ranks and more count as so large that one rank stands for all."""
    for place in ("gc3.synth.MOST_PAIRS", "gc3.tune.bound.MOST_PAIRS"):
        monkeypatch.setattr(place, 0)
    for place in ("gc3.tune.guided_search", "gc3.tune.space", "gc3.algorithms._one_rank"):
        monkeypatch.setattr(f"{place}.LOOPED", 3)


@pytest.mark.usefixtures("few_are_many")
def test_the_fastest_of_many_ranks(tmp_path: Path) -> None:
    """Both the library's programs and schedules are those that one rank stands for."""
    file = tmp_path / "best.json"
    result = gc3(f"synth best allgather -t dgx_h100:N=4 -b 64KiB -e 64KiB -o {file}")
    assert result.exit_code == 0, result.output
    assert "synthesized (C=1, S=2, R=4)" in result.output
    assert "the bound of allgather: what must reach rank 0" in result.output
    programs = [library.Program.load(path) for path in tmp_path.glob("*/*.gc3")]
    assert [type(program) for program in programs] == [ClassProgram, ClassProgram]  # for both modes


@pytest.mark.usefixtures("few_are_many")
def test_the_library_alone_where_ranks_differ(tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    result = gc3(f"synth best broadcast -t dgx_h100:N=2 -b 8MiB -e 8MiB -o {file}")
    assert result.exit_code == 0, result.output
    assert "programs of the library alone" in result.output
    assert "with the library's" in result.output
