"""Summit of Oak Ridge National Laboratory."""

from __future__ import annotations

from gc3.topologies._power9 import power9
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology


@topology(source="004 figure 1 and section II: dual-rail EDR, one rail for each socket")
def summit(N: int = 1) -> Topology:
    """N nodes of 6 V100s, three on each POWER9, X-Bus between the sockets, dual-rail EDR."""
    require("N", N, 1, 4608)
    return power9("summit", N, gpus_per_socket=3, bricks=2)
