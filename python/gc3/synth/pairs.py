"""AllReduce over pairs of trees with free roots: a chunk is reduced up one tree and distributed down another.

A reduce-scatter and an all-gather reduce the same amount of data on every rank. That is not always best: on a star or a
line, all data should be reduced in the middle. So a linear program chooses how much is reduced on each rank, and what
part of each edge reduces and distributes. Trees that carry these amounts exist (Edmonds) if every rank can send all of
its data to the roots, and receive all from them, which are maximum flows. Both halves share the capacity, because one
chunk is reduced while another is distributed.

The program is exact for pairs of trees of many chunks. Its solution is rounded to whole amounts, from which
`_core.pack_trees` makes the trees; their load, computed from them, is the limit of R/C that is printed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gc3 import _core
from gc3.synth import trees
from gc3.synth.network import Network
from gc3.synth.placing import Hop, placed
from gc3.synth.schedule import Schedule
from gc3.synth.solvers import Linear, Solvers
from gc3.synth.symmetry import Group
from gc3.synth.trees import Tree

_LARGEST = 100_000  # variables of the linear program
_PATIENCE = 60.0  # seconds
_TOTAL = 1000.0  # the cost of the rounds beside the lengths of all paths, which make trees shallow
_EXACT = 1e-8
_DENOMINATORS = (24, 240, 4000)  # of amounts, to try
_ROUNDED = 720_720  # copies, if no small denominators fit
_MOST_COPIES = _ROUNDED


@dataclass(frozen=True, slots=True)
class Pairs:
    """Trees into and out of some roots.

    Attributes:
        rounds: Rounds for each `copies` chunks, for any number of chunks.
        copies: The copies of all trees of a direction together.
        into: The trees over which data is reduced. Their branches are listed from the root on, each with the edge over
            which its data goes towards the root.
        out: The trees over which the sums are distributed; as many copies from every root as of `into`.
    """

    rounds: Fraction
    copies: int
    into: tuple[Tree, ...]
    out: tuple[Tree, ...]

    @property
    def ratio(self) -> Fraction:
        """The limit of R/C for many chunks."""
        return self.rounds / self.copies


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What a linear program gives, as parts of all data.

    Attributes:
        roots: What is reduced on each rank.
        into: What each edge carries while reducing.
        out: What each edge carries while distributing.
    """

    roots: Sequence[float]
    into: Sequence[float]
    out: Sequence[float]


def best(network: Network, group: Group, solvers: Solvers, seconds: float) -> Pairs | None:
    """Returns pairs of trees for an all-reduce with the lowest R/C for many chunks, apart from rounding.

    Args:
        network: The network.
        group: Automorphisms of it.
        solvers: For the linear program.
        seconds: The time limit.

    Returns:
        None if the network is too large, or the time too short.
    """
    deadline = time.monotonic() + min(seconds, _PATIENCE)
    amounts = _amounts(network, group, solvers, min(seconds, _PATIENCE))
    if amounts is None:
        return None
    found = (_packed(network, amounts, copies, spare, deadline) for copies, spare in _roundings(amounts))
    return next((pairs for pairs in found if pairs is not None), None)


def _amounts(network: Network, group: Group, solvers: Solvers, seconds: float) -> _Amounts | None:
    """Solves the linear program; symmetric, which loses nothing, because solutions can be averaged."""
    ranks, edges = network.ranks, network.edges
    turned = network.reversed is network  # then a distribution in reverse is a reduction, and averages of both suffice
    sinks = sorted({home for home, _ in group.home})
    directions = 1 if turned else 2
    if len(sinks) * len(edges) * directions > _LARGEST:
        return None
    program = Linear(method="vertex")
    rounds = program.variable(_TOTAL)
    roots = {sink: program.variable(high=1.0) for sink in sinks}
    program.row([(roots[sink], group.order) for sink in sinks], 1.0, 1.0)
    root_of = [roots[home] for home, _ in group.home]
    orbit = group.edge_orbits
    room = [{o: program.variable() for o in sorted(set(orbit))} for _ in range(directions)]
    for direction in range(directions):
        for sink in sinks:
            flow = [program.variable(1.0 / (len(sinks) * ranks)) for _ in edges]
            balance: list[list[tuple[int, float]]] = [[(root_of[rank], -1.0)] for rank in range(ranks)]
            for e, ends in enumerate(edges):
                src, dst = ends if direction == 0 else ends[::-1]
                balance[src].append((flow[e], 1.0))
                balance[dst].append((flow[e], -1.0))
                program.row([(flow[e], 1.0), (room[direction][orbit[e]], -1.0)], -math.inf, 0.0)
            for rank in range(ranks):
                if rank != sink:
                    program.row(balance[rank], 0.0, 0.0)

    def into(e: int) -> int:
        src, dst = edges[e]
        return room[0][orbit[network.edge_index[dst, src]]] if turned else room[1][orbit[e]]

    for b, _ in group.bounds:
        members, chunks = network.bounds[b]
        used: dict[int, float] = {}
        for v in (v for e in members for v in (room[0][orbit[e]], into(e))):
            used[v] = used.get(v, 0.0) + 1.0
        program.row([(rounds, -float(chunks)), *used.items()], -math.inf, 0.0)
    values = solvers.linear(program, seconds).values
    if values is None:
        return None
    return _Amounts(
        [float(values[v]) for v in root_of],
        [float(values[into(e)]) for e in range(len(edges))],
        [float(values[room[0][orbit[e]]]) for e in range(len(edges))],
    )


