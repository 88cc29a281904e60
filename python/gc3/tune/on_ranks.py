"""The search among programs on real ranks, for every point of a goal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from gc3 import collectives, errors, topologies
from gc3.comm.selection import Table
from gc3.comm.spec import Spec
from gc3.runtime.measure import cores
from gc3.sim import Platform, presets
from gc3.tune.goal import Found, Goal, Measured
from gc3.tune.guided_search import Search
from gc3.tune.point import FAR, SURE, Place, Point
from gc3.tune.space import candidates, fits, one_sided, serves_v
from gc3.tune.timers import RankTimer, ThreadTimer, Timer

_RACING = 12  # programs of a race, those aside that have to be in it
_RACING_DIRECT = 4
_SHARED = 2  # the fastest programs of the sizes beside it race at each size, too
_LOOKING = 0.5  # of the time of a point: after it no further programs are looked at
_AGAIN = 2  # a brief point is measured again in the same run if there is so many times its share of time left
_NEAR = 16  # times as large, or as small: sizes at which programs are fast in a similar order


class Tuner:
    """The search among programs, for every point of a goal."""

    def __init__(self, goal: Goal, known: Iterable[Measured] = ()) -> None:
        """Starts nothing yet.

        Args:
            goal: What to tune.
            known: Earlier measurements; points for which the default table has changed do not count.
        """
        self.goal = goal
        self.measured = {point.place: self._in_view_of_own(point) for point in known if _current(point, goal)}
        self.failed: dict[str, str] = {}
        self._points: dict[Place, Point] = {}
        self._seen: dict[tuple[str, int, float], dict[int, dict[Spec, float]]] = {}  # brief times by size
        self._deadline = None if goal.time_limit is None else time.monotonic() + goal.time_limit

    @property
    def found(self) -> Found:
        """The known points of the goal."""
        points = tuple(self.measured[place] for place in self.places if place in self.measured)
        done = len(points) == len(self.places) and not any(point.brief for point in points)
        return Found(points, self.failed, done)

    @property
    def late(self) -> bool:
        """Whether the time of the goal is over."""
        return self._deadline is not None and time.monotonic() > self._deadline

    @property
    def places(self) -> list[Place]:
        """Those of the goal."""
        return [place for ranks in self.goal.ranks for group in places(self.goal, ranks) for place in group]

    def points(self, begin: Callable[[str], None] = lambda _: None) -> Iterator[Measured]:
        """Yields each point when it has been measured; calls `begin` with the next work.

        Leaves out known points, and ends at the time limit. Measurements stay in `found`, however the search ends. At
        the first point of a collective its programs are looked at in all sizes that are to be measured, since their
        ranks then start once, and each size shows the next one what to try. The races begin with sizes that are far
        apart, so that a search that ends early has seen small and large sizes of every collective. With a time limit
        each point gets an equal share of what is left of it, and one that needs more is measured briefly; such points
        are measured again after all others, if these leave the time for it.
        """
        for number, ranks in enumerate(self.goal.ranks):
            every = self._in_order(ranks)
            todo = [place for place in every if place not in self.measured]
            todo += [place for place in every if place in self.measured and self.measured[place].brief]
            if not todo:
                continue
            timer = self._timer(ranks)
            tried: dict[tuple[str, bool], tuple[Spec, ...]] = {}
            shares: dict[Place, float] = {}
            self._points = {}
            planned = len(todo)
            with timer:
                for done, place in enumerate(todo):
                    collective, _, size, _, skew = place
                    group = collective, skew > 1
                    if group not in tried:
                        begin(f"{collective}, {ranks} ranks: compiling candidates")
                        tried[group] = self._candidates(timer, place)
                    if self.late:
                        return
                    left = (planned if done < planned else len(todo)) - done
                    left += len(every) * (len(self.goal.ranks) - 1 - number)
                    if place not in self._points:
                        begin(f"{collective}, {ranks} ranks: trying {len(tried[group])} programs")
                        beside = [each for each in todo if (each[0], each[4]) == (collective, skew)]
                        self._look_around(timer, sorted(set(beside)), tried[group], self._share(left))
                    least = _AGAIN * shares.get(place, 0.0)
                    if least > self._share(1):
                        continue
                    share = max(self._share(left), least)
                    begin(f"{collective}, {ranks} ranks, {size} B" + (f", skew {skew:g}" if skew > 1 else ""))
                    point = self.measured[place] = self._point(timer, place, tried[group], share)
                    if (point.brief or (point.within or 0.0) > SURE) and share < math.inf:
                        todo.append(place)  # in the time that the others may leave
                    shares[place] = share
                    yield point

    def _candidates(self, timer: Timer, place: Place) -> tuple[Spec, ...]:
        """The programs for the collective and the number of ranks of a place."""
        collective, ranks, _, in_place, skew = place
        library = candidates(
            collective,
            ranks,
            in_place=in_place,
            instances=timer.instances,
            fifos=timer.fifos,
            protocols=timer.protocols,
            own=tuple(own.spec for own in self.goal.own_of(collective, ranks)),
        )
        specs = dict.fromkeys((*library, *self.goal.further(collective, ranks, in_place=in_place)))
        if timer.on_registered_memory() is None:
            self._refuse_one_sided(specs, "only ranks that are processes have registered memory")
        return tuple(spec for spec in specs if skew == 1 or serves_v(spec, ranks, in_place=in_place))

    def _refuse_one_sided(self, programs: Iterable[Spec], why: str) -> None:
        self.failed |= {str(spec): why for spec in programs if spec.memory == "direct"}

    def _in_view_of_own(self, point: Measured) -> Measured:
        """A point where a program of the goal was not tried, or has changed since, is measured again."""
        wanted = self.goal.beside_the_library(point.collective, point.ranks, in_place=point.in_place)
        return point if set(wanted) <= set(point.own) else replace(point, brief=True)

    def _timer(self, ranks: int) -> Timer:
        if self.goal.hosts is not None:
            return self.goal.hosts
        return ThreadTimer(ranks) if self.goal.engine == "threads" else RankTimer(ranks)

    def _share(self, points: int) -> float:
        """The seconds for the next of so many points."""
        return math.inf if self._deadline is None else max(self._deadline - time.monotonic(), 1e-3) / points

    def _in_order(self, ranks: int) -> list[Place]:
        """The places of the goal for a number of ranks, those far apart first."""
        groups = list(places(self.goal, ranks))
        return [group[number] for number in far_apart(len(self.goal.sizes)) for group in groups]

    def _look_around(self, timer: Timer, group: list[Place], tried: tuple[Spec, ...], share: float) -> None:
        """Looks at programs at all places of a group, sizes ascending; the small ones leave time to the large ones."""
        end = time.monotonic() + _LOOKING * share * len(group)
        for number, place in enumerate(group):
            self._look(timer, place, tried, (end - time.monotonic()) / (len(group) - number))

    def _look(self, timer: Timer, place: Place, tried: tuple[Spec, ...], seconds: float) -> None:
        """Looks at the programs at a place, as far as the time suffices, until the finalists are left."""
        collective, ranks, size, _, skew = place
        point = self._points.get(place)
        # One-sided programs are timed on registered memory alone: see `_registered`.
        fitting = [s for s in tried if s.memory == "fifo" and fits(s, size) and str(s) not in self.failed]
        if point is None:
            point = self._points[place] = Point(timer, place, self.goal.seconds, self.failed)
            default = self._default_of(place)
            point.start(fitting[:1] if default is None else [default])
        began = time.monotonic()
        # The last part is for the second looks.
        point.look_at(self._promising_first(place, fitting), lambda: time.monotonic() < began + 0.7 * seconds)
        self._seen.setdefault((collective, ranks, skew), {})[size] = dict(point.looks)
        point.halve(lambda: time.monotonic() < began + seconds)

    def _point(self, timer: Timer, place: Place, tried: tuple[Spec, ...], share: float) -> Measured:
        """Lets the finalists of a place race, with those of the sizes beside it."""
        size, skew = place[2], place[4]
        began = time.monotonic()
        point = self._points[place]
        if point.cut:
            self._look(timer, place, tried, _LOOKING * share)
        winners = [each.best[0] for each in self._neighbours(place)]
        varied = [v for spec in point.finalists for v in timer.variants(spec, size)]
        further = [spec for spec in (*winners, *self._shared(place)) if fits(spec, size)]
        for spec in dict.fromkeys((*varied, *further)):
            if spec not in point.looks and str(spec) not in self.failed:
                point.look(spec)
        default = self._default_of(place)
        far = FAR * min(point.looks.values(), default=0.0)
        near = [s for s in (*point.finalists, *varied, *further) if point.looks.get(s, math.inf) <= far]
        # Those of the last size are included: the end of a range is only known if its program was measured there.
        kept = [spec for spec in dict.fromkeys(winners) if spec in near]
        if default is not None and default in point.looks:
            kept = [default, *(spec for spec in kept if spec != default)]
        chosen = {*kept, *sorted(dict.fromkeys(near), key=point.looks.__getitem__)[:_RACING]}
        order = [spec for spec in dict.fromkeys((*kept, *tried, *varied, *further)) if spec in chosen]
        apart = timer.on_registered_memory() if skew == 1 else None
        part = share * (_LOOKING if apart else 1)
        found = point.race(order, kept, max(part - (time.monotonic() - began), 0.0))
        if found is None:
            why = "; ".join(list(self.failed.values())[:1]) or "there is none"
            raise errors.error("RankLost", f"no program could be timed: {why}")
        registered: dict[Spec, float] = {}
        if apart is not None:
            left = max(share - (time.monotonic() - began), 0.0)
            registered = self._registered(apart, place, [found.winner, *one_sided(tried)], left)
        return Measured(
            *place[:4],
            tuple((spec, 1e6 * took) for spec, took in found.seconds.items()),
            default if default in found.turns else None,
            len(point.looks),
            point.brief,
            self.goal.beside_the_library(*place[:2], in_place=place[3]),
            skew=skew,
            intervals_us=tuple(at and (1e6 * at[0], 1e6 * at[1]) for at in found.intervals.values()),
            within=found.within,
            registered_us=tuple((spec, 1e6 * took) for spec, took in registered.items()),
        )

    def _registered(self, timer: Timer, place: Place, tried: list[Spec], seconds: float) -> dict[Spec, float]:
        """Times one-sided programs on registered memory, in turn with the first of `tried`, the best one of messages.

        Returns the seconds of that, and of the fastest one-sided ones; nothing if none is worth it.
        """
        best, *direct = (spec for spec in tried if fits(spec, place[2]) and str(spec) not in self.failed)
        if not direct:
            return {}
        point = Point(timer, place, self.goal.seconds, self.failed)
        end = time.monotonic() + _LOOKING * seconds
        point.start([best])
        point.look_at(direct, lambda: time.monotonic() < end)
        point.halve(lambda: time.monotonic() < end)
        racing = dict.fromkeys((best, *point.finalists[:_RACING_DIRECT]))
        found = point.race(racing, [best], _LOOKING * seconds)
        if found is None or best not in found.turns:
            return {}
        took = found.seconds
        return {best: took.pop(best), **took}

    def _default_of(self, place: Place) -> Spec | None:
        """The default table's program; None: it does not serve such calls."""
        default = _default(place, self.goal)
        if default is None or place[4] == 1 or serves_v(default, place[1], in_place=place[3]):
            return default
        return None

    def _promising_first(self, place: Place, programs: list[Spec]) -> list[Spec]:
        """Programs in the order in which they are tried, since the time may not suffice for all of them.

        The best ones of the sizes beside it, then the others by their times at a size that is known, or else simulated.
        """
        collective, ranks, size, in_place, skew = place
        if self._deadline is None:
            return programs
        winners = [point.best[0] for point in self._neighbours(place)]
        known = self._seen.get((collective, ranks, skew), {})
        apart = {max(other, size, 1) / max(min(other, size), 1): other for other in known}
        if apart and min(apart) <= _NEAR:
            times = known[apart[min(apart)]]
        elif self.goal.hosts is None:
            search = simulated(collective, ranks, self.goal.engine, in_place=in_place, skew=skew)
            times = {spec: search.seconds(replace(spec, thresholds=()), size) for spec in programs}
        else:
            times = {}
        return sorted(programs, key=lambda spec: (spec not in winners, times.get(spec, math.inf)))

    def _shared(self, place: Place) -> list[Spec]:
        """The finalists that are the fastest at the sizes beside it."""
        group = sorted(each for each in self._points if (each[0], each[4]) == (place[0], place[4]))
        at = group.index(place)
        beside = group[max(at - 1, 0) : at] + group[at + 1 : at + 2]
        return [spec for each in beside for spec in self._points[each].finalists[:_SHARED]]

    def _neighbours(self, place: Place) -> list[Measured]:
        """The known points of the next smaller and the next larger size."""
        collective, ranks, size, in_place, skew = place
        smaller = [s for s in self.goal.sizes if s < size]
        larger = [s for s in self.goal.sizes if s > size]
        found: list[Measured] = []
        for sizes in (smaller[::-1], larger):
            points = (self.measured.get((collective, ranks, s, in_place, skew)) for s in sizes)
            found += [point for point in points if point is not None][:1]
        return found


