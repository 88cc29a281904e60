"""What a machine is to gc3: ranks, what joins them, and what they share.

A topology is made of

* ranks, each on a node (a machine that runs one operating system) and a socket of it;
* link classes, the kinds of wire: every bandwidth and latency stands here, once, with its source;
* resources, what several transfers share: a GPU's egress and ingress, a NIC, a PCIe switch, an X-Bus, ...;
* links, directed, from one rank to another, with a number of lanes and the resources they go via;
* fabrics, switched networks: any port reaches any other through the resources of the two ports, so that a
  fabric of n ranks takes n ports and not n * (n - 1) links.

The path from one rank to another is their link, or else the first fabric that joins them; there is none if neither
exists. All bandwidths are of one direction. Everything is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from gc3 import errors
from gc3.topologies.processors import NCCL, PROCESSORS
from gc3.topologies.structure import first_defect

# What a resource can be; "link" is the wire of a direct link, which the model adds by itself.
KINDS = ("egress", "ingress", "link", "nic", "pcie", "xbus", "switch", "memory")


@dataclass(frozen=True, slots=True)
class LinkClass:
    """A kind of wire.

    Attributes:
        name: Unique in its topology, such as "nvlink3".
        bandwidth_bytes_per_s: Line rate of one lane in one direction in bytes per second; None: not known.
        latency_s: Seconds until a byte sent over an idle link arrives; None: not known.
        kernel_efficiency: The part of the line rate that copies by GPU kernels reach.
        dma_efficiency: The part of it that copy engines and NICs reach.
        message_s: Seconds that every message costs besides its bytes, as on a NIC.
        source: Where these numbers come from.
    """

    name: str
    bandwidth_bytes_per_s: float | None
    latency_s: float | None = None
    kernel_efficiency: float = 1.0
    dma_efficiency: float = 1.0
    message_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """A participant: a GPU or a CPU core.

    Attributes:
        name: For people, such as "gpu3".
        node: The machine, from 0.
        socket: The socket or NUMA domain within the machine, from 0.
        kind: "gpu" or "cpu".
        position: Where a drawing puts it, (x, y) within its node from 0 to 1; None: on a circle.
        processor: Its class, such as "a100" (see `gc3.topologies.processors`); empty: not known.
    """

    name: str
    node: int = 0
    socket: int = 0
    kind: str = "gpu"
    position: tuple[float, float] | None = None
    processor: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """Something of limited bandwidth that transfers share.

    Attributes:
        name: Unique in its topology, such as "node0.nic1.tx".
        kind: One of `KINDS`.
        link_class: Name of its class.
        lanes: Its bandwidth is that of so many lanes of the class.
    """

    name: str
    kind: str
    link_class: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A direct connection from one rank to another, one direction.

    Attributes:
        src: The sending rank.
        dst: The receiving rank.
        link_class: Name of its class, which also gives the latency.
        lanes: Its multiplicity: so many parallel wires; 0: none of its own, only what it goes via.
        via: Names of the shared resources that a transfer takes up besides.
    """

    src: int
    dst: int
    link_class: str
    lanes: int = 1
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """A rank's access to a fabric: the resources that what it sends and what it receives take up."""

    rank: int
    out: tuple[str, ...]
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fabric:
    """A switched network in which any port reaches any other.

    Attributes:
        name: Unique in its topology.
        link_class: Name of the class that gives the latency from port to port.
        ports: A rank with several ports (rails) uses one for each transfer.
        across_nodes: Whether it joins ranks of different nodes only.
    """

    name: str
    link_class: str
    ports: tuple[Port, ...]
    across_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """An entry of SCCL's bandwidth relation: at most `chunks` cross all of `pairs` together in a round."""

    pairs: tuple[tuple[int, int], ...]
    chunks: int


@dataclass(frozen=True, slots=True)
class Path:
    """How data gets from one rank to another without passing through a third.

    Attributes:
        link_class: Name of the class that gives the latency.
        resources: What a transfer takes up, in order: indices into `Topology.all_resources`.
    """

    link_class: str
    resources: tuple[int, ...]


# The ports of a rank to a fabric: the resources that sending and receiving take up.
_Ports: TypeAlias = "list[tuple[tuple[int, ...], tuple[int, ...]]]"


