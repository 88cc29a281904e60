"""NVIDIA DGX-2."""

from __future__ import annotations

from gc3.topologies._clusters import circle, network
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import Port
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import HDR, NVLINK2, PCIE3

_BOARD = 8
_LANES = 6
_TRUNK_LANES = 48


@topology(source="002 section 7: two boards of 8 V100s and 6 NVSwitches, 8 NVLinks from switch to counterpart")
def dgx2(N: int = 1) -> Topology:
    """N nodes of 16 V100s on NVSwitches, two boards joined by 48 NVLinks, 8 HDR NICs in PCIe 3 slots."""
    require("N", N, 1, 1024)
    build = Builder("dgx2", processor="v100")
    gpus = [
        [build.rank(f"node{n}.gpu{g}", node=n, socket=g // _BOARD, position=_place(g)) for g in range(2 * _BOARD)]
        for n in range(N)
    ]
    for node, ranks in enumerate(gpus):
        ends = [
            (
                build.resource(f"node{node}.gpu{g}.nvlink.out", "egress", NVLINK2, _LANES),
                build.resource(f"node{node}.gpu{g}.nvlink.in", "ingress", NVLINK2, _LANES),
            )
            for g in range(2 * _BOARD)
        ]
        for board in range(2):
            members = range(board * _BOARD, (board + 1) * _BOARD)
            ports = [Port(ranks[g], ends[g][:1], ends[g][1:]) for g in members]
            build.fabric(f"node{node}.board{board}", NVLINK2, ports)
        # A transfer between boards takes up the trunk of the sender's board, but not that of the receiver's.
        trunk = build.duplex(f"node{node}.trunk", "switch", NVLINK2, _TRUNK_LANES)
        across = [Port(r, (ends[g][0], trunk[g // _BOARD]), ends[g][1:]) for g, r in enumerate(ranks)]
        build.fabric(f"node{node}.boards", NVLINK2, across)
    network(build, gpus, HDR, 8, lambda g: [g // 2], uplink=PCIE3, slot=PCIE3)
    return build.build()


def _place(g: int) -> tuple[float, float]:
    """The place in a drawing: each board is a circle, one above the other."""
    x, y = circle(g % _BOARD, _BOARD)
    return x * 0.6 + 0.2, y * 0.45 + (0.0 if g // _BOARD else 0.55)
