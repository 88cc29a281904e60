"""Machines of V100s in the hybrid cube mesh: DGX-1 and Azure ND v2."""

from __future__ import annotations

from gc3.topologies._clusters import network
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import EDR, NVLINK2, PCIE3, QPI

# Pairs with two NVLinks and pairs with one; each set is a Hamiltonian cycle: 001 figure 1.
DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
# For drawings: the two quads are side by side, and the links between them do not cross.
_PLACES = ((0.0, 1.0), (0.3, 0.7), (0.0, 0.0), (0.3, 0.3), (1.0, 1.0), (0.7, 0.7), (1.0, 0.0), (0.7, 0.3))


@topology(source="001 figure 1 and section 5.2.1 (NVLinks); four EDR NICs, one on each PCIe switch of two GPUs")
def dgx1(N: int = 1, pcie: int = 0) -> Topology:
    """N nodes of 8 V100s in a hybrid cube mesh, 4 EDR NICs each; pcie=1 adds the paths over PCIe and QPI."""
    require("N", N, 1, 1024)
    require("pcie", pcie, 0, 1)
    build = Builder("dgx1", processor="v100")
    gpus = cube_mesh(build, N, pcie=bool(pcie))
    network(build, gpus, EDR, 4, lambda g: [g // 2], uplink=PCIE3)
    return build.build()


@topology(source="000 section 6.3, TACCL profiles: the GPUs of a DGX-1, one EDR NIC")
def ndv2(N: int = 1, pcie: int = 0) -> Topology:
    """N nodes of 8 V100s in a hybrid cube mesh, 1 EDR NIC each; pcie=1 adds the paths over PCIe and QPI."""
    require("N", N, 1, 1024)
    require("pcie", pcie, 0, 1)
    build = Builder("ndv2", processor="v100")
    gpus = cube_mesh(build, N, pcie=bool(pcie))
    network(build, gpus, EDR, 1, lambda _: [0], uplink=PCIE3)
    return build.build()


def cube_mesh(build: Builder, nodes: int, *, pcie: bool) -> list[list[int]]:
    """Adds nodes of eight V100s and returns their ranks.

    Args:
        build: The topology to add them to.
        nodes: The number of nodes.
        pcie: Whether GPUs without an NVLink between them reach each other over PCIe and the CPUs.
    """
    gpus = [
        [build.rank(f"node{n}.gpu{g}", node=n, socket=g // 4, position=_PLACES[g]) for g in range(8)]
        for n in range(nodes)
    ]
    for node, ranks in enumerate(gpus):
        for lanes, pairs in ((2, DOUBLE), (1, SINGLE)):
            for a, b in pairs:
                build.join(ranks[a], ranks[b], NVLINK2, lanes=lanes)
        if pcie:
            _pcie(build, node, ranks)
    return gpus


def _pcie(build: Builder, node: int, ranks: list[int]) -> None:
    """Adds paths over PCIe: two GPUs share a PCIe switch, and a quad a CPU; only pairs of two quads lack an NVLink."""
    slots = [build.duplex(f"node{node}.gpu{g}.slot", "pcie", PCIE3) for g in range(8)]
    switches = [build.duplex(f"node{node}.plx{s}", "switch", PCIE3) for s in range(4)]
    crossing = build.duplex(f"node{node}.qpi", "xbus", QPI)
    linked = {frozenset(pair) for pair in (*DOUBLE, *SINGLE)}
    for a in range(8):
        for b in range(8):
            if a != b and frozenset((a, b)) not in linked:
                bus = crossing[0] if a < b else crossing[1]
                via = (slots[a][0], switches[a // 2][0], bus, switches[b // 2][1], slots[b][1])
                build.link(ranks[a], ranks[b], QPI, lanes=0, via=via)
