"""A machine as NCCL sees it from one of its nodes: GPUs, NICs, and a class and a bandwidth of each path between them.

A node is here what NCCL takes for one: the GPUs that reach each other without the network, as all 72 of an NVL72.
Bandwidths are those of the machine's description, in GB/s: what kernels reach of NVLink and PCIe, and of NICs the line
rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations, starmap
from typing import TypeAlias

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.parts import Link, Resource

Nodes: TypeAlias = "tuple[tuple[int, ...], ...]"  # the ranks of each node, in order

# The classes of paths, best first: on one GPU, NVLink, NVLink through a GPU, a PCIe switch, several, NVLink to the GPU
# of a NIC, a CPU, between CPUs, the network.
CLASSES = ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS", "NET")
LOC, NVL, NVB, PIX, PXB, PXN, PHB, SYS, NET = range(len(CLASSES))
_MOST_GPUS = 576  # of a node: NCCL_TOPO_MAX_NODES
_OF_A_SWITCH = 2  # sections of PCIe between two devices below one switch
_THROUGH_ONE = 2  # links of a path through another GPU
_LOCAL = 5000.0  # GB/s on one GPU: LOC_BW


@dataclass(frozen=True, slots=True)
class Route:
    """A path."""

    kind: int  # its class
    rate: float  # GB/s of its slowest part
    parts: tuple[int, ...]  # its resources, as indices into `System.capacity`


@dataclass(frozen=True, slots=True)
class System:
    """What NCCL's search has of a node."""

    gpus: int  # number of GPUs
    switched: bool  # whether switches join GPUs
    several: bool  # whether there are other nodes
    capacity: tuple[float, ...]  # GB/s of each resource
    routes: tuple[tuple[Route | None, ...], ...]  # from each GPU to each other; None to itself
    nics: tuple[float, ...]  # GB/s of each NIC
    entry: tuple[tuple[tuple[int, Route], ...], ...]  # by NIC, the GPUs nearest to it with the route from it to each
    exits: tuple[tuple[Route, ...], ...]  # by GPU and NIC, the route to the NIC
    total: float  # GB/s of a GPU's NVLinks together, or of its PCIe

    @property
    def most(self) -> float:
        """GB/s of the best path: to a NIC, or between GPUs of one node."""
        if self.gpus == 1 and not self.several:
            return _LOCAL
        rows = self.exits if self.several else self.routes
        return max((route.rate for row in rows for route in row if route), default=0.0)


def nodes(topology: Topology) -> Nodes:
    """Returns the ranks of each of NCCL's nodes.

    Raises:
        gc3.UserError: Ranks or NICs reach nobody, nodes differ, or NCCL does not run there.

    >>> from gc3 import topologies
    >>> len(nodes(topologies.load("gb200_nvl72", N=2))), len(nodes(topologies.load("ndv4", N=2)))
    (2, 2)
    """
    if any(rank.kind == "cpu" for rank in topology.ranks):
        raise _refused(topology, "NCCL runs on GPUs, and its ranks are CPUs")
    near = [{link.src, link.dst} for link in topology.links]
    near += [{port.rank for port in f.ports} for f in topology.fabrics if not f.across_nodes]
    groups = _groups(topology.rank_count, near)
    wide = [{port.rank for port in f.ports} for f in topology.fabrics if f.across_nodes]
    whole = _groups(topology.rank_count, [*near, *wide])
    if len(whole) > 1:
        raise _refused(topology, f"neither links nor NICs join rank {whole[0][0]} to rank {whole[1][0]}")
    first: dict[int, int] = {}  # of each host, its first rank
    group_of = {r: i for i, group in enumerate(groups) for r in group}
    for r, rank in enumerate(topology.ranks):
        if group_of[r] != group_of[other := first.setdefault(rank.node, r)]:
            raise _refused(topology, f"no link joins rank {other} to rank {r} of its node")
    if len({len(group) for group in groups}) > 1:
        raise _refused(topology, "its nodes differ in their GPUs, which is not modelled: give a log of nccl-tests")
    if len(groups) > 1:
        without = sorted(set(range(topology.rank_count)).difference(*wide))
        if without:
            raise _refused(topology, f"rank {without[0]} reaches no NIC of its node")
    gpus = topology.rank_count // len(groups)
    if gpus > _MOST_GPUS:
        raise _refused(topology, f"a node has {gpus} GPUs; NCCL has at most {_MOST_GPUS}")
    return groups


