"""Schedules as a formula (001 section 3.3, step by step), for demands that copy chunks.

Variables say that a chunk is on a rank after a step, and that it is sent over an edge in a step. With a group of
automorphisms, variables that it maps to each other become one, so the formula shrinks by the order of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from gc3.synth.problem import FIRST_SLICE, slices
from gc3.synth.problem.demand import Demand, Holding, Send
from gc3.synth.problem.network import UNREACHABLE, Capacity, Network
from gc3.synth.problem.schedule import Schedule
from gc3.synth.problem.symmetry import Group
from gc3.synth.session import FOUND, IMPOSSIBLE, OPEN, TIME_OVER, Answer, Instance, Method
from gc3.synth.solvers import Formula, Solvers

_COMPARED = 24  # places used to order chunks
_MOST_REPEATED = 200  # how often a formula has a literal, for bandwidths that are fractions


class Satisfiability(Method):
    """A formula that chooses the rounds of each step, and decides."""

    cost = 100

    def decide(self, instance: Instance) -> Answer:
        """Returns the schedule, that there is none, or why that is not known."""
        network = instance.network
        if network.unit > 1 and max(network.unit, *network.whole) > _MOST_REPEATED:
            return Answer(OPEN, None, "not all splits of the rounds were tried: bandwidths without a simple unit")
        return decided(instance)


def decided(instance: Instance, holding: Holding | None = None) -> Answer:
    """Returns the answer of formulas with any rounds, in longer and longer attempts with fewer and fewer symmetries."""
    for seconds in slices(FIRST_SLICE):
        for group in instance.group.descending():
            if instance.session.left <= 0:
                return TIME_OVER
            answer = satisfied(instance, None, group, seconds, holding=holding)
            if answer.status == FOUND or (answer.status == IMPOSSIBLE and group.order == 1):
                return answer
    raise AssertionError("the slices never end")


def satisfied(
    instance: Instance,
    fixed: Sequence[int] | None,
    group: Group,
    seconds: float,
    *,
    ordered: bool = False,
    holding: Holding | None = None,
) -> Answer:
    """Returns the answer of the formula with these rounds, or any, and a group of symmetries; see `decide`."""
    session = instance.session
    shown = "for any rounds" if fixed is None else f"for rounds {', '.join(map(str, fixed))}"
    session.tell(f"formula {'within scratch' if holding else shown}, {group.order} symmetries")
    status, schedule = decide(
        session.solvers, instance.network, instance.demand, fixed, group, min(seconds, session.left),
        steps=instance.steps, total=instance.rounds, ordered=ordered, holding=holding,
    )  # fmt: skip
    if schedule is not None:
        return Answer(FOUND, schedule, f"satisfiability with {group.order} symmetries")
    return Answer(IMPOSSIBLE, None, "the formula has no model") if status == "unsat" else TIME_OVER


def decide(
    solvers: Solvers,
    network: Network,
    demand: Demand,
    rounds: Sequence[int] | None,
    group: Group,
    seconds: float,
    *,
    steps: int = 0,
    total: int = 0,
    ordered: bool = False,
    holding: Holding | None = None,
) -> tuple[str, Schedule | None]:
    """Finds a schedule that is invariant under a group: "sat" with it, "unsat" if there is none, or "unknown".

    The rounds of each step are given, or may be any with the sum `total` in `steps` steps. If the interchangeable
    chunks of a piece are `ordered`, it is sooner found that there is no schedule. A rank may be `holding` only so much
    in scratch.
    """
    encoding = _Encoding(network, demand, steps if rounds is None else len(rounds), group)
    encoding.limit(rounds, total)
    if holding is not None:
        encoding.hold(holding)
    if ordered:
        encoding.put_in_order()
    result = solvers.sat(encoding.formula, seconds)
    return result.status, encoding.schedule(result.true, rounds) if result.status == "sat" else None


class _Encoding:
    def __init__(self, network: Network, demand: Demand, steps: int, group: Group) -> None:
        self.network = network
        self.demand = demand
        self.steps = steps
        self.group = group
        self.formula = Formula()
        # By edge and step, the variables of sends over it with the chunk, for chunks of the first source of an orbit.
        self.sent: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.more: list[list[int]] = []  # by step and k: the step has more than k rounds
        self.held: list[
            tuple[int, dict[tuple[int, int], int]]
        ] = []  # the chunks, each with its variables by rank and step
        self.has: list[tuple[int, list[int]]] = []  # by chunk: its piece, and its variables by step and rank
        for chunk in group.chosen(demand):
            piece = demand.pieces[demand.piece_of[chunk]]
            self._chunk(chunk, piece.source, piece.targets)

    def _chunk(self, chunk: int, source: int, targets: frozenset[int]) -> None:
        network, formula, steps = self.network, self.formula, self.steps
        away = network.distance[source]
        has: dict[tuple[int, int], int] = {}
        for v in range(network.ranks):
            if v == source:
                continue
            left = min((network.distance[v][t] for t in targets), default=UNREACHABLE)
            for s in range(max(away[v], 1), steps - left + 1):
                has[v, s] = formula.variable()
            if v in targets:
                if (v, steps) not in has:
                    formula.clause()  # too far away
                    return
                formula.clause(has[v, steps])
        self.has.append((self.demand.piece_of[chunk], [has[k] for k in sorted(has, key=lambda k: (k[1], k[0]))]))
        self.held.append((chunk, has))
        for (v, s), now in has.items():
            self._arrival(chunk, source, v, s, now, has)

    def _arrival(self, chunk: int, source: int, v: int, s: int, now: int, has: dict[tuple[int, int], int]) -> None:
        """A chunk is on rank v after step s if it was there before, or is sent to it; a second send is never needed."""
        formula = self.formula
        before = has.get((v, s - 1))
        brought: list[int] = []
        for e in self.network.incoming[v]:
            u = self.network.edges[e][0]
            if u != source and (u, s - 1) not in has:
                continue
            send = formula.variable()
            brought.append(send)
            self.sent.setdefault((e, s - 1), []).append((chunk, send))
            formula.clause(-send, now)
            if u != source:
                formula.clause(-send, has[u, s - 1])
            if before is not None:
                formula.clause(-send, -before)
        if before is None:
            formula.clause(-now, *brought)
        else:
            formula.clause(-now, before, *brought)
            formula.clause(-before, now)

    def put_in_order(self) -> None:
        """Lets a chunk of a piece be where the next is, or in an earlier place of the list, in lexical order."""
        formula = self.formula
        for (piece, left), (other, right) in pairwise(self.has):
            if piece != other:
                continue
            same = 0  # the variable that says that they agree so far; 0 if that is certain
            for x, y in zip(left[:_COMPARED], right[:_COMPARED], strict=True):
                so_far = (-same,) if same else ()
                formula.clause(*so_far, x, -y)
                following = formula.variable()
                formula.clause(*so_far, -x, -y, following)
                formula.clause(*so_far, x, y, following)
                same = following

    def limit(self, rounds: Sequence[int] | None, total: int) -> None:
        """Enforces the bounds, with the given rounds or any with the sum `total`."""
        network, formula, group = self.network, self.formula, self.group
        if rounds is None:
            # A step's count of rounds in unary: the k-th variable says that there are more than k.
            self.more = [[formula.variable() for _ in range(total)] for _ in range(self.steps)]
            for row in self.more:
                for k in range(1, total):
                    formula.clause(-row[k], row[k - 1])
            formula.at_most([v for row in self.more for v in row], total)
        back = [group.edges[i] for i in group.inverse]
        for b, _ in group.bounds:
            members, chunks = network.bounds[b]
            for s in range(self.steps):
                literals = [send for e in members for moved in back for _, send in self.sent.get((moved[e], s), ())]
                if rounds is not None:
                    formula.at_most(literals, int(chunks * rounds[s]))
                else:
                    self._at_most_rounds(literals, chunks, self.more[s])

    def hold(self, holding: Holding) -> None:
        """Limits the chunks that a rank holds in a step: those that are there after it, and sent in it or later."""
        sends: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by chunk and sender: step and variable
        for (e, s), listed in self.sent.items():
            for chunk, send in listed:
                sends.setdefault((chunk, self.network.edges[e][0]), []).append((s, send))
        held: dict[tuple[int, int], list[int]] = {}
        for chunk, has in self.held:
            piece = self.demand.pieces[self.demand.piece_of[chunk]]
            for (v, after), there in has.items():
                later = [send for s, send in sends.get((chunk, v), ()) if s >= after - 1]
                if later and (holding.targets or v not in piece.targets):
                    variable = self.formula.variable()
                    held.setdefault((v, after - 1), []).append(variable)
                    for send in later:
                        self.formula.clause(-there, -send, variable)
        back = [self.group.elements[i] for i in self.group.inverse]
        for v in sorted({home for home, _ in self.group.home}):
            for s in range(self.steps):
                self.formula.at_most([h for moved in back for h in held.get((moved[v], s), ())], holding.room)

    def _at_most_rounds(self, literals: Sequence[int], chunks: Capacity, more: Sequence[int]) -> None:
        """At most `chunks` of the literals for each round: a round that does not exist fills that much capacity."""
        if not literals:
            return
        whole, part = Fraction(chunks).as_integer_ratio()
        room = [-m for m in more for _ in range(whole)]
        taken = [v for v in literals for _ in range(part)]
        self.formula.at_most([*taken, *room], whole * len(more))

    def schedule(self, true: frozenset[int], rounds: Sequence[int] | None) -> Schedule:
        """Returns the schedule of a model of the formula."""
        demand, group, network = self.demand, self.group, self.network
        if rounds is None:
            rounds = [sum(v in true for v in row) for row in self.more]
        found: list[tuple[int, Send]] = []
        for (e, s), sends in self.sent.items():
            src, dst = network.edges[e]
            for chunk, send in sends:
                if send not in true:
                    continue
                for element, moved in enumerate(group.elements):
                    found.append((s, (group.chunk_image(demand, chunk, element), moved[src], moved[dst])))
        return Schedule.of(rounds, found)
