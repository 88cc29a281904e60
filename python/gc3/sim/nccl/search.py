"""NCCL's search for channels on a node (src/graph/search.cc): which orders of GPUs, how many, and how fast each.

A search tries a rate, and adds channels that each take this rate from every part of their paths, until none fits. It
begins with the fastest rate, the best class of paths and equal channels. If it finds nothing that cannot be improved,
it tries channels that differ, worse classes, rings that leave by another NIC than they enter, and lower rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from gc3.sim.nccl.system import LOC, NET, PIX, PXN, SYS, Route, System

RING, SPLIT_TREE, BALANCED_TREE, TREE = 4, 2, 1, 3  # NCCL_TOPO_PATTERN_*
_CROSS_NIC = 2  # NCCL_CROSS_NIC: as the search likes
_HOPPER, _AMPERE = 90, 80
_WIDEST = 16  # channels for which each attempt has steps enough
# Steps of a search, with equal channels, with others, and in all. NCCL takes up to 16 times as many; on the machines
# that were tried, channels found after these were no better.
_SAME, _OTHER, _ALL, _FIRST = 1 << 8, 1 << 11, 1 << 14, 1 << 10

_LEAST = (2.4, 1.2, 0.24, 0.12)
_MID = (18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_OLD = (42.0, 30.0, 24.0, 21.0, *_MID, *_LEAST)
_IN_90 = (40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_HIGH_90, _LOW_90 = (42.0, 40.0, 30.0, 24.0), (20.0, 17.5, 15.0, 12.0, 6.0, 3.0, *_LEAST)
_IN_100, _IN_100_LOW = (90.0, 80.0, 70.0, 60.0, 50.0), (40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
# The rates that a search tries, in GB/s, inside a node and between nodes: from a capability and a version 2.x on.
_SPEEDS: tuple[tuple[int, int, tuple[float, ...], tuple[float, ...]], ...] = (
    (0, 0, _OLD, _OLD),
    (0, 12, (44.0, 30.0, 22.0, *_MID), (48.0, 30.0, 24.0, 22.0, *_MID, *_LEAST)),
    (0, 17, (44.0, 30.0, 22.0, *_MID), (48.0, 30.0, 28.0, 24.0, 22.0, *_MID, *_LEAST)),
    (0, 18, (40.0, 30.0, 20.0, *_MID), (48.0, 30.0, 28.0, 24.0, 20.0, *_MID, *_LEAST)),
    (90, 17, (66.0, 33.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0), (48.0, 45.0, 30.0, 24.0, 15.0, 12.0, 6.0, 3.0, *_LEAST)),
    (90, 18, (60.0, *_IN_90), (48.0, 45.0, *_HIGH_90, *_LOW_90)),
    (90, 20, (60.0, 50.0, *_IN_90), (48.0, 45.0, *_HIGH_90, 22.0, *_LOW_90)),
    (100, 26, (*_IN_100, *_IN_100_LOW), (48.0, 45.0, *_HIGH_90, 22.0, *_LOW_90)),
    (100, 27, (*_IN_100, *_IN_100_LOW), (47.9, 45.0, *_HIGH_90, 22.0, *_LOW_90)),
    (100, 28, (*_IN_100, *_IN_100_LOW), (96.0, 48.0, 45.1, *_HIGH_90, 22.0, *_LOW_90)),
    (100, 30, (*_IN_100, 45.0, *_IN_100_LOW), (96.0, 86.0, 80.0, 48.0, 45.1, *_HIGH_90, 22.0, *_LOW_90)),
)


def speeds(capability: int, minor: int, *, several: bool) -> tuple[float, ...]:
    """Returns the rates that version 2.`minor` tries.

    >>> speeds(80, 8, several=False)[:4], speeds(90, 26, several=True)[:3]
    ((42.0, 30.0, 24.0, 21.0), (48.0, 45.0, 42.0))
    """
    inside, across = [rates for least, since, *rates in _SPEEDS if least <= capability and since <= minor][-1]
    return across if several else inside


@dataclass(frozen=True, slots=True)
class Found:
    """A result of a search, or what one tries.

    Attributes:
        pattern: What channels look like, by NCCL's number.
        inside: GB/s of a channel inside the node.
        across: The same between nodes.
        type_inside: The worst class of its paths between GPUs.
        type_across: That of its paths to NICs.
        cross: 2: a ring may leave by another NIC than it enters.
        same: Whether all channels are equal.
        hops: Parts of all paths.
        orders: The GPUs of each channel, in order.
        cards: The NICs at the beginning and the end of each.
    """

    pattern: int
    inside: float = 0.0
    across: float = 0.0
    type_inside: int = NET
    type_across: int = NET
    cross: int = 0
    same: bool = True
    hops: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    cards: tuple[tuple[int, int], ...] = ()

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.orders)


@lru_cache(maxsize=64)
def search(on: System, pattern: int, capability: int, minor: int, least: int, most: int) -> Found:
    """Returns what NCCL finds on a node.

    Args:
        on: The node.
        pattern: What to look for.
        capability: Compute capability of the GPUs, times ten.
        minor: Of NCCL 2.`minor`.
        least: Fewest channels.
        most: Most channels.
    """
    return _Search(on, pattern, capability, minor, least, most).run()


class _Search:
    def __init__(self, on: System, pattern: int, capability: int, minor: int, least: int, most: int) -> None:
        self.on, self.capability, self.minor, self.least, self.most = on, capability, minor, least, most
        if pattern != RING and on.gpus == 1:
            pattern = TREE
        elif pattern == BALANCED_TREE and capability < _AMPERE:
            pattern = SPLIT_TREE
        self.best = Found(pattern)
        self._begin(Found(pattern), 0)
        self.known: dict[tuple[int, int], list[int]] = {}

    def run(self) -> Found:
        """Both passes: what is best, and whether it can be faster with the same channels."""
        on = self.on
        kinds = [way.kind for row in on.routes for way in row if way]
        cards = [way.kind for row in on.exits for way in row]
        # Only classes that some path has: others allow nothing more.
        self.inside, self.across = sorted(set(kinds)) or [LOC], sorted(set(cards)) or [PIX]
        rates = speeds(self.capability, self.minor, several=on.several)
        if on.gpus == 1 and not on.several:
            return Found(self.best.pattern, rates[0], rates[0], LOC, PIX, orders=((0,),), cards=((-1, -1),))
        total = on.total * (on.gpus / (on.gpus - 1) if self.best.pattern != RING and on.gpus > 1 else 1)
        at = next((i for i, s in enumerate(rates) if s <= on.most and s * self.least <= total), len(rates) - 1)
        self._down(rates, at, total)
        if not self.best.channels:
            alone = (tuple(range(on.gpus)),)
            return Found(self.best.pattern, 0.1, 0.1, SYS, SYS, orders=alone, cards=((0, 0),))
        self._double()
        self._up(rates)
        return self.best

    def _down(self, rates: Sequence[float], at: int, total: float) -> None:
        """The first pass, from fast to slow."""
        spent = 0
        for i in range(at, len(rates)):
            if self.best.channels and not rates[i] / self.best.across > 0.49:  # noqa: PLR2004
                return
            if self.on.several and sum(rate // rates[i] for rate in self.on.nics) < self.least:
                continue  # each channel enters by a NIC
            for attempt in self._attempts(rates[i]):
                before = self.best
                spent += self._try(attempt)
                if self.time == -1 or self.best.channels * self.best.across >= total:
                    return
                if before is not self.best:
                    spent = 0
                if spent > _ALL and self.best.channels:
                    return

    def _attempts(self, rate: float) -> Iterator[Found]:
        """What a rate is tried with."""
        pattern, several = self.best.pattern, self.on.several
        simpler = pattern == BALANCED_TREE and self.capability >= _HOPPER
        crosses = len(self.on.nics) > 1 and pattern in (RING, BALANCED_TREE)
        for cross in (0, _CROSS_NIC) if crosses else (0,):
            for across in self.across:
                if self.best.channels and several and across > self.best.type_across and across >= PXN:
                    break
                for inside in self.inside:
                    most = self.best.type_inside if self.best.channels else SYS
                    if inside > (min(most, max(across, self.inside[0])) if several else most):
                        break
                    for shape, same in product((pattern, TREE) if simpler else (pattern,), (True, False)):
                        yield Found(shape, rate, rate, inside, across, cross, same)

    def _double(self) -> None:
        """Two channels for each that is too fast for one."""
        best = self.best
        fast = best.inside < 50.0 and best.channels > 4 and self.capability > _AMPERE and self.minor >= 18  # noqa: PLR2004
        if best.inside < 25.0 or fast:  # noqa: PLR2004
            return
        count = min(2 * best.channels, self.most)
        parts = -(-count // best.channels)
        orders, cards = ((2 * x)[:count] for x in (best.orders, best.cards))
        self.best = replace(best, inside=best.inside / parts, across=best.across / parts, orders=orders, cards=cards)

    def _up(self, rates: Sequence[float]) -> None:
        """The second pass: faster rings of as many channels, and faster trees inside the node."""
        self.least = self.best.channels
        at = next((i for i, s in enumerate(rates) if s <= self.best.across), len(rates) - 1)
        ring = self.best.pattern == RING
        tried = replace(self.best, inside=rates[at], across=rates[at])
        while at > 0 and (ring or (tried.inside == self.best.inside and tried.inside < 2 * tried.across)):
            at -= 1
            tried = replace(tried, inside=rates[at], across=rates[at] if ring else tried.across)
            before = self.best
            self._try(tried)
            if self.time == 0 or (before is self.best and (not ring or rates[at] > self.on.most)):
                return

    def _try(self, attempt: Found) -> int:
        """Searches once, and returns the steps it took."""
        walk = 2 * self.on.gpus * min(self.most, _WIDEST)
        most = (_SAME if attempt.same else _OTHER if attempt.pattern == RING else _OTHER // 4) + walk
        self._begin(attempt, most)
        self._more()
        return most - max(self.time, 0)

    def _begin(self, attempt: Found, time: int) -> None:
        """Leaves everything free, and no channel."""
        self.now, self.time, self.hops = attempt, time, 0
        self.left, self.nics = list(self.on.capacity), list(self.on.nics)
        self.orders: list[tuple[int, ...]] = []
        self.cards: list[tuple[int, int]] = []

    # --- channels

    def _more(self) -> None:
        """Adds a channel in every way, and others after it."""
        for card, gpu, order, limit in self._starts():
            outer = self.time
            if limit:
                self.time = limit
            for walked, end in self._walks(card, gpu, order):
                self._keep(walked, (card, end))
            if limit and self.time != -1:
                self.time = outer
            if card >= 0:
                self.nics[card] += self.now.across
            if self.time <= 0:
                return

    def _keep(self, walked: tuple[int, ...], ends: tuple[int, int]) -> None:
        now, best = self.now, self.best
        self.orders.append(walked)
        self.cards.append(ends)
        count = len(self.orders)
        rate, least = count * now.inside, best.channels * best.inside
        alike = now.pattern == best.pattern and now.cross == best.cross
        if count >= self.least and (rate > least or (rate == least and alike and self.hops < best.hops)):
            self.best = replace(now, hops=self.hops, orders=tuple(self.orders), cards=tuple(self.cards))
            if count == self.most:
                self.time = -1
        if count < self.most and self.time > 0:
            self._more()
        self.orders.pop()
        self.cards.pop()

    def _starts(self) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
        """Where a channel can begin: NIC, GPU, the order to follow, and the steps that this may take."""
        count = len(self.orders)
        last = self.orders[-1] if count else tuple[int, ...]()
        if not self.on.several:
            order = last or tuple(range(self.on.gpus))
            yield -1, next(iter(order)), order, 0
            for gpu in range(self.on.gpus) if not (self.now.same and count) else ():
                yield -1, gpu, (), 0
            return
        cards = self._cards()
        for i in range(len(cards)):
            card = cards[(count + i) % len(cards)]
            if self.nics[card] < self.now.across or not self.on.entry[card]:
                continue
            if self.now.pattern == RING and self.now.cross and count & 1 and card != self.cards[-1][1]:
                continue
            ways: list[tuple[int, tuple[int, ...], int]]
            ways = [(last[0], last, 0)] if count and self.now.same else [(g, (), 0) for g in self._near(card)]
            if not count and not self.on.switched:
                ways.insert(0, (0, tuple(range(self.on.gpus)), _FIRST))
            for gpu, order, limit in ways:
                self.nics[card] -= self.now.across
                yield card, gpu, order, limit

    def _near(self, card: int) -> list[int]:
        """The GPUs of a NIC; of those that share several NICs each comes first at another one."""
        near = [g for g, _ in self.on.entry[card]]
        turn = sum(len(other) == len(near) and other[0][0] == near[0] for other in self.on.entry[:card]) % len(near)
        return near[turn:] + near[:turn]

    def _cards(self, gpu: int = -1) -> list[int]:
        """NICs: those nearest to a GPU, or to any, and others that a path of the allowed class reaches."""
        key = (gpu, self.now.type_across)
        if key not in self.known:
            gpus, cards = range(self.on.gpus) if gpu < 0 else (gpu,), range(len(self.on.nics))
            own = [c for g in gpus for c in cards if any(g == near for near, _ in self.on.entry[c])]
            kinds = sorted((self.on.exits[g][c].kind, g, c) for g in gpus for c in cards)
            self.known[key] = list(dict.fromkeys([*own, *(c for kind, _, c in kinds if kind <= key[1])]))
        return self.known[key]

    # --- one channel

    def _plan(self) -> str:
        """What a channel does after its beginning: h, a hop to another GPU; n, to a NIC; b, half of that; c, close."""
        hops = "h" * (self.on.gpus - 1)
        if self.now.pattern == RING:
            return hops + ("n" if self.on.several else "c" * (self.on.gpus > 1))
        if not self.on.several:
            return hops
        if self.now.pattern == BALANCED_TREE and hops:
            return "bhb" + hops[1:]
        return hops[:1] + "n" + hops[1:] if self.now.pattern == SPLIT_TREE else "n" + hops

    def _walks(self, card: int, gpu: int, order: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yields each way of a channel, with what it needs taken until the next is asked for."""
        plan, now = self._plan(), self.now
        start = dict(self.on.entry[card]).get(gpu) if card >= 0 else None
        if card >= 0 and (start is None or not self._take(start, now.across, now.type_across)):
            return
        walked, end = [gpu], card
        held: list[tuple[Route, float, int | None, int]] = []
        options = [self._options(plan, 0, walked, card, end, order)]
        while options:
            if len(held) == len(options):
                end = self._back(held, walked)
            step = next(options[-1], None)
            if step is None:
                options.pop()
                continue
            way, rate, worst, to = step
            if not self._take(way, rate, worst):
                continue
            hop = plan[len(held)] == "h"
            held.append((way, rate, to if hop else None, end))
            if hop:
                walked.append(to)
            else:
                end = to
            self.time -= 1
            if len(held) == len(plan):
                yield tuple(walked), end
            elif self.time > 0:
                options.append(self._options(plan, len(held), walked, card, end, order))
            if self.time <= 0:
                options.clear()
        for way, rate, _, _ in held:
            self._give(way, rate)
        if start is not None:
            self._give(start, now.across)

    def _back(self, held: list[tuple[Route, float, int | None, int]], walked: list[int]) -> int:
        """Undoes the last step, and returns the NIC at the end of those before."""
        way, rate, added, end = held.pop()
        self._give(way, rate)
        if added is not None:
            walked.pop()
        return end

    def _options(
        self, plan: str, at: int, walked: list[int], card: int, end: int, order: tuple[int, ...]
    ) -> Iterator[tuple[Route, float, int, int]]:
        """The ways on from here: path, rate, worst class, and the GPU or NIC at its end."""
        now, here, routes = self.now, walked[-1], self.on.routes
        what = plan[at] if at < len(plan) else ""
        if what in ("h", "c"):
            if what == "c":
                others: Sequence[int] = walked[:1]
            elif order:
                others = order[len(walked) : len(walked) + 1]
            else:
                others = self._next(here, walked, card if plan[at + 1 : at + 2] in ("n", "b") and card >= 0 else -1)
            for g in others:
                way = routes[here][g]
                if way is not None:
                    yield way, now.inside, now.type_inside, end if what == "c" else g
        elif what:
            rate = now.across / 2 if what == "b" else now.across
            for c in self._cards(here):
                if self._leaves(c, card, end, second=what == "b" and at > 0):
                    yield self.on.exits[here][c], rate, now.type_across, c

    def _leaves(self, card: int, start: int, end: int, *, second: bool) -> bool:
        """Whether a channel that began at a NIC may leave by another."""
        if second:
            return card == end
        if self.now.pattern == RING and self.now.cross:
            return not len(self.orders) & 1 or card == self.cards[-1][0]
        return card == start if self.now.pattern == TREE or not self.now.cross else True

    def _next(self, here: int, walked: list[int], card: int) -> list[int]:
        """The GPUs to go to, the best first; with switches only the neighbours."""
        on, used = self.on, set(walked)
        if on.switched:
            after, before = (here + 1) % on.gpus, (here - 1) % on.gpus
            near = (before, after) if self.now.pattern == RING else (after, before)  # the last that is put first wins
            near = near if self.now.pattern != TREE else (after,)
            return [g for g in dict.fromkeys(near) if g not in used]
        turn = [(here + i) % on.gpus for i in range(1, on.gpus)]
        others = [g for g in turn if g not in used]

        def score(g: int) -> tuple[float, ...]:
            way = on.routes[here][g]
            inside = (-way.rate, len(way.parts)) if way else (0.0, 0)
            net = on.exits[g][card] if card >= 0 else None
            return (-net.rate, len(net.parts), *inside) if net else inside

        ranked = sorted(others, key=score)
        alike = card < 0 and len({score(g) for g in ranked}) == 1 and on.several
        return ranked[::-1] if alike else ranked

    def _take(self, way: Route, rate: float, worst: int) -> bool:
        left = self.left
        if way.kind > worst or any(left[i] < rate - 1e-3 for i in way.parts):
            return False
        for i in way.parts:
            left[i] -= rate
        self.hops += len(way.parts)
        return True

    def _give(self, way: Route, rate: float) -> None:
        for i in way.parts:
            self.left[i] += rate
        self.hops -= len(way.parts)
