"""NVIDIA DGX-1."""

from __future__ import annotations

from gc3.topologies._clusters import network
from gc3.topologies._cube_mesh import cube_mesh
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import EDR, PCIE3


@topology(source="001 figure 1 and section 5.2.1 (NVLinks); four EDR NICs, one on each PCIe switch of two GPUs")
def dgx1(N: int = 1, pcie: int = 0) -> Topology:
    """N nodes of 8 V100s in a hybrid cube mesh, 4 EDR NICs each; pcie=1 adds the paths over PCIe and QPI."""
    require("N", N, 1, 1024)
    require("pcie", pcie, 0, 1)
    build = Builder("dgx1", processor="v100")
    gpus = cube_mesh(build, N, pcie=bool(pcie))
    network(build, gpus, EDR, 4, lambda g: [g // 2], uplink=PCIE3)
    return build.build()
