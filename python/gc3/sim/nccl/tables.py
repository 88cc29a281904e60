"""The constants of NCCL's tuning model (src/graph/tuning.cc), by version. Microseconds and GB/s, as there.

Three numbers in a row are those of LL, LL128 and Simple, or of one, two and more nodes.

The files that were read: of NVIDIA/nccl 2.8.4, 2.17.1 and 2.20.3 (commit b647562); the first with rows for Blackwell,
before 2.27; 2.28.3; and 2.30. A version between two of them has the constants of the older one, except 2.18 and 2.19,
which have NVLSTree and the switch from LL to NVLS of 2.20.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from gc3 import errors

Row: TypeAlias = "tuple[float, float, float]"

PROTOCOLS = ("LL", "LL128", "Simple")
TREE, RING, NVLS, NVLS_TREE = "tree", "ring", "nvls", "nvls_tree"
ALL_PAIRS = "allpairs"  # a program that RCCL has for MSCCL
IN_SWITCH = (NVLS, NVLS_TREE)
ALGORITHMS = (TREE, RING, "collnet_direct", "collnet_chain", NVLS, NVLS_TREE)  # by their numbers


@dataclass(frozen=True, slots=True)
class InSwitch:
    """The constants of NVLS and NVLSTree, whose data is added up and multicast by the switches of a node.

    Attributes:
        gpus: Fewest GPUs of a node.
        gathers: Whether it serves AllGather, whose data is bytes: at first only types that switches add up were served.
        latency: Of a call, in microseconds.
        network: Of each level of the tree between nodes; None: there is no NVLSTree.
        part: The part of the bandwidth of all heads together that S has in an AllReduce.
        efficiency: The part of NVLink's bandwidth that is reached, by GPU generation; empty: `part` has it.
        tree: Bandwidth of a channel of NVLSTree on one, two and more nodes, by GPU generation; empty: not limited.
        long_loops: Loops of 128 KiB a head and channel that a call takes at least for chunks of this length.
    """

    gpus: int
    gathers: bool
    latency: float
    network: float | None
    part: float
    efficiency: Mapping[str, float]
    tree: Mapping[str, Row]
    long_loops: int


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of a version."""

    version: str  # its name
    since: int  # the first 2.x that has these constants, as far as is known
    base: Mapping[str, Row]  # latency of a call, by algorithm
    nvlink: Mapping[str, Row]  # latency of a hop over NVLink, by algorithm
    pci: Mapping[str, Row]  # the same over PCIe and between sockets
    network: Mapping[str, Row]  # the same over a network
    ll_gpu: Mapping[str, Row]  # bandwidth of LL on one, two and more nodes, by GPU generation
    ll_amd: Row  # the same for several nodes of AMD CPUs; others count as Volta
    ring_ll128: Mapping[str, float]  # bandwidth of a channel with LL128 in a ring, by GPU generation or by collective
    tree_ll128: Mapping[str, Row] | None  # the same in a tree, on one, two and more nodes; None: as in a ring
    tree_ll128_part: float  # the part of a tree's bandwidth that LL128 reaches on several nodes
    tree: Mapping[str, Row]  # bandwidth of a channel of a tree on one, two and more nodes, by GPU generation
    ll_part: float  # the part of the bandwidth that LL reaches in a ring
    ll_part_copying: float  # the same for collectives that do not reduce, on one node
    bus_limit: Mapping[str, float]  # most bandwidth of all channels, by GPU generation; others have no such limit
    # how much longer the latency of a Simple ring AllReduce is on several nodes, by GPU generation
    plateau: Mapping[str, float]
    plateau_bytes: int  # S of each rank from which it is
    plateau_each: bool  # whether this is for each channel
    all_crossed: bool  # whether the ring of an AllReduce crosses all nodes twice, or all but one
    slow_intra_ll: float  # how much longer a hop of LL within a node is on several nodes
    net_post: bool  # whether every hop of a ring takes at least the time of posting to the NIC
    # factors of a tree's bandwidth by protocol and the power of two of S / 64 B
    tree_correction: Mapping[str, tuple[float, ...]]
    in_switch: InSwitch | None = None  # NVLS and NVLSTree; None: the version has neither
    peers_at_once: int = 1  # peers to which a channel sends at once, each with a part of its threads


