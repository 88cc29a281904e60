"""Repairs a schedule after a machine has lost ranks or links, from the parts of its trees that are left.

Every chunk of a schedule moves over a tree. What hangs below a loss is joined to the rest of its tree over the least
loaded link; all other sends stay. So the work is proportional to what was lost, and no bound has to be found again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gc3 import errors
from gc3.synth import result
from gc3.synth.problem import demand, schedule
from gc3.synth.problem.demand import Demand, Problem
from gc3.synth.problem.network import Network
from gc3.synth.problem.schedule import Hop, Schedule, cheapest_path
from gc3.synth.result import Result

# For each chunk the rank from which each other rank gets it.
_Parents = dict[int, dict[int, int]]


def repaired(broken: Result, network: Network, left: Sequence[int]) -> Result:
    """Returns a schedule of the same collective for what is left of a machine.

    Args:
        broken: A schedule for the whole machine, of a built-in collective.
        network: What is left of it. Ranks are numbered anew, in their order.
        left: For each rank of `network` its number in the whole machine.

    Raises:
        gc3.UserError: The collective is not built in, the root of a rooted one is lost, `left` does not fit the two
            machines, or some data cannot reach its targets any more.
    """
    place = {old: new for new, old in enumerate(left)}
    if len(place) != network.ranks or len(left) != len(place) or not all(0 <= r < broken.problem.ranks for r in place):
        raise errors.error(
            "BadArgument",
            f"left has {len(left)} ranks for '{network.name}' of {network.ranks}; expected each rank that is left once",
        )
    before, after = broken.problem, _wanted(broken.problem, place)
    gathers, spreads = _trees(broken)
    # On the reversed network a reduction is a distribution.
    back = network.reversed
    count = statistics.median_high(broken.schedule.rounds or (1,))
    made = [
        None if old is None or new is None else _regrown(on, new, _renumbered(trees, old, new, place), count)
        for on, old, new, trees in (
            (back, before.reduced, after.reduced, gathers),
            (network, before.spread, after.spread, spreads),
        )
    ]
    return result.of(network, after, made[0], made[1])


def _wanted(whole: Problem, place: Mapping[int, int]) -> Problem:
    """The collective for the ranks that are left, with blocks of as many chunks as before."""
    if whole.name not in demand.NAMES:
        raise errors.error("BadCollective", f"'{whole.name}' is not built in: only built-in collectives are repaired")
    rooted = whole.name in ("broadcast", "reduce", "gather", "scatter")
    if rooted and whole.root not in place:
        raise errors.error("BadArgument", f"rank {whole.root}, the root of this {whole.name}, is lost")
    before, after = (demand.least_chunks(whole.name, ranks) for ranks in (whole.ranks, len(place)))
    return demand.builtin_problem(
        whole.name, len(place), whole.chunks // before * after, place[whole.root] if rooted else 0
    )


def _trees(whole: Result) -> tuple[_Parents, _Parents]:
    """The trees over which contributions come together, from their root, and those that distribute the sums."""
    contents = whole.problem.contents
    everything = [sum(1 << rank for rank in item.before) for item in contents]
    held = {(chunk, rank): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    gathers: _Parents = {}
    spreads: _Parents = {}
    for sends in whole.schedule.steps:
        arriving = [(chunk, src, dst, held.get((chunk, src), 0)) for chunk, src, dst in sends]
        for chunk, src, dst, carried in arriving:
            if carried == everything[chunk]:
                spreads.setdefault(chunk, {}).setdefault(dst, src)
            else:
                gathers.setdefault(chunk, {}).setdefault(src, dst)
            held[chunk, dst] = held.get((chunk, dst), 0) | carried
    return gathers, spreads


def _renumbered(trees: _Parents, old: Demand, new: Demand, place: Mapping[int, int]) -> _Parents:
    """What is left of trees, by the numbers of chunks and ranks that are left."""
    found: _Parents = {}
    for i, piece in enumerate(old.pieces):
        targets = frozenset(place[t] for t in piece.targets if t in place)
        at = new.piece_at.get((place[piece.source], targets)) if piece.source in place else None
        if at is None:
            continue
        for k in range(piece.count):
            parents = trees.get(old.first[i] + k, {})
            found[new.first[at] + k] = {
                place[child]: place[parent] for child, parent in parents.items() if child in place and parent in place
            }
    return found


def _regrown(network: Network, wanted: Demand, parents: _Parents, count: int) -> Schedule:
    """A schedule over trees that keep the edges of `parents`, in steps of `count` rounds or a few more."""
    grower = _Grower(network)
    trees: list[dict[int, int]] = []
    for chunk, i in enumerate(wanted.piece_of):
        piece = wanted.pieces[i]
        kept = {c: p for c, p in parents.get(chunk, {}).items() if (p, c) in network.edge_index and c != piece.source}
        trees.append(grower.kept(piece.source, kept))
        parents[chunk] = kept
    for chunk, i in enumerate(wanted.piece_of):
        piece = wanted.pieces[i]
        if not piece.targets <= trees[chunk].keys():
            grower.complete(trees[chunk], piece.targets, parents[chunk])
    hops: list[Hop] = []
    for chunk, i in enumerate(wanted.piece_of):
        brought: dict[int, tuple[int, ...]] = {wanted.pieces[i].source: ()}
        for edge in _needed(network, trees[chunk], wanted.pieces[i].targets):
            src, dst = network.edges[edge]
            brought[dst] = (len(hops),)
            hops.append(Hop(chunk, edge, chunk - wanted.first[i], brought[src]))
    while not all(network.carried(count)):
        count += 1
    return schedule.placed(network, hops, math.inf, count, moving=False)


def _needed(network: Network, tree: Mapping[int, int], targets: Iterable[int]) -> list[int]:
    """The edges of a tree over which a target gets its data; an edge is listed after the one into its sender."""
    used: dict[int, None] = {}
    for target in sorted(targets):
        way: list[int] = []
        place = target
        while (edge := tree[place]) >= 0 and edge not in used:
            way.append(edge)
            place = network.edges[edge][0]
        used.update(dict.fromkeys(reversed(way)))
    return list(used)


class _Grower:
    """Trees as they grow: for each rank that a chunk reaches, the edge that brings it, or -1 at the source."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._share = [1.0 / float(chunks) for _, chunks in network.bounds]  # of a round, for one chunk
        self._load = list(self._share)  # the rounds that each bound takes with one more chunk

    def kept(self, source: int, parents: Mapping[int, int]) -> dict[int, int]:
        """Returns the part of a tree that still hangs together with its source."""
        tree = {source: -1}
        self._join(tree, [source], _children(parents))
        return tree

    def complete(self, tree: dict[int, int], targets: frozenset[int], parents: Mapping[int, int]) -> None:
        """Joins a tree with what hangs below a loss, until it has all targets.

        Raises:
            gc3.UserError: A target cannot be reached.
        """
        below = _children(parents)
        while missing := targets - tree.keys():
            heads = [rank for rank in sorted(missing) if parents.get(rank) not in missing]
            direct = min(self._into(tree, heads or sorted(missing)), default=None)
            path = self._path(tree, missing) if direct is None else [direct[1]]
            for edge in path:
                self._add(tree, edge)
                self._join(tree, [self._network.edges[edge][1]], below)

    def _into(self, tree: Mapping[int, int], ranks: Iterable[int]) -> Iterator[tuple[float, int]]:
        """The edges from a tree to ranks, each with its price."""
        for rank in ranks:
            for edge in self._network.incoming[rank]:
                if self._network.edges[edge][0] in tree:
                    yield self._price(edge), edge

    def _path(self, tree: Mapping[int, int], missing: frozenset[int]) -> list[int]:
        """The cheapest path from a tree to a rank."""
        path = cheapest_path(self._network, dict.fromkeys(tree, 0.0), missing, self._price)
        if path is None:
            raise errors.error("NoPath", f"on '{self._network.name}' some data cannot reach its targets")
        return path

    def _price(self, edge: int) -> float:
        """The rounds of the fullest bound of an edge, if one more chunk used it."""
        return max([self._load[b] for b in self._network.bounds_of[edge]])

    def _join(self, tree: dict[int, int], ranks: list[int], below: Mapping[int, Sequence[int]]) -> None:
        """Adds all ranks below some ranks of a tree that are not in it."""
        todo = list(ranks)
        while todo:
            rank = todo.pop()
            for child in below.get(rank, ()):
                if child not in tree:
                    self._add(tree, self._network.edge_index[rank, child])
                    todo.append(child)

    def _add(self, tree: dict[int, int], edge: int) -> None:
        tree[self._network.edges[edge][1]] = edge
        for b in self._network.bounds_of[edge]:
            self._load[b] += self._share[b]


def _children(parents: Mapping[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for child, parent in parents.items():
        found.setdefault(parent, []).append(child)
    return found
