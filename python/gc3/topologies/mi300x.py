"""Eight AMD MI300X."""

from __future__ import annotations

from gc3.topologies._clusters import gpu_nodes, network
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import NDR_MI300X, PCIE5, XGMI_MI300X


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
