"""The library: every algorithm is proven, has the cost that it states, and gives exact results on the CPU engine.

Each algorithm is tested with all sizes, in and out of place, and with a share of the product of instances and protocols
with these: every pair of values of any two occurs. `make nightly` takes the whole product. Further parameters and roots
vary with the rest.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gc3
from gc3 import Algorithm, _core, collectives
from gc3.algorithms import catalogue
from gc3.datatypes import FORMATS
from gc3.lang.build import DEFAULT_SLOTS
from gc3.runtime.checking import POISON, Case

pytestmark = pytest.mark.python_only

RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
NODES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 2), (8, 2))
INSTANCES = (1, 2, 4)
COUNTS = (1, 1009, 6, 0, 120, 2477)  # fewer elements than chunks, short last chunks, none, several tiles
TYPES = ("int32", "uint8", "float16", "int64", "bfloat16")
SLOT_BYTES = 1024  # small: the larger counts take several tiles
WORKERS = (1, 1, 1, 2)  # one worker is much faster for such small sizes
# Further parameters to try in addition to the defaults.
VARIANTS: dict[str, list[dict[str, int]]] = {
    "allpairs_allreduce": [{"chunks": 3}],
    "binomial_broadcast": [{"chunks": 3}],
    "binomial_reduce": [{"chunks": 3}],
    "binomial_tree_allreduce": [{"chunks": 3}],
    "chain_broadcast": [{"chunks": 4}, {"G": 2, "rails": 2, "chunks": 2}, {"G": 4, "rails": 3}],
    "chain_reduce": [{"chunks": 4}, {"G": 2, "rails": 2, "chunks": 2}, {"G": 4, "rails": 3}],
    "double_binary_tree_allreduce": [{"chunks": 3}, {"G": 2, "chunks": 2}, {"G": 4}],
    "hierarchical_allreduce": [{"parallel": 1}, {"parallel": 2}, {"parallel": 3}],
    "leader_allreduce": [{"leaders": 1}, {"leaders": 3}],
    "ring_allgather": [{"G": 2, "rails": 2}, {"G": 4, "rails": 3}],
    "ring_allreduce": [{"channels": 2}, {"channels": 8}, {"G": 2, "rails": 2, "channels": 2}, {"G": 4, "rails": 3}],
    "ring_reducescatter": [{"G": 2, "rails": 2}, {"G": 4, "rails": 3}],
}
BY_NAME = catalogue()


def sizes(algorithm: Algorithm) -> list[dict[str, int]]:
    """Ranks, or nodes and GPUs, to try."""
    if any(p.name == "R" for p in algorithm.parameters):
        return [{"R": r} for r in RANKS]
    return [{"N": n, "G": g} for n, g in NODES]


def further(algorithm: Algorithm) -> Iterator[dict[str, int]]:
    """Every size with every variant, and every root of small sizes, except the defaults."""
    rooted = any(p.name == "root" for p in algorithm.parameters)
    for size in sizes(algorithm):
        for variant in [{}, *VARIANTS.get(algorithm.name, [])]:
            if size.get("R", 0) % variant.get("G", 1):
                continue  # such nodes do not divide the ranks
            for root in itertools.islice(range(size["R"]), 5) if rooted else (0,):
                if variant or root:
                    yield {**size, **variant, **({"root": root} if rooted else {})}


def traffic(program: gc3.Program) -> tuple[int, int]:
    """Steps, and chunks that the busiest rank sends, found by running the instructions on depths instead of data.

    The depth of a value is the length of the longest chain of messages that it has to wait for: those that led to the
    value, and those that led to earlier uses of its place.
    """
    listing = program.core.as_dict()
    opcodes = {op.name: op for op in _core.opcodes()}
    wires: defaultdict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    written: defaultdict[tuple[int, str, int], int] = defaultdict(int)
    read: defaultdict[tuple[int, str, int], int] = defaultdict(int)
    sent = [0] * len(listing["ranks"])
    done: dict[tuple[int, int], int] = {}
    blocks = [(r, t, tb) for r, rank in enumerate(listing["ranks"]) for t, tb in enumerate(rank["threadblocks"])]
    deepest = 0

    def operand(rank: int, step: dict[str, Any], which: str) -> list[tuple[int, str, int]]:
        place = step[which]
        return [(rank, place["buffer"], place["chunk"] + i) for i in range(step["count"])] if place else []

    moved = True
    while moved:
        moved = False
        for rank, t, tb in blocks:
            for step in tb["steps"][done.get((rank, t), 0) :]:
                op = opcodes[step["opcode"]]
                incoming = wires[tb["recv_peer"], rank, tb["channel"]] if op.receives else None
                waits = any(done.get((rank, other), 0) <= at for other, at in step["deps"])
                if waits or (incoming is not None and not incoming):
                    break
                reads, writes = operand(rank, step, "src"), operand(rank, step, "dst")
                depth = max((written[p] for p in reads + writes), default=0)
                depth = max(depth, *(read[p] for p in writes), incoming.popleft() + 1 if incoming is not None else 0, 0)
                read.update((p, max(read[p], depth)) for p in reads)
                written.update(dict.fromkeys(writes, depth))
                deepest = max(deepest, depth)
                if op.sends:
                    sent[rank] += step["count"]
                    wires[rank, tb["send_peer"], tb["channel"]].append(depth)
                done[rank, t] = done.get((rank, t), 0) + 1
                moved = True
    assert all(done.get((rank, t), 0) == len(tb["steps"]) for rank, t, tb in blocks), "the program does not end"
    return deepest, max(sent)


@dataclass(frozen=True)
class Check:
    """A run's data and required results, made once for many programs of a collective.

    The data of all ranks is in one array, so that one call compares it.

    Attributes:
        count: Elements per block.
        given: All inputs.
        wanted: All outputs.
        matters: The places with a required value.
        blocks: The blocks of each rank's input, and of its output.
    """

    count: int
    given: np.ndarray
    wanted: np.ndarray
    matters: np.ndarray
    blocks: list[tuple[int, int]]

    @staticmethod
    def of(model: _core.Collective, count: int, dtype: str) -> Check:
        """Makes the data, with this many elements per block."""
        case = Case(model, count, dtype)
        blocks = [(model.input_blocks(rank), model.output_blocks(rank)) for rank in range(model.ranks)]
        inputs = case.inputs()
        given, wanted = (np.concatenate([a for a in of if a is not None]) for of in (inputs, case.poisoned_outputs()))
        matters = np.zeros(wanted.size, bool)
        starts = list(itertools.accumulate((count * outputs for _, outputs in blocks), initial=0))
        for rank, start, values in case.expected(inputs):
            place = slice(starts[rank] + start, starts[rank] + start + values.size)
            wanted[place], matters[place] = values, True
        assert matters.all() or model.name in ("alltonext", "alltoprevious")
        return Check(count, given, wanted, matters, blocks)

    def passes(self, program: gc3.Program, workers: int) -> bool:
        """Runs a program and compares every element; the inputs must not change."""
        given, got = self.given.copy(), np.empty_like(self.wanted)
        got.view(np.uint8).fill(POISON)
        buffers = {"inputs": self.parts(given, 0), "outputs": self.parts(got, 1)}
        program.run(**buffers, count=self.count, slot_bytes=SLOT_BYTES, workers=workers)
        right = np.array_equal(got[self.matters], self.wanted[self.matters])
        return right and given.tobytes() == self.given.tobytes()

    def parts(self, whole: np.ndarray, which: int) -> list[np.ndarray | None]:
        """Each rank's part of all inputs (0) or outputs (1)."""
        blocks = [of[which] for of in self.blocks]
        ends = itertools.accumulate(self.count * n for n in blocks)
        return [whole[end - self.count * n : end] if n else None for end, n in zip(ends, blocks, strict=True)]


