"""Azure ND A100 v4."""

from __future__ import annotations

from gc3.topologies._clusters import hgx, nearest
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import HDR, NVLINK3, PCIE4


@topology(source="000 figure 2, 002 section 7: two GPUs and two NICs on each PCIe switch; Azure's NCCL topology file")
def ndv4(N: int = 1, rails: int = 1) -> Topology:
    """N nodes of 8 A100s on NVSwitches, 8 HDR NICs, two for each pair of GPUs; rails=2: channels alternate, see docs.

    Which NIC of its pair a GPU uses is NCCL's choice. Newer versions give each GPU one of its own (`nearest`). In
    NCCL 2.8, and in MSCCL on it, channel c of both GPUs uses NIC c modulo 2 of the pair: rails=2.
    """
    require("N", N, 1, 1024)
    require("rails", rails, 1, 2)

    def of_pair(g: int) -> list[int]:
        return [g // 2 * 2 + i for i in (nearest(g % 2, 2, 2) if rails == 1 else range(2))]

    build = Builder("ndv4", processor="a100")
    hgx(build, N, nvlink=NVLINK3, lanes=12, nic=HDR, pcie=PCIE4, sockets=4, rails=of_pair)
    return build.build()
