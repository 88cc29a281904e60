"""Proves lower bounds on the rounds of a demand: prices on links and steps, checked in whole numbers.

Let y >= 0 be a price for every bound and step. The cost of an edge in a step is the sum of the prices of its bounds. If
in every step the prices of the bounds, each times its chunks, sum to at most 1, then all sends within R rounds cost at
most R. On the other hand, a chunk that goes to a target costs at least its cheapest path. If a chunk goes to several
targets, they may share an edge, and only a part of its price counts for each of them. So the sum of all cheapest paths
is at most R. This holds for any prices; a solver only suggests good ones (they are the dual of a multicast flow over
time).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gc3.synth.problem.demand import Demand
from gc3.synth.problem.network import Network
from gc3.synth.problem.symmetry import Group

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]

_MOST_SCALE = 100_000_000
_MOST_DENOMINATOR = 20_000
_ROUNDING = 1e-4
_INFINITE = 1 << 60


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


def whole(prices: Real, parts: dict[int, dict[int, Real]]) -> Prices:
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

    def up(array: Real) -> Whole:
        return np.maximum(np.round(array * scale) if exact else np.ceil(array * scale), 0).astype(np.int64)

    def down(array: Real) -> Whole:
        return np.maximum(np.round(array * scale) if exact else np.floor(array * scale), 0).astype(np.int64)

    return Prices(up(prices), {i: {t: down(p) for t, p in q.items()} for i, q in parts.items()})
