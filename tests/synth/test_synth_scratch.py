"""Schedules within a limit on scratch memory, checked by code that gc3.synth does not share."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3 import Program, collectives, sim, synth, topologies
from gc3.cli.main import main
from gc3.runtime.checking import Case
from gc3.runtime.scratch import ScratchLimit, needed, parse_limit, share
from gc3.synth import FOUND, IMPOSSIBLE, OPEN, LimitedTask, Network, Result, Solvers, Task
from gc3.tune.guided_search import Search
from own_bounds import Machine, replay
from small_networks import random_network, session

pytestmark = pytest.mark.python_only

# Collectives whose chunks wait on ranks that keep them for others, and some in which they do not.
COLLECTIVES = ("alltoall", "gather", "scatter", "reduce", "reducescatter", "allgather", "allreduce")
LIMITS = (Fraction(0), Fraction(1, 12), Fraction(1, 6), Fraction(1, 3))
PLACE = re.compile(r"sc\[(\d+)\](?: x(\d+))?")


def places_of(program: Program) -> int:
    """The most places of scratch that the instructions of a rank name, as the program's text says."""
    most = 0
    for rank in re.split(r"^rank ", program.text, flags=re.MULTILINE)[1:]:
        ends = [int(place[1]) + 1 for place in PLACE.finditer(rank)]
        ends += [end + int(place[2]) - 1 for place, end in zip(PLACE.finditer(rank), ends, strict=True) if place[2]]
        declared = re.match(r"\d+ scratch (\d+)", rank)
        assert max(ends, default=0) <= (int(declared[1]) if declared else 0)
        most = max(most, *ends, 0)
    return most


def held(made: Result) -> int:
    """The most chunks that a rank without a use for them holds in a step, from the step of arrival to the last send."""
    arrival: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for step, sends in enumerate(made.schedule.steps):
        for chunk, src, dst in sends:
            arrival.setdefault((chunk, dst), step)
            last[chunk, src] = step
    owners = {(c.address, c.owner) for c in made.chunk_list()}
    wanted = {(c.address, rank) for c in made.chunk_list() for rank in c.wanted}
    count: defaultdict[int, Counter[int]] = defaultdict(Counter[int])
    for place, first in arrival.items():
        reduces = made.collective == "reduce"
        if place in last and place not in wanted and (reduces or place not in owners):
            for step in range(first, last[place] + 1):
                count[step][place[1]] += 1
    return max((n for ranks in count.values() for n in ranks.values()), default=0)


def check(made: Result, limit: Fraction) -> Program:
    network = made.network
    relation = tuple((tuple(network.edges[e] for e in members), Fraction(most)) for members, most in network.bounds)
    machine = Machine(network.ranks, relation)
    replay(machine, made.collective, made.chunks, made.root, made.schedule.rounds, made.schedule.steps)
    program = made.program()
    assert program.verify().ok
    model = program.core.collective
    blocks = max(max(model.input_blocks(r), model.output_blocks(r)) for r in range(network.ranks))
    assert Fraction(places_of(program), blocks * model.chunks) <= limit
    case = Case(program.collective, 3 * model.chunks + 1, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=case.count, dtype="int32", op=case.op, seed=1)
    assert case.compare(inputs, outputs).ok
    return program


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(p, marks=pytest.mark.nightly) for p in (2, 3))])
def test_limits_are_kept_on_random_machines(solvers: Solvers, part: int) -> None:
    results = within = 0
    for seed in range(8 * part, 8 * part + 8):
        network = random_network(seed)
        chance = random.Random(seed)  # noqa: S311
        for name in chance.sample(COLLECTIVES, 3):
            limit = chance.choice(LIMITS)
            task = LimitedTask(session(solvers, network), name, chance.randrange(network.ranks) * (name in ROOTED),
                               most_scratch=limit)  # fmt: skip
            chunks = task.unit * chance.choice((1, 3, 6))
            steps = task.least_steps()
            for outcome in (task.pipelined(chunks), task.solve(chunks, steps, 3 * steps + 2 * chunks)):
                results += 1
                assert outcome.status in (FOUND, IMPOSSIBLE, OPEN)
                if outcome.result is not None:
                    within += 1
                    check(outcome.result, limit)
                elif task.least_scratch is not None:
                    assert task.least_scratch > limit
    assert within > results / 3


ROOTED = ("gather", "scatter", "reduce")


