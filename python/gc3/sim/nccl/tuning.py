"""NCCL's choice of algorithm, protocol and channels for a call, by NCCL's own model of their times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gc3 import errors
from gc3.sim.nccl import rccl
from gc3.sim.nccl.graphs import Graph, graph
from gc3.sim.nccl.search import TREE as PLAIN_TREE
from gc3.sim.nccl.tables import (
    ALL_PAIRS,
    IN_SWITCH,
    NVLS,
    NVLS_TREE,
    PROTOCOLS,
    RING,
    TREE,
    Constants,
    InSwitch,
    constants,
    minor_of,
)
from gc3.topologies.model import Topology

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
_REDUCING = ("allreduce", "reduce")
_ROOTED = ("broadcast", "reduce")
_MAX_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
_THRESHOLD = {"LL": 8, "LL128": 8, "Simple": 64}  # bytes per thread below which there are fewer channels
_IN_SWITCH_CHANNELS = 16  # NCCL_NVLS_NCHANNELS on Hopper (src/transport/nvls.cc)
_GBPS = 1e3  # bytes per microsecond
_SLOW_RING = 12.0  # GB/s up to which rings have fewer threads: PCI_BW


@dataclass(frozen=True, slots=True)
class Choice:
    """NCCL's choice for a call."""

    algorithm: str  # "ring", "tree", "nvls", "nvls_tree" or "allpairs"
    protocol: str  # "LL", "LL128" or "Simple"
    channels: int  # in use
    time_s: float  # the time that NCCL's model predicts; 0: it was not asked

    @property
    def in_switch(self) -> bool:
        """Whether the switches of a node add up and multicast the data."""
        return self.algorithm in IN_SWITCH

    @property
    def told(self) -> str:
        """What NCCL itself says of its time."""
        return (
            f"its own model: {1e6 * self.time_s:.1f} us" if self.time_s else "a program of MSCCL, by its table of sizes"
        )

    def __str__(self) -> str:
        """A short description."""
        return f"{self.algorithm} {self.protocol}, {self.channels} channel{'s' if self.channels > 1 else ''}"


@dataclass(frozen=True, slots=True)
class _Call:
    graph: Graph
    model: Constants
    collective: str

    @property
    def nodes(self) -> int:
        return len(self.graph.nodes)

    @property
    def ranks(self) -> int:
        return self.nodes * len(self.graph.nodes[0])

    @property
    def scale(self) -> int:
        """Index of rows for one, two and more nodes."""
        return min(self.nodes, 3) - 1

    @property
    def steps(self) -> int:
        whole = {"allreduce": 2 * (self.ranks - 1), "broadcast": self.ranks, "reduce": self.ranks}
        return whole.get(self.collective, self.ranks - 1)


def choose(topology: Topology, collective: str, size: int, *, version: str | None = None) -> Choice:
    """Returns NCCL's choice for a buffer of S = `size` bytes.

    Args:
        topology: The machine.
        collective: One of `COLLECTIVES`.
        size: S in bytes.
        version: Of NCCL; None: that of the published measurements.

    Raises:
        gc3.UserError: The result of NCCL's search on this machine is not known.

    >>> from gc3 import topologies
    >>> str(choose(topologies.load("ndv4"), "allreduce", 1 << 20))
    'ring LL, 24 channels'
    """
    return best(graph(topology, version), collective, size)


def best(found: Graph, collective: str, size: int) -> Choice:
    """Returns NCCL's choice with what it found on a machine: that of a log, or the fastest by its model."""
    ways = list(choices(found, collective, size))
    for _, _, algorithm, protocol, channels in (c for c in found.chosen if c[:2] == (collective, size)):
        like = next((w for w in ways if (w.algorithm, w.protocol) == (algorithm, protocol)), None)
        if like is None:
            raise errors.error("BadSimulation", f"{algorithm} {protocol}, which the log chooses, is not modelled here")
        return replace(like, channels=channels or like.channels)
    return min(ways, key=lambda choice: choice.time_s)


def choices(found: Graph, collective: str, size: int) -> Iterator[Choice]:
    """Yields NCCL's candidates: every algorithm with every protocol."""
    call = _Call(found, constants(found.version), collective)
    if call.ranks == 1:
        yield Choice(RING, "Simple", 1, 0.0)
        return
    if found.rccl:
        if program := rccl.program(collective, call.nodes, size):
            yield Choice(ALL_PAIRS, *program, 0.0)
            return
        bus = found.channels * found.rate
        for algorithm, protocol, us in rccl.times(bus, collective, call.steps, call.ranks, call.nodes, size):
            yield Choice(algorithm, protocol, _channels(call, algorithm, protocol, size), us * 1e-6)
        return
    yield from _in_switch(call, size)
    for algorithm in (RING, TREE) if collective == "allreduce" else (RING,):
        for p, protocol in enumerate(PROTOCOLS):
            if protocol == "LL128" and not found.ll128(found.tree if algorithm == TREE else found.ring):
                continue
            bandwidth = _bandwidth(call, algorithm, p)
            if algorithm == TREE:
                row = call.model.tree_correction[protocol]
                power = max(size >> 6, 1).bit_length() - 1
                bandwidth *= row[power] if power < len(row) else 1.0
            latency = _latency(call, algorithm, p)
            plain = algorithm == RING and protocol == "Simple" and collective == "allreduce"
            each = found.running if call.model.plateau_each else 1
            if plain and call.nodes > 1 and size >= call.ranks * each * call.model.plateau_bytes:
                # Rings of large messages pipeline less well than their number of steps suggests.
                latency *= call.model.plateau[found.gpu]
            us = latency + size / (_GBPS * bandwidth)
            yield Choice(algorithm, protocol, _channels(call, algorithm, protocol, size), us * 1e-6)


