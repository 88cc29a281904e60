"""NVIDIA DGX H100."""

from __future__ import annotations

from gc3.topologies._clusters import hgx
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import NDR, NVLINK4, PCIE5


@topology(source="NVIDIA DGX H100: one 400 Gbit/s NIC for each GPU; nccl-tests issue 212")
def dgx_h100(N: int = 1) -> Topology:
    """N nodes of 8 H100s on NVSwitches, 8 NDR NICs, one for each GPU."""
    require("N", N, 1, 1024)
    build = Builder("dgx_h100", processor="h100")
    hgx(build, N, nvlink=NVLINK4, lanes=18, nic=NDR, pcie=PCIE5, sockets=2, rails=lambda g: [g])
    return build.build()