def check_cost(algorithm: Algorithm, given: dict[str, int], program: gc3.Program) -> None:
    """Network steps, and the data of the busiest rank, agree with the stated cost."""
    assert algorithm.cost is not None
    wanted = algorithm.cost.at(**algorithm.complete(given))
    model = program.collective
    assert wanted.of * model.split == collectives.size_blocks(model) * model.chunks
    steps, sent = traffic(program)
    assert sent == wanted.sent * model.split
    # Instances cut a message of several chunks into parts, of which one may be sent before the other chunks arrive.
    assert steps == wanted.steps if model.split == 1 else bool(steps) <= steps <= wanted.steps


def schedule(program: gc3.Program) -> str:
    """The text of a program without its protocol."""
    text = program.core.to_text()
    line = f"\nprotocol {program.protocol} "
    assert text.count(line) == 1
    return text.replace(line, "\n")


def count_and_type(number: int, more: int) -> tuple[int, str]:
    """Those of a size and mode, which alternate: every count and every type occurs in each mode."""
    turn = number // 2 + 3 * (number % 2) + 7 * more
    return COUNTS[turn % len(COUNTS)], TYPES[turn % len(TYPES)]


SHARES = (True, pytest.param(False, marks=pytest.mark.nightly))


@pytest.mark.parametrize("share", SHARES, ids=["share", "whole"])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_size_mode_number_of_instances_and_protocol(name: str, share: bool) -> None:
    """A share: each number of instances once for a size and mode, each protocol once, and which with which rotates."""
    algorithm = BY_NAME[name]
    workers = itertools.cycle(WORKERS)
    for number, (size, in_place) in enumerate(itertools.product(sizes(algorithm), (False, True))):
        traces = [algorithm.write(protocol=p, in_place=in_place, **size).trace() for p in FORMATS]
        checks: list[Check] = []
        for turn, instances in enumerate(INSTANCES):
            # The same as gc3.compile without tracing, which serves all instances.
            programs = [gc3.Program(_core.compile(trace, instances, DEFAULT_SLOTS)) for trace in traces]
            if not checks:
                model = programs[0].collective
                checks = [Check.of(model, *count_and_type(number, more)) for more in range(1 if share else 3)]
            if not share or turn == number // len(FORMATS) % len(INSTANCES):
                check_cost(algorithm, size, programs[0])
            for i, (program, protocol) in enumerate(zip(programs, FORMATS, strict=True)):
                if share and (turn + i + number) % len(FORMATS):
                    continue
                assert program.verify().ok
                assert (program.protocol, program.in_place) == (protocol, in_place)
                assert (program.core.instances, program.name) == (instances, name)
                assert schedule(program) == schedule(programs[0])  # so the counted values hold for each
                assert checks[(turn + i) % len(checks)].passes(program, next(workers)), (size, program.info())


