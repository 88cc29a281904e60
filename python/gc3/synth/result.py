"""The result of synthesis: a checked schedule with its collective, as a program, as JSON and as text.

Combining collectives are built from non-combining ones (001 section 3.5). A reduction is the inverse of a schedule on
the reversed network: a send to several ranks becomes receives from them, which are reduced. An all-reduce is a
reduce-scatter followed by an all-gather, and so are custom collectives that reduce (see `demand`).

Programs may follow a schedule that gathers what a rank reduces into a chunk (`gathered`). All contributions to a chunk
are reduced into one place, so their instructions wait for each other in the order in which they are written. If senders
follow each other in one order for one chunk and in another order for the next, as steps with room for some of them make
it, a threadblock waits for another one at each chunk. In the same order for all chunks, threadblocks work on different
chunks at the same time.

So contributions are moved to the step of the last one. Small sums come before large ones, which have been on the way
longer, and equal ones in the order of their senders. This has more sends in a step than its rounds carry: programs do
not wait for the ends of steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gc3 import errors
from gc3.collectives import BUILTIN
from gc3.lang import Algorithm, Chunk, StepList, compile, stepwise
from gc3.runtime.program import Program
from gc3.synth.problem import OPEN, check, demand
from gc3.synth.problem.demand import Item, Problem, Send
from gc3.synth.problem.network import Capacity, Network
from gc3.synth.problem.schedule import Schedule, additions, loads, pruned, reversed_in_time

Order: TypeAlias = Literal["depth", "steps", "gathered"]

TOO_MANY_THREADBLOCKS = "GC3-C001"


@dataclass(frozen=True)
class Result:
    """An algorithm for a collective on a network, in the cost model of 001 section 3.6.

    Attributes:
        problem: The collective.
        network: The network.
        schedule: The sends of each step.
        lanes: How many channels the transfers of each kind (between nodes and inside, reducing and not) are
            distributed over, by their place, so that they do not wait for each other; 0: the compiler chooses.
        scratch: Chunks of scratch above which places are used again, as in `gc3.compile`.
        parts: In how many parallel parts a transfer inside a node runs, if there are several nodes. So messages between
            nodes are larger than those inside.
        order: What a threadblock does first. "depth": the compiler chooses, by the depth of dependencies; "steps": what
            comes first in the schedule; "gathered": the same, with the contributions to a sum moved together (see
            `gathered`).
        written: The schedule that programs follow, if they are faster than with `schedule`; None: that one.
    """

    problem: Problem
    network: Network
    schedule: Schedule
    lanes: int = 0
    scratch: int | None = None
    parts: int = 1
    order: Order = "depth"
    written: Schedule | None = None

    @property
    def collective(self) -> str:
        """Its name."""
        return self.problem.name

    @property
    def chunks(self) -> int:
        """C."""
        return self.problem.chunks

    @property
    def root(self) -> int:
        """The root of a rooted collective, else 0."""
        return self.problem.root

    @property
    def cost(self) -> tuple[int, int, int]:
        """(C, S, R)."""
        return self.chunks, len(self.schedule.steps), self.schedule.total_rounds

    @property
    def name(self) -> str:
        """A name for the program."""
        c, s, r = self.cost
        return f"{self.collective}-{self.network.name}-{c}-{s}-{r}"

    def chunk_list(self) -> tuple[Chunk, ...]:
        """Returns the collective as data: each chunk's owner, the ranks that need it, and its address."""
        return tuple(
            Chunk(owner, item.after, address)
            for address, item in enumerate(self.problem.contents)
            for owner in sorted(item.before)
        )

    def algorithm(self, *, step_channels: bool = False) -> Algorithm:
        """Returns the algorithm in the language, to be compiled with any protocol, instances and mode.

        With `step_channels` each step sends on its own channel: `gc3.sim` needs this to cost it step by step.
        """
        ranks = self.network.ranks
        channels = self._channel if self.lanes and not step_channels else None
        gathers = self.order == "gathered" and self.problem.reduced is not None
        schedule = self.schedule if self.written is None or step_channels else self.written
        steps = gathered(self.problem.contents, schedule) if gathers else schedule.steps
        listed = StepList(
            "", self.name, self.collective, ranks, self.chunk_list(), steps, channels,
            None if self.parts == 1 else self._parts, self.order != "depth", self.problem.layout,
            self._switched if self.network.in_switch else None,
        )  # fmt: skip
        return stepwise(listed, self._known(), step_channels=step_channels)

    def _channel(self, src: int, dst: int, place: int, adds: bool) -> int:
        """The channel of a transfer; even channels use a rank's first rail, if it has two (see `gc3.topologies`)."""
        nodes = self.network.nodes
        lane = place % self.lanes + self.lanes * adds
        return int(not nodes or nodes[src] == nodes[dst]) + 2 * lane

    def _parts(self, src: int, dst: int) -> int:
        nodes = self.network.nodes
        return self.parts if nodes and nodes[src] == nodes[dst] else 1

    def _switched(self, src: int, dst: int, adds: bool) -> bool:
        network = self.network
        once = network.received_once if adds else network.sent_once
        edge = network.edge_index.get((src, dst))
        return edge is not None and not once.isdisjoint(network.bounds_of[edge])

    def _known(self) -> tuple[str, int, int] | None:
        """Name, chunks and root of a built-in collective; None for others."""
        if self.collective not in demand.NAMES:
            return None
        parts = self.network.ranks if self.collective in ("alltoall", "scatter", "reducescatter") else 1
        return self.collective, self.chunks // parts, self.root if BUILTIN[self.collective].rooted else 0

    def program(self, **options: Any) -> Program:
        """Compiles it, with fewer lanes if `max_threadblocks` requires that; takes the options of `gc3.compile`.

        Copies are in the order of the steps.
        """
        options.setdefault("scratch", self.scratch)
        if options.get("protocol") == "Copy" and self.order == "depth":
            return replace(self, order="steps").program(**options)
        if (fewer := self._lanes_within(options.get("max_threadblocks", 0))) < self.lanes:
            return replace(self, lanes=fewer).program(**options)
        try:
            return compile(self.algorithm(), memory="fifo", **options)
        except errors.UserError as problem:
            if problem.code != TOO_MANY_THREADBLOCKS or not self.lanes:
                raise
        return replace(self, lanes=self.lanes // 2).program(**options)

    def _lanes_within(self, most: int) -> int:
        """Lanes with more threadblocks than `most` need not be compiled: an all-reduce has each chunk in one place."""
        lanes = self.lanes
        if most == 0 or self.collective != "allreduce":
            return lanes
        ranks = self.network.ranks
        sends = [send for step in self.schedule.steps for send in step]
        chunk, src, dst = (np.array([send[k] for send in sends], np.int64) for k in range(3))

        def widest(lanes: int) -> int:
            used: npt.NDArray[np.int64] = np.unique((src * ranks + dst) * lanes + chunk % lanes) // lanes
            return max(int(np.bincount(end).max(initial=0)) for end in (used // ranks, used % ranks))

        while lanes > 1 and widest(lanes) > most:
            lanes //= 2
        return lanes

    def to_json(self) -> str:
        """Returns the JSON form of SCCL-style synthesizers, which `gc3 compile` and `gc3 run` read.

        Raises:
            gc3.UserError: The form cannot say in which order a custom collective has its chunks.
        """
        ranks = self.network.ranks
        steps = StepList("", self.name, self.collective, ranks, self.chunk_list(), self.schedule.steps)
        layout = self.problem.layout
        if layout is not None and not _ascending(*layout.inputs, *layout.outputs):
            raise errors.error(
                "BadCollective",
                f"'{self.collective}' has chunks in another order on one rank than on another, or twice, or without a "
                "required value, which the JSON form cannot say; write a .gc3 file",
            )
        owners: dict[int, list[Chunk]] = {}
        for chunk in steps.chunks:
            owners.setdefault(chunk.address, []).append(chunk)
        links: list[list[float]] = [[0] * ranks for _ in range(ranks)]
        for (src, dst), capacity in zip(self.network.edges, self.network.capacity, strict=True):
            links[dst][src] = _number(capacity)
        shared = [(members, chunks) for members, chunks in self.network.bounds if len(members) > 1]
        data: dict[str, Any] = {
            "msccl_type": "algorithm",
            "name": self.name,
            "instance": {
                "msccl_type": "instance",
                "steps": len(self.schedule.steps),
                "extra_rounds": self.schedule.total_rounds - len(self.schedule.steps),
                "chunks": 1,
                "pipeline": None,
            },
            "input_map": {str(r): addresses for r, addresses in enumerate(steps.inputs()) if addresses},
            "output_map": {str(r): addresses for r, addresses in enumerate(steps.outputs()) if addresses},
            "steps": [
                {"msccl_type": "step", "rounds": rounds, "sends": [list(send) for send in sends]}
                for rounds, sends in zip(self.schedule.rounds, self.schedule.steps, strict=True)
            ],
            "collective": {
                "msccl_type": "collective",
                "name": f"{self.collective}(n={ranks},root={self.root})",
                "nodes": ranks,
                "chunks": [
                    {"msccl_type": "chunk", "pre": [c.owner], "post": sorted(c.wanted), "addr": c.address}
                    for chunks in owners.values()
                    for c in chunks
                ],
                "triggers": {},
                "runtime_name": self.collective,
            },
            "topology": {
                "msccl_type": "topology",
                "name": self.network.name,
                "switches": [
                    {"links": [list(self.network.edges[e]) for e in members], "bandwidth": _number(chunks)}
                    for members, chunks in shared
                ],
                "links": links,
            },
        }
        return json.dumps(data) + "\n"

    def use(self) -> list[float]:
        """Returns for each step the used fraction of the capacity of all links."""
        found: list[float] = []
        adding = additions(self.problem.contents, self.schedule)
        for rounds, sends, added in zip(self.schedule.rounds, self.schedule.steps, adding, strict=True):
            used = loads(self.network, sends, added)
            parts = [used[b] / float(chunks * rounds) for b, (_, chunks) in enumerate(self.network.bounds) if rounds]
            found.append(sum(parts) / len(parts) if parts else 0.0)
        return found


def _ascending(*lists: Sequence[int | None]) -> bool:
    return all(a is not None and b is not None and a < b for listed in lists for a, b in pairwise(listed)) and all(
        None not in listed for listed in lists
    )


def _number(capacity: Capacity) -> float:
    return capacity if isinstance(capacity, int) else float(capacity)


def of(network: Network, problem: Problem, reduced: Schedule | None, spread: Schedule | None) -> Result:
    """Returns the result of schedules for a collective's demands, checked again; `reduced` is to be inverted.

    Raises:
        gc3.InternalError: A schedule is wrong.
    """
    parts: list[Schedule] = []
    if problem.reduced is not None and reduced is not None:
        parts.append(reversed_in_time(pruned(reduced, problem.reduced)))
    if problem.spread is not None and spread is not None:
        parts.append(spread)
    return whole(network, problem, Schedule(sum((p.rounds for p in parts), ()), sum((p.steps for p in parts), ())))


def whole(network: Network, problem: Problem, schedule: Schedule) -> Result:
    """Returns the result of a schedule for all of a collective, checked again.

    Raises:
        gc3.InternalError: The schedule is wrong.
    """
    if problem.reduced is None and problem.spread is not None:
        check.check(network, problem.spread, schedule)
    else:
        check.check_combining(network, problem.contents, schedule)
    return Result(problem, network, schedule)


def halves(total: int, first: int, second: int) -> Sequence[tuple[int, int]]:
    """Returns the ways to split a number in two parts of at least these sizes, even splits first.

    >>> halves(5, 2, 2)
    [(2, 3), (3, 2)]
    """
    return sorted(((a, total - a) for a in range(first, total - second + 1)), key=lambda p: abs(p[0] - p[1]))


def unknown(name: str) -> errors.Gc3Error:
    """Returns the error for a collective that is not known."""
    return errors.error("BadCollective", f"'{name}' is not one of {', '.join(demand.NAMES)}, nor a FILE.json")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for an instance of a collective.

    Attributes:
        status: "found", "impossible" or "open".
        result: The result.
        how: The method, or the proof that there is none.
        fewest: The proof that there are no fewer rounds for these chunks and steps; None if there is no simple one.
        seconds: The time it took.
        composed: Whether `fewest` and "impossible" are of a reduction followed by a distribution, such as a
            reduce-scatter and an all-gather, not of every algorithm.
    """

    status: str
    result: Result | None
    how: str
    fewest: str | None
    seconds: float
    composed: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the frontier of steps and R/C.

    Attributes:
        chunks: C.
        steps: S.
        rounds: R.
        outcome: The result.
        bound: A proven lower bound on R/C in this many steps, for any number of chunks; of an all-reduce, for those
            built from a reduce-scatter and an all-gather, and so for custom collectives that reduce.
        proof: The proof of the bound.
        optimal: Whether the bound is reached.
        latency: Whether no algorithm has fewer steps.
        bandwidth: Whether no algorithm has a lower R/C in any number of steps.
        open: Candidates (C, R) with lower R/C that were neither found nor proven impossible.
    """

    chunks: int
    steps: int
    rounds: int
    outcome: Outcome
    bound: Fraction
    proof: str
    optimal: bool
    latency: bool
    bandwidth: bool
    open: tuple[tuple[int, int], ...]

    @property
    def ratio(self) -> Fraction:
        """R/C."""
        return Fraction(self.rounds, self.chunks)


_Sum = tuple[int, int, Send]  # its terms, its step, and the send


def gathered(contents: Sequence[Item], schedule: Schedule) -> tuple[tuple[Send, ...], ...]:
    """Returns the sends of each step, with contributions to the same chunk moved to the last of them."""
    held = {(rank, chunk): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    changed: dict[tuple[int, int], list[int]] = {}  # steps in which a chunk of a rank changes, ascending
    sums: dict[tuple[int, int], list[_Sum]] = {}
    made: list[list[Send]] = [[] for _ in schedule.steps]

    def close(place: tuple[int, int]) -> None:
        for step, send in _moved(sorted(sums.pop(place, ())), changed):
            made[step].append(send)

    for step, sends in enumerate(schedule.steps):
        given = {(chunk, src): held[src, chunk] for chunk, src, _ in sends}
        for chunk, src, _ in sends:
            close((src, chunk))
        for send in sends:
            chunk, src, dst = send
            mine, theirs = held.get((dst, chunk), 0), given[chunk, src]
            if mine and not theirs & mine:
                sums.setdefault((dst, chunk), []).append((theirs.bit_count(), step, send))
            else:
                close((dst, chunk))
                made[step].append(send)
            held[dst, chunk] = mine | theirs
            changed.setdefault((dst, chunk), []).append(step)
    for place in list(sums):
        close(place)
    return tuple(map(tuple, made))


def _moved(found: list[_Sum], changed: dict[tuple[int, int], list[int]]) -> Iterator[tuple[int, Send]]:
    """The new steps of contributions to one place; those of equally many terms are in one step."""
    at = 0
    last: dict[int, int] = {}
    for terms, step, _ in found:
        at = max(at, step)
        last[terms] = at
    for terms, step, send in found:
        chunk, src, _ = send
        # A sender whose data change meanwhile has to send before.
        until = min((change for change in changed.get((src, chunk), ()) if change >= step), default=at)
        yield min(last[terms], until), send


class Candidates:
    """The candidates (R, C) of a number of steps, the best first, and their results."""

    def __init__(self, candidates: list[tuple[int, int]]) -> None:
        """Has tried none of the candidates."""
        self.candidates = candidates
        self.found: Outcome | None = None
        self._place = {c: i for i, c in enumerate(candidates)}
        self._end = len(candidates)  # those from here on are no better than the result
        self._open: set[tuple[int, int]] = set()
        self._refuted: list[tuple[int, int]] = []

    def note(self, candidate: tuple[int, int], outcome: Outcome) -> None:
        """Records the result of a candidate."""
        self._open.discard(candidate)
        if outcome.result is not None:
            self.found, self._end = outcome, self._place[candidate]
        elif outcome.status == OPEN:
            self._open.add(candidate)
        else:
            self._refuted.append(candidate)

    def matters(self, candidate: tuple[int, int]) -> bool:
        """Returns whether a candidate is better than the result, and not refuted by another.

        If there is no schedule for C chunks in R rounds, there is none for more chunks or fewer rounds.
        """
        rounds, chunks = candidate
        return self._place[candidate] < self._end and not any(rounds <= r and chunks >= c for r, c in self._refuted)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """The candidates that were tried, would be better, and were neither found nor refuted."""
        return [c for c in self.candidates if c in self._open and self.matters(c)]
