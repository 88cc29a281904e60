"""What a training step would gain if its calls and the computations beside them were one program.

A call and a computation that it waits for, or that waits for it, follow each other. As one program of n tiles, each
tile is on its way while the next one is computed: of the shorter of the two only the part of one tile is left, and
each tile is a launch more. So with m, the least of the computation, the call and its exposed part, a step gains at most
m (1 - 1/n) less n launches. A norm after an AllReduce over R ranks gains in another way: each row is normalised once
instead of R times.

This is a bound and no prediction: whether an operation can be cut into tiles is not known from a trace.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gc3.sim.read.chakra import COMPUTE, Node
from gc3.sim.step import Called, Step

TILES = (2, 4, 8, 16)
# The forms that gc3 has: before its call a computation makes what is sent, after it uses what has come.
_BEFORE = {
    "reducescatter": "gc3.torch.row_linear, examples/fused_fsdp.py",
    "allreduce": "examples/fused_mlp.py",
    "alltoall": "gc3.torch.moe",
}
_AFTER = {
    "allgather": "gc3.torch.column_linear, examples/fused_fsdp.py",
    "allreduce": "examples/fused_mlp.py",
    "alltoall": "gc3.torch.moe",
}
_NORM = "gc3.torch.add_norm"


@dataclass(frozen=True, slots=True)
class Pair:
    """Calls alike, with the computations on one side of them."""

    collective: str  # the collective, or `gc3.sim.step.MESSAGE`
    ranks: int  # how many take part
    size: int  # S in bytes
    before: bool  # whether the calls wait for the computation; else it waits for them
    computation: str  # the longest operation of it
    calls: int  # how many there are
    form: str  # what gc3 has of this kind; empty: it would be a program of the user's own
    # Seconds that the step gains at most, of all these calls. Pairs that share a call or a computation gain less
    # together.
    gain_s: float


def pairs(step: Step, launch_s: float) -> list[Pair]:
    """Returns the pairs of calls and computations of a step that gain something, those that gain most first.

    Args:
        step: A simulated step.
        launch_s: Seconds that each tile costs.
    """
    graphs = [_Graph({node.number: node for node in trace}) for trace in step.traces]
    found: dict[tuple[str, int, int, bool, str, str], list[float]] = defaultdict(list)
    for call in step.calls:
        for before in (True, False):
            if len(call.ranks) > 1 and (made := _gain(call, graphs, launch_s, before=before)):
                computation, form, gain_s = made
                found[call.what, len(call.ranks), call.size, before, computation, form].append(gain_s)
    made = [
        Pair(what, ranks, size, before, computation, len(gains), form, sum(gains))
        for (what, ranks, size, before, computation, form), gains in found.items()
    ]
    return sorted(made, key=lambda pair: -pair.gain_s)


class _Graph:
    """The nodes of a rank, and what waits for each."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self.nodes = nodes
        self._next: dict[int, list[int]] = defaultdict(list)
        for node in nodes.values():
            for number in node.after:
                self._next[number].append(node.number)

    def beside(self, number: int, *, before: bool) -> Iterator[Node]:
        """What the GPU computes that a node waits for, or that waits for it, the nearest first; no call in between."""
        seen = {number}
        heap: list[tuple[float, int]] = []

        def look(at: int) -> None:
            for other in self.nodes[at].after if before else self._next[at]:
                node = self.nodes[other]
                if node.kind == COMPUTE and not node.on_cpu and other not in seen:
                    seen.add(other)
                    heapq.heappush(heap, (-node.start_s if before else node.start_s, other))

        look(number)
        while heap:
            _, at = heapq.heappop(heap)
            if self.nodes[at].duration_s > 0:
                yield self.nodes[at]
            look(at)


def _gain(call: Called, graphs: list[_Graph], launch_s: float, *, before: bool) -> tuple[str, str, float] | None:
    """The longest operation on one side of a call, the form, and the gain; None: there is none."""
    takes_s = call.end_s - call.last_s
    forms = _BEFORE if before else _AFTER
    form = forms.get(call.what, "")
    longest = Node(-1, "", COMPUTE)
    total_s = 0.0
    for rank, number in zip(call.ranks, call.nodes, strict=True):
        computed_s = norm_s = 0.0
        for node in graphs[rank].beside(number, before=before):
            if computed_s >= takes_s:
                break
            longest = max(longest, node, key=lambda node: node.duration_s)
            computed_s += node.duration_s
            if not before and call.what == "allreduce" and "norm" in node.name.lower():
                norm_s, form = computed_s, _NORM
        shorter = min(computed_s, takes_s, call.exposed_s)
        overlapped = max(shorter * (1 - 1 / tiles) - tiles * launch_s for tiles in TILES)
        total_s += max(overlapped, norm_s * (1 - 1 / len(call.ranks)))
    return (longest.name, form, total_s / len(call.ranks)) if total_s > 0 else None