def crossings(program: gc3.Program, gpus: int) -> list[int]:
    """Chunks that each rank sends to other nodes."""
    sent = [0] * program.ranks
    opcodes = {op.name: op for op in _core.opcodes()}
    for rank, about in enumerate(program.core.as_dict()["ranks"]):
        for tb in about["threadblocks"]:
            far = [step["count"] for step in tb["steps"] if opcodes[step["opcode"]].sends]
            sent[rank] += sum(far) if far and tb["send_peer"] // gpus != rank // gpus else 0
    return sent


@pytest.mark.parametrize("name", ["ring_allreduce", "ring_allgather", "ring_reducescatter"])
def test_rings_of_all_rails_leave_nodes_at_all_ranks(name: str) -> None:
    one = crossings(gc3.compile(BY_NAME[name], R=12, G=4, rails=1), 4)
    four = crossings(gc3.compile(BY_NAME[name], R=12, G=4, rails=4), 4)
    two = crossings(gc3.compile(BY_NAME[name], R=12, G=4, rails=2), 4)
    assert [c > 0 for c in one] == [False, False, False, True] * 3
    assert four == [one[3]] * 12  # a part of a quarter of the size on each
    assert two == [0, one[3], 0, one[3]] * 3


def test_trees_of_chains_communicate_across_nodes_on_all_ranks() -> None:
    far = crossings(gc3.compile(BY_NAME["double_binary_tree_allreduce"], R=16, G=4), 4)
    assert min(far) > 0
    for node in range(4):
        assert len(set(far[4 * node : 4 * node + 4])) == 1


def test_nodes_that_do_not_divide_the_ranks_are_refused() -> None:
    for name in ("ring_allreduce", "chain_reduce", "double_binary_tree_allreduce"):
        with pytest.raises(gc3.UserError, match="G=4 GPUs of each node do not divide R=6 ranks"):
            gc3.compile(BY_NAME[name], R=6, G=4)


@pytest.mark.parametrize("share", SHARES, ids=["share", "whole"])
@pytest.mark.parametrize("name", [name for name, a in BY_NAME.items() if any(further(a))])
def test_further_parameters_and_roots(name: str, share: bool) -> None:
    """In and out of place (a share: in turn), with one instance and with several; other options vary."""
    turns = itertools.cycle(itertools.product(FORMATS, INSTANCES[1:], (True, False)))
    data = itertools.cycle(itertools.product(COUNTS, TYPES))
    for number, (given, in_place) in enumerate(itertools.product(further(BY_NAME[name]), (False, True))):
        protocol, instances, many = next(turns)
        if share and in_place != (number // 2 + number // 10) % 2:
            continue
        trace = BY_NAME[name].write(protocol=protocol, in_place=in_place, **given).trace()
        one, several = (gc3.Program(_core.compile(trace, n, DEFAULT_SLOTS)) for n in (1, instances))
        for program in (one, several):
            assert program.verify().ok
            assert program.in_place == in_place
            check_cost(BY_NAME[name], given, program)
        assert Check.of(one.collective, *next(data)).passes(several if many else one, 2), (given, several.info())
