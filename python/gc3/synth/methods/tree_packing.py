"""Schedules over trees that load every bound exactly as the bound on R/C does: exact packing, then steps.

If all ranks need all data of some ranks (AllGather, Broadcast, and their inverses), trees reach the bound by cuts: the
network fits enough spanning trees from every root that each carries its share (Edmonds). Switches, NICs and other
bounds that edges share are vertices of a graph, which `_core.pack_trees` replaces by edges before it packs.

That graph may allow slightly more than the network, if edges share several bounds. So the load of the trees is
computed, and trees that exceed the bounds are rejected.

An AllReduce may use pairs of trees with free roots: a chunk is reduced up one tree and distributed down another. A
reduce-scatter and an all-gather reduce the same amount of data on every rank. That is not always best: on a star or a
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from gc3 import _core
from gc3.synth.problem import ENDLESS
from gc3.synth.problem.demand import Demand
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Hop, Schedule, placed
from gc3.synth.problem.symmetry import Group
from gc3.synth.solvers import Linear, Solvers

_LARGEST = 1 << 40  # of capacities, so that sums of them fit 64 bits
_PATIENCE = 100.0  # seconds
_LARGEST_PROGRAM = 100_000  # variables of the linear program
_PATIENCE_FOR_PAIRS = 60.0  # seconds
_TOTAL = 1000.0  # the cost of the rounds beside the lengths of all paths, which make trees shallow
_EXACT = 1e-8
_DENOMINATORS = (24, 240, 4000)  # of amounts, to try
_ROUNDED = 720_720  # copies, if no small denominators fit
# How far trees may be above the bound, which is not always reached if edges share several bounds.
_ABOVE = (Fraction(1), Fraction(65, 64), Fraction(17, 16), Fraction(5, 4))


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree with the part of its root's chunks that it carries."""

    root: int
    copies: int  # its number of copies, out of `Forest.copies` of its root
    # The edges, each with the index of the branch that reaches its sender, -1 at the root.
    branches: tuple[tuple[int, int], ...]

    def hops(self, chunk: int, turn: int, first: int, before: tuple[int, ...] = ()) -> list[Hop]:
        """Returns the sends of a chunk from the root, the first with number `first`, after the sends `before`."""
        return [Hop(chunk, e, turn, (first + b,) if b >= 0 else before) for e, b in self.branches]

    def hops_towards(self, chunk: int, turn: int, first: int) -> list[Hop]:
        """Returns the sends that reduce a chunk on the root, the first with number `first`; the last branch begins."""
        after: list[list[int]] = [[] for _ in self.branches]
        hops: list[Hop] = []
        for i in range(len(self.branches) - 1, -1, -1):
            edge, before = self.branches[i]
            if before >= 0:
                after[before].append(first + len(hops))
            hops.append(Hop(chunk, edge, turn, tuple(after[i])))
        return hops


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees that together carry `copies` chunks of every root in `rounds` rounds, for any number of chunks."""

    rounds: int  # rounds for each `copies` chunks; rounds / copies is the limit of R/C
    copies: int  # the copies of every root
    trees: tuple[Tree, ...]

    @property
    def ratio(self) -> Fraction:
        """The limit of R/C for many chunks."""
        return Fraction(self.rounds, self.copies)


def applies(demand: Demand) -> bool:
    """Returns whether every rank needs all chunks of one rank, or of all ranks, and as many of each."""
    sources = {p.source for p in demand.pieces}
    return (
        len(sources) in (1, demand.ranks)
        and len(demand.pieces) == len(sources)
        and len({p.count for p in demand.pieces}) == 1
        and all(len(p.targets) == demand.ranks - 1 and p.source not in p.targets for p in demand.pieces)
    )


def effort(network: Network, demand: Demand) -> int:
    """Returns a measure of the time that packing takes: a flow over all edges for every branch of one tree per root."""
    return len(demand.pieces) * demand.ranks * len(network.edges)


def packed(network: Network, demand: Demand, bound: Fraction, seconds: float) -> Forest | None:
    """Returns trees that reach a bound on R/C, for a demand that `applies`; None if none are found."""
    graph = _Graph(network)
    deadline = time.monotonic() + min(seconds, ENDLESS)
    for rounds in _scales(network.unit, bound):
        if max(network.whole) * rounds * len(network.whole) > _LARGEST:
            return None
        copies = int(rounds / bound)
        arcs = [(tail, head, network.whole[b] * rounds // network.unit) for b, (tail, head) in graph.ends.items()]
        arcs += [(tail, head, network.whole[b] * rounds // network.unit) for tail, head, b in graph.ports]
        roots = [(p.source, copies) for p in demand.pieces]
        found = _core.pack_trees(network.ranks, graph.vertices, arcs, graph.ways, roots, deadline - time.monotonic())
        if found is None:
            continue
        forest = Forest(rounds, copies, tuple(tree_of(network, *tree) for tree in found))
        if not _fits(network, forest):
            continue
        if len(roots) == 1:
            room = [carried * rounds // network.unit for carried in network.whole]
            left = deadline - time.monotonic()
            found = _core.flatten_trees(network.ranks, network.edges, network.bounds_of, room, found, left)
            forest = replace(forest, trees=tuple(tree_of(network, *tree) for tree in found))
        return forest
    return None


def _scales(unit: int, bound: Fraction) -> Iterator[int]:
    """The rounds to try: few, in which bandwidths are rounded down, and then those in which all are whole."""
    full = math.lcm(unit, bound.numerator)
    rounds = bound.numerator
    while rounds < full:
        yield rounds
        rounds *= 2
    yield full


def best(network: Network, demand: Demand, bound: Fraction, seconds: float) -> Forest | None:
    """Returns trees that reach a bound on R/C, or come close in a few tries; None if there are none in time."""
    deadline = time.monotonic() + min(seconds, _PATIENCE)
    for above in _ABOVE:
        left = deadline - time.monotonic()
        found = packed(network, demand, bound * above, left) if left > 0 else None
        if found is not None:
            return found
    return None


def tree_of(
    network: Network, root: int, copies: int, branches: Sequence[tuple[int, int]], *, towards: bool = False
) -> Tree:
    """Returns a tree with branches (from, to), listed from the root on; `towards`: its edges lead to the root."""
    brought = {root: -1}
    listed: list[tuple[int, int]] = []
    for src, dst in branches:
        listed.append((network.edge_index[(dst, src) if towards else (src, dst)], brought[src]))
        brought[dst] = len(listed) - 1
    return Tree(root, copies, tuple(listed))


def _fits(network: Network, forest: Forest) -> bool:
    loads = zip(load(network, forest.trees), network.whole, strict=True)
    return all(used * network.unit <= whole * forest.rounds for used, whole in loads)


def load(network: Network, trees: Iterable[Tree]) -> list[int]:
    """Returns the load of each bound from all copies of trees."""
    found = [0] * len(network.bounds)
    for tree in trees:
        for e, _ in tree.branches:
            for b in network.bounds_of[e]:
                found[b] += tree.copies
    return found


class _Graph:
    """Ranks, and vertices between the bounds that edges share."""

    def __init__(self, network: Network) -> None:
        self._parent: dict[int, int] = {}
        ordered = network.ordered_bounds
        firsts: dict[int, set[int]] = {}
        lasts: dict[int, set[int]] = {}
        inner: tuple[set[int], set[int]] = (set(), set())  # bounds that are neither the first nor the last of an edge
        for (src, dst), bounds in zip(network.edges, ordered, strict=True):
            firsts.setdefault(bounds[0], set()).add(src)
            lasts.setdefault(bounds[-1], set()).add(dst)
            inner[0].update(bounds[1:])
            inner[1].update(bounds[:-1])
        ranks = network.ranks
        entry = {b: ranks + 2 * b for b in range(len(network.bounds))}
        leave = {b: ranks + 2 * b + 1 for b in range(len(network.bounds))}
        for b, sources in firsts.items():
            if len(sources) == 1 and b not in inner[0]:
                entry[b] = next(iter(sources))
        for b, targets in lasts.items():
            if len(targets) == 1 and b not in inner[1]:
                leave[b] = next(iter(targets))
        for bounds in ordered:
            for one, other in pairwise(bounds):
                self._join(leave[one], entry[other])
        number = {r: r for r in range(ranks)}

        def vertex(place: int) -> int:
            return number.setdefault(self._find(place), len(number))

        self.ends = {b: (vertex(entry[b]), vertex(leave[b])) for b in entry}
        ways: set[tuple[int, int, int]] = set()
        ports: dict[tuple[int, int], int] = {}
        for (src, dst), bounds in zip(network.edges, ordered, strict=True):
            way = [src, *(v for b in bounds for v in self.ends[b]), dst]
            if way[0] != way[1]:
                ports[way[0], way[1]] = bounds[0]
            if way[-1] != way[-2]:
                ports[way[-2], way[-1]] = bounds[-1]
            way = [v for i, v in enumerate(way) if i == 0 or v != way[i - 1]]
            for via in range(1, len(way) - 1):
                ways.update((a, way[via], c) for a in way[:via] for c in way[via + 1 :])
        self.ports = [(tail, head, b) for (tail, head), b in ports.items()]
        self.ways = sorted(ways)
        self.vertices = len(number)

    def _find(self, place: int) -> int:
        while self._parent.get(place, place) != place:
            place = self._parent[place]
        return place

    def _join(self, one: int, other: int) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._parent[max(one, other)] = min(one, other)


def schedule(network: Network, demand: Demand, forest: Forest, seconds: float, *, moving: bool = True) -> Schedule:
    """Returns the schedule in which the chunks of every root use its trees in turn; `moving`: see `schedule.placed`."""
    hops: list[Hop] = []
    for i, piece in enumerate(demand.pieces):
        trees = [tree for tree in forest.trees if tree.root == piece.source]
        for turn, tree in enumerate(in_turn(trees, piece.count)):
            hops += tree.hops(demand.first[i] + turn, turn, len(hops))
    return placed(network, hops, seconds, moving=moving)


def in_turn(trees: Sequence[Tree], count: int) -> Iterator[Tree]:
    """Distributes chunks over trees in proportion to their copies, evenly from the first to the last."""
    total = sum(tree.copies for tree in trees)
    owed = [0] * len(trees)
    for _ in range(count):
        for t, tree in enumerate(trees):
            owed[t] += tree.copies
        best = max(range(len(trees)), key=owed.__getitem__)
        owed[best] -= total
        yield trees[best]


_MOST_COPIES = _ROUNDED


@dataclass(frozen=True, slots=True)
class Pairs:
    """Trees into and out of some roots."""

    rounds: Fraction  # rounds for each `copies` chunks, for any number of chunks
    copies: int  # the copies of all trees of a direction together
    # The trees over which data is reduced. Their branches are listed from the root on, each with the edge over which
    # its data goes towards the root.
    into: tuple[Tree, ...]
    out: tuple[Tree, ...]  # the trees over which the sums are distributed; as many copies from every root as of `into`

    @property
    def ratio(self) -> Fraction:
        """The limit of R/C for many chunks."""
        return self.rounds / self.copies


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What a linear program gives, as parts of all data."""

    roots: Sequence[float]  # what is reduced on each rank
    into: Sequence[float]  # what each edge carries while reducing
    out: Sequence[float]  # what each edge carries while distributing


