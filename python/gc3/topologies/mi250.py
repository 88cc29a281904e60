"""AMD MI250 nodes."""

from __future__ import annotations

from gc3.topologies._clusters import gpu_nodes, network
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import NIC_MI250, XGMI_MI250

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
