"""NVIDIA GB200 NVL72."""

from __future__ import annotations

from gc3 import errors
from gc3.topologies._clusters import gpu_nodes, network, switched
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import NDR, NVLINK5

_TRAY = 4


@topology(source="NVIDIA GB200 NVL72: 18 trays of 4 GPUs in one NVLink domain, 4 NICs of 400 Gbit/s on each tray")
def gb200_nvl72(N: int = 1, G: int = 72) -> Topology:
    """N NVLink domains of G GPUs on NVSwitches; a node is a tray of 4 GPUs with 4 NICs of 400 Gbit/s."""
    require("N", N, 1, 64)
    require("G", G, _TRAY, 72)
    if G % _TRAY:
        raise errors.error("BadArgument", f"G={G}: a tray has {_TRAY} GPUs")
    build = Builder("gb200_nvl72", processor="gb200")
    trays = gpu_nodes(build, N * G // _TRAY, _TRAY, 2)
    ranks = [rank for tray in trays for rank in tray]
    for domain in range(N):
        switched(build, f"domain{domain}.nvswitch", ranks[domain * G : (domain + 1) * G], NVLINK5, 18)
    network(build, trays, NDR, _TRAY, lambda g: [g])
    return build.build()
