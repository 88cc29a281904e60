"""NCCL's schedules as programs: rings and trees with a threadblock for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gc3.algorithms import load
from gc3.algorithms._ring import all_gather, reduce_scatter
from gc3.algorithms.double_binary_tree_allreduce import parent
from gc3.lang import Algorithm, algorithm, chunk, compile
from gc3.runtime.program import Program
from gc3.sim.nccl import rccl
from gc3.sim.nccl.graphs import Graph, orders
from gc3.sim.nccl.tables import ALL_PAIRS, TREE
from gc3.sim.nccl.tuning import Choice
from gc3.topologies.model import Topology

# Larger programs take too long to compile for a baseline, which then uses only NCCL's own model.
MOST_OPERATIONS = 400_000


def operations(topology: Topology, collective: str, choice: Choice) -> int:
    """Returns the approximate number of chunk operations in the program of a choice."""
    ranks, channels = topology.rank_count, choice.channels
    per_channel = {"allreduce": 2 * ranks, "allgather": ranks, "reducescatter": ranks}.get(collective, 1)
    return (2 if choice.algorithm == TREE else per_channel) * ranks * channels


def program(topology: Topology, graph: Graph, collective: str, choice: Choice) -> Program:
    """Returns the program of a choice."""
    if choice.algorithm == ALL_PAIRS:
        pairs, size = load("allpairs_allreduce"), topology.rank_count
        return compile(pairs, protocol=choice.protocol, instances=choice.channels, R=size, chunks=rccl.CHUNKS)
    if choice.algorithm == TREE:
        source = _tree(topology, graph, choice.channels)
    else:
        rings = orders(graph, graph.ring, choice.channels)
        if len(set(rings)) == 1:  # all channels are equal, and instances compile faster
            return compile(_ring(collective, rings[:1], 1), protocol=choice.protocol, instances=choice.channels)
        rails = max(topology.rails(0, topology.rank_count - 1), 1)
        source = _ring(collective, rings, rails)
    return compile(source, protocol=choice.protocol)


def _on_rail(channel: int, rails: int) -> int:
    """The channel of a ring's connections, so that rings alternate between the NICs of a GPU."""
    return channel * rails + channel % rails


def _ring(collective: str, rings: Sequence[tuple[int, ...]], rails: int) -> Algorithm:
    """The program of a collective on rings, a channel each: in place, except that a broadcast reads its input."""
    size, parts = len(rings[0]), len(rings)
    chunks, in_place = parts * (size if collective == "allreduce" else 1), collective != "broadcast"

    @algorithm(collective, chunks=chunks, ranks=size, in_place=in_place, name=f"nccl_ring_{collective}")
    def ring_program() -> None:
        """Each channel moves its part."""
        for channel, ring in enumerate(rings):
            _RINGS[collective](ring, channel, parts, _on_rail(channel, rails))

    return ring_program


def _allreduce(ring: tuple[int, ...], channel: int, _parts: int, ch: int) -> None:
    """Each chunk passes through its channel's ring twice."""
    size = len(ring)
    for i in range(size):
        c = chunk(ring[i], "in", channel * size + i)
        for r in range(1, size):
            c = chunk(ring[(i + r) % size], "in", channel * size + i).reduce(c, ch=ch)
        for r in range(size, 2 * size - 1):
            c = c.copy(ring[(i + r) % size], "in", channel * size + i, ch=ch)


def _allgather(ring: tuple[int, ...], channel: int, parts: int, ch: int) -> None:
    """Each part of a block passes through its channel's ring once."""
    all_gather(ring, [owner * parts + channel for owner in ring], buffer="out", ch=ch)


def _reducescatter(ring: tuple[int, ...], channel: int, parts: int, ch: int) -> None:
    """Each part of a block is summed along its channel's ring, and ends at its rank."""
    reduce_scatter(ring, [owner * parts + channel for owner in ring], ch=ch)


def _broadcast(ring: tuple[int, ...], channel: int, _parts: int, ch: int) -> None:
    """Data passes from rank 0 along each channel's ring."""
    first = ring.index(0)
    c = chunk(0, "in", channel)
    c.copy(0, "out", channel)
    for r in range(1, len(ring)):
        c = c.copy(ring[(first + r) % len(ring)], "out", channel, ch=ch)


def _reduce(ring: tuple[int, ...], channel: int, _parts: int, ch: int) -> None:
    """Data is summed along each channel's ring, and ends at rank 0."""
    size, first = len(ring), ring.index(0)
    c = chunk(ring[(first + 1) % size], "in", channel)
    for r in range(2, size):
        rank = ring[(first + r) % size]  # its input does not change
        c = chunk(rank, "in", channel).copy(rank, "sc", channel).reduce(c, ch=ch)
    if size > 1:
        chunk(0, "out", channel).reduce(c, ch=ch)


_RINGS = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "reducescatter": _reducescatter,
    "broadcast": _broadcast,
    "reduce": _reduce,
}


def _tree(topology: Topology, graph: Graph, channels: int) -> Algorithm:
    """A chain inside each node and a binary tree across nodes; the second half of the channels has a mirrored tree."""
    size, nodes = topology.rank_count, len(graph.nodes)
    gpus = size // nodes
    rails = max(topology.rails(0, size - 1), 1)
    chains = orders(graph, graph.tree, channels)

    @algorithm("allreduce", chunks=lambda: channels, ranks=lambda: size, in_place=True)
    def nccl_tree_allreduce() -> None:
        """Reduces up the tree and broadcasts down, with one chunk on each channel."""
        for channel in range(channels):
            above: dict[int, int] = {}
            mirrored = channel >= graph.channels
            for v in range(nodes):
                node = nodes - 1 - v if mirrored else v
                chain = chains[channel][node * gpus : (node + 1) * gpus]
                for rank, child in pairwise(chain):
                    above[child] = rank
                if v:
                    up = parent(v, nodes)
                    above[chain[0]] = chains[channel][(nodes - 1 - up if mirrored else up) * gpus]
            root = next(r for r in range(size) if r not in above)
            order = [root]  # parents before children
            for rank in order:
                order += sorted(child for child, parent in above.items() if parent == rank)
            for rank in reversed(order[1:]):
                place = chunk(above[rank], "in", channel)
                place.reduce(chunk(rank, "in", channel), ch=_on_rail(channel, rails))
            for rank in order[1:]:
                chunk(above[rank], "in", channel).copy(rank, "in", channel, ch=_on_rail(channel, rails))

    return nccl_tree_allreduce


def tree_chunk_bytes(chunk: int, size: int, channels: int, ranks: int, nodes: int) -> int:
    """Returns the bytes of data that a tree moves at a time with LL128 (src/enqueue.cc).

    Args:
        chunk: The most that it can, a FIFO slot.
        size: S in bytes.
        channels: In use.
        ranks: Number of ranks.
        nodes: Number of nodes.

    >>> [tree_chunk_bytes(576000, mib << 20, 16, 32, 4) for mib in (1, 64)]
    [18000, 72000]
    """
    steps = (1 + nodes.bit_length() - 1 + 0.1 * ranks / nodes) * nodes / ranks
    for least, factor in ((128 << 10, 64), (32 << 10, 16)):
        while chunk > least and size // (channels * chunk) < steps * factor:
            chunk //= 2
    return chunk
