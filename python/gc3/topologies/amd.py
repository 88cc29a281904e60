"""Machines of AMD GPUs: MI250, MI300X, and Gigabyte Z52 with MI50."""

from __future__ import annotations

from dataclasses import replace

from gc3.topologies._clusters import circle, gpu_nodes, network
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import NDR_MI300X, NIC_MI250, PCIE4_MI50, PCIE5, XGMI_MI50, XGMI_MI250, XGMI_MI300X

# The xGMI links of a node: dies, each with the later dies that it is joined to and the links between them.
_LINKS: dict[int, dict[int, int]] = {
    0: {1: 4, 4: 2, 8: 1},
    1: {5: 1, 9: 1, 10: 1},
    2: {3: 4, 6: 1, 9: 1, 10: 1},
    3: {7: 2, 11: 1},
    4: {5: 4, 6: 1},
    5: {6: 1, 7: 1},
    6: {7: 4},
    8: {9: 4, 12: 2},
    9: {13: 1},
    10: {11: 4, 14: 1},
    11: {15: 2},
    12: {13: 4, 14: 1},
    13: {14: 1, 15: 1},
    14: {15: 4},
}
# Two chains of xGMI links, 2-0-3-5 and 6-4-7-1. Over PCIe, GPUs 1 and 5 close them to a ring; each of the two shares a
# socket with the other chain. That 1 is joined to 2, and 5 to 6, is our reading of 001 figure 3.
RING = (0, 3, 5, 6, 4, 7, 1, 2)
_PCIE = ({5, 6}, {1, 2})


@topology(source="ForestColl (arXiv 2402.06787), its topologies.py: 16 dies, 4, 2 or 1 links of 50 GB/s between two")
def mi250(N: int = 1) -> Topology:
    """N nodes of 8 MI250s; each of their 16 dies is a rank with 7 xGMI links and its own network port."""
    require("N", N, 1, 1024)
    build = Builder("mi250", processor="mi250")
    gpus = gpu_nodes(build, N, 16, 2)
    for ranks in gpus:
        for die, others in _LINKS.items():
            for other, lanes in others.items():
                build.join(ranks[die], ranks[other], XGMI_MI250, lanes=lanes)
    network(build, gpus, NIC_MI250, 16, lambda g: [g])
    return build.build()


@topology(source="ns3-msccl-data: every pair of GPUs joined by one xGMI link; one 400 Gbit/s NIC for each GPU")
def mi300x(N: int = 1) -> Topology:
    """N nodes of 8 MI300X, all pairs linked, one 400 Gbit/s NIC for each GPU."""
    require("N", N, 1, 1024)
    build = Builder("mi300x", processor="mi300x")
    gpus = gpu_nodes(build, N, 8, 2)
    for ranks in gpus:
        for a in ranks:
            for b in ranks[ranks.index(a) + 1 :]:
                build.join(a, b, XGMI_MI300X)
    network(build, gpus, NDR_MI300X, 8, lambda g: [g], uplink=PCIE5)
    return build.build()


@topology(source="001 sections 5.1.2 and 5.2.2: one ring; xGMI and PCIe links count alike, one chunk per round")
def z52() -> Topology:
    """8 MI50s as SCCL models them: a ring of xGMI links, closed by two PCIe links."""
    build = Builder("z52", processor="mi50")
    for g in range(8):
        build.rank(f"gpu{g}", socket=g // 4, position=circle(RING.index(g), 8))
    for a, b in zip(RING, (*RING[1:], RING[0]), strict=True):
        build.join(a, b, PCIE4_MI50 if {a, b} in _PCIE else XGMI_MI50)
    pairs = [pair for a, b in zip(RING, (*RING[1:], RING[0]), strict=True) for pair in ((a, b), (b, a))]
    return replace(build.build(), bounds=tuple(Bound((pair,), 1) for pair in pairs))
