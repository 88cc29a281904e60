"""Lassen of Lawrence Livermore National Laboratory."""

from __future__ import annotations

from gc3.topologies._power9 import power9
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology


@topology(source="004 section II: as Summit with two GPUs on each socket, and so three NVLinks where Summit has two")
def lassen(N: int = 1) -> Topology:
    """N nodes of 4 V100s, two on each POWER9, X-Bus between the sockets, dual-rail EDR."""
    require("N", N, 1, 1024)
    return power9("lassen", N, gpus_per_socket=2, bricks=3)
