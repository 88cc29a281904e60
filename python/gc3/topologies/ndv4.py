"""Azure ND A100 v4."""

from __future__ import annotations

from gc3.topologies._clusters import hgx
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import HDR, NVLINK3, PCIE4


@topology(source="000 figure 2, 002 section 7: two GPUs and two NICs on each PCIe switch; Azure's NCCL topology file")
def ndv4(N: int = 1) -> Topology:
    """N nodes of 8 A100s on NVSwitches, 8 HDR NICs, two for each pair of GPUs."""
    require("N", N, 1, 1024)
    build = Builder("ndv4", processor="a100")
    hgx(build, N, nvlink=NVLINK3, lanes=12, nic=HDR, pcie=PCIE4, sockets=4, rails=lambda g: [g, g ^ 1])
    return build.build()
