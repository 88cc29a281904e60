"""The time of NVLS and NVLSTree, whose data is added up and multicast by the switches of a node.

No instruction of a program does that, so the time is computed from the machine instead of simulated. Each GPU of a node
is the head of an equal share of S. Of an AllReduce, the switches read a share from all GPUs and send the sum to its
head, which writes it once for all GPUs. So all of S goes through the port of each GPU once in each direction, and once
more the share of which it is the head. With several nodes, each head sends its share over its NIC, up and down a binary
tree of the nodes.

NCCL works in loops over its channels, each with a chunk of every share. The time is the latency of the call, which is
NCCL's own constant, what the port or NIC that needs longest has to carry, and two loops that do not overlap: the copies
into the buffers that the switches read, and those out of them. Between nodes, the first chunks cross a NIC at each
level of the tree, up and down, before the next level has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gc3 import collectives
from gc3.sim.nccl.graphs import Graph, switch_ports
from gc3.sim.nccl.tables import NVLS_TREE, InSwitch
from gc3.sim.nccl.tuning import Choice
from gc3.sim.platform import Platform, memory_name
from gc3.sim.predict import Disturbance, Prediction
from gc3.topologies.wires import NDR

_KIB = 1 << 10
_MANY_NODES = 4
_LONG_TREE_CHUNK = 64 * _KIB  # of NVLSTree on many nodes
_COPIES = 2  # loops that are not overlapped: into the buffers of the first chunks, and out of those of the last


@dataclass(frozen=True, slots=True)
class Load:
    """The seconds that a byte of S needs on the busiest resource."""

    seconds: float  # they
    resource: str  # its name
    # the seconds that a byte of S needs on a NIC at each level of the tree of nodes; 0 on one node
    crossing: float = 0.0


def prediction(
    on: Platform,
    busiest: Load,
    graph: Graph,
    model: InSwitch,
    choice: Choice,
    collective: str,
    size: int,
    disturbance: Disturbance,
) -> Prediction:
    """Returns the time of a call that the switches of a node serve.

    Args:
        on: The machine.
        busiest: What limits it; see `busiest_load`.
        graph: What NCCL finds there.
        model: The constants of NCCL's version.
        choice: NVLS or NVLSTree.
        collective: The collective.
        size: S in bytes.
        disturbance: The latest rank delays all, and the slowest slows all: each share passes through every rank.
    """
    nodes = len(graph.nodes)
    levels = 2 * (nodes.bit_length() - 1) if choice.algorithm == NVLS_TREE else 0
    # NCCL's constant is for InfiniBand; what another network takes longer for a message comes on top, as in tuning.cc.
    nics = max((on.topology.link_class(name).latency_s or 0.0 for name in on.network_classes), default=0.0)
    latency = model.latency + levels * ((model.network or 0.0) + 1e6 * max(nics - (NDR.latency_s or 0.0), 0.0))
    shares = choice.channels * graph.heads
    loop = min(size, shares * chunk_bytes(size, shares, model, nodes))
    delays, slowdowns = disturbance.lists(on.topology.rank_count)
    time = latency * 1e-6 + (size + _COPIES * loop) * busiest.seconds + levels * loop * busiest.crossing
    time = time * max(slowdowns, default=1.0) + max(delays, default=0.0)
    algbw = size / time / 1e9
    busbw = algbw * collectives.get(collective).factor(on.topology.rank_count)
    return Prediction(size, time, algbw, busbw, size * busiest.seconds, busiest.resource, 0)


def chunk_bytes(size: int, shares: int, model: InSwitch, nodes: int = 1) -> int:
    """Returns the bytes that a loop moves of each of `shares` heads and channels (src/enqueue.cc: NVLS, NVLSTree)."""
    chunk = _LONG_TREE_CHUNK if nodes >= _MANY_NODES else 128 * _KIB
    inside = ((model.long_loops, 64 * _KIB), (8, 32 * _KIB), (2, 16 * _KIB))
    for loops, shorter in inside if nodes == 1 else ((4, 64 * _KIB), (1, 32 * _KIB)):
        if size < loops * shares * chunk:
            chunk = min(chunk, shorter)
    return chunk


def busiest_load(on: Platform, graph: Graph, collective: str) -> Load:
    """Returns the resource that needs longest for its part of every byte of S.

    With Simple, links and NICs reach the preset's part of their rates, and switches that add up a part of that.
    """
    topology, simple = on.topology, on.parameters.protocol("Simple")
    carried: dict[int, float] = {}
    nodes, gpus = len(graph.nodes), len(graph.nodes[0])
    # Through the port of a GPU, out of it and into it.
    out, into = {"allreduce": (1 + 1 / gpus, 1 + 1 / gpus), "allgather": (1 / gpus, 1.0)}.get(
        collective, (1.0, 1 / gpus)
    )
    for members in graph.nodes:
        for path in switch_ports(topology, members):
            carried[path.resources[0]] = out
            carried[path.resources[-1]] = into
    # Of two trees between nodes, in one of which a node is a leaf, it sends three shares up or down, and one share.
    # Of two nodes, each sends once.
    crossings = 1 if nodes == 2 else 2  # noqa: PLR2004
    across: dict[int, float] = {}
    for rank in range(topology.rank_count if nodes > 1 else 0):
        above = (rank + gpus) % topology.rank_count
        rails = topology.rails(rank, above)
        for rail in range(rails):
            path = topology.path(rank, above, rail)
            for index in path.resources if path else ():
                across[index] = across.get(index, 0.0) + 1 / gpus / rails
    for index, part in across.items():
        carried[index] = carried.get(index, 0.0) + crossings * part

    def seconds(index: int, part: float) -> float:
        resource = topology.all_resources[index]
        multicast = topology.link_class(resource.link_class).multicast_efficiency or 1.0
        return part / (on.rate(resource, simple) * multicast)

    found = [Load(seconds(index, part), topology.all_resources[index].name) for index, part in carried.items()]
    # Copies into the buffers that switches read, and out of those that they write, read and write as much each.
    touched = 3 * (out + into)
    found += [Load(touched / on.memory_rate(rank, simple), memory_name(rank)) for rank in on.with_memory]
    busiest = max(found, key=lambda load: load.seconds)
    return replace(busiest, crossing=max((seconds(*each) for each in across.items()), default=0.0))
