"""Composition on machines whose nodes are in racks, and racks in pods: random ones, and `hierarchical`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from fractions import Fraction

import pytest
from click.testing import CliRunner

from gc3 import errors, synth, topologies
from gc3.cli.main import main
from gc3.support.alarm import alarm
from gc3.synth import Network, Session, Solvers, Task, compose, task
from gc3.synth.compose.rails import Machine as Levels
from own_bounds import ROOTED, Machine, least_ratio, replay
from small_networks import AMPLE, session

pytestmark = pytest.mark.python_only

MACHINES = 10
BY_DEFAULT = (4, 7)  # the others by `make nightly`
WALL = 250.0  # seconds for one machine, far more than it needs
CLOSE = 1e-6
COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter")
BOUNDED = 8  # up to this many ranks, bounds are compared with a linear program
LITTLE = 0.3  # seconds for one part; what is not solved by then gets trees that are grown for each chunk
PROGRAMS = 4  # every so many machines, the program is proven, too

Pair = tuple[int, int]


def machine_of(seed: int) -> tuple[Machine, list[tuple[str, tuple[int, ...]]]]:
    """Ranks in nodes, nodes in racks, and every other time racks in pods; their sizes and rates differ.

    Every node has a link for what leaves it and one for what enters it, and so have racks and pods.
    """
    chance = random.Random(seed)  # noqa: S311
    groups: list[list[int]] = [[], [], []]  # of each rank: node, rack, pod
    for pod in range(1 + seed % 2):
        for _ in range(chance.choice((1, 2, 2)) if seed % 2 else chance.choice((2, 3))):
            rack = max(groups[1], default=-1) + 1
            for _ in range(chance.choice((1, 2, 2))):
                node = max(groups[0], default=-1) + 1
                for _ in range(chance.choice((1, 2, 2) if seed % 2 else (1, 2, 3))):
                    for level, group in enumerate((node, rack, pod)):
                        groups[level].append(group)
    everyone = range(len(groups[0]))
    fast, slow = (Fraction(2), Fraction(3), Fraction(12)), (Fraction(1), Fraction(3, 2), Fraction(2))
    pairs = [(a, b) for a in everyone for b in everyone if a != b]
    near = [p for p in pairs if groups[0][p[0]] == groups[0][p[1]]]
    relation: list[tuple[tuple[Pair, ...], Fraction]] = [((pair,), chance.choice(fast)) for pair in near]
    for member in groups:
        for group in sorted(set(member)):
            for end in (0, 1):
                crossing = tuple(p for p in pairs if member[p[0]] != member[p[1]] and member[p[end]] == group)
                if crossing:
                    relation.append((crossing, chance.choice(slow)))
    names = ("node", "rack", "pod")
    return Machine(len(groups[0]), tuple(relation)), [(n, tuple(g)) for n, g in zip(names, groups, strict=True)]


@pytest.fixture
def solvers() -> Iterator[Solvers]:
    """Solvers of one test: a solver that is cut short may be started again."""
    with Solvers() as own:
        yield own


@pytest.mark.parametrize(
    "seed", [s if s in BY_DEFAULT else pytest.param(s, marks=pytest.mark.nightly) for s in range(MACHINES)]
)
def test_random_levels(solvers: Solvers, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules are replayed by code that shares nothing with gc3.synth, and bounds are compared with its program."""
    monkeypatch.setattr(compose, "_SECONDS", LITTLE)
    monkeypatch.setattr(compose, "_QUICK", LITTLE)
    machine, ((_, nodes), *above) = machine_of(seed)
    network = Network.of_relation(f"random {seed}", machine.ranks, machine.relation, nodes, above)
    if not network.levels:
        pytest.skip("everything is in one node")
    chance = random.Random(seed)  # noqa: S311
    with alarm(time.monotonic() + WALL, synth.TimeUp):
        for name in COLLECTIVES:
            root = chance.randrange(machine.ranks) if name in ROOTED else 0
            wanted = Task(Session(network, solvers), name, root)
            bound = wanted.any_steps().rounds
            if name != "allreduce" and machine.ranks <= BOUNDED:
                assert float(bound) <= least_ratio(machine, name, root) * (1 + CLOSE)
            chunks = wanted.unit * (1 + seed % 3)
            rounds: list[int] = []
            for solve, overlapped in ((compose.solved, False), (compose.grown, False), (compose.grown, True)):
                monkeypatch.setattr(task, "solved", solve)
                result = wanted.hierarchical(chunks, overlapped=overlapped).result
                assert result is not None
                replay(machine, name, chunks, root, result.schedule.rounds, result.schedule.steps)
                rounds.append(result.schedule.total_rounds)
                assert Fraction(rounds[-1], chunks) >= bound
                if seed % PROGRAMS == 0:
                    assert result.program().verify().ok
            assert rounds[2] <= rounds[1]  # the same grown trees, overlapped


def test_random_machines_have_three_levels_and_four() -> None:
    depths = set[int]()
    for seed in range(MACHINES):
        machine, ((_, nodes), *above) = machine_of(seed)
        depths.add(len(Network.of_relation("random", machine.ranks, machine.relation, nodes, above).levels))
    assert depths >= {2, 3}


