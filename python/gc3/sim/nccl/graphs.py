"""What NCCL finds on a machine before it tunes: channels and their bandwidth, and the orders of its rings.

Channels and bandwidths are a reading of NCCL's search for these machines, not dumps of it (NCCL_GRAPH_DUMP_FILE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gc3 import errors
from gc3.topologies.model import Topology


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
        version: The version of NCCL that published measurements of this machine used.
    """

    gpu: str
    amd: bool
    nvlink: bool
    channels: int
    GBps: float
    rings: tuple[tuple[int, ...], ...] = ()
    version: str = "2.8.4"


# Of a hybrid cube mesh: the cycle of double NVLinks and that of single ones, each in both directions.
CUBE_MESH_RING = (0, 1, 3, 2, 6, 7, 5, 4)
_SINGLE = (0, 2, 1, 5, 6, 4, 7, 3)
_MESH = (CUBE_MESH_RING, CUBE_MESH_RING[::-1], _SINGLE, CUBE_MESH_RING, CUBE_MESH_RING[::-1], _SINGLE[::-1])

_ONE_NODE: Mapping[str, Graph] = MappingProxyType(
    {
        "dgx1": Graph("volta", False, True, 6, 21.0, _MESH),
        "ndv2": Graph("volta", False, True, 6, 21.0, _MESH),
        "dgx2": Graph("volta", False, True, 6, 21.0),
        "ndv4": Graph("ampere", True, True, 12, 21.0),
        "ndv5": Graph("hopper", False, True, 12, 30.0, version="2.30"),
        "dgx_h100": Graph("hopper", False, True, 12, 30.0, version="2.30"),
        "summit": Graph("volta", False, False, 2, 16.0),
        "lassen": Graph("volta", False, False, 2, 16.0),
    }
)
_SEVERAL_NODES: Mapping[str, Graph] = MappingProxyType(
    {
        "ndv2": Graph("volta", False, True, 1, 12.0, (CUBE_MESH_RING,)),
        "ndv4": Graph("ampere", True, True, 8, 24.0),
        "ndv5": Graph("hopper", False, True, 8, 48.0, version="2.30"),
        "dgx_h100": Graph("hopper", False, True, 8, 48.0, version="2.30"),
    }
)


def graph(topology: Topology) -> Graph:
    """Returns what NCCL finds on a machine.

    Raises:
        gc3.UserError: That is not known.

    >>> from gc3 import topologies
    >>> graph(topologies.load("ndv4", N=2)).channels
    8
    """
    known = _ONE_NODE if topology.node_count == 1 else _SEVERAL_NODES
    found = known.get(topology.name)
    if found is None:
        nodes = "one node" if topology.node_count == 1 else f"{topology.node_count} nodes"
        raise errors.error(
            "BadSimulation",
            f"what NCCL does on {nodes} of '{topology.name}' is not known; it is for {', '.join(known)}: "
            "give a log of nccl-tests as the baseline",
        )
    return found


def orders(topology: Topology, found: Graph, channels: int) -> list[tuple[int, ...]]:
    """Returns the ranks in the order of the ring of each channel.

    Where any order will do, rings enter and leave a node at another GPU each, so that they use all network cards.
    """
    nodes = topology.node_count
    gpus = topology.rank_count // nodes
    result: list[tuple[int, ...]] = []
    for c in range(channels):
        if found.rings:
            inside = found.rings[c % len(found.rings)]
        else:
            first = c % found.channels * gpus // found.channels if nodes > 1 else 0
            inside = tuple((first + g) % gpus for g in range(gpus))
        result.append(tuple(n * gpus + g for n in range(nodes) for g in inside))
    return result
