"""Functions that add parts of a machine which several presets share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gc3.topologies.build import Builder
from gc3.topologies.parts import LinkClass, Port

# The rails of a GPU, which is given by its number in the node: the NICs that it can use, its own first.
Rails = Callable[[int], Sequence[int]]


def circle(place: int, count: int) -> tuple[float, float]:
    """Returns a point on a circle, clockwise from the top."""
    angle = math.tau * place / max(count, 1)
    return 0.5 + 0.5 * math.sin(angle), 0.5 + 0.5 * math.cos(angle)


def nearest(gpu: int, gpus: int, nics: int) -> list[int]:
    """Returns the NICs that the channels of a GPU use in turn, where some GPUs are equally near to some NICs.

    NCCL chooses in this way if it has found no graph by search (ncclTopoGetLocalNet of newer versions): the first NICs
    of the GPUs are in bit-reversed order, and each GPU uses its share of the NICs.

    Args:
        gpu: The index of the GPU among those GPUs.
        gpus: The number of those GPUs.
        nics: The number of those NICs.

    >>> [nearest(gpu, 2, 2) for gpu in range(2)], [nearest(gpu, 2, 4) for gpu in range(2)], nearest(1, 2, 1)
    ([[0], [1]], [[0, 1], [2, 3]], [0])
    """
    bits = nics.bit_length() - 1
    first = int(f"{gpu % nics:0{bits}b}"[::-1], 2) if nics == 1 << bits and bits else gpu
    return [(first + i) % nics for i in range(-(-nics // gpus))]


def network(
    build: Builder,
    gpus: Sequence[Sequence[int]],
    nic: LinkClass,
    nics: int,
    rails: Rails,
    *,
    uplink: LinkClass | None = None,
    slot: LinkClass | None = None,
) -> None:
    """Joins nodes by a network of full bisection bandwidth: only the NICs limit it.

    Args:
        build: The topology to add it to.
        gpus: The ranks of each node.
        nic: The class of a NIC.
        nics: NICs per node.
        rails: The NICs of each GPU of a node.
        uplink: The class of the connection from a GPU to its NICs, if it is modelled.
        slot: The class of a NIC's slot, if it can be slower than the NIC.
    """
    ports = [port for listed in _ports(build, gpus, nic, nics, rails, uplink, slot) for port in listed]
    build.fabric("network", nic, ports, across_nodes=True)


def leaf_spine(
    build: Builder,
    gpus: Sequence[Sequence[int]],
    nic: LinkClass,
    nics: int,
    rails: Rails,
    *,
    rack: int,
    lanes: int,
    spine: LinkClass,
) -> None:
    """Joins nodes by leaf switches, one for each rack, under a spine.

    Args:
        build: The topology to add it to.
        gpus: The ranks of each node.
        nic: The class of a NIC.
        nics: NICs per node.
        rails: The NICs of each GPU of a node.
        rack: Nodes of a rack; the last one may have fewer.
        lanes: The lanes of class `spine` from a leaf to the spine.
        spine: The class of paths between racks.
    """
    nodes = _ports(build, gpus, nic, nics, rails, None, None)
    uplinks = [build.duplex(f"rack{r}.up", "switch", spine, lanes) for r in range(-(-len(nodes) // rack))]
    for r in range(len(uplinks)):
        ports = [port for listed in nodes[r * rack : (r + 1) * rack] for port in listed]
        build.fabric(f"rack{r}.leaf", nic, ports, across_nodes=True)
    racks = [n // rack for n in range(len(nodes))]
    above = [
        Port(port.rank, (*port.out, uplinks[r][0]), (uplinks[r][1], *port.into))
        for r, listed in zip(racks, nodes, strict=True)
        for port in listed
    ]
    build.fabric("spine", spine, above, across_nodes=True)
    build.level("rack", racks)


def _ports(
    build: Builder,
    gpus: Sequence[Sequence[int]],
    nic: LinkClass,
    nics: int,
    rails: Rails,
    uplink: LinkClass | None,
    slot: LinkClass | None,
) -> list[list[Port]]:
    """Adds the NICs of each node, and returns the ports of its ranks to them."""
    found: list[list[Port]] = []
    for node, members in enumerate(gpus):
        ports: list[Port] = []
        cards: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        for i in range(nics):
            sending, receiving = build.duplex(f"node{node}.nic{i}", "nic", nic)
            if slot is None:
                cards.append(((sending,), (receiving,)))
            else:
                up, down = build.duplex(f"node{node}.nic{i}.slot", "pcie", slot)
                cards.append(((up, sending), (receiving, down)))
        for g, rank in enumerate(members):
            above = () if uplink is None else build.duplex(f"node{node}.gpu{g}.pcie", "pcie", uplink)
            for i in rails(g):
                out, into = cards[i]
                ports.append(Port(rank, (*above[:1], *out), (*into, *above[1:])))
        found.append(ports)
    return found


def switched(build: Builder, name: str, ranks: Sequence[int], link_class: LinkClass, lanes: int) -> None:
    """Joins ranks by non-blocking switches; each rank has `lanes` to them."""
    ports: list[Port] = []
    for i, rank in enumerate(ranks):
        out = build.resource(f"{name}.port{i}.out", "egress", link_class, lanes)
        into = build.resource(f"{name}.port{i}.in", "ingress", link_class, lanes)
        ports.append(Port(rank, (out,), (into,)))
    build.fabric(name, link_class, ports)


def gpu_nodes(build: Builder, nodes: int, gpus: int, sockets: int) -> list[list[int]]:
    """Adds `nodes` nodes of `gpus` GPUs each, spread evenly over the sockets; returns their ranks."""
    return [
        [build.rank(f"node{n}.gpu{g}", node=n, socket=g * sockets // gpus) for g in range(gpus)] for n in range(nodes)
    ]
