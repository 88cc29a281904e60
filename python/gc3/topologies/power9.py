"""Machines of POWER9 nodes: Summit of Oak Ridge and Lassen of Lawrence Livermore National Laboratory."""

from __future__ import annotations

from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import Port
from gc3.topologies.preset import require, topology
from gc3.topologies.wires import EDR, NVLINK2, XBUS


@topology(source="004 figure 1 and section II: dual-rail EDR, one rail for each socket")
def summit(N: int = 1) -> Topology:
    """N nodes of 6 V100s, three on each POWER9, X-Bus between the sockets, dual-rail EDR."""
    require("N", N, 1, 4608)
    return _power9("summit", N, gpus_per_socket=3, bricks=2)


@topology(source="004 section II: as Summit with two GPUs on each socket, and so three NVLinks where Summit has two")
def lassen(N: int = 1) -> Topology:
    """N nodes of 4 V100s, two on each POWER9, X-Bus between the sockets, dual-rail EDR."""
    require("N", N, 1, 1024)
    return _power9("lassen", N, gpus_per_socket=2, bricks=3)


def _power9(name: str, nodes: int, gpus_per_socket: int, bricks: int) -> Topology:
    """Returns nodes of two sockets. The GPUs of a socket are linked to each other and to its CPU, which has an EDR NIC.

    Args:
        name: Name of the topology.
        nodes: The number of nodes.
        gpus_per_socket: GPUs on each CPU.
        bricks: NVLinks between any two GPUs of a socket, and between a GPU and its CPU.
    """
    build = Builder(name, processor="v100")
    ports: list[Port] = []
    for n in range(nodes):
        xbus = build.duplex(f"node{n}.xbus", "xbus", XBUS)
        ranks: list[int] = []
        for g in range(2 * gpus_per_socket):
            socket, place = divmod(g, gpus_per_socket)
            position = (float(socket), place / (gpus_per_socket - 1))
            ranks.append(build.rank(f"node{n}.gpu{g}", node=n, socket=socket, position=_bowed(position)))
        to_cpu = [build.duplex(f"node{n}.gpu{g}.cpu", "link", NVLINK2, bricks) for g in range(len(ranks))]
        rails = [build.duplex(f"node{n}.nic{s}", "nic", EDR) for s in range(2)]
        for a, rank in enumerate(ranks):
            socket = a // gpus_per_socket
            for b in range(len(ranks)):
                if b // gpus_per_socket != socket:
                    build.link(rank, ranks[b], XBUS, lanes=0, via=(to_cpu[a][0], xbus[socket], to_cpu[b][1]))
                elif a != b:
                    build.link(rank, ranks[b], NVLINK2, lanes=bricks)
            ports.append(Port(rank, (to_cpu[a][0], rails[socket][0]), (rails[socket][1], to_cpu[a][1])))
    build.fabric("network", EDR, ports, across_nodes=True)
    return build.build()


def _bowed(position: tuple[float, float]) -> tuple[float, float]:
    """Moves the inner GPUs of a socket outwards, so that a drawing shows the link between the outer ones."""
    x, y = position
    bow = 0.6 * y * (1 - y)
    return (0.15 - bow, y) if x == 0 else (0.85 + bow, y)
