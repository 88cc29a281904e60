"""Schedules for machines of several nodes, composed of schedules inside nodes and between them.

Nodes may be in racks, and so on: the levels of a network are nested groups of ranks. Every chunk that leaves its group
of a level uses a rail (see `rails`). First it goes to a rank of the rail in its group, then once to a rank of the rail
in each group that needs it, and then to its targets inside. What happens inside a group is composed in the same way, of
what happens between and inside the groups of the next level; inside nodes it is a problem that is solved as a whole.

Each stage consists of separate problems, small enough to be solved if the whole is not: group by group, and rails that
share no bound one by one. Equal problems are solved once. Data that stays in a group is distributed while other data
crosses, if the two share no bound.

The composition fits the network by construction, and is checked like every schedule. It need not be optimal.

A schedule is repaired after a machine has lost ranks or links, from the parts of its trees that are left.

Every chunk of a schedule moves over a tree. What hangs below a loss is joined to the rest of its tree over the least
loaded link; all other sends stay. So the work is proportional to what was lost, and no bound has to be found again.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gc3 import errors
from gc3.synth import result
from gc3.synth.bounds import cuts
from gc3.synth.compose.rails import Choice, Errand, Machine
from gc3.synth.methods.tree_growth import growing
from gc3.synth.problem import OPEN, Hurry, at_leisure, demand, schedule
from gc3.synth.problem.demand import Demand, Piece, Problem
from gc3.synth.problem.network import UNREACHABLE, Network
from gc3.synth.problem.schedule import Hop, Schedule, cheapest_path, stretched
from gc3.synth.result import Result
from gc3.synth.session import Session

_SECONDS = 10.0
_SHARE = 0.3  # of the time that is left
_BETTER = 1.0  # seconds for each number of steps, if there is a schedule
_QUICK = 2.0  # seconds
_MORE_STEPS = 2  # that a part may take above the fewest
_FEW_STEPS = 8  # to which a schedule is stretched to run beside another

Solve: TypeAlias = Callable[[Network, Demand], Schedule]
_Named: TypeAlias = "tuple[str, Schedule]"


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed schedule."""

    schedule: Schedule
    parts: tuple[tuple[str, int, int], ...]  # its parts in order: a name with its steps and rounds


def compose(network: Network, demand: Demand, solve: Solve, hurry: Hurry = at_leisure) -> Composition:
    """Returns a schedule that is composed of schedules inside nodes and between groups of each level.

    Args:
        network: A network of several nodes.
        demand: The demand.
        solve: Solves a part: a schedule for a smaller network.
        hurry: Raises TimeUp at the time limit.

    Raises:
        TimeUp: The time limit was reached.
        gc3.UserError: The network has no nodes, or their differences leave no rails.
    """
    stages = _Composer(network, demand, solve, hurry).inside(_errands(demand), 0)
    made = [(name, s) for name, s in stages if s.rounds]
    return Composition(_sequence(made), tuple((name, len(s.rounds), s.total_rounds) for name, s in made))


def _errands(demand: Demand) -> list[Errand]:
    pieces = ((chunk, demand.pieces[i]) for chunk, i in enumerate(demand.piece_of))
    return [Errand(chunk, piece.source, piece.targets) for chunk, piece in pieces if piece.targets]


class _Composer:
    """Composes stages, from the largest groups to the smallest."""

    def __init__(self, network: Network, demand: Demand, solve: Solve, hurry: Hurry) -> None:
        self._machine = Machine(network)
        self._turn = [c - demand.first[i] for c, i in enumerate(demand.piece_of)]
        self._solver = _Stage(network, solve)
        self._hurry = hurry
        self._between = [self._machine.between(level) for level in range(self._machine.depth)]

    def inside(self, errands: list[Errand], level: int) -> list[_Named]:
        """Returns the stages of errands within groups; `level` is that of the groups in these."""
        if level == self._machine.depth:
            return [("inside nodes", self._solver.stage(errands, self._machine.within(level - 1)))]
        if not errands:
            return []
        made = Choice(self._machine, level).stages(errands, self._turn, self._hurry)
        groups = f"{self._machine.names[level]}s"
        first = _sequence(self.inside(made.gather, level + 1))
        second = self._solver.stage(made.cross, self._between[level])
        before = [("to the rails" if groups == "nodes" else f"to the rails between {groups}", first)]
        candidates = [[*before, (f"between {groups}", second), *self.inside([*made.spread, *made.near], level + 1)]]
        if made.near and made.cross and not self._shared(level):
            meanwhile = _parallel(self._machine.network, [second, _sequence(self.inside(made.near, level + 1))])
            candidates.append([*before, (f"between {groups}", meanwhile), *self.inside(made.spread, level + 1)])
        return min(candidates, key=lambda stages: sum(s.total_rounds for _, s in stages))

    def _shared(self, level: int) -> bool:
        """Whether links between groups of a level share bounds with links inside them."""
        network = self._machine.network
        within = self._machine.within(level)
        return any(
            any(network.edges[e] in within for e in members)
            and any(network.edges[e] in self._between[level] for e in members)
            for members, _ in network.bounds
        )


