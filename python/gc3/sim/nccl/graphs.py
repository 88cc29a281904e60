"""The results of NCCL's search on a machine: channels and their bandwidth, and the orders of its rings.

Channels and bandwidths come from reading the code of NCCL's search for these machines, not from its dumps
(NCCL_GRAPH_DUMP_FILE).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from types import MappingProxyType
from typing import Any, TypeAlias

from gc3 import errors
from gc3.algorithms._ring import rings
from gc3.topologies._cube_mesh import cube_mesh_lanes
from gc3.topologies.model import Topology
from gc3.topologies.parts import Path


@dataclass(frozen=True, slots=True)
class Graph:
    """The result of NCCL's search.

    Attributes:
        gpu: Generation of the GPUs.
        amd: Whether the CPUs are AMD's.
        nvlink: Whether rings stay on NVLink within a node: LL128 needs that.
        channels: Channels of the search; NCCL runs twice as many.
        GBps: Bandwidth of each.
        rings: Orders of a node's GPUs that rings may take; empty: any, and each begins at another GPU.
        heads: GPUs of a node that each add up and multicast their share in its switches (NVLS); 0: the switches cannot.
        head_rate: GB/s of each inside the node.
        version: The version of NCCL that published measurements of this machine used.
    """

    gpu: str
    amd: bool
    nvlink: bool
    channels: int
    GBps: float
    rings: tuple[tuple[int, ...], ...] = ()
    heads: int = 0
    head_rate: float = 0.0
    version: str = "2.8.4"


# The cycles of a hybrid cube mesh: that of double NVLinks and that of single ones, each in both directions.
CUBE_MESH_RING = (0, 1, 3, 2, 6, 7, 5, 4)
_SINGLE = (0, 2, 1, 5, 6, 4, 7, 3)
_MESH = (CUBE_MESH_RING, CUBE_MESH_RING[::-1], _SINGLE, CUBE_MESH_RING, CUBE_MESH_RING[::-1], _SINGLE[::-1])


# The properties of a node that NCCL's search uses: the class of its GPUs, their wiring, and GB/s of a GPU to all
# others.
_Node: TypeAlias = "tuple[str, str, int]"
_SWITCHES, _MESH_LINKS, _SOCKETS = "switches", "hybrid cube mesh", "links within sockets"

_ONE_NODE: Mapping[_Node, Graph] = MappingProxyType(
    {
        ("v100", _MESH_LINKS, 150): Graph("volta", False, True, 6, 21.0, _MESH),
        ("v100", _SWITCHES, 150): Graph("volta", False, True, 6, 21.0),
        ("a100", _SWITCHES, 300): Graph("ampere", True, True, 12, 21.0),
        ("h100", _SWITCHES, 450): Graph("hopper", False, True, 12, 30.0, version="2.18.3"),
        ("v100", _SOCKETS, 100): Graph("volta", False, False, 2, 16.0),
        ("v100", _SOCKETS, 75): Graph("volta", False, False, 2, 16.0),
    }
)
# By the NICs of a node, too.
_SEVERAL_NODES: Mapping[tuple[_Node, int], Graph] = MappingProxyType(
    {
        (("v100", _MESH_LINKS, 150), 1): Graph("volta", False, True, 1, 12.0, (CUBE_MESH_RING,)),
        (("a100", _SWITCHES, 300), 8): Graph("ampere", True, True, 8, 24.0),
        (("h100", _SWITCHES, 450), 8): Graph("hopper", False, True, 8, 48.0, version="2.18.3"),
    }
)


def graph(topology: Topology) -> Graph:
    """Returns what NCCL finds on a machine, by the class of its GPUs and the wiring of its first node.

    Raises:
        gc3.UserError: It is not known for this machine.

    >>> from gc3 import topologies
    >>> graph(topologies.load("ndv4", N=2)).channels
    8
    """
    several = topology.node_count > 1
    if len(set(Counter(rank.node for rank in topology.ranks).values())) > 1:
        raise errors.error(
            "BadSimulation",
            f"what NCCL does where nodes differ in their GPUs, as on '{topology.name}', is not known: give a log of "
            "nccl-tests as the baseline",
        )
    node = _node(topology)
    found = _SEVERAL_NODES.get((node, nics(topology))) if several else _ONE_NODE.get(node)
    if found is None:
        nodes = f"{topology.node_count} nodes" if several else "one node"
        rows = (
            [(*row, f", {nics} NICs a node") for row, nics in _SEVERAL_NODES]
            if several
            else [(*r, "") for r in _ONE_NODE]
        )
        known = "; ".join(f"{gpu}, {wiring}, {GBps} GB/s a GPU{nics}" for gpu, wiring, GBps, nics in rows)
        raise errors.error(
            "BadSimulation",
            f"what NCCL does on {nodes} of '{topology.name}' (processor class '{node[0]}') is not known; it is for "
            f"{known}: give a log of nccl-tests as the baseline",
        )
    return replace(found, **_heads(topology, several=several))


# The rates that NCCL's search tries for Hopper (src/graph/search.cc), inside a node and between nodes.
_SPEEDS = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
_SPEEDS_ACROSS = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12)


def _heads(topology: Topology, *, several: bool) -> dict[str, Any]:
    """What the search finds for NVLS on the first node: every GPU is a head.

    A head's share goes through the port of every GPU once in each direction, and twice through that of the head.
    """
    ports = switch_ports(topology)
    if not ports:
        return {}
    resource = topology.all_resources[ports[0].resources[0]]
    wire = topology.link_class(resource.link_class)
    each = _rate(topology, resource.link_class) * resource.lanes * wire.kernel_efficiency / 1e9 / (len(ports) + 1)
    speed = next((s for s in (_SPEEDS_ACROSS if several else _SPEEDS) if s <= each), 0.0)
    return {"heads": len(ports), "head_rate": speed} if speed else {}


def switch_ports(topology: Topology, node: int = 0) -> list[Path]:
    """Returns, for each GPU of a node, a path into the GPU from another one through the node's switches.

    The list is empty if these switches do not add up and multicast data.
    """
    members = [r for r, rank in enumerate(topology.ranks) if rank.node == node]
    paths = [topology.path(members[i - 1], r) for i, r in enumerate(members)] if len(members) > 1 else []
    if any(path is None or not topology.link_class(path.link_class).multicast_efficiency for path in paths):
        return []
    return [path for path in paths if path is not None]


def _node(topology: Topology) -> _Node:
    """The properties of the first node that NCCL's search uses."""
    members = [r for r, rank in enumerate(topology.ranks) if rank.node == 0]
    place = {r: i for i, r in enumerate(members)}
    lanes = {(place[k.src], place[k.dst]): k for k in topology.links if k.lanes and {k.src, k.dst} <= place.keys()}
    if lanes:
        sockets = [topology.ranks[r].socket for r in members]
        everyone = permutations(range(len(members)), 2)
        if {pair: k.lanes for pair, k in lanes.items()} == cube_mesh_lanes():
            wiring = _MESH_LINKS
        elif lanes.keys() == {(a, b) for a, b in everyone if sockets[a] == sockets[b]}:
            wiring = _SOCKETS
        else:
            wiring = ""
        rates = [_rate(topology, k.link_class) * k.lanes for (a, _), k in lanes.items() if a == 0]
        return topology.processor or "", wiring, round(sum(rates) / 1e9)
    paths = [topology.path(members[0], other) for other in members[1:]]
    ports = {path.resources[0] for path in paths if path and topology.all_resources[path.resources[0]].kind == "egress"}
    if len(ports) != 1 or None in paths:
        return topology.processor or "", "", 0
    port = topology.all_resources[ports.pop()]
    return topology.processor or "", _SWITCHES, round(_rate(topology, port.link_class) * port.lanes / 1e9)


def _rate(topology: Topology, link_class: str) -> float:
    """Bytes per second of a lane; 0 if not known."""
    return topology.link_class(link_class).bandwidth_bytes_per_s or 0.0


def nics(topology: Topology) -> int:
    """Returns the number of NICs of the first node."""
    cards = {r.name for r in topology.resources if r.kind == "nic"}
    ports = (p for f in topology.fabrics if f.across_nodes for p in f.ports if topology.ranks[p.rank].node == 0)
    return len({name for port in ports for name in port.out if name in cards})


def orders(topology: Topology, found: Graph, channels: int) -> list[tuple[int, ...]]:
    """Returns the ranks in the order of the ring of each channel.

    If any order is allowed, each ring enters and leaves a node at a different GPU, so that all network cards are used.
    """
    nodes = topology.node_count
    gpus = topology.rank_count // nodes
    if found.rings:
        different = [[n * gpus + g for n in range(nodes) for g in inside] for inside in found.rings]
    else:
        different = rings(nodes * gpus, gpus, found.channels if nodes > 1 else 1)
    return [tuple(different[c % len(different)]) for c in range(channels)]
