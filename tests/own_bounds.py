"""References for the random tests of synthesis: a replay of schedules, and linear programs, without code of gc3."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

Relation = tuple[tuple[tuple[tuple[int, int], ...], Fraction], ...]
ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True)
class Machine:
    """Ranks, and the capacity of sets of pairs in a round.

    Switches multicast what leaves a rank by the sets `sent_once`, and add up what reaches one by `received_once`.
    """

    ranks: int
    relation: Relation
    sent_once: frozenset[int] = frozenset()
    received_once: frozenset[int] = frozenset()

    @property
    def back(self) -> Machine:
        """The machine with the direction of every pair reversed."""
        turned = tuple((tuple((b, a) for a, b in pairs), most) for pairs, most in self.relation)
        return Machine(self.ranks, turned, self.received_once, self.sent_once)

    @property
    def plain(self) -> Machine:
        """The machine with switches that do neither."""
        return Machine(self.ranks, self.relation)


def replay(machine: Machine, name: str, chunks: int, root: int, rounds: Sequence[int], steps: Any) -> None:
    """Checks that a schedule fits the machine and implements the collective; all values are sets of contributions."""
    assert len(rounds) == len(steps)
    loads: dict[tuple[int, int], list[int]] = {}  # of each pair, the sets that have it
    for i, (pairs, _) in enumerate(machine.relation):
        for pair in dict.fromkeys(pairs):
            loads.setdefault(pair, []).append(i)
    before, after = _meaning(machine.ranks, name, chunks, root)
    combining = name in ("reduce", "reducescatter", "allreduce")
    held = {place: frozenset({place[1]}) for place in before}
    for count, sends in zip(rounds, steps, strict=True):
        assert all((src, dst) in loads for _, src, dst in sends)
        moved = [(chunk, dst, held[chunk, src]) for chunk, src, dst in sends]  # KeyError: the data has not arrived
        added = [(c, dst) in held and combining and len(v) < machine.ranks for c, dst, v in moved]
        messages: list[set[tuple[int, ...]]] = [set() for _ in machine.relation]
        for (c, src, dst), adds in zip(sends, added, strict=True):
            for i in loads[src, dst]:
                messages[i].add(
                    (c, dst, adds) if adds and i in machine.received_once
                    else (c, src, adds) if not adds and i in machine.sent_once
                    else (c, src, dst, adds)
                )  # fmt: skip
        for (pairs, most), carried in zip(machine.relation, messages, strict=True):
            assert len(carried) <= math.floor(most * count), (name, pairs, carried, most, count)
        for chunk, dst, value in moved:
            mine = held.get((chunk, dst), frozenset[int]())
            if combining and len(value) < machine.ranks:
                assert not mine & value, "a contribution counts twice"
            held[chunk, dst] = mine | value if combining else value
    everyone = frozenset(range(machine.ranks))
    for chunk, rank, owner in after:
        assert held[chunk, rank] == (everyone if combining else frozenset({owner})), (name, chunk, rank)


def _meaning(ranks: int, name: str, chunks: int, root: int) -> tuple[set[tuple[int, int]], set[tuple[int, int, int]]]:
    """The initial ranks of the chunks, and the required (chunk, rank, owner)."""
    everyone = range(ranks)
    each = chunks // ranks
    if name == "allgather":
        owners = [r for r in everyone for _ in range(chunks)]
        targets = [list(everyone)] * len(owners)
    elif name == "alltoall":
        owners = [s for s in everyone for _ in everyone for _ in range(each)]
        targets = [[d] for _ in everyone for d in everyone for _ in range(each)]
    elif name == "broadcast":
        owners, targets = [root] * chunks, [list(everyone)] * chunks
    elif name == "gather":
        owners = [r for r in everyone for _ in range(chunks)]
        targets = [[root]] * len(owners)
    elif name == "scatter":
        owners, targets = [root] * chunks, [[d] for d in everyone for _ in range(each)]
    elif name == "alltonext":
        owners = [r for r in everyone for _ in range(chunks)]
        targets = [[r + 1] if r + 1 < ranks else [] for r in owners]
    else:
        wanted = {"reduce": lambda _: [root], "reducescatter": lambda c: [c // each], "allreduce": lambda _: everyone}
        places = {(c, r) for c in range(chunks) for r in everyone}
        return places, {(c, r, -1) for c in range(chunks) for r in wanted[name](c)}
    before = {(c, owner) for c, owner in enumerate(owners)}
    return before, {(c, t, owners[c]) for c in range(len(owners)) for t in targets[c]}


@cache
def least_ratio(machine: Machine, name: str, root: int, steps: int | None = None) -> float:
    """A lower bound on R/C by a linear program over fractions of chunks; for a number of steps, if given.

    For any number of steps, many small chunks approach it: by trees if all ranks need all data (Edmonds), by paths if
    chunks have one target.
    """
    if name == "reduce":
        return least_ratio(machine.back, "broadcast", root, steps)
    if name == "reducescatter":
        return least_ratio(machine.back, "allgather", 0, steps) / machine.ranks
    every = range(machine.ranks)
    goals: dict[str, list[tuple[int, list[int], float]]] = {
        "allgather": [(r, [t for t in every if t != r], 1.0) for r in every],
        "alltoall": [(s, [d], 1.0 / machine.ranks) for s in every for d in every if s != d],
        "broadcast": [(root, [t for t in every if t != root], 1.0)],
        "gather": [(s, [root], 1.0) for s in every if s != root],
        "scatter": [(root, [d], 1.0 / machine.ranks) for d in every if d != root],
        "alltonext": [(r, [r + 1], 1.0) for r in every if r + 1 < machine.ranks],
    }
    return _program(machine, goals[name], steps)


def _program(machine: Machine, goals: list[tuple[int, list[int], float]], steps: int | None) -> float:  # noqa: PLR0912
    import highspy  # noqa: PLC0415 - only where it is installed

    edges = sorted({pair for pairs, _ in machine.relation for pair in pairs})
    layers = 1 if steps is None else steps
    cost: list[float] = [1.0] * layers
    rows: list[tuple[dict[int, float], float, float]] = []
    used: dict[tuple[tuple[int, int], int], list[int]] = {(e, s): [] for e in edges for s in range(layers)}

    once: dict[tuple[int, int], list[int]] = defaultdict(list)

    def variable() -> int:
        cost.append(0.0)
        return len(cost) - 1

    for source, targets, amount in goals:
        shared = {place: variable() for place in used}
        for place, v in shared.items():
            used[place].append(v)
        # What leaves a rank for each target by a set that a multicast loads once.
        left = {(i, s): variable() for i in machine.sent_once for s in range(layers)}
        for place, v in left.items():
            once[place].append(v)
        for target in targets:
            reaching: dict[tuple[int, int], dict[int, float]] = {place: {v: -1.0} for place, v in left.items()}
            balance: dict[tuple[int, int], dict[int, float]] = {}
            for (src, dst), s in used:
                v = variable()
                rows.append(({v: 1.0, shared[(src, dst), s]: -1.0}, -math.inf, 0.0))
                for i in machine.sent_once:
                    if (src, dst) in machine.relation[i][0]:
                        reaching[i, s][v] = 1.0
                later = 0 if steps is None else s + 1
                balance.setdefault((src, s), {})[v] = -1.0
                balance.setdefault((dst, later), {})[v] = 1.0
            if steps is not None:
                for r in range(machine.ranks):
                    for s in range(steps):
                        v = variable()
                        balance.setdefault((r, s), {})[v] = -1.0
                        balance.setdefault((r, s + 1), {})[v] = 1.0
            rows += [(terms, -math.inf, 0.0) for terms in reaching.values()]
            ends = {(source, 0): -amount, (target, layers if steps is not None else 0): amount}
            rows += [(terms, ends.get(place, 0.0), ends.get(place, 0.0)) for place, terms in balance.items()]
    for i, (pairs, most) in enumerate(machine.relation):
        for s in range(layers):
            terms = dict.fromkeys(once[i, s] or [v for pair in pairs for v in used[pair, s]], 1.0)
            rows.append(({**terms, s: -float(most)}, -math.inf, 0.0))
    h: Any = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    begin, index, value = [0], list[int](), list[float]()
    for terms, _, _ in rows:
        index += terms
        value += terms.values()
        begin.append(len(index))
    inf = highspy.kHighsInf
    lows = [max(low, -inf) for _, low, _ in rows]
    h.passModel(len(cost), len(rows), len(index), 2, 1, 0.0, cost, [0.0] * len(cost), [inf] * len(cost), lows,
                [high for _, _, high in rows], begin[:-1], index, value, [0] * len(cost))  # fmt: skip
    h.run()
    if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return math.inf
    return float(h.getInfo().objective_function_value)