def _sequence(stages: Iterable[_Named]) -> Schedule:
    """Schedules one after the other."""
    made = [s for _, s in stages]
    return Schedule(tuple(r for s in made for r in s.rounds), tuple(sends for s in made for sends in s.steps))


class _Stage:
    """Solves stages part by part; solves equal parts once."""

    def __init__(self, network: Network, solve: Solve) -> None:
        self._network = network
        self._solve = solve
        self._known: dict[object, Schedule] = {}

    def stage(self, errands: Sequence[Errand], edges: set[tuple[int, int]]) -> Schedule:
        """Returns a schedule that runs errands over some of the edges; parts that share no bound run in parallel."""
        if not errands:
            return Schedule((), ())
        part_of = _components(self._network, edges)
        listed: dict[int, list[Errand]] = {}
        for errand in errands:
            listed.setdefault(part_of[errand.source], []).append(errand)
        return _parallel(self._network, (self._part(mine, edges, part_of, part) for part, mine in listed.items()))

    def _part(self, errands: list[Errand], edges: set[tuple[int, int]], part_of: Sequence[int], part: int) -> Schedule:
        ranks = [r for r in range(self._network.ranks) if part_of[r] == part]
        small, number = _part(self._network, ranks, edges)
        alike: dict[tuple[int, frozenset[int]], list[int]] = {}
        for errand in errands:
            key = (number[errand.source], frozenset(number[t] for t in errand.targets))
            alike.setdefault(key, []).append(errand.chunk)
        ordered = sorted(alike.items(), key=lambda item: (item[0][0], sorted(item[0][1])))
        pieces = tuple(Piece(source, targets, len(chunks)) for (source, targets), chunks in ordered)
        chunks = [chunk for _, listed in ordered for chunk in listed]
        key = (small.ranks, small.edges, small.bounds, small.sent_once, pieces)
        if key not in self._known:
            if any(small.distance[p.source][t] == UNREACHABLE for p in pieces for t in p.targets):
                raise errors.error(
                    "NoPath",
                    f"ranks of a group of '{self._network.name}' do not all reach each other over its own links",
                )
            self._known[key] = self._solve(small, Demand("part", small.ranks, 1, 0, pieces))
        found = self._known[key]
        sends = (tuple(sorted((chunks[c], ranks[a], ranks[b]) for c, a, b in step)) for step in found.steps)
        return Schedule(found.rounds, tuple(sends))


def _part(network: Network, ranks: Sequence[int], edges: set[tuple[int, int]]) -> tuple[Network, dict[int, int]]:
    """The network of some ranks and some of the edges between them, and the ranks' new numbers."""
    number = {rank: i for i, rank in enumerate(ranks)}

    def kept(members: Iterable[int]) -> list[tuple[int, int]]:
        pairs = (network.edges[e] for e in members)
        return [(number[a], number[b]) for a, b in pairs if (a, b) in edges and a in number and b in number]

    relation = [(b, kept(members), chunks) for b, (members, chunks) in enumerate(network.bounds)]
    rows = [(b, pairs, chunks) for b, pairs, chunks in relation if pairs]
    once = ({i for i, (b, _, _) in enumerate(rows) if b in of} for of in (network.sent_once, network.received_once))
    sent, received = once
    named = [(pairs, chunks) for _, pairs, chunks in rows]
    return Network.of_relation(network.name, len(ranks), named, sent_once=sent, received_once=received), number


