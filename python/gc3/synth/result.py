"""The result of synthesis: a checked schedule with its collective, as a program, as JSON and as text.

Combining collectives are built from non-combining ones (001 section 3.5). A reduction is the inverse of a schedule on
the reversed network: a send to several ranks becomes receives from them, which are reduced. An all-reduce is a
reduce-scatter followed by an all-gather.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gc3 import errors
from gc3.lang import Algorithm, Chunk, StepList, compile, stepwise
from gc3.runtime.program import Program
from gc3.synth import check, demand, flows
from gc3.synth.demand import Demand
from gc3.synth.network import Capacity, Network
from gc3.synth.schedule import Schedule, pruned


@dataclass(frozen=True)
class Result:
    """An algorithm for a collective on a network, in the cost model of 001 section 3.6.

    Attributes:
        collective: Its name.
        chunks: C.
        root: The root of a rooted collective, else 0.
        network: The network.
        schedule: The sends of each step.
        base: The demand whose chunks the schedule moves.
        lanes: How many channels the transfers of each kind (between nodes and inside, reducing and not) are
            distributed over, by their place, so that they do not wait for each other; 0: the compiler chooses.
    """

    collective: str
    chunks: int
    root: int
    network: Network
    schedule: Schedule
    base: Demand
    lanes: int = 0

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
        combining = self.collective in demand.COMBINING
        everyone = frozenset(range(self.network.ranks))
        found: list[Chunk] = []
        for address, i in enumerate(self.base.piece_of):
            piece = self.base.pieces[i]
            if not combining:
                wanted = piece.targets | {piece.source} if piece.stays else piece.targets
                found.append(Chunk(piece.source, wanted, address))
                continue
            wanted = everyone if self.collective == "allreduce" else frozenset({piece.source})
            found += [Chunk(rank, wanted, address) for rank in everyone]
        return tuple(found)

    def algorithm(self, *, step_channels: bool = False) -> Algorithm:
        """Returns the algorithm in the language, to be compiled with any protocol, instances and mode.

        With `step_channels` each step sends on its own channel: `gc3.sim` needs this to cost it step by step.
        """
        ranks = self.network.ranks
        channels = self._channel if self.lanes and not step_channels else None
        listed = StepList("", self.name, self.collective, ranks, self.chunk_list(), self.schedule.steps, channels)
        return stepwise(listed, self._known(), step_channels=step_channels)

    def _channel(self, src: int, dst: int, place: int, adds: bool) -> int:
        """The channel of a transfer; even channels use a rank's first rail, if it has two (see `gc3.topologies`)."""
        nodes = self.network.nodes
        lane = place % self.lanes + self.lanes * adds
        return int(not nodes or nodes[src] == nodes[dst]) + 2 * lane

    def _known(self) -> tuple[str, int, int] | None:
        """Name, chunks and root of a reducing collective, all of which are built in; None for others."""
        if self.collective not in demand.COMBINING:
            return None
        parts = self.network.ranks if self.collective == "reducescatter" else 1
        return self.collective, self.chunks // parts, self.root

    def program(self, **options: Any) -> Program:
        """Compiles it; takes the options of `gc3.compile`."""
        return compile(self.algorithm(), **options)

    def to_json(self) -> str:
        """Returns the JSON form of SCCL-style synthesizers, which `gc3 compile` and `gc3 run` read."""
        ranks = self.network.ranks
        steps = StepList("", self.name, self.collective, ranks, self.chunk_list(), self.schedule.steps)
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
        for rounds, sends in zip(self.schedule.rounds, self.schedule.steps, strict=True):
            used = check.link_use(sends)
            parts = [
                sum(used.get(self.network.edges[e], 0) for e in members) / float(chunks * rounds)
                for members, chunks in self.network.bounds
                if rounds
            ]
            found.append((rounds, len(sends), sum(parts) / len(parts) if parts else 0.0))
        return found


def _number(capacity: Capacity) -> float:
    return capacity if isinstance(capacity, int) else float(capacity)


def plain(network: Network, wanted: Demand, schedule: Schedule) -> Result:
    """Returns the result of a non-combining collective, checked again.

    Raises:
        gc3.InternalError: The schedule is wrong.
    """
    check.check(network, wanted, schedule)
    return Result(wanted.name, wanted.chunks, wanted.root, network, schedule, wanted)


def inverted(name: str, network: Network, wanted: Demand, schedule: Schedule) -> Result:
    """Returns the reduction whose inverse `schedule` is.

    Args:
        name: "reduce" or "reducescatter".
        network: The network of the reduction.
        wanted: The broadcast or all-gather that the schedule implements on the reversed network.
        schedule: The schedule.

    Raises:
        gc3.InternalError: The schedule is wrong.
    """
    turned = flows.reverse_schedule(pruned(schedule, wanted))
    chunks = wanted.chunks * (network.ranks if name == "reducescatter" else 1)
    owners = {c: frozenset({wanted.pieces[i].source}) for c, i in enumerate(wanted.piece_of)}
    check.check_combining(network, network.ranks, owners, turned)
    return Result(name, chunks, wanted.root, network, turned, wanted)


def composed(network: Network, wanted: Demand, first: Schedule, second: Schedule) -> Result:
    """Returns the all-reduce of a reduce-scatter and an all-gather.

    Args:
        network: The network.
        wanted: The all-gather that both are built from.
        first: An all-gather on the reversed network, to be inverted.
        second: An all-gather on the network.

    Raises:
        gc3.InternalError: A schedule is wrong.
    """
    turned = flows.reverse_schedule(pruned(first, wanted))
    both = Schedule(turned.rounds + second.rounds, turned.steps + second.steps)
    everyone = frozenset(range(network.ranks))
    check.check_combining(network, network.ranks, dict.fromkeys(range(wanted.chunk_count), everyone), both)
    return Result("allreduce", wanted.chunks * network.ranks, 0, network, both, wanted)


def halves(total: int, least: int) -> Sequence[tuple[int, int]]:
    """Returns the ways to split a number in two, even splits first.

    >>> halves(5, 2)
    [(2, 3), (3, 2)]
    """
    return sorted(((a, total - a) for a in range(least, total - least + 1)), key=lambda p: abs(p[0] - p[1]))


def unknown(name: str) -> errors.Gc3Error:
    """Returns the error for a collective that is not known."""
    return errors.error("BadCollective", f"'{name}' is not one of {', '.join(demand.NAMES)}, nor a FILE.json")