@dataclass(frozen=True)
class Topology:
    """A machine.

    Attributes:
        name: As `gc3.topologies.load` takes it.
        ranks: The participants; their numbers are their places here.
        classes: The kinds of wire.
        resources: What transfers share.
        links: Direct connections.
        fabrics: Switched networks; the first that joins two ranks carries what they exchange.
        bounds: SCCL's bandwidth relation where it is not the one that links and resources imply; see `relation`.
        parameters: What the topology was made with.
        summary: One line on what it is.
        source: Where its structure comes from.
    """

    name: str
    ranks: tuple[Rank, ...]
    classes: tuple[LinkClass, ...]
    resources: tuple[Resource, ...] = ()
    links: tuple[Link, ...] = ()
    fabrics: tuple[Fabric, ...] = ()
    bounds: tuple[Bound, ...] | None = None
    parameters: tuple[tuple[str, int], ...] = ()
    summary: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Refuses a topology that contradicts itself."""
        defect = first_defect(self)
        if defect is not None:
            place, what = defect
            raise errors.error("BadTopology", f"{place}: {what}")

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @cached_property
    def node_count(self) -> int:
        """Number of nodes."""
        return len({rank.node for rank in self.ranks})

    @cached_property
    def processor(self) -> str | None:
        """The processor class of all ranks, empty if it is not known; None where ranks differ."""
        first = self.ranks[0].processor
        return first if all(rank.processor == first for rank in self.ranks) else None

    @cached_property
    def threadblocks(self) -> int:
        """How many threadblocks of a kernel such as NCCL's or MSCCL's every rank holds at once; 0: not known.

        >>> from gc3 import topologies
        >>> topologies.load("ndv4").threadblocks, topologies.load("ring", R=4).threadblocks
        (108, 0)
        """
        known = (PROCESSORS.get(name) for name in {rank.processor for rank in self.ranks})
        return min((p.threadblocks(NCCL) for p in known if p is not None), default=0)

    @cached_property
    def all_resources(self) -> tuple[Resource, ...]:
        """The shared resources and, after them, the wire of every link that has one."""
        wires = (
            Resource(f"link {link.src}->{link.dst}", "link", link.link_class, link.lanes)
            for link in self.links
            if link.lanes
        )
        return (*self.resources, *wires)

    def link_class(self, name: str) -> LinkClass:
        """Returns the class of this name."""
        return self._classes[name]

    def bandwidth(self, resource: Resource) -> float:
        """Returns the line rate of a resource in bytes per second.

        Raises:
            gc3.UserError: The class's bandwidth is not known.
        """
        lane = self._classes[resource.link_class].bandwidth_bytes_per_s
        if lane is None:
            raise errors.error(
                "UnknownBandwidth", f"'{resource.name}' of '{self.name}' is of class '{resource.link_class}'"
            )
        return lane * resource.lanes

    def path(self, src: int, dst: int, channel: int = 0) -> Path | None:
        """Returns how data gets from `src` to `dst`, or None if no link or fabric joins them.

        Args:
            src: The sending rank.
            dst: The receiving rank.
            channel: Where a rank has several ports to a fabric, channel c uses port c modulo their number.
        """
        if src == dst:
            return None
        link = self._links.get((src, dst))
        if link is not None:
            return link
        joined = self._joined(src, dst)
        if joined is None:
            return None
        link_class, senders, receivers = joined
        out, into = senders[channel % len(senders)][0], receivers[channel % len(receivers)][1]
        return Path(link_class, out + into)

    def rails(self, src: int, dst: int) -> int:
        """Returns over how many ports channels from `src` to `dst` are spread: 0 without a path, 1 on a link."""
        if src == dst:
            return 0
        if (src, dst) in self._links:
            return 1
        joined = self._joined(src, dst)
        return 0 if joined is None else max(len(joined[1]), len(joined[2]))

    def _joined(self, src: int, dst: int) -> tuple[str, _Ports, _Ports] | None:
        """The class of the first fabric that joins two ranks, and their ports to it."""
        near = self.ranks[src].node == self.ranks[dst].node
        others = self._ports[dst]
        for i, ports in self._ports[src].items():
            if i in others and not (near and self.fabrics[i].across_nodes):
                return self.fabrics[i].link_class, ports, others[i]
        return None

    @cached_property
    def _classes(self) -> dict[str, LinkClass]:
        return {c.name: c for c in self.classes}

    @cached_property
    def _index(self) -> dict[str, int]:
        return {resource.name: i for i, resource in enumerate(self.all_resources)}

    @cached_property
    def _links(self) -> dict[tuple[int, int], Path]:
        paths: dict[tuple[int, int], Path] = {}
        wire = len(self.resources)
        for link in self.links:
            own: tuple[int, ...] = (wire,) if link.lanes else ()
            wire += len(own)
            via = tuple(self._index[name] for name in link.via)
            paths[link.src, link.dst] = Path(link.link_class, own + via)
        return paths

    @cached_property
    def _ports(self) -> list[dict[int, _Ports]]:
        """For each rank its ports, by the fabric, in the order of the fabrics."""
        found: list[dict[int, _Ports]] = [{} for _ in self.ranks]
        for i, fabric in enumerate(self.fabrics):
            for port in fabric.ports:
                out = tuple(self._index[name] for name in port.out)
                into = tuple(self._index[name] for name in port.into)
                found[port.rank].setdefault(i, []).append((out, into))
        return found
