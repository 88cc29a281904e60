"""Gigabyte Z52."""

from __future__ import annotations

from dataclasses import replace

from gc3.topologies._clusters import circle
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound
from gc3.topologies.preset import topology
from gc3.topologies.wires import PCIE4_MI50, XGMI_MI50

# Two chains of xGMI links, 2-0-3-5 and 6-4-7-1. Over PCIe, GPUs 1 and 5 close them to a ring; each of the two shares a
# socket with the other chain. That 1 is joined to 2, and 5 to 6, is our reading of 001 figure 3.
RING = (0, 3, 5, 6, 4, 7, 1, 2)
_PCIE = ({5, 6}, {1, 2})


@topology(source="001 sections 5.1.2 and 5.2.2: one ring; xGMI and PCIe links count alike, one chunk per round")
def z52() -> Topology:
    """8 MI50s as SCCL models them: a ring of xGMI links, closed by two PCIe links."""
    build = Builder("z52", processor="mi50")
    for g in range(8):
        build.rank(f"gpu{g}", socket=g // 4, position=circle(RING.index(g), 8))
    for a, b in zip(RING, (*RING[1:], RING[0]), strict=True):
        build.join(a, b, PCIE4_MI50 if {a, b} in _PCIE else XGMI_MI50)
    pairs = [pair for a, b in zip(RING, (*RING[1:], RING[0]), strict=True) for pair in ((a, b), (b, a))]
    return replace(build.build(), bounds=tuple(Bound((pair,), 1) for pair in pairs))