def test_a_limit_costs_few_rounds_and_chunks_leave_soon(solvers: Solvers) -> None:
    free = Task(session(solvers, "dgx1"), "alltoall").pipelined(64).result
    assert free is not None
    most = share(free.program().core)
    for limit in (Fraction(1, 8), Fraction(1, 16), Fraction(1, 64)):
        task = LimitedTask(session(solvers, "dgx1"), "alltoall", most_scratch=limit)
        made = task.pipelined(64).result
        assert made is not None
        assert limit < most / 4
        assert held(made) <= limit * 64
        check(made, limit)
        if limit >= Fraction(1, 16):
            assert made.schedule.total_rounds <= 1.2 * free.schedule.total_rounds


def test_compositions_are_rearranged(solvers: Solvers) -> None:
    free = Task(session(solvers, "ndv2:N=2"), "alltoall").hierarchical(16)
    assert free.result is not None
    limited = LimitedTask(session(solvers, "ndv2:N=2"), "alltoall", most_scratch=Fraction(1, 16)).hierarchical(16)
    assert limited.result is not None
    assert "rearranged for 1/16 of S as scratch" in limited.how
    assert held(limited.result) == 1
    assert held(free.result) > 1
    check(limited.result, Fraction(1, 16))


def line(ranks: int) -> Network:
    pairs = [(r, r + d) for r in range(ranks) for d in (1, -1) if 0 <= r + d < ranks]
    return Network.of_relation("line", ranks, [([pair], 1) for pair in pairs])


@pytest.mark.parametrize(("name", "chunks", "room"), [("alltoall", 3, 1), ("reduce", 2, 1)])
def test_the_exact_search_limits_what_the_middle_of_a_line_holds(
    solvers: Solvers, name: str, chunks: int, room: int
) -> None:
    """Two chunks pass the middle; one after the other takes two steps for each."""
    limited = LimitedTask(session(solvers, line(3)), name, most_scratch=Fraction(room, chunks))
    assert Task(session(solvers, line(3)), name).solve(chunks, 2, 6).status == FOUND
    for steps in (2, 3):
        outcome = limited.solve(chunks, steps, 8)
        assert outcome.status == IMPOSSIBLE
        assert outcome.how.startswith("with at most 1 chunk in the scratch of a rank, ")
    found = limited.solve(chunks, 4, 8)
    assert found.result is not None
    assert held(found.result) == 1
    check(found.result, Fraction(room, chunks))


def test_nothing_may_be_held_on_a_line(solvers: Solvers) -> None:
    task = LimitedTask(session(solvers, line(3)), "alltoall", most_scratch=Fraction(1, 7))
    outcome = task.pipelined(6)
    assert (outcome.status, outcome.result, task.least_scratch) == (OPEN, None, Fraction(1, 6))
    assert outcome.how == task.too_much
    assert "needs at most 1/7 of S as scratch: the least that was found needs 1/6 of S" in outcome.how
    assert task.pipelined(9).result is not None  # the chunks are smaller


def test_fewest_rounds_and_frontiers_keep_the_limit(solvers: Solvers) -> None:
    rounds: list[int] = []
    for limit in (Fraction(5, 8), Fraction(1, 2), Fraction(3, 8)):
        made = LimitedTask(session(solvers, "dgx1"), "alltoall", most_scratch=limit).least_rounds(8, 2).result
        assert made is not None
        check(made, limit)
        rounds.append(made.schedule.total_rounds)
    assert rounds == [3, 3, 4]
    task = LimitedTask(session(solvers, line(3)), "alltoall", most_scratch=Fraction(1, 3))
    points = list(task.frontier(2, 5))
    assert [point.steps for point in points][:1] == [4]
    for point in points:
        assert point.outcome.result is not None
        check(point.outcome.result, Fraction(1, 3))


def test_what_a_program_needs(solvers: Solvers) -> None:
    made = Task(session(solvers, line(3)), "alltoall").pipelined(3).result
    assert made is not None
    program = made.program().core
    assert max(program.scratch_per_rank) == 2
    assert share(program) == Fraction(2, 3)
    assert needed(program, 3 * 4096) == 2 * 4096
    assert needed(made.program(instances=2).core, 3 * 4 * 5) == 2 * 2 * 4 * 3  # 5 elements in 2 chunks of 3
    assert share(made.program(instances=2).core) == Fraction(2, 3)
    assert ScratchLimit(8192).allows(program, 3 * 4096)
    assert not ScratchLimit(8191).allows(program, 3 * 4096)
    assert parse_limit("2/3").allows(program, 1 << 20)
    assert not parse_limit("1MiB/2MiB").allows(program, 1)
    assert str(parse_limit("64MiB/256MiB")) == "64MiB/256MiB"
    with pytest.raises(ValueError, match="above 0"):
        parse_limit("1/0")