def idle(topology: Topology) -> tuple[str, ...]:
    """Returns what is said about NICs that no rank has, as those of GPUs that are left out."""
    used = {name for f in topology.fabrics if f.across_nodes for p in f.ports for name in (*p.out, *p.into)}
    lost = [r.name for r in topology.resources if r.kind == "nic" and r.name not in used]
    return (f"NICs that reach no rank are not used: {lost[0]}" + (", ..." if lost[1:] else ""),) if lost else ()


def _refused(topology: Topology, why: str) -> errors.Gc3Error:
    return errors.error("BadSimulation", f"NCCL on '{topology.name}': {why}")


def _groups(count: int, joined: Iterable[set[int]]) -> Nodes:
    """The connected parts of so many ranks, each in order."""
    first = list(range(count))

    def root(r: int) -> int:
        while first[r] != r:
            first[r] = first[first[r]]
            r = first[r]
        return r

    for some in joined:
        for r in some:
            a, b = sorted((root(r), root(min(some))))
            first[b] = a
    found: dict[int, list[int]] = {}
    for r in range(count):
        found.setdefault(root(r), []).append(r)
    return tuple(tuple(group) for group in found.values())


def completed(topology: Topology, members: Nodes) -> Topology:
    """Returns the topology with a path between every two ranks of a node: through others where no link joins them.

    NCCL does that over NVLink through one GPU, otherwise over PCIe and CPUs, which a topology without such paths lacks.
    """
    missing = [(a, b) for ranks in members for a, b in permutations(ranks, 2) if topology.path(a, b) is None]
    if not missing:
        return topology
    wires = topology.all_resources[len(topology.resources) :]
    links = [replace(k, lanes=0, via=(f"link {k.src}->{k.dst}", *k.via)) if k.lanes else k for k in topology.links]
    made = replace(topology, links=tuple(links), resources=(*topology.resources, *wires), bounds=None)
    lacking = set(missing)
    near = {a: [b for b in ranks if b != a and (a, b) not in lacking] for ranks in members for a in ranks}
    names = [r.name for r in made.all_resources]
    for a, b in missing:
        way = [path for path in starmap(made.path, pairwise(_way(near, a, b))) if path]
        via = dict.fromkeys(names[i] for path in way for i in path.resources)
        links.append(Link(a, b, way[0].link_class, 0, tuple(via)))
    return replace(made, links=tuple(links))


def _way(near: Mapping[int, Sequence[int]], src: int, dst: int) -> list[int]:
    """The ranks of the shortest way."""
    before, edge = {src: src}, [src]
    while dst not in before:
        reached = [(b, a) for a in edge for b in near[a] if b not in before]
        before |= dict(reversed(reached))
        edge = list(dict.fromkeys(b for b, _ in reached))
    way = [dst]
    while way[-1] != src:
        way.append(before[way[-1]])
    return way[::-1]


