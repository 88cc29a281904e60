"""Schedules as flow over time: linear programs whose optimum bounds the rounds of any number of chunks.

The network over time has a vertex (v, s) for rank v after s steps; an edge leads from (u, s) to (v, s + 1). The rounds
of each step are variables, and so are amounts of data.

* Routing: data for single targets is a flow, with one commodity for each source, because the data of one rank can be
  told apart at the end.
* Multicast: every target has its own flow; on an edge the flows of a piece share the sends, which are at least each.

With a group of automorphisms, the program contains only one source of each orbit.

The bounds are proven by prices on links and steps, the dual, checked in whole numbers. Let y >= 0 be a price for every
bound and step. The cost of an edge in a step is the sum of the prices of its bounds. If in every step the prices of the
bounds, each times its chunks, sum to at most 1, then all sends within R rounds cost at most R. On the other hand, a
chunk that goes to a target costs at least its cheapest path. If a chunk goes to several targets, they may share an
edge, and only a part of its price counts for each of them. So the sum of all cheapest paths is at most R. This holds
for any prices; a solver only suggests good ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gc3.synth.problem.demand import Demand
from gc3.synth.problem.network import Network
from gc3.synth.problem.symmetry import Group
from gc3.synth.solvers import Linear, LinearResult, Solvers

_MOST_SINKS = 4  # targets of one program; more make it slow, and rarely require more rounds

_MANY_TERMS = 10_000  # of a linear program without symmetry
_MOST_SCALE = 100_000_000
_MOST_DENOMINATOR = 20_000
_ROUNDING = 1e-4
_INFINITE = 1 << 60

_Key = tuple[int, int, int]  # piece or source, edge, step


@dataclass
class Layout:
    """The meaning of the variables and rows of a program."""

    program: Linear = field(default_factory=Linear)
    rounds: list[int] = field(default_factory=list[int])  # the variable of each step's rounds
    # The variable of the amount of a source (routing) or piece (multicast) sent over an edge in a step.
    sent: dict[_Key, int] = field(default_factory=dict[_Key, int])
    # For each row that enforces a bound, the bound and step.
    limits: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    # For each row that makes a flow part of a send: piece, target, edge, step.
    shares: list[tuple[int, int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int, int]])
    # The same for sends that consist of one flow.
    alone: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])


@dataclass(frozen=True, eq=False)
class Suggested:
    """The suggestion of a linear program."""

    rounds: tuple[float, ...]  # the rounds of each step
    price: Real  # the price of each edge in each step


def routing(
    network: Network,
    demand: Demand,
    steps: int,
    group: Group,
    *,
    whole: bool = False,
    rounds: Sequence[int] | None = None,
    straight: bool = False,
) -> Layout:
    """Returns the program of a demand of single targets; with `whole` rounds and amounts are whole numbers.

    The rounds of each step may be given. Data sent `straight` goes only away from its source, which makes the program
    far smaller.
    """
    layout = Layout()
    _add_rounds(layout, [1.0] * steps, whole=whole, rounds=rounds)
    supply = {source: wanted for source, wanted in demand.given.items() if group.home[source][0] == source}
    for source, wanted in supply.items():
        sent = flow(layout.program, network, source, wanted, steps, whole=whole, straight=straight)
        layout.sent.update({(source, e, s): variable for (e, s), variable in sent.items()})
    sources = {(source, source) for source in supply}
    _add_limits(layout, network, steps, group, sources)
    return layout


def multicast(
    network: Network,
    demand: Demand,
    steps: int,
    group: Group,
    *,
    whole: bool = False,
    split: Sequence[int] | None = None,
) -> Layout:
    """Returns the program of any demand; with `whole` the rounds are whole numbers, but not the amounts.

    With a `split`, the rounds of the steps have these proportions, and the cost is their common factor.
    """
    layout = Layout()
    program = layout.program
    _add_rounds(layout, [1.0] * steps, whole=whole)
    if split is not None:
        times = program.variable(1.0)
        for variable, count in zip(layout.rounds, split, strict=True):
            program.cost[variable] = 0.0
            program.row(((variable, 1.0), (times, -float(count))), 0.0, 0.0)
    sources: set[tuple[int, int]] = set()
    for i, piece in enumerate(demand.pieces):
        if group.home[piece.source][0] != piece.source or not piece.targets:
            continue
        sources.add((i, piece.source))
        flows: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for target in sorted(piece.targets):
            for place, variable in flow(program, network, piece.source, {target: piece.count}, steps).items():
                flows.setdefault(place, []).append((target, variable))
        for (e, s), parts in flows.items():
            if len(parts) == 1:
                layout.sent[i, e, s] = parts[0][1]
                layout.alone.append((i, parts[0][0], e, s))
                continue
            all_of_it = program.variable()
            layout.sent[i, e, s] = all_of_it
            for target, variable in parts:
                row = program.row(((variable, 1.0), (all_of_it, -1.0)), -math.inf, 0.0)
                layout.shares.append((row, i, target, e, s))
    _add_limits(layout, network, steps, group, sources)
    return layout


def sinks(
    network: Network,
    demand: Demand,
    steps: int,
    group: Group,
    total: int,
    weights: Sequence[float],
    rounds: Sequence[int] | None = None,
) -> Layout:
    """Returns the program for the separate need of each target, with the same whole rounds for all, with sum `total`.

    It is far smaller than that of the whole demand, and often requires as many rounds. The weights are the costs of a
    round in each step, to choose among solutions, unless the rounds are given.
    """
    layout = Layout()
    program = layout.program
    _add_rounds(layout, weights, whole=True, rounds=rounds)
    program.row(((r, 1.0) for r in layout.rounds), float(total), float(total))
    back = network.reversed
    turned = [back.edge_index[dst, src] for src, dst in network.edges]
    homes = sorted({home for home, _ in group.home})
    for target in homes[:: -(-len(homes) // _MOST_SINKS)]:
        wanted = demand.needed.get(target)
        if not wanted:
            continue
        sent = flow(program, back, target, wanted, steps)
        for members, chunks in network.bounds:
            for s in range(steps):
                place = steps - 1 - s  # time runs backwards from the target
                terms = [(sent[turned[e], place], 1.0) for e in members if (turned[e], place) in sent]
                if terms:
                    program.row([*terms, (layout.rounds[s], -float(chunks))], -math.inf, 0.0)
    return layout


def bound(
    solvers: Solvers, network: Network, demand: Demand, steps: int, group: Group, seconds: float = math.inf
) -> tuple[Fraction, LinearResult, Layout]:
    """Returns a proven lower bound on the rounds of a demand in this many steps; zero if there is none.

    Returns:
        The bound, and the solved program.
    """
    layout = (routing if demand.routes else multicast)(network, demand, steps, group)
    if demand.routes and group.order == 1 and len(layout.program.value) > _MANY_TERMS:
        layout.program.method = "interior"  # a vertex takes far longer, and proves hardly more
    result = solvers.linear(layout.program, seconds)
    if result.duals is None:
        return Fraction(0), result, layout
    y = _spread(network, group, layout, result.duals, steps)
    parts: dict[int, dict[int, Real]] = {}
    for i, piece in enumerate(demand.pieces):
        if group.home[piece.source][0] == piece.source and len(piece.targets) > 1:
            parts[i] = {t: np.zeros((len(network.edges), steps)) for t in sorted(piece.targets)}
    for row, i, target, e, s in layout.shares:
        parts[i][target][e, s] = max(-result.duals[row], 0.0) / group.order
    if parts:
        edge = np.zeros((len(network.edges), steps))
        for b, (members, _) in enumerate(network.bounds):
            edge[list(members)] += y[b]
        for i, target, e, s in layout.alone:
            if i not in parts:
                continue  # of a single target, whose prices are those of the links
            parts[i][target][e, s] = edge[e, s]
    return proven_rounds(network, demand, group, whole_prices(y, parts)), result, layout


def bound_of_routes(
    solvers: Solvers, network: Network, demand: Demand, group: Group, seconds: float = math.inf
) -> Fraction:
    """Returns a proven lower bound on the rounds of a demand of single targets in any number of steps; zero: none."""
    layout = Layout()
    program = layout.program
    _add_rounds(layout, [1.0], whole=False)
    sources: set[tuple[int, int]] = set()
    for source in sorted({home for home, _ in group.home}):
        wanted = demand.given.get(source)
        if not wanted:
            continue
        sources.add((source, source))
        rows: list[list[tuple[int, float]]] = [[] for _ in range(network.ranks)]
        for e, (src, dst) in enumerate(network.edges):
            if dst != source:
                variable = layout.sent[source, e, 0] = program.variable()
                rows[src].append((variable, -1.0))
                rows[dst].append((variable, 1.0))
        for v, row in enumerate(rows):
            if v != source:
                amount = float(wanted.get(v, 0))
                program.row(row, amount, amount)
    _add_limits(layout, network, 1, group, sources)
    result = solvers.linear(program, seconds)
    if result.duals is None:
        return Fraction(0)
    y = _spread(network, group, layout, result.duals, 1)
    return proven_by_lengths(network, demand, whole_prices(y, {}).bounds[:, 0])


def _spread(network: Network, group: Group, layout: Layout, duals: Real, steps: int) -> Real:
    """The price of each bound and step: the images of a bound share the price of its row."""
    y = np.zeros((len(network.bounds), steps))
    orbits = np.array(group.bound_orbits)
    for row, b, s in layout.limits:
        orbit = orbits == orbits[b]
        y[orbit, s] = max(-duals[row], 0.0) / np.count_nonzero(orbit)
    return y


def suggested(network: Network, result: LinearResult, layout: Layout) -> Suggested | None:
    """Returns rounds and prices of a solved program without symmetry; None if it has not been solved."""
    if result.values is None or result.duals is None:
        return None
    price = np.zeros((len(network.edges), len(layout.rounds)))
    for row, b, s in layout.limits:
        price[list(network.bounds[b][0]), s] += max(-result.duals[row], 0.0)
    return Suggested(tuple(float(result.values[v]) for v in layout.rounds), price)


def _add_rounds(layout: Layout, costs: Sequence[float], *, whole: bool, rounds: Sequence[int] | None = None) -> None:
    for s, cost in enumerate(costs):
        if rounds is None:
            layout.rounds.append(layout.program.variable(cost, whole=whole))
        else:
            layout.rounds.append(layout.program.variable(cost, float(rounds[s]), low=float(rounds[s])))


def _add_limits(layout: Layout, network: Network, steps: int, group: Group, sources: Iterable[tuple[int, int]]) -> None:
    """Enforces the bounds; the load of a source's images is its own load on the inverse images of the edges."""
    keys = sorted({key for key, _ in sources})
    for b, _ in group.bounds:
        chunks = network.bounds[b][1]
        moved, times = np.unique(group.images(network.members[b], group.inverse), return_counts=True)
        weights: dict[int, float] = dict(zip(moved.tolist(), map(float, times), strict=True))
        for s in range(steps):
            terms = [
                (layout.sent[key, e, s], weight)
                for key in keys
                for e, weight in weights.items()
                if (key, e, s) in layout.sent
            ]
            if terms:
                terms.append((layout.rounds[s], -float(chunks)))
                layout.limits.append((layout.program.row(terms, -math.inf, 0.0), b, s))