def best_pairs(network: Network, group: Group, solvers: Solvers, seconds: float) -> Pairs | None:
    """Returns pairs of trees for an all-reduce with the lowest R/C for many chunks, apart from rounding.

    None: the network is too large, or the time too short.
    """
    deadline = time.monotonic() + min(seconds, _PATIENCE_FOR_PAIRS)
    amounts = _amounts(network, group, solvers, min(seconds, _PATIENCE_FOR_PAIRS))
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
    if len(sinks) * len(edges) * directions > _LARGEST_PROGRAM:
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
        return tuple(tree_of(network, root, count, branches, towards=towards) for root, count, branches in found)

    out = pack(amounts.out, towards=False)
    into = None if out is None else pack(amounts.into, towards=True)
    if out is None or into is None:
        return None
    loads = load(network, (*into, *out))
    most = max(used / Fraction(chunks) for used, (_, chunks) in zip(loads, network.bounds, strict=True))
    return Pairs(most, copies, into, out)


def _whole(parts: Sequence[float], copies: int) -> list[int]:
    """Rounds parts of one to parts of `copies`; the largest remainders are rounded up."""
    down = [int(part * copies + _EXACT * copies) for part in parts]
    upward = sorted(range(len(parts)), key=lambda i: (down[i] - parts[i] * copies, i))
    for i in upward[: copies - sum(down)]:
        down[i] += 1
    return down


def schedule_of_pairs(network: Network, chunks: int, pairs: Pairs, seconds: float, *, moving: bool = True) -> Schedule:
    """Returns the schedule in which chunks use the trees in turn; `moving`: see `schedule.placed`."""
    ranks = range(network.ranks)
    into, out = ([[t for t in listed if t.root == r] for r in ranks] for listed in (pairs.into, pairs.out))
    stems = [Tree(root, sum(t.copies for t in into[root]), ()) for root in ranks]
    order = [stem.root for stem in in_turn(stems, chunks)]
    ways = [zip(*(in_turn(some[r], order.count(r)) for some in (into, out)), strict=True) for r in ranks]
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
