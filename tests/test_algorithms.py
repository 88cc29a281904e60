"""The library: every algorithm is proven, sends what its record says, and gives exact results on the CPU engine."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import pytest

import gc3
from gc3 import Algorithm, _core, collectives
from gc3.algorithms import catalogue
from gc3.checking import Case

RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
NODES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 2), (8, 2))
PROTOCOLS = ("Simple", "LL", "LL128")
INSTANCES = (2, 4)
COUNTS = (1, 1009, 6, 0, 120, 2477)  # fewer elements than chunks, short last chunks, none, several tiles
# Further parameters to try besides the defaults.
VARIANTS: dict[str, list[dict[str, int]]] = {
    "allpairs_allreduce": [{"chunks": 3}],
    "binomial_broadcast": [{"chunks": 3}],
    "binomial_reduce": [{"chunks": 3}],
    "binomial_tree_allreduce": [{"chunks": 3}],
    "chain_broadcast": [{"chunks": 4}],
    "chain_reduce": [{"chunks": 4}],
    "double_binary_tree_allreduce": [{"chunks": 3}],
    "hierarchical_allreduce": [{"parallel": 1}, {"parallel": 2}, {"parallel": 3}],
    "ring_allreduce": [{"channels": 2}, {"channels": 8}],
}
BY_NAME = catalogue()


def parameters(algorithm: Algorithm) -> Iterator[dict[str, int]]:
    """Every size with every variant, and every root of small sizes."""
    names = [p.name for p in algorithm.parameters]
    sizes = [{"R": r} for r in RANKS] if "R" in names else [{"N": n, "G": g} for n, g in NODES]
    for size in sizes:
        for variant in [{}, *VARIANTS.get(algorithm.name, [])]:
            roots = range(size["R"]) if "root" in names else (None,)
            for root in itertools.islice(roots, 5):
                yield {**size, **variant, **({} if root is None else {"root": root})}


def traffic(program: gc3.Program) -> tuple[int, int]:
    """Steps, and chunks the busiest rank sends, found by running the instructions on depths instead of data.

    The depth of what is written to a place is the number of messages, one sent after the other arrived, that it has to
    wait for: those that led to its value, and those that led to earlier uses of the place.
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


def compiled(algorithm: Algorithm, given: dict[str, int], **options: Any) -> gc3.Program:
    """A proven program, whose traffic is what the record says."""
    program = gc3.compile(algorithm, **options, **given)
    assert program.verify().ok
    assert algorithm.cost is not None
    wanted = algorithm.cost.at(**algorithm.complete(given))
    model = program.collective
    assert wanted.of * model.split == collectives.size_blocks(model) * model.chunks
    steps, sent = traffic(program)
    assert sent == wanted.sent * model.split
    # Instances cut a message of several chunks into parts, of which one may go before the other chunks have come.
    assert steps == wanted.steps if options["instances"] == 1 else bool(steps) <= steps <= wanted.steps
    return program


@pytest.mark.parametrize("name", BY_NAME)
def test_every_size_is_proven_sends_what_the_record_says_and_is_exact(name: str) -> None:
    """Every size in and out of place, proven with one instance and with several; what else there is takes turns."""
    turns = itertools.cycle(itertools.product(PROTOCOLS, INSTANCES, (True, False)))
    counts = itertools.cycle(COUNTS)
    types = itertools.cycle(("int32", "uint8", "float16", "int64"))
    for given in parameters(BY_NAME[name]):
        for in_place in (False, True):
            protocol, instances, many = next(turns)
            plain = compiled(BY_NAME[name], given, instances=1, protocol=protocol, in_place=in_place)
            split = compiled(BY_NAME[name], given, instances=instances, protocol=protocol, in_place=in_place)
            assert plain.in_place == split.in_place == in_place
            program = split if many else plain
            case = Case(program.collective, next(counts), next(types))
            inputs = case.inputs()
            # A small FIFO slot makes several tiles of the larger counts.
            outputs = program.run(inputs, outputs=case.poisoned_outputs(), count=case.count, slot_bytes=1024)
            assert case.compare(inputs, outputs).ok, (given, program.info(), case)