def flow(
    program: Linear,
    network: Network,
    source: int,
    wanted: dict[int, int],
    steps: int,
    *,
    whole: bool = False,
    straight: bool = False,
) -> dict[tuple[int, int], int]:
    """Adds a flow over time from a source to the targets of `wanted` amounts; returns variables by edge and step."""
    distance = network.distance
    soon = [min(distance[v][t] for t in wanted) for v in range(network.ranks)]
    into: dict[tuple[int, int], list[tuple[int, float]]] = {(source, 0): []}
    sent: dict[tuple[int, int], int] = {}
    total = float(sum(wanted.values()))
    from_source = distance[source]
    last_target = next(iter(wanted)) if len(wanted) == 1 else -1
    for s in range(steps):
        for v in range(network.ranks):
            if from_source[v] > s or soon[v] > steps - s:
                continue
            row = into.pop((v, s), [])
            if soon[v] <= steps - s - 1 and from_source[v] <= s + 1:
                hold = program.variable()
                row.append((hold, -1.0))
                into.setdefault((v, s + 1), []).append((hold, 1.0))
            if v != last_target:
                for e in network.outgoing[v]:
                    w = network.edges[e][1]
                    onward = from_source[w] > from_source[v] if straight else w != source
                    if onward and soon[w] <= steps - s - 1:
                        variable = program.variable(whole=whole)
                        sent[e, s] = variable
                        row.append((variable, -1.0))
                        into.setdefault((w, s + 1), []).append((variable, 1.0))
            amount = -total if (v, s) == (source, 0) else 0.0
            program.row(row, amount, amount)
    for v in range(network.ranks):
        row = into.get((v, steps))
        if row:
            amount = float(wanted.get(v, 0))
            program.row(row, amount, amount)
    return sent


Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prices:
    """A certificate, in multiples of an arbitrary unit."""

    bounds: Whole  # for each bound and step its price
    # For pieces with several targets, and each of these, the part of each edge's price in each step that counts for it;
    # omitted pieces follow by symmetry.
    parts: dict[int, dict[int, Whole]]