def test_programs_of_the_library_keep_the_limit() -> None:
    on = sim.platform(topologies.load("dgx1"))
    limit = ScratchLimit(1 << 20)
    size = 8 << 20
    free, _ = Search("alltoall", on, 8, in_place=False, most=12).fastest(size)
    assert not all(limit.allows(spec.compile(8, in_place=False).core, size) for spec, _ in free)
    limited, _ = Search("alltoall", on, 8, in_place=False, most=12, scratch=limit).fastest(size)
    assert all(limit.allows(spec.compile(8, in_place=False).core, size) for spec, _ in limited)


def gc3(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["synth", *words])
    return done.exit_code, done.output


def test_the_command(tmp_path: Path) -> None:
    words = ("alltoall", "-t", "dgx1", "--pipelined", "-C", "64")
    code, text = gc3(*words, "--max-scratch", "16MiB/256MiB", "--run", "-o", str(tmp_path / "a.gc3"))
    assert code == 0
    assert "rearranged for 1/16 of S as scratch" in text
    assert "scratch: 1/16 of S on a rank at most" in text
    assert share(Program.load(tmp_path / "a.gc3").core) <= Fraction(1, 16)
    code, text = gc3("alltoall:instances=2", *words[1:], "--max-scratch", "1/8", "--json")
    assert code == 0
    assert Fraction(json.loads(text)["program"]["scratch_share"]) <= Fraction(1, 8)
    code, text = gc3(*words, "--max-scratch", "1/100")
    assert code == 1
    assert "the least that was found needs 1/64 of S" in text
    assert "next: --max-scratch 1/64, or --pipelined with more --chunks" in text
    code, text = gc3(*words, "--max-scratch", "1/100", "--json")
    assert (code, json.loads(text)["least_scratch_share"]) == (1, "1/64")
    code, text = gc3("alltoall", "-t", "dgx1", "-C", "8", "-S", "2", "-R", "3", "--max-scratch", "1/8")
    assert code == 1
    assert "impossible: with at most 1 chunk in the scratch of a rank, " in text


def test_the_command_for_a_size_and_a_frontier() -> None:
    code, text = gc3("alltoall", "-t", "dgx1", "--for-size", "64MiB", "--max-scratch", "8MiB", "--json")
    assert code == 0
    assert Fraction(json.loads(text)["program"]["scratch_share"]) <= Fraction(1, 8)
    code, text = gc3("gather", "-t", "dgx1", "--pareto", "2", "--max-scratch", "1/8", "--json")
    assert code == 0
    points = json.loads(text)["points"]
    assert points
    assert all(Fraction(point["scratch_share"]) <= Fraction(1, 8) for point in points)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("1MiB", "--max-scratch 1MiB: in calls of which S? For example 1MiB/256MiB"),
        ("much", "'much' is not a size"),
        ("1MiB/0", "the S of a call is above 0"),
        ("1/-2", "'-2' is not a size"),
    ],
)
def test_limits_that_make_no_sense(limit: str, message: str) -> None:
    code, text = gc3("alltoall", "-t", "dgx1", "--pipelined", "--max-scratch", limit)
    assert code == 2
    assert message in text


def test_custom_collectives(solvers: Solvers, tmp_path: Path) -> None:
    """Ranks 0 and 1 send to 3 on a line of 4; both pass rank 2."""
    both = collectives.custom("two", inputs=[2, 2, 0, 0], outputs=[0, 0, 0, 4],
                              expect={(3, i): [(i // 2, i % 2)] for i in range(4)})  # fmt: skip
    task = LimitedTask(session(solvers, line(4)), both, most_scratch=Fraction(1, 4))
    made = task.pipelined(1).result
    assert made is not None
    assert held(made) <= 1
    assert made.program().verify().ok
    assert share(made.program().core) <= Fraction(1, 4)


def test_in_python() -> None:
    network = synth.Network.of(topologies.load("dgx1"))
    with synth.Solvers() as solvers:
        task = synth.task_within(synth.Session(network, solvers), "alltoall", most_scratch=Fraction(1, 4))
        assert isinstance(task, LimitedTask)
        assert type(synth.task_within(synth.Session(network, solvers), "alltoall", most_scratch=None)) is Task
