"""The topologies of MSCCLang: which ranks are linked. Nothing else of them influences a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gc3 import topologies


class Topology:
    """Ranks and the links between them: ``links[receiver][sender]`` is not 0 where there is one."""

    def __init__(self, name: str, links: Sequence[Sequence[int]], switches: Sequence[Any] = ()) -> None:
        """Takes a name, the links and switches, which do not limit where chunks may go."""
        self.name = name
        self.links = links
        self.switches = switches

    def num_nodes(self) -> int:
        """Returns the number of ranks."""
        return len(self.links)

    def link(self, src: int, dst: int) -> int:
        """Returns the capacity of the link between two ranks; 0: there is none."""
        return self.links[dst][src]


def _where(name: str, ranks: int, linked: Callable[[int, int], bool]) -> Topology:
    return Topology(name, [[int(s != d and linked(s, d)) for s in range(ranks)] for d in range(ranks)])


def fully_connected(num_nodes: int) -> Topology:
    """Every rank is linked with every other."""
    return _where(f"FullyConnected(n={num_nodes})", num_nodes, lambda s, d: True)


def hub_and_spoke(num_nodes: int) -> Topology:
    """Every rank reaches every other through a switch."""
    return _where(f"HubAndSpoke(n={num_nodes})", num_nodes, lambda s, d: True)


def ring(num_nodes: int) -> Topology:
    """Every rank is linked with the next and the one before."""
    return _where(f"Ring(n={num_nodes})", num_nodes, lambda s, d: (s - d) % num_nodes in (1, num_nodes - 1))


def line(num_nodes: int) -> Topology:
    """A ring that is open between the last rank and the first."""
    return _where(f"Line(n={num_nodes})", num_nodes, lambda s, d: abs(s - d) == 1)


def star(num_nodes: int, non_blocking: bool = True) -> Topology:
    """Rank 0 is linked with all others."""
    del non_blocking
    return _where(f"Star(n={num_nodes})", num_nodes, lambda s, d: 0 in (s, d))


def dgx1() -> Topology:
    """The 8 GPUs of a DGX-1 and their NVLinks."""
    return _machine("DGX1", "dgx1")


def dgx_a100() -> Topology:
    """The 8 GPUs of a DGX A100, all linked."""
    return _where("DGX_A100", 8, lambda s, d: True)


def _machine(name: str, ours: str) -> Topology:
    machine = topologies.load(ours)
    return _where(name, machine.rank_count, lambda s, d: machine.path(s, d) is not None)


def distributed_fully_connected(local: Topology, num_copies: int, remote_bw: int = 1) -> Topology:
    """Copies of a machine; every rank is linked with every rank of the other copies."""
    del remote_bw
    each = local.num_nodes()
    return _where(
        f"Distributed({local.name}, n={num_copies})",
        each * num_copies,
        lambda s, d: s // each != d // each or bool(local.link(s % each, d % each)),
    )


def distributed_hub_and_spoke(local: Topology, num_copies: int, remote_bw: int = 1) -> Topology:
    """Copies of a machine, between which a switch links every rank with every other."""
    return distributed_fully_connected(local, num_copies, remote_bw)


def reverse_topology(topology: Topology) -> Topology:
    """The same with every link turned round."""
    ranks = topology.num_nodes()
    return _where(f"Reverse({topology.name})", ranks, lambda s, d: bool(topology.link(d, s)))


def binarize_topology(topology: Topology) -> Topology:
    """The same with all links of capacity 1."""
    return _where(topology.name, topology.num_nodes(), lambda s, d: bool(topology.link(s, d)))