def _roundings(amounts: _Amounts) -> Iterator[tuple[int, int]]:
    """Yields numbers of copies to try, and what edges get beyond their amount."""
    values = [v for v in (*amounts.roots, *amounts.into, *amounts.out) if v > _EXACT]
    for most in _DENOMINATORS:
        parts = [Fraction(v).limit_denominator(most) for v in values]
        copies = math.lcm(*(part.denominator for part in parts))
        if copies <= _MOST_COPIES and all(abs(part - v) <= _EXACT for part, v in zip(parts, values, strict=True)):
            yield copies, 0
    for spare in (0, 1, len(amounts.roots), _ROUNDED // 1000, _ROUNDED // 10):
        yield _ROUNDED, spare


def _packed(network: Network, amounts: _Amounts, copies: int, spare: int, deadline: float) -> Pairs | None:
    """Trees for amounts that are rounded to whole copies; None if they do not fit, or time is up."""
    roots = [(rank, count) for rank, count in enumerate(_whole(amounts.roots, copies)) if count]

    def pack(given: Sequence[float], *, towards: bool) -> tuple[Tree, ...] | None:
        arcs = [
            (*((dst, src) if towards else (src, dst)), math.ceil(part * copies - _EXACT * copies) + spare)
            for (src, dst), part in zip(network.edges, given, strict=True)
            if part > _EXACT
        ]
        found = _core.pack_trees(network.ranks, network.ranks, arcs, [], roots, deadline - time.monotonic())
        if found is None:
            return None
        return tuple(trees.tree_of(network, root, count, branches, towards=towards) for root, count, branches in found)

    out = pack(amounts.out, towards=False)
    into = None if out is None else pack(amounts.into, towards=True)
    if out is None or into is None:
        return None
    load = trees.load(network, (*into, *out))
    most = max(used / Fraction(chunks) for used, (_, chunks) in zip(load, network.bounds, strict=True))
    return Pairs(most, copies, into, out)


def _whole(parts: Sequence[float], copies: int) -> list[int]:
    """Rounds parts of one to parts of `copies`; the largest remainders are rounded up."""
    down = [int(part * copies + _EXACT * copies) for part in parts]
    upward = sorted(range(len(parts)), key=lambda i: (down[i] - parts[i] * copies, i))
    for i in upward[: copies - sum(down)]:
        down[i] += 1
    return down


def schedule(network: Network, chunks: int, pairs: Pairs, seconds: float, *, moving: bool = True) -> Schedule:
    """Returns the schedule in which chunks use the trees in turn; `moving`: see `placing.placed`.

    Raises:
        TimeUp: The time limit was reached.
    """
    ranks = range(network.ranks)
    into, out = ([[t for t in listed if t.root == r] for r in ranks] for listed in (pairs.into, pairs.out))
    stems = [Tree(root, sum(t.copies for t in into[root]), ()) for root in ranks]
    order = [stem.root for stem in trees.in_turn(stems, chunks)]
    ways = [zip(*(trees.in_turn(some[r], order.count(r)) for some in (into, out)), strict=True) for r in ranks]
    # Chunks with the same root are adjacent, so that sends of several at once are one message.
    number = {turn: chunk for chunk, turn in enumerate(sorted(range(chunks), key=lambda turn: order[turn]))}
    hops: list[Hop] = []
    for turn, root in enumerate(order):
        up, down = next(ways[root])
        first = len(hops)
        hops += up.hops_towards(number[turn], turn, first)
        last = tuple(first + len(up.branches) - 1 - i for i, (_, before) in enumerate(up.branches) if before < 0)
        hops += down.hops(number[turn], turn, len(hops), last)
    return placed(network, hops, seconds, moving=moving)
