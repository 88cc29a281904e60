"""The result of synthesis: a checked schedule with its collective, as a program, as JSON and as text.

Combining collectives are built from non-combining ones (001 section 3.5). A reduction is the inverse of a schedule on
the reversed network: a send to several ranks becomes receives from them, which are reduced. An all-reduce is a
reduce-scatter followed by an all-gather, and so are custom collectives that reduce (see `problem`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gc3 import errors
from gc3.collectives import BUILTIN
from gc3.lang import Algorithm, Chunk, StepList, compile, stepwise
from gc3.runtime.program import Program
from gc3.synth import check, demand, flows
from gc3.synth.gathered import gathered
from gc3.synth.groups import additions, loads
from gc3.synth.network import Capacity, Network
from gc3.synth.problem import Problem
from gc3.synth.schedule import Schedule, pruned

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
            `gc3.synth.gathered`).
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
            return compile(self.algorithm(), **options)
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

    def sends_text(self) -> list[str]:
        """Returns the sends in the form that the paper's artifact prints."""
        return [
            f"send {chunk} from {src} to {dst} at step {step}"
            for step, sends in enumerate(self.schedule.steps)
            for chunk, src, dst in sends
        ]

    def use(self) -> list[tuple[int, int, float]]:
        """Returns for each step its rounds, its sends, and the used fraction of the capacity of all links."""
        found: list[tuple[int, int, float]] = []
        adding = additions(self.problem.contents, self.schedule)
        for rounds, sends, added in zip(self.schedule.rounds, self.schedule.steps, adding, strict=True):
            used = loads(self.network, sends, added)
            parts = [used[b] / float(chunks * rounds) for b, (_, chunks) in enumerate(self.network.bounds) if rounds]
            found.append((rounds, len(sends), sum(parts) / len(parts) if parts else 0.0))
        return found


def _ascending(*lists: Sequence[int | None]) -> bool:
    return all(a is not None and b is not None and a < b for listed in lists for a, b in pairwise(listed)) and all(
        None not in listed for listed in lists
    )


def _number(capacity: Capacity) -> float:
    return capacity if isinstance(capacity, int) else float(capacity)


def of(network: Network, problem: Problem, reduced: Schedule | None, spread: Schedule | None) -> Result:
    """Returns the result of schedules for a collective's demands, checked again.

    Args:
        network: The network.
        problem: The collective.
        reduced: The schedule of `problem.reduced` on the reversed network, to be inverted; None if there is none.
        spread: That of `problem.spread`.

    Raises:
        gc3.InternalError: A schedule is wrong.
    """
    parts: list[Schedule] = []
    if problem.reduced is not None and reduced is not None:
        parts.append(flows.reverse_schedule(pruned(reduced, problem.reduced)))
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