def system(topology: Topology, members: Nodes, nvlink: float = 1.0) -> System:
    """Returns NCCL's view of the first node of a machine.

    Args:
        topology: The machine, in which every two ranks of a node have a path.
        members: The ranks of its nodes.
        nvlink: What the version takes for the rate of NVLink, relative to newer ones.
    """
    ranks, several = members[0], len(members) > 1
    place = {rank: g for g, rank in enumerate(ranks)}
    resources, capacity = topology.all_resources, list[float]()
    number: dict[int, int] = {}

    def route(indices: Sequence[int], kind: int) -> Route:
        for i in indices:
            if number.setdefault(i, len(number)) == len(capacity):
                plain = resources[i].kind == "nic" or _pci(resources[i])
                capacity.append(_rate(topology, resources[i]) * (1.0 if plain else nvlink))
        parts = tuple(number[i] for i in indices)
        return Route(kind, min((capacity[i] for i in parts), default=_LOCAL), parts)

    def inside(a: int, b: int) -> Route | None:
        path = topology.path(a, b)
        return None if path is None else route(path.resources, _kind([resources[i] for i in path.resources]))

    routes = tuple(tuple(inside(a, b) for b in ranks) for a in ranks)
    index = {r.name: i for i, r in enumerate(resources)}
    cards: dict[str, int] = {}
    rates: list[float] = []
    entry: list[dict[int, Route]] = []
    own: dict[tuple[int, int], Route] = {}
    for port in (p for f in topology.fabrics if several and f.across_nodes for p in f.ports if p.rank in place):
        out, into = ([index[name] for name in names] for names in (port.out, port.into))
        name = next((n for n in reversed(port.out) if resources[index[n]].kind == "nic"), port.out[-1])
        card = cards.setdefault(name, len(cards))
        if card == len(rates):
            rates.append(_rate(topology, resources[index[name]]))
            entry.append({})
        kind = _kind([resources[i] for i in out], network=True)
        own.setdefault((place[port.rank], card), route(out, kind))
        entry[card].setdefault(place[port.rank], route(into, kind))
    near = [
        tuple((g, way) for g, way in card.items() if way.kind == min(w.kind for w in card.values())) for card in entry
    ]

    def exit(g: int, card: int) -> Route:
        if (g, card) in own:
            return own[g, card]
        first, last = min(
            ((way, own[other, card]) for other, _ in near[card] if (way := routes[g][other])), key=lambda x: x[0].kind
        )
        relayed = first.kind <= NVL and last.kind <= PXB
        parts = first.parts + (last.parts if relayed else last.parts[-1:])
        kind = PXN if relayed else max(first.kind, last.kind, PHB)
        return Route(kind, min(capacity[i] for i in parts), parts)

    exits = tuple(tuple(exit(g, card) for card in range(len(rates))) for g in range(len(ranks)))
    direct = {(k.src, k.dst) for k in topology.links}
    switched = any((a, b) not in direct for a, b in permutations(ranks, 2))
    total = max(_of_nvlinks(row, capacity) for row in routes)
    first = [way.rate for row in (*exits, *routes) for way in row if way]
    return System(
        len(ranks),
        switched,
        several,
        tuple(capacity),
        routes,
        tuple(rates),
        tuple(near),
        exits,
        total or max(first, default=_LOCAL),
    )


def _of_nvlinks(row: Sequence[Route | None], capacity: Sequence[float]) -> float:
    """GB/s of a GPU's NVLinks together."""
    return sum(capacity[i] for i in {way.parts[0] for way in row if way and way.kind == NVL})


def _rate(topology: Topology, resource: Resource) -> float:
    wire = topology.link_class(resource.link_class)
    part = 1.0 if resource.kind == "nic" else wire.kernel_efficiency
    return round(topology.bandwidth(resource) * part / 1e9, 3)


def _pci(resource: Resource) -> bool:
    return resource.kind in ("pcie", "xbus") or resource.link_class.startswith("pcie")


def _kind(parts: Sequence[Resource], *, network: bool = False) -> int:
    """The class of a path, by what it passes."""
    if any(r.kind == "xbus" for r in parts):
        return SYS
    sections = sum(_pci(r) for r in parts)
    if sections:
        return PIX if sections <= _OF_A_SWITCH else PHB
    wires = sum(r.kind == "link" for r in parts)
    if network:  # with a link to the CPU that has the NIC, as on POWER9
        return PHB if wires else PIX
    return NVL if wires <= 1 else NVB if wires == _THROUGH_ONE else SYS