def proven_rounds(network: Network, demand: Demand, group: Group, prices: Prices) -> Fraction:
    """Returns the rounds that any prices prove, exactly; zero if they prove nothing.

    Under the automorphisms of the group the prices of bounds are the same; pieces without parts are images of others.
    """
    if (prices.bounds < 0).any() or not _invariant(group, prices.bounds):
        return Fraction(0)
    steps = prices.bounds.shape[1]
    unit = max((_worth(network, prices.bounds[:, s]) for s in range(steps)), default=Fraction(0))
    if unit == 0:
        return Fraction(0)
    edge = np.zeros((len(network.edges), steps), np.int64)
    for b, (members, _) in enumerate(network.bounds):
        edge[list(members)] += prices.bounds[b]
    rows: list[Whole] = []
    ends: list[tuple[int, int, int]] = []  # source, target, weight
    size = {rank: sum(home == rank for home, _ in group.home) for rank, _ in group.home}
    for i, piece in enumerate(demand.pieces):
        if group.home[piece.source][0] != piece.source or not piece.targets:
            continue
        parts = {next(iter(piece.targets)): edge} if len(piece.targets) == 1 else prices.parts.get(i, {})
        if not _shared(parts, edge) or not piece.targets.issuperset(parts):
            return Fraction(0)
        rows += parts.values()
        ends += [(piece.source, target, piece.count * size[piece.source]) for target in parts]
    if not rows:
        return Fraction(0)
    cheapest = _cheapest(network, np.array(rows), [e[0] for e in ends], [e[1] for e in ends])
    return sum(int(c) * e[2] for c, e in zip(cheapest, ends, strict=True)) / unit


