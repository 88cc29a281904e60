"""Schedules for many nodes that are alike, from the view of one rank: what it sends stands for what all ranks send.

Ranks are the elements of a group: a node from 0 to N - 1, and one or more coordinates of the rank in its node, each of
which is added modulo its number of values. A move is of the block of the rank that is the origin, (0, 0, ...), and goes
from one distance from it to another; all ranks do it at once, each with its own block. So a schedule is as large as the
moves of one block, and its program is written with `gc3.me`.

A block crosses to the rank of the same place in each other node over a tree, and then goes to the others of the nodes
over another tree. To its own node it goes meanwhile, if that shares no bound with what crosses. The tree between nodes
has one step if a rank has threadblocks for so many peers. Else distances are numbers of several digits to the base B, a
step for each digit: ranks that have the block send it to those j B^k farther, for j from 1 to B - 1, the largest k
first.

A reduction is the inverse. An AllToAll sends each part of a block along the path of its target in these trees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise, product, zip_longest
from typing import Any

from gc3 import errors
from gc3._core import chunk, me
from gc3.lang import Algorithm, compile
from gc3.runtime.program import Program
from gc3.synth.compose.alike import Distance, Machine, Tree, between, moved, number_of
from gc3.synth.problem.demand import least_chunks
from gc3.topologies.model import Topology

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall")  # of which all ranks do the same


@dataclass(frozen=True, slots=True)
class Move:
    """A block of every rank, or the part of it for one rank, goes from a distance to another."""

    target: Distance | None  # the distance of the rank that the part is for; None: the whole block
    src: Distance  # the distance of the sender from the origin
    dst: Distance  # that of the receiver
    adds: bool = False  # whether it is added to what the receiver has


@dataclass(frozen=True)
class OneRankResult:
    """A schedule that is the same from every rank's view."""

    machine: Machine  # the nodes
    collective: str  # its name
    blocks: int  # chunks of a block: of what a rank gives, or in an AllToAll of what it gives one other
    steps: tuple[tuple[Move, ...], ...]  # the moves of each step
    rounds: tuple[int, ...]  # the rounds of each step
    how: str  # what it is made of

    @property
    def shape(self) -> tuple[int, ...]:
        """The nodes, and the coordinates of a rank in its node."""
        return self.machine.nodes, *self.machine.shape

    @property
    def cost(self) -> tuple[int, int, int]:
        """(C, S, R)."""
        unit = least_chunks(self.collective, self.machine.topology.rank_count)
        return self.blocks * unit, len(self.steps), sum(self.rounds)

    @property
    def name(self) -> str:
        """A name for the program."""
        c, s, r = self.cost
        return f"{self.collective}-{self.machine.topology.name}-{c}-{s}-{r}"

    @cached_property
    def peers(self) -> int:
        """The ranks to which a rank sends, or from which it receives."""
        return len({between(move.src, move.dst, self.shape) for step in self.steps for move in step})

    @property
    def _stops(self) -> int:
        """On how many ranks one after the other a part of an AllToAll stays; each keeps it apart from the others."""
        hops = Counter(move.target for step in self.steps for move in step if move.target is not None)
        ends = {
            target for target in hops if self.machine.size == 1 or any(target[1:])
        }  # their last hop is to an output
        return max((times - (target in ends) for target, times in hops.items()), default=0)

    def sends(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """Yields for each step what all ranks send: the origin, the target or -1, the sender and the receiver."""
        shape = self.shape
        origins = list(product(*map(range, shape)))

        def number(origin: Distance, distance: Distance | None) -> int:
            return -1 if distance is None else number_of(moved(origin, distance, shape), shape)

        for step in self.steps:
            yield [
                (number_of(o, shape), number(o, move.target), number(o, move.src), number(o, move.dst))
                for o in origins
                for move in step
            ]

    def program(self, **options: Any) -> Program:
        """Compiles it; takes the options of `gc3.compile`."""
        return compile(self.algorithm(), memory="fifo", **options)

    def algorithm(self) -> Algorithm:
        """Returns the algorithm in the language, from one rank's view."""
        every = self.collective == "alltoall"
        return Algorithm(
            name=self.name,
            function=_Writer(self).write,
            collective=self.collective,
            parameters=(),
            in_place=not every,
            ranks=self.machine.topology.rank_count,
            chunks=self.cost[0] if self.collective == "allreduce" else self.blocks,
            root=0,
            gpus_per_node=0,
            scratch=tuple(f"held{k}" for k in range(self._stops)) if every else (),
            section="",
            summary=f"A synthesized schedule of {len(self.steps)} steps, from one rank's view.",
            good_for="",
            cost=None,
            in_switch=False,
            file="",
            line=0,
        )


class _Writer:
    """Writes the program. Channel 0 is for what crosses nodes, as a rank's first rail, and 1 for the rest."""

    def __init__(self, made: OneRankResult) -> None:
        self._made = made
        self._shape = made.shape

    def write(self) -> None:
        self._own = me(*self._shape)
        if self._made.collective == "alltoall":
            self._write_parts()
            return
        buffer = "out" if self._made.collective == "allgather" else "in"
        count = self._made.blocks
        for move in (move for step in self._made.steps for move in step):
            to, index = self._hop(move), self._index(move.src, count, minus=True)
            mine, channel = chunk(self._at(()), buffer, index, count), int(to[0] == 0)
            if move.adds:
                chunk(self._at(to), buffer, index, count).reduce(mine, ch=channel)
            else:
                mine.copy(self._at(to), ch=channel)

    def _hop(self, move: Move) -> Distance:
        return between(move.src, move.dst, self._shape)

    def _at(self, distance: Distance, *, minus: bool = False) -> tuple[Any, ...]:
        """The rank at a distance from the one that the program is written for."""
        sign = -1 if minus else 1
        return tuple(c + sign * d for c, d in zip(self._own, distance or (0,) * len(self._own), strict=True))

    def _index(self, distance: Distance, count: int, *, minus: bool = False, whole: int = 0) -> Any:
        """The place of the block of the rank at a distance; `whole`: only that many coordinates, of all ranks there."""
        at, index = self._at(distance, minus=minus), 0
        for k, values in enumerate(self._shape):
            index = (index * values if k else 0) + (at[k] if not whole or k < whole else 0)
        return index * count if count > 1 else index

    def _write_parts(self) -> None:
        """Writes an AllToAll, in which ranks keep what they pass on by its target, as in their own input."""
        count, size = self._made.blocks, self._made.machine.size
        zero = (0,) * len(self._shape)
        chunk(self._at(()), "in", self._index(zero, count), count).copy(self._at(()), "out", self._index(zero, count))
        hops: Counter[Distance] = Counter()  # of each part so far
        for step in self._made.steps:
            for move in step:
                target = move.target or zero
                to, crosses = self._hop(move), target[0] != move.src[0]
                if crosses and any(target[1:]):
                    hops[target] += 1
                    continue  # the parts for all ranks of a node are one message
                kept = [f"held{hops[target] + k}" for k in (-1, 0)]
                hops[target] += 1
                last = move.dst == target and not (crosses and size > 1)
                whole, length = (1, count * size) if crosses else (0, count)
                mine = self._index(target, count, whole=whole)
                there = self._index(moved(to, target, self._shape), count, whole=whole)
                part = chunk(self._at(()), kept[0] if any(move.src) else "in", mine, length)
                if last:
                    part.copy(self._at(to), "out", self._index(move.src, count, minus=True), ch=int(not crosses))
                    continue
                part.copy(self._at(to), kept[1], there, ch=int(not crosses))
                if move.dst == target:  # that for the rank itself among those for the others of its node
                    self._settle(target, kept[1], count)

    def _settle(self, target: Distance, kept: str, count: int) -> None:
        mine = chunk(self._at(()), kept, self._index(target, count), count)
        mine.copy(self._at(()), "out", self._index(target, count, minus=True))


def one_rank_schedules(
    topology: Topology, collective: str, blocks: int = 1, peers: int = 0, unit: float | None = None
) -> Iterator[OneRankResult]:
    """Yields schedules, those of the fewest steps first.

    Args:
        topology: The machine.
        collective: One of `COLLECTIVES`.
        blocks: Chunks of a block.
        peers: To how many ranks a rank may send, or receive from; 0: any number.
        unit: The bandwidth that carries a chunk per round; None: that of the slowest lane in use.

    Raises:
        gc3.UserError: The nodes are not alike, or ranks of the collective do not do the same.
    """
    if collective not in COLLECTIVES:
        raise errors.error(
            "BadCollective",
            f"the ranks of {collective} do not do the same, and '{topology.name}' is too large for another schedule "
            f"than one that one rank stands for: expected one of {', '.join(COLLECTIVES)}",
        )
    machine = Machine(topology)
    before = 0
    for digits in range(1, machine.nodes.bit_length() + 1):
        base = next(b for b in range(2, machine.nodes + 1) if b**digits >= machine.nodes)
        if base == before:
            return
        before = base
        made = _composed(machine, collective, blocks, base, unit or machine.unit)
        if not peers or made.peers <= peers:
            yield made


def _composed(machine: Machine, collective: str, blocks: int, base: int, unit: float) -> OneRankResult:
    shape = machine.nodes, *machine.shape
    tree = machine.across(base)
    if collective == "alltoall":
        cross, near, spread = _parts(machine, tree)
    else:
        cross = [[Move(None, src, dst) for src, dst in layer] for layer in tree]
        near = [[Move(None, src, dst) for src, dst in layer] for layer in machine.inside]
        away = [dst for layer in tree for _, dst in layer]
        spread = [[Move(None, _at(a, s), _at(a, d)) for a in away for s, d in layer] for layer in machine.inside]

    def rounds(moves: Iterable[Move]) -> int:
        loads: Counter[int] = Counter()
        for hop, times in Counter(between(move.src, move.dst, shape) for move in moves).items():
            for pool, load in machine.hop_loads(hop).items():
                loads[pool] += load * times * blocks
        return math.ceil(machine.time(loads) * Fraction(unit) - Fraction(1, 1 << 30))

    def pools(layers: list[list[Move]]) -> set[int]:
        hops = {between(move.src, move.dst, shape) for layer in layers for move in layer}
        return {pool for hop in hops for pool in machine.hop_loads(hop)}

    ways = [(cross, _beside(near, spread))]
    if pools(cross).isdisjoint(pools(near)):
        ways.append((_beside(cross, near), spread))
    totals = [[[rounds(step) for step in part] for part in way] for way in ways]
    best = min(range(len(ways)), key=lambda way: sum(map(sum, totals[way])))
    steps, counts = [*chain.from_iterable(ways[best])], [*chain.from_iterable(totals[best])]
    parts = zip(("between nodes", "inside nodes"), totals[best], strict=True)
    how = ", ".join(f"{name} S={len(part)} R={sum(part)}" for name, part in parts if part)
    back = [[Move(m.target, m.dst, m.src, adds=True) for m in step] for step in reversed(steps)]
    if collective in ("reducescatter", "allreduce"):
        gathers = collective == "allreduce"
        steps, counts = back + (steps if gathers else []), counts[::-1] + (counts if gathers else [])
        how = f"inverse of {how}{f'; {how}' if gathers else ''}"
    return OneRankResult(
        machine, collective, blocks, tuple(map(tuple, steps)), tuple(counts), f"composed from one rank's view: {how}"
    )


def _at(node: Distance, inside: Distance) -> Distance:
    """The distance of a rank of a node, if that of the node has no other part."""
    return node[0], *inside[1:]


def _beside(first: list[list[Move]], second: list[list[Move]]) -> list[list[Move]]:
    """Two lists of steps at the same time."""
    return [a + b for a, b in zip_longest(first, second, fillvalue=list[Move]())]


def _parts(machine: Machine, tree: Tree) -> tuple[list[list[Move]], list[list[Move]], list[list[Move]]]:
    """The moves of an AllToAll between nodes, in the node of the origin, and in the other nodes."""
    inside = [(0, *d) for d in product(*map(range, machine.shape))]
    cross: list[list[Move]] = []
    having = {0}
    for layer in tree:
        moves: list[Move] = []
        having.update(dst[0] for _, dst in layer)
        after = dict(pairwise([*sorted(having), machine.nodes]))  # a rank serves those before the next that has it
        for src, dst in layer:
            nodes = range(dst[0], after[dst[0]])
            moves += (Move(_at((node,), target), src, dst) for node in nodes for target in inside)
        cross.append(moves)
    below: dict[Distance, list[Distance]] = {d: [d] for d in inside}  # what passes a rank
    for layer in reversed(machine.inside):
        for src, dst in layer:
            below[src] = below[src] + below[dst]
    ways = [[(target, s, d) for s, d in layer for target in below[d]] for layer in machine.inside]
    near = [[Move(*way) for way in layer] for layer in ways]
    away = [(node,) for node in range(1, machine.nodes)]
    spread = [[Move(_at(a, t), _at(a, s), _at(a, d)) for a in away for t, s, d in layer] for layer in ways]
    return cross, near, spread