def _in_switch(call: _Call, size: int) -> Iterator[Choice]:
    """NVLS on one node, and NVLSTree, which is for AllReduce, on several.

    NVLS on several nodes needs switches between nodes that add up data (SHARP) and a plugin for them: NCCL leaves it
    out unless NCCL_COLLNET_ENABLE is set, and so it is left out here.
    """
    model, graph = call.model.in_switch, call.graph
    if model is None or not graph.heads or call.ranks // call.nodes < model.gpus or call.collective in _ROOTED:
        return
    if call.collective == "allgather" and not model.gathers:
        return
    if call.nodes == 1:
        us = model.latency + size / (_GBPS * _in_switch_bandwidth(call, model))
        yield Choice(NVLS, "Simple", _IN_SWITCH_CHANNELS, us * 1e-6)
    elif model.network is not None and call.collective == "allreduce":
        latency = model.latency + 2 * (call.nodes.bit_length() - 1) * model.network
        us = latency + size / (_GBPS * _in_switch_bandwidth(call, model))
        yield Choice(NVLS_TREE, "Simple", _IN_SWITCH_CHANNELS, us * 1e-6)


def _in_switch_bandwidth(call: _Call, model: InSwitch) -> float:
    """GB/s of S."""
    graph, gpus = call.graph, call.ranks // call.nodes
    allreduce = call.collective == "allreduce"
    inside = graph.head_rate
    across = math.inf if call.nodes == 1 else graph.rate
    if not model.efficiency:
        if model.network is None:  # of 2.17, which uses the result of the search for rings
            return min(graph.channels * graph.rate, call.model.bus_limit.get(graph.gpu, math.inf)) * model.part
        across /= 1 if call.scale < 2 else 2  # noqa: PLR2004
        return graph.heads * min(inside, across) * model.part
    inside *= model.efficiency[graph.gpu] * (graph.heads - 1) / graph.heads
    inside *= 2 if allreduce else (gpus - 1) / gpus
    across *= 2 if call.scale == 1 else 1
    most = model.tree[graph.gpu][call.scale] if call.nodes > 1 else math.inf
    return graph.heads * min(inside, across, most) * (call.ranks / call.steps if allreduce else 1)


def _channels(call: _Call, algorithm: str, protocol: str, size: int) -> int:
    """The number of channels: at most twice the search's, and only as many as have enough work."""
    per_thread = _THRESHOLD[protocol]
    if algorithm == RING and protocol == "LL":
        per_thread *= call.ranks
    threads = rccl.THREADS if call.graph.rccl else _MAX_THREADS[protocol]
    if (algorithm, protocol) == (RING, "Simple") and call.graph.channels * call.graph.ring.inside <= _SLOW_RING:
        threads = 256
    return max(1, min(call.graph.running, size // (threads * per_thread)))


def _bandwidth(call: _Call, algorithm: str, p: int) -> float:
    """GB/s of S."""
    model, gpu, channels, protocol = call.model, call.graph.gpu, call.graph.channels, PROTOCOLS[p]
    scale = call.scale
    bus = min(channels * call.graph.rate, model.bus_limit.get(gpu, math.inf))
    ll_most = model.ll_gpu[gpu][0] if scale == 0 else (model.ll_amd if call.graph.amd else model.ll_gpu["volta"])[scale]
    ring_ll128 = channels * (model.ring_ll128.get(call.collective) or model.ring_ll128[gpu])
    if algorithm == RING:
        if protocol == "LL":
            copying = call.nodes == 1 and call.collective not in _REDUCING
            bus = min(ll_most, bus * (model.ll_part_copying if copying else model.ll_part))
        elif protocol == "LL128":
            bus = min(bus * 0.92, ring_ll128)
        return bus * call.ranks / call.steps
    bus = min(channels * call.graph.tree_rate, model.bus_limit.get(gpu, math.inf))
    bus = min(bus * 0.92, channels * model.tree[gpu][scale])
    if protocol == "LL":
        bus = min(bus / 3.8, ll_most)
    elif protocol == "LL128":
        most = ring_ll128 if model.tree_ll128 is None else channels * model.tree_ll128[gpu][scale]
        bus = min(bus * (7 / 9 if scale == 0 else model.tree_ll128_part), most)
    if call.graph.tree.pattern == PLAIN_TREE and minor_of(call.graph.version) >= 18:  # noqa: PLR2004
        bus *= 0.85
    return bus * 0.5


def _latency(call: _Call, algorithm: str, p: int) -> float:
    """Microseconds."""
    model, nodes = call.model, call.nodes
    inside = (model.nvlink if call.graph.nvlink else model.pci)[algorithm][p]
    alone = call.ranks == nodes and minor_of(call.graph.version) >= 23  # noqa: PLR2004
    across = model.network[TREE if alone else algorithm][p]
    if nodes > 1 and PROTOCOLS[p] == "LL":
        inside *= model.slow_intra_ll
    base = model.base[algorithm][p]
    if algorithm == TREE:
        return base + 2 * ((call.ranks // nodes - 1) * inside + (nodes.bit_length() - 1) * across)
    if call.collective in _ROOTED:
        return base + (inside if nodes == 1 else across)  # all channels follow the same ring
    if nodes > 1 and model.net_post:
        post = (2.0 if call.graph.amd else 1.0) * (3 if PROTOCOLS[p] == "Simple" else 1)
        inside = max(inside, post)
    crossings = 0
    if nodes > 1:
        crossings = 2 * (nodes - 1 + model.all_crossed) if call.collective == "allreduce" else nodes - 1
    return base + (call.steps - crossings) * inside + crossings * across