def _components(network: Network, edges: set[tuple[int, int]]) -> list[int]:
    """For each rank its part: ranks are in one part if edges join them, or if their edges share a bound."""
    parent = list(range(network.ranks))

    def root(r: int) -> int:
        while parent[r] != r:
            parent[r] = parent[parent[r]]
            r = parent[r]
        return r

    for members, _ in network.bounds:
        ends = [r for e in members if network.edges[e] in edges for r in network.edges[e]]
        for r in ends[1:]:
            parent[root(r)] = root(ends[0])
    return [root(r) for r in range(network.ranks)]


def _parallel(network: Network, schedules: Iterable[Schedule]) -> Schedule:
    """Independent schedules, run in parallel."""
    made = Schedule((), ())
    for each in schedules:
        long, short = sorted((made, each), key=lambda s: len(s.rounds), reverse=True)
        made = _beside(long, short)
        least = max(long.total_rounds, short.total_rounds)
        for steps in range(len(short.rounds) + 1, min(len(long.rounds), _FEW_STEPS) + 1):
            cut = stretched(short, network, steps) if short.rounds and made.total_rounds > least else None
            if cut is not None:
                made = min(made, _beside(long, cut), key=lambda s: s.total_rounds)
    return made


def _beside(long: Schedule, short: Schedule) -> Schedule:
    """Two independent schedules in the steps of the one that has more, in as few rounds as that allows."""
    most = len(short.rounds)
    if sum(map(max, long.rounds, short.rounds)) + sum(long.rounds[most:]) == max(long.total_rounds, short.total_rounds):
        return _together(long, short, range(most))
    # By the number of steps of the shorter one that took place: the rounds until now, and when these steps did.
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ()), *[None] * most]
    for i, rounds in enumerate(long.rounds):
        for j in range(most, -1, -1):
            before, alone = best[j - 1] if j else None, best[j]
            options = [] if alone is None else [(alone[0] + rounds, alone[1])]
            if before is not None:
                options.append((before[0] + max(rounds, short.rounds[j - 1]), (*before[1], i)))
            best[j] = min(options, default=None)
    placed = best[most]
    assert placed is not None  # noqa: S101 - there are as many steps
    return _together(long, short, placed[1])


def _together(long: Schedule, short: Schedule, places: Iterable[int]) -> Schedule:
    """A schedule with the steps of the shorter one at these places of the longer one."""
    counts, sends = list(long.rounds), list(long.steps)
    for at, rounds, more in zip(places, short.rounds, short.steps, strict=True):
        counts[at] = max(counts[at], rounds)
        sends[at] = tuple(sorted((*sends[at], *more)))
    return Schedule(tuple(counts), tuple(sends))


def solved(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a good schedule of a part: the fewest rounds in the fewest steps, or in a few more."""
    return _solved(session, network, demand, _SECONDS, _MORE_STEPS)


def quick(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a schedule of a part in the fewest steps, if one is soon found."""
    return _solved(session, network, demand, _QUICK, 0)


def grown(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a schedule of a part that takes no time to speak of, but many steps: of trees grown for each chunk."""
    own = replace(session, network=network, cache=None)
    return growing(own, demand, float(own.by_cuts(demand).rounds))


def _solved(session: Session, network: Network, demand: Demand, seconds: float, more: int) -> Schedule:
    most = time.monotonic() + min(_SHARE * session.left, seconds)
    own = replace(session, network=network, cache=None, deadline=most)
    least = max(cuts.least_steps(network, demand), 1)
    fewest = math.ceil(own.any_steps(demand).rounds)
    best: Schedule | None = None
    for steps in range(least, least + more + 1):
        for rounds in itertools.count(max(fewest, steps)):
            if time.monotonic() > most or (best is not None and rounds >= best.total_rounds):
                break
            own.deadline = most if best is None else min(most, time.monotonic() + _BETTER)
            answer = own.solve(demand, steps, rounds)
            best = best if answer.schedule is None else answer.schedule
            if answer.status == OPEN and best is not None:
                break  # with one round more it is about as hard
        if best is not None and best.total_rounds <= fewest:
            break
    return best or grown(session, network, demand)


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