def places(goal: Goal, ranks: int) -> Iterator[list[Place]]:
    """Yields the places of a goal for a number of ranks, by collective and skew, sizes ascending."""
    for collective in goal.collectives:
        in_place = collective == "broadcast"  # the mode in which communicators call it
        for skew in goal.skews_of(collective, ranks):
            yield [(collective, ranks, size, in_place, skew) for size in goal.sizes]


def far_apart(count: int) -> list[int]:
    """Returns the numbers below `count`, early ones far apart: the ends, then the middles of gaps.

    >>> far_apart(8)
    [0, 7, 3, 1, 5, 2, 4, 6]
    """
    return list(chain.from_iterable(rounds(count)))


def rounds(count: int) -> list[list[int]]:
    """Returns the same in rounds: the ends, then the middles of all gaps.

    >>> rounds(8)
    [[0, 7], [3], [1, 5], [2, 4, 6]]
    """
    found = [list(dict.fromkeys((0, count - 1)[:count]))]
    known = sorted(found[0])
    while middles := [(first + last) // 2 for first, last in pairwise(known) if last - first > 1]:
        found.append(middles)
        known = sorted((*known, *middles))
    return found


def simulated(collective: str, ranks: int, engine: str, *, in_place: bool, skew: float) -> Search:
    """Returns what simulates programs on as many ranks of this machine, with the rates of the engine's preset.

    The preset was measured on another machine, so the times only say what to time first.
    """
    parameters = replace(presets.get(f"cpu-{engine}"), cores=cores())
    on = Platform(topologies.load("cpu", R=ranks), parameters)
    return Search(collective, on, ranks, in_place=in_place, skew=skew)


def _default(place: Place, goal: Goal) -> Spec | None:
    """None: the collective is custom, which the default table does not have."""
    collective, ranks, size, in_place, skew = place
    if collective not in collectives.BUILTIN:
        return None
    nodes, each = (1, 0) if goal.hosts is None else goal.hosts.where
    transport = "" if goal.hosts is None else goal.hosts.comm.transport
    where: dict[str, Any] = {"nodes": nodes, "ranks_per_node": each, "transport": transport}
    spec = Table.default().choose(collective, ranks=ranks, size=size, in_place=in_place, skew=skew, **where).row.spec
    return spec if goal.hosts is None else replace(spec, protocol="Simple", thresholds=())  # as it runs between hosts


def _current(point: Measured, goal: Goal) -> bool:
    """Whether the default table still chooses the program that the candidates were compared with.

    Points of a custom collective count only for its condition: a row has one.
    """
    own = goal.own_of(point.collective, point.ranks)
    same = not own or own[0].condition == point.condition
    return same and point.default in (None, _default(point.place, goal))
