"""Schedules for machines of several nodes, composed of schedules inside nodes and between them.

Ranks with the same position in their nodes that reach each other are a *rail*; a rank of a smaller node has several
positions. Every chunk that leaves its node uses a
rail. First it goes to the rail's rank in its node, then once to the rail's rank in each node that needs it, and then to
its targets inside. Each of the three stages is a separate problem, small enough to be solved if the whole is not: node
by node, and rails that share no bound one by one. Equal problems are solved once. Data that stays in a node is
distributed while other data crosses, if nodes and rails share no bound.

The composition fits the network by construction, and is checked like every schedule. It need not be optimal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gc3 import errors
from gc3.synth.demand import Demand, Piece
from gc3.synth.limits import Hurry, at_leisure
from gc3.synth.network import UNREACHABLE, Network
from gc3.synth.schedule import Schedule, Send

Solve: TypeAlias = Callable[[Network, Demand], Schedule]


@dataclass(frozen=True, slots=True)
class _Errand:
    """A chunk that has to get from one rank to others in one of the stages."""

    chunk: int
    source: int
    targets: frozenset[int]


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed schedule.

    Attributes:
        schedule: The schedule.
        parts: Its parts in order: a name with its steps and rounds.
    """

    schedule: Schedule
    parts: tuple[tuple[str, int, int], ...]


def compose(network: Network, demand: Demand, solve: Solve, hurry: Hurry = at_leisure) -> Composition:
    """Returns a schedule that is composed of schedules inside nodes and between them.

    Args:
        network: A network of several nodes.
        demand: The demand.
        solve: Solves a part: a schedule for a smaller network.
        hurry: Raises TimeUp at the time limit.

    Raises:
        TimeUp: The time limit was reached.
        gc3.UserError: The network has no nodes, or their differences leave no rails.
    """
    nodes = _nodes(network)
    rails = _rails(network, nodes)
    gather, cross, spread, near = _errands(network, demand, rails, hurry)
    inside = {(a, b) for a, b in network.edges if network.nodes[a] == network.nodes[b]}
    between = {(a, b) for rail in rails for a in rail for b in rail if a != b} & set(network.edges)
    shared = any({network.edges[e] in inside for e in members} == {True, False} for members, _ in network.bounds)
    solver = _Stage(network, solve)
    first = solver.stage(gather, inside)
    second = solver.stage(cross, between)
    candidates = [[("to the rails", first), ("between nodes", second), ("inside nodes", [*spread, *near])]]
    if not shared:
        meanwhile = _parallel([second, solver.stage(near, inside)])
        candidates.append([("to the rails", first), ("between nodes", meanwhile), ("inside nodes", spread)])
    best: Composition | None = None
    for stages in candidates:
        made = [(name, s if isinstance(s, Schedule) else solver.stage(s, inside)) for name, s in stages]
        parts = tuple((name, len(s.rounds), s.total_rounds) for name, s in made if s.rounds)
        whole = Schedule(
            tuple(r for _, s in made for r in s.rounds), tuple(sends for _, s in made for sends in s.steps)
        )
        if best is None or whole.total_rounds < best.schedule.total_rounds:
            best = Composition(whole, parts)
    assert best is not None  # noqa: S101 - there is a candidate
    return best


def _nodes(network: Network) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank, node in enumerate(network.nodes):
        found.setdefault(node, []).append(rank)
    if len(found) <= 1:
        raise errors.error("BadArgument", f"'{network.name}' is not made of several nodes: leave out --hierarchical")
    return list(found.values())