_ONES = (1.0,) * 4
_CORRECTION = {
    "LL": (*_ONES, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *_ONES),
    "LL128": (*_ONES, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}
_CORRECTION_2_8 = {
    **_CORRECTION,
    "LL128": (*_ONES, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1.0),
    "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 6, 0.6, 0.6, 0.7, 0.8, 0.9),
}
_TREE_PER_CHANNEL = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
_LL = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
_RING_LL128 = {"volta": 20.0, "ampere": 20.0, "hopper": 36.7, "blackwell": 73.4}
_TREE_LL128 = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
_PLATEAU = {"volta": 1.9, "ampere": 1.4, "hopper": 1.4, "blackwell": 1.4}
_BY_COLLECTIVE = {"broadcast": 18.8, "reduce": 12.0, "allgather": 18.3, "reducescatter": 15.2, "allreduce": 16.9}

_V2_8 = Constants(
    version="2.8.4",
    since=8,
    base={TREE: (4.4, 4.4, 0.0), RING: (3.6, 10.0, 8.4)},
    nvlink={TREE: (0.52, 1.25, 28.0), RING: (0.47, 1.9, 3.4)},
    pci={TREE: (1.0, 1.9, 28.0), RING: (1.0, 2.5, 5.7)},
    network={TREE: (5.0, 8.5, 28.0), RING: (2.7, 4.0, 9.6)},
    ll_gpu=_LL,
    ll_amd=(87.7, 22.5, 19.0),
    ring_ll128=_BY_COLLECTIVE,
    tree_ll128=None,
    tree_ll128_part=0.915,
    tree=_TREE_PER_CHANNEL,
    ll_part=1 / 4,
    ll_part_copying=1 / 3,
    bus_limit={"ampere": 235.0},
    plateau={"volta": 1.9, "ampere": 1.9, "hopper": 1.9},
    plateau_bytes=4096,
    plateau_each=False,
    all_crossed=False,
    slow_intra_ll=1.8,
    net_post=False,
    tree_correction=_CORRECTION_2_8,
)
_V2_17 = replace(
    _V2_8,
    version="2.17.1",
    since=17,
    base={TREE: (4.4, 4.4, 0.0), RING: (3.6, 10.0, 8.4)},
    ll_gpu=_LL | {"hopper": _LL["ampere"]},
    ring_ll128=_RING_LL128,
    tree_ll128={gpu: (rate,) * 3 for gpu, rate in _RING_LL128.items()},
    tree_ll128_part=120 / 128,
    tree=_TREE_PER_CHANNEL | {"hopper": (38.7, 41.4, 33.0)},
    bus_limit={"ampere": 235.0, "hopper": 370.0},
    plateau={"volta": 1.9, "ampere": 1.9, "hopper": 1.5},
    all_crossed=True,
    tree_correction=_CORRECTION,
    in_switch=InSwitch(2, False, 40.0, None, 0.75, {}, {}, 32),
    peers_at_once=8,
)
_V2_20 = replace(
    _V2_17,
    version="2.20.3",
    since=18,
    base={TREE: (6.8, 14.0, 0.0), RING: (6.6, 14.0, 8.4)},
    nvlink={TREE: (0.6, 1.25, 28.0), RING: (0.6, 1.9, 3.4)},
    network={TREE: (5.0, 8.5, 28.0), RING: (2.7, 4.0, 14.0)},
    tree_ll128=_TREE_LL128,
    tree=_TREE_PER_CHANNEL,
    bus_limit={},
    plateau=_PLATEAU,
    plateau_bytes=64,
    plateau_each=True,
    slow_intra_ll=1.0,
    net_post=True,
    in_switch=InSwitch(3, False, 23.0, 14.0, 5 / 6, {}, {}, 64),
)
_V2_26 = replace(
    _V2_20,
    version="2.26",
    since=23,
    base={TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)},
    nvlink={TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)},
    pci={TREE: (1.0, 1.9, 4.0), RING: (1.0, 2.5, 5.7)},
    network={TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)},
    ll_gpu=_LL,
    tree_ll128=_TREE_LL128 | {"blackwell": (73.4, 73.4, 58.0)},
    tree=_TREE_PER_CHANNEL | {"blackwell": (77.4, 82.8, 72.0)},
    ll_part=1 / 2,
    ll_part_copying=1 / 2,
    all_crossed=False,
    in_switch=InSwitch(3, True, 25.0, 14.0, 5 / 6, {}, {}, 64),
)
_IN_SWITCH = InSwitch(
    gpus=3,
    gathers=True,
    latency=25.0,
    network=14.0,
    part=1.0,
    efficiency={"hopper": 0.85, "blackwell": 0.74},
    tree={"hopper": (0.0, 57.7, 45.5), "blackwell": (0.0, 96.0, 43.1)},
    long_loops=64,
)
_V2_28 = replace(
    _V2_26,
    version="2.28.3",
    since=27,
    tree_ll128=_TREE_LL128,
    tree=_TREE_PER_CHANNEL,
    in_switch=_IN_SWITCH,
)
_V2_30 = replace(_V2_28, version="2.30", since=29, in_switch=replace(_IN_SWITCH, network=20.9))

VERSIONS: Mapping[str, Constants] = MappingProxyType(
    {c.version: c for c in (_V2_8, _V2_17, _V2_20, _V2_26, _V2_28, _V2_30)}
)


def minor_of(version: str) -> int:
    """Returns x of a version 2.x.

    Raises:
        gc3.UserError: It is no such version.

    >>> minor_of("2.18.3+cuda12.1")
    18
    """
    match = re.match(r"2\.(\d{1,4})(?:\.\d{1,4})?(?:[-+].*)?$", version, re.ASCII)
    if not match:
        raise errors.error(
            "BadSimulation", f"'{version[:40]}' is no version of NCCL; expected 2.x or 2.x.y, as {_V2_30.version}"
        )
    return int(match[1])


def constants(version: str) -> Constants:
    """Returns the constants of a version: those that were read, or of the version before it, or of the first.

    Raises:
        gc3.UserError: It is no version.

    >>> constants("2.30").base["ring"], constants("2.18.3").version, constants("2.31").version
    ((6.6, 14.0, 8.4), '2.20.3', '2.30')
    """
    minor = minor_of(version)
    return [c for c in VERSIONS.values() if c.since <= minor or c is _V2_8][-1]


def said(version: str) -> tuple[str, ...]:
    """Returns what is said about the constants of a version: nothing if they are its own.

    >>> said("2.17.1"), said("2.31")
    ((), ('the constants of NCCL 2.31 were not read: those of 2.30 are used',))
    """
    found = constants(version)
    if minor_of(found.version) == minor_of(version):
        return ()
    return (f"the constants of NCCL {version} were not read: those of {found.version} are used",)