def proven_by_lengths(network: Network, demand: Demand, bounds: Whole) -> Fraction:
    """Returns the rounds that prices prove for a demand of single targets in any number of steps, exactly.

    Each bound has the same price in all steps.
    """
    unit = _worth(network, bounds)
    if (bounds < 0).any() or unit == 0:
        return Fraction(0)
    edge = np.zeros(len(network.edges), np.int64)
    for b, (members, _) in enumerate(network.bounds):
        edge[list(members)] += bounds[b]
    length = np.full((network.ranks, network.ranks), _INFINITE, np.int64)
    np.fill_diagonal(length, 0)
    for (src, dst), price in zip(network.edges, edge, strict=True):
        length[src, dst] = price
    for via in range(network.ranks):
        np.minimum(length, length[:, via, None] + length[None, via, :], out=length)
    return sum(p.count * int(length[p.source, t]) for p in demand.pieces for t in p.targets) / unit


def _worth(network: Network, bounds: Whole) -> Fraction:
    """The cost of a round of all bounds."""
    return Fraction(sum(c * int(y) for c, y in zip(network.whole, bounds, strict=True)), network.unit)


def _shared(parts: dict[int, Whole], edge: Whole) -> bool:
    """Whether the parts of the price of every edge and step sum to at most the price."""
    if any((part < 0).any() for part in parts.values()):
        return False
    return not parts or not (np.sum(list(parts.values()), axis=0) > edge).any()


def _invariant(group: Group, bounds: Whole) -> bool:
    first = np.array([b for b, _ in group.bounds], np.intp)
    return np.array_equal(bounds[first[list(group.bound_orbits)]], bounds)


def _cheapest(network: Network, prices: Whole, sources: Sequence[int], targets: Sequence[int]) -> Whole:
    """The cheapest path over time for each row of prices[row, edge, step], at most one edge per step."""
    order = sorted(range(len(network.edges)), key=lambda e: network.edges[e][1])
    src = np.array([network.edges[e][0] for e in order])
    dst = np.array([network.edges[e][1] for e in order])
    begin = np.flatnonzero(np.r_[True, dst[1:] != dst[:-1]])
    reached = dst[begin]
    rows = np.arange(len(prices))
    cost = np.full((len(prices), network.ranks), _INFINITE, np.int64)
    cost[rows, list(sources)] = 0
    ordered = prices[:, order, :]
    for step in range(prices.shape[2]):
        by_edge = cost[:, src] + ordered[:, :, step]
        cost[:, reached] = np.minimum(cost[:, reached], np.minimum.reduceat(by_edge, begin, axis=1))
    return cost[rows, list(targets)]


def whole_prices(prices: Real, parts: dict[int, dict[int, Real]]) -> Prices:
    """Returns whole prices close to real ones: proportional if they are fractions of small numbers."""
    everything = [prices.ravel(), *(p.ravel() for q in parts.values() for p in q.values())]
    values = np.unique(np.round(np.concatenate(everything), 10))
    scale = 1
    for value in values:
        scale = math.lcm(scale, Fraction(float(value)).limit_denominator(_MOST_DENOMINATOR).denominator)
        if scale > _MOST_SCALE:
            break
    exact = scale <= _MOST_SCALE
    if exact:
        exact = bool((abs(values * scale - np.round(values * scale)) < _ROUNDING).all())
    if not exact:
        scale = _MOST_SCALE

    def rounded(array: Real, *, up: bool) -> Whole:
        to_whole = np.round if exact else np.ceil if up else np.floor
        return np.maximum(to_whole(array * scale), 0).astype(np.int64)

    below = {i: {t: rounded(p, up=False) for t, p in q.items()} for i, q in parts.items()}
    return Prices(rounded(prices, up=True), below)
