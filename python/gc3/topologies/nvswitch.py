"""Machines of GPUs on NVSwitches: NVIDIA DGX-2, DGX H100 and GB200 NVL72, Azure ND A100 v4 and ND H100 v5."""

from __future__ import annotations

from gc3 import errors
from gc3.topologies._clusters import Rails, circle, gpu_nodes, nearest, network, switched
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import LinkClass, Port
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import HDR, NDR, NVLINK2, NVLINK3, NVLINK4, NVLINK5, PCIE3, PCIE4, PCIE5

_BOARD = 8
_LANES = 6
_TRUNK_LANES = 48
_TRAY = 4


@topology(source="002 section 7: two boards of 8 V100s and 6 NVSwitches, 8 NVLinks from switch to counterpart")
def dgx2(N: int = 1) -> Topology:
    """N nodes of 16 V100s on NVSwitches, two boards joined by 48 NVLinks, 8 HDR NICs in PCIe 3 slots."""
    require("N", N, 1, 1024)
    build = Builder("dgx2", processor="v100")
    gpus = [
        [build.rank(f"node{n}.gpu{g}", node=n, socket=g // _BOARD, position=_place(g)) for g in range(2 * _BOARD)]
        for n in range(N)
    ]
    for node, ranks in enumerate(gpus):
        ends = [
            (
                build.resource(f"node{node}.gpu{g}.nvlink.out", "egress", NVLINK2, _LANES),
                build.resource(f"node{node}.gpu{g}.nvlink.in", "ingress", NVLINK2, _LANES),
            )
            for g in range(2 * _BOARD)
        ]
        for board in range(2):
            members = range(board * _BOARD, (board + 1) * _BOARD)
            ports = [Port(ranks[g], ends[g][:1], ends[g][1:]) for g in members]
            build.fabric(f"node{node}.board{board}", NVLINK2, ports)
        # A transfer between boards takes up the trunk of the sender's board, but not that of the receiver's.
        trunk = build.duplex(f"node{node}.trunk", "switch", NVLINK2, _TRUNK_LANES)
        across = [Port(r, (ends[g][0], trunk[g // _BOARD]), ends[g][1:]) for g, r in enumerate(ranks)]
        build.fabric(f"node{node}.boards", NVLINK2, across)
    network(build, gpus, HDR, 8, lambda g: [g // 2], uplink=PCIE3, slot=PCIE3)
    return build.build()


def _place(g: int) -> tuple[float, float]:
    """The place in a drawing: each board is a circle, one above the other."""
    x, y = circle(g % _BOARD, _BOARD)
    return x * 0.6 + 0.2, y * 0.45 + (0.0 if g // _BOARD else 0.55)


@topology(source="NVIDIA DGX H100: one 400 Gbit/s NIC for each GPU; nccl-tests issue 212")
def dgx_h100(N: int = 1) -> Topology:
    """N nodes of 8 H100s on NVSwitches, 8 NDR NICs, one for each GPU."""
    require("N", N, 1, 1024)
    build = Builder("dgx_h100", processor="h100")
    _hgx(build, N, nvlink=NVLINK4, lanes=18, nic=NDR, pcie=PCIE5, sockets=2, rails=lambda g: [g])
    return build.build()


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
    _hgx(build, N, nvlink=NVLINK3, lanes=12, nic=HDR, pcie=PCIE4, sockets=4, rails=of_pair)
    return build.build()


@topology(source="Azure's NCCL topology file: one NIC and one PCIe switch for each GPU")
def ndv5(N: int = 1) -> Topology:
    """N nodes of 8 H100s on NVSwitches, 8 NDR NICs, one for each GPU."""
    require("N", N, 1, 1024)
    build = Builder("ndv5", processor="h100")
    _hgx(build, N, nvlink=NVLINK4, lanes=18, nic=NDR, pcie=PCIE5, sockets=2, rails=lambda g: [g])
    return build.build()


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


def _hgx(
    build: Builder,
    nodes: int,
    *,
    nvlink: LinkClass,
    lanes: int,
    nic: LinkClass,
    pcie: LinkClass,
    sockets: int,
    rails: Rails,
) -> None:
    """Adds nodes of eight GPUs on NVSwitches with eight NICs behind PCIe switches."""
    gpus = gpu_nodes(build, nodes, 8, sockets)
    for n, members in enumerate(gpus):
        switched(build, f"node{n}.nvswitch", members, nvlink, lanes)
    network(build, gpus, nic, 8, rails, uplink=pcie)
