"""The constants of NCCL's tuning model (src/graph/tuning.cc), by version. Microseconds and GB/s, as there.

Three numbers in a row are those of LL, LL128 and Simple, or of one, two and more nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from gc3 import errors

Row: TypeAlias = "tuple[float, float, float]"

PROTOCOLS = ("LL", "LL128", "Simple")
TREE, RING = "tree", "ring"


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of a version.

    Attributes:
        version: Its name.
        base: Latency of a call, by algorithm.
        nvlink: Latency of a hop over NVLink, by algorithm.
        pci: The same over PCIe and between sockets.
        network: The same over a network.
        ll_gpu: Bandwidth of LL on one, two and more nodes, by GPU generation.
        ll_amd: The same for several nodes of AMD CPUs; others count as Volta.
        ring_ll128: Bandwidth of a channel with LL128 in a ring, by GPU generation or by collective.
        tree_ll128: The same in a tree, on one, two and more nodes; None: as in a ring.
        tree_ll128_part: The part of a tree's bandwidth that LL128 reaches on several nodes.
        tree: Bandwidth of a channel of a tree on one, two and more nodes, by GPU generation.
        ll_part: The part of the bandwidth that LL reaches in a ring.
        ll_part_copying: The same for collectives that do not reduce, on one node.
        a100_limit: Most bandwidth of rings on A100s; None: no such limit.
        plateau: How much longer the latency of a Simple ring AllReduce is on several nodes, by GPU generation.
        slow_intra_ll: How much longer a hop of LL within a node is on several nodes.
        net_post: Whether every hop of a ring takes at least the time of posting to the NIC.
        tree_correction: Factors of a tree's bandwidth by protocol and the power of two of S / 64 B.
    """

    version: str
    base: Mapping[str, Row]
    nvlink: Mapping[str, Row]
    pci: Mapping[str, Row]
    network: Mapping[str, Row]
    ll_gpu: Mapping[str, Row]
    ll_amd: Row
    ring_ll128: Mapping[str, float]
    tree_ll128: Mapping[str, Row] | None
    tree_ll128_part: float
    tree: Mapping[str, Row]
    ll_part: float
    ll_part_copying: float
    a100_limit: float | None
    plateau: Mapping[str, float]
    slow_intra_ll: float
    net_post: bool
    tree_correction: Mapping[str, tuple[float, ...]]


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
_BY_COLLECTIVE = {"broadcast": 18.8, "reduce": 12.0, "allgather": 18.3, "reducescatter": 15.2, "allreduce": 16.9}

_V2_8 = Constants(
    version="2.8.4",
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
    a100_limit=235.0,
    plateau={"volta": 1.9, "ampere": 1.9},
    slow_intra_ll=1.8,
    net_post=False,
    tree_correction=_CORRECTION_2_8,
)
_V2_30 = Constants(
    version="2.30",
    base={TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)},
    nvlink={TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)},
    pci={TREE: (1.0, 1.9, 4.0), RING: (1.0, 2.5, 5.7)},
    network={TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)},
    ll_gpu=_LL,
    ll_amd=(87.7, 22.5, 19.0),
    ring_ll128={"volta": 20.0, "ampere": 20.0, "hopper": 36.7, "blackwell": 73.4},
    tree_ll128={
        "volta": (20.0, 20.0, 20.0),
        "ampere": (20.0, 20.0, 20.0),
        "hopper": (36.7, 36.7, 29.0),
        "blackwell": (55.6, 31.67, 20.0),
    },
    tree_ll128_part=120 / 128,
    tree=_TREE_PER_CHANNEL,
    ll_part=1 / 2,
    ll_part_copying=1 / 2,
    a100_limit=None,
    plateau={"volta": 1.9, "ampere": 1.4, "hopper": 1.4, "blackwell": 1.4},
    slow_intra_ll=1.0,
    net_post=True,
    tree_correction=_CORRECTION,
)

VERSIONS: Mapping[str, Constants] = MappingProxyType({c.version: c for c in (_V2_8, _V2_30)})


def constants(version: str) -> Constants:
    """Returns the constants of a version.

    Raises:
        gc3.UserError: It is not known.

    >>> constants("2.30").base["ring"]
    (6.6, 14.0, 8.4)
    """
    try:
        return VERSIONS[version]
    except KeyError:
        known = ", ".join(VERSIONS)
        raise errors.error("BadSimulation", f"there is no model of NCCL '{version}'; expected one of {known}") from None