@pytest.mark.parametrize(
    ("name", "chunks", "above"),
    [("allgather", 32, 0.03), ("allreduce", 256, 0.12), ("alltoall", 32, 0.0), ("broadcast", 128, 0.08)],
)
def test_three_levels_near_the_bound(
    solvers: Solvers, name: str, chunks: int, above: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Racks of two nodes whose uplinks carry half of their NICs: no part carries more than it must.

    All parts have a schedule of the fewest steps, which is one, so no formula is needed.
    """
    monkeypatch.setattr(compose, "_QUICK", AMPLE)
    machine = topologies.load("hierarchical:N=4,G=4,nics=2,rack=2,taper=2")
    wanted = Task(session(solvers, Network.of(machine)), name)
    outcome = wanted.hierarchical(chunks, overlapped=True)
    assert outcome.result is not None
    assert "between racks" in outcome.how
    assert outcome.result.schedule.total_rounds <= (1 + above) * wanted.any_steps().rounds * chunks


def test_phases_of_grown_trees_overlap_when_there_is_no_time_to_solve(
    solvers: Solvers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: object) -> None:
        raise synth.TimeUp

    monkeypatch.setattr(task, "quick", too_late)
    network = Network.of(topologies.load("hierarchical:N=4,G=4,nics=2,rack=2,taper=2"))
    result = Task(session(solvers, network), "broadcast").hierarchical(64, overlapped=True).result
    assert result is not None
    assert result.schedule.total_rounds <= 1.25 * 32  # the bound for the uplink of a rack


def test_parts_of_different_steps_take_the_rounds_of_the_longer_one(solvers: Solvers) -> None:
    """One node has lost two ranks, so that parts that run at the same time have different numbers of steps."""
    network = Network.of(topologies.load("ndv4:N=2,without=3+5"), 25e9)
    outcome = Task(session(solvers, network), "allgather").hierarchical(16)
    assert outcome.result is not None
    # 128 chunks over the six NICs of the smaller node take 22 rounds; what stays in a node moves meanwhile.
    assert "between nodes S=2 R=22" in outcome.how


def test_each_chunk_enters_each_rack_and_node_once(solvers: Solvers) -> None:
    network = Network.of(topologies.load("hierarchical:N=6,G=2,rack=2"))
    result = Task(session(solvers, network), "allgather").hierarchical(2).result
    assert result is not None
    for _, groups in network.levels:
        entered = [(c, groups[b]) for step in result.schedule.steps for c, a, b in step if groups[a] != groups[b]]
        assert len(entered) == len(set(entered)) == 2 * 12 * (len(set(groups)) - 1)


def test_a_rack_with_one_gateway(solvers: Solvers) -> None:
    """Only the first node of each rack reaches the other rack, and of its ranks only the first."""
    nodes, racks = (0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 0, 1, 1, 1, 1)
    pairs = [(a, b) for a in range(8) for b in range(8) if a != b and nodes[a] == nodes[b]]
    pairs += [(a, b) for a in range(8) for b in range(8) if abs(a - b) == 2 and racks[a] == racks[b]]
    machine = Machine(8, tuple(((pair,), Fraction(2)) for pair in [*pairs, (0, 4), (4, 0)]))
    network = Network.of_relation("gateways", 8, machine.relation, nodes, [("rack", racks)])
    for name in COLLECTIVES:
        wanted = Task(session(solvers, network), name)
        result = wanted.hierarchical(wanted.unit, overlapped=True).result
        assert result is not None
        replay(machine, name, wanted.unit, 0, result.schedule.rounds, result.schedule.steps)


def test_what_has_no_rails_between_racks() -> None:
    """Rank 1 of the first rack is linked to rank 2 of the second, which has another place in its node."""
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (1, 2), (2, 1)]
    relation = [([pair], 1) for pair in pairs]
    network = Network.of_relation("lopsided", 4, relation, (0, 0, 1, 1))
    with pytest.raises(errors.UserError, match="in the other nodes: no rails"):
        Levels(network)
    with pytest.raises(errors.UserError, match="a node in several racks: levels must be nested"):
        Network.of_relation("split", 4, relation, (0, 0, 1, 1), [("rack", (0, 1, 1, 0))])


def test_levels_that_add_nothing_are_left_out() -> None:
    relation = [([(a, b)], 1) for a in range(4) for b in range(4) if a != b]
    above = [("rack", (0, 0, 1, 1)), ("row", (1, 1, 0, 0)), ("hall", (0, 0, 0, 0))]
    network = Network.of_relation("four", 4, relation, (0, 1, 2, 3), above)
    assert [name for name, _ in network.levels] == ["node", "rack"]
    assert network.reversed.levels == network.levels
    assert not Network.of_relation("one", 4, relation, (0, 0, 0, 0), above[2:]).levels


def test_racks_at_the_command_line() -> None:
    line = "synth broadcast -t hierarchical:N=4,G=2,rack=2,taper=2 --hierarchical --pipelined -C 8 --run"
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0, result.output
    assert "between racks" in result.output
    assert "all equal to NumPy's" in result.output
    assert "2 racks of 2 nodes" in CliRunner().invoke(main, ["topo", "show", "hierarchical:N=4,G=2,rack=2"]).output