def _rails(network: Network, nodes: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ranks, one of each node, with the same position in their nodes that reach each other over their own links."""
    rails: list[list[int]] = []
    for place in range(max(map(len, nodes))):
        ranks = [members[place % len(members)] for members in nodes]
        here, _ = _part(network, ranks, {(a, b) for a in ranks for b in ranks if a != b})
        if all(d < UNREACHABLE for row in here.distance for d in row):
            rails.append(ranks)
    if not rails:
        raise errors.error(
            "NoPath", f"no ranks of '{network.name}' reach those of the same place in other nodes: no rails to cross by"
        )
    return rails


def _errands(
    network: Network, demand: Demand, rails: Sequence[Sequence[int]], hurry: Hurry
) -> tuple[list[_Errand], list[_Errand], list[_Errand], list[_Errand]]:
    """The chunks to send to the rails, across, from the rails to targets, and within each node."""
    node_of = [list(dict.fromkeys(network.nodes)).index(node) for node in network.nodes]
    load: Counter[tuple[int, int]] = Counter()  # from a rank to a node (~n), and from a node to a rank
    gather: list[_Errand] = []
    cross: list[_Errand] = []
    spread: list[_Errand] = []
    near: list[_Errand] = []
    order = sorted(range(demand.chunk_count), key=lambda c: c - demand.first[demand.piece_of[c]])
    for chunk in order:  # sources alternate
        hurry()
        piece = demand.pieces[demand.piece_of[chunk]]
        home = node_of[piece.source]
        wanted: dict[int, set[int]] = {}
        for target in piece.targets:
            wanted.setdefault(node_of[target], set()).add(target)
        stays = frozenset(wanted.pop(home, set[int]()))
        if stays:
            near.append(_Errand(chunk, piece.source, stays))
        if not wanted:
            continue

        def cost(
            rail: Sequence[int], home: int = home, own: int = piece.source, wanted: dict[int, set[int]] = wanted
        ) -> tuple[int, ...]:
            ends = sum(rail[n] not in targets for n, targets in wanted.items())
            fullest = max(max(load[rail[home], ~n], load[~home, rail[n]]) for n in wanted)
            return fullest, int(rail[home] != own), ends

        rail = min(rails, key=cost)
        entry = rail[home]
        if entry != piece.source:
            gather.append(_Errand(chunk, piece.source, frozenset({entry})))
        cross.append(_Errand(chunk, entry, frozenset(rail[n] for n in wanted)))
        for n, targets in wanted.items():
            load[entry, ~n] += 1
            load[~home, rail[n]] += 1
            rest = frozenset(targets - {rail[n]})
            if rest:
                spread.append(_Errand(chunk, rail[n], rest))
    return gather, cross, spread, near


class _Stage:
    """Solves stages part by part; solves equal parts once."""

    def __init__(self, network: Network, solve: Solve) -> None:
        self._network = network
        self._solve = solve
        self._known: dict[object, Schedule] = {}

    def stage(self, errands: Sequence[_Errand], edges: set[tuple[int, int]]) -> Schedule:
        """Returns a schedule that runs errands over some of the edges; parts that share no bound run in parallel."""
        if not errands:
            return Schedule((), ())
        part_of = _components(self._network, edges)
        listed: dict[int, list[_Errand]] = {}
        for errand in errands:
            listed.setdefault(part_of[errand.source], []).append(errand)
        return _parallel([self._part(mine, edges, part_of, part) for part, mine in listed.items()])

    def _part(self, errands: list[_Errand], edges: set[tuple[int, int]], part_of: Sequence[int], part: int) -> Schedule:
        ranks = [r for r in range(self._network.ranks) if part_of[r] == part]
        small, number = _part(self._network, ranks, edges)
        alike: dict[tuple[int, frozenset[int]], list[int]] = {}
        for errand in errands:
            key = (number[errand.source], frozenset(number[t] for t in errand.targets))
            alike.setdefault(key, []).append(errand.chunk)
        ordered = sorted(alike.items(), key=lambda item: (item[0][0], sorted(item[0][1])))
        pieces = tuple(Piece(source, targets, len(chunks)) for (source, targets), chunks in ordered)
        chunks = [chunk for _, listed in ordered for chunk in listed]
        key = (small.ranks, small.edges, small.bounds, pieces)
        if key not in self._known:
            if any(small.distance[p.source][t] == UNREACHABLE for p in pieces for t in p.targets):
                raise errors.error(
                    "NoPath", f"ranks of a node of '{self._network.name}' do not all reach each other inside it"
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

    relation = [(kept(members), chunks) for members, chunks in network.bounds]
    return Network.of_relation(network.name, len(ranks), [(p, c) for p, c in relation if p]), number


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


def _parallel(schedules: Sequence[Schedule]) -> Schedule:
    """Independent schedules, run in parallel."""
    steps = max((len(s.rounds) for s in schedules), default=0)
    rounds = [max(s.rounds[i] for s in schedules if i < len(s.rounds)) for i in range(steps)]
    sends: list[list[Send]] = [[] for _ in range(steps)]
    for s in schedules:
        for i, step in enumerate(s.steps):
            sends[i] += step
    return Schedule(tuple(rounds), tuple(tuple(sorted(step)) for step in sends))
