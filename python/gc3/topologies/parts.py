"""The parts of a machine: ranks, what joins them, and what they share.

A topology is made of

* ranks: each is on a node (a machine that runs one operating system) and on a socket of it;
* link classes, the kinds of wire: each bandwidth and latency is given here, once, with its source;
* resources, which several transfers share: a GPU's egress and ingress, a NIC, a PCIe switch, an X-Bus, and so on;
* links: each has a direction, from one rank to another, a number of lanes, and the resources that it goes via;
* fabrics, which are switched networks: each port reaches each other port through the resources of the two ports, so
  that a fabric of n ranks takes n ports instead of n * (n - 1) links;
* levels, which say which nodes are near each other, for example in the same rack.

All bandwidths are of one direction. Everything is immutable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

# The kinds of resources; "link" is the wire of a direct link, which `Topology` adds.
KINDS = ("egress", "ingress", "link", "nic", "pcie", "xbus", "switch", "memory")


@dataclass(frozen=True, slots=True)
class LinkClass:
    """A kind of wire.

    Attributes:
        name: Unique in its topology, such as "nvlink3".
        bandwidth_bytes_per_s: Line rate of one lane in one direction in bytes per second; None: not known.
        latency_s: Seconds until a byte sent over an idle link arrives; None: not known.
        kernel_efficiency: The fraction of the line rate that copies by GPU kernels reach.
        dma_efficiency: The fraction of it that copy engines and NICs reach.
        message_s: Seconds that each message costs in addition to its bytes, as on a NIC.
        multicast_efficiency: The fraction of the kernels' rate at which switches of this class add up data of several
            ranks and multicast data to them; 0: they do neither.
        source: Where these numbers come from.
    """

    name: str
    bandwidth_bytes_per_s: float | None
    latency_s: float | None = None
    kernel_efficiency: float = 1.0
    dma_efficiency: float = 1.0
    message_s: float = 0.0
    multicast_efficiency: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """A participant: a GPU or a CPU core.

    Attributes:
        name: Name for display, such as "gpu3".
        node: The machine, from 0.
        socket: The socket or NUMA domain within the machine, from 0.
        kind: "gpu" or "cpu".
        position: Its place in a drawing, (x, y) within its node from 0 to 1; None: on a circle.
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
    """A part of limited bandwidth that transfers share.

    Attributes:
        name: Unique in its topology, such as "node0.nic1.tx".
        kind: One of `KINDS`.
        link_class: Name of its class.
        lanes: The number of lanes of the class that its bandwidth consists of.
    """

    name: str
    kind: str
    link_class: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A direct connection from one rank to another, in one direction.

    Attributes:
        src: The sending rank.
        dst: The receiving rank.
        link_class: Name of its class, which also gives the latency.
        lanes: The number of parallel wires; 0: it has none, and only goes via resources.
        via: Names of the shared resources that a transfer uses in addition.
    """

    src: int
    dst: int
    link_class: str
    lanes: int = 1
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """A rank's access to a fabric: the resources that its sends and its receives use."""

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
        across_nodes: Whether it joins only ranks of different nodes.
    """

    name: str
    link_class: str
    ports: tuple[Port, ...]
    across_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """Groups of nodes, such as the racks of a cluster.

    Attributes:
        name: What a group is, in the singular, such as "rack".
        groups: The group of each node, from 0.
    """

    name: str
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """An entry of SCCL's bandwidth relation: in a round, at most `chunks` cross all of `pairs` together."""

    pairs: tuple[tuple[int, int], ...]
    chunks: int


@dataclass(frozen=True, slots=True)
class Path:
    """The path of data from one rank to another without a third rank in between.

    Attributes:
        link_class: Name of the class that gives the latency.
        resources: The resources that a transfer uses, in order: indices into `Topology.all_resources`.
    """

    link_class: str
    resources: tuple[int, ...]


@dataclass(frozen=True)
class Parts(ABC):
    """The parts of a topology, which may still contradict each other."""

    name: str  # its name for `gc3.topologies.load`
    ranks: tuple[Rank, ...]  # the participants; the index is the number of the rank
    classes: tuple[LinkClass, ...]  # the kinds of wire
    resources: tuple[Resource, ...] = ()  # the parts that transfers share
    links: tuple[Link, ...] = ()  # direct connections
    fabrics: tuple[Fabric, ...] = ()  # switched networks. The first one that joins two ranks carries their transfers.
    # Groups of nodes, the smallest groups first. A group consists of whole groups of the level before.
    levels: tuple[Level, ...] = ()
    # SCCL's bandwidth relation if it differs from the one that links and resources imply; see `relation`
    bounds: tuple[Bound, ...] | None = None
    parameters: tuple[tuple[str, int], ...] = ()  # the parameters of its preset
    summary: str = ""  # one line that describes it
    source: str = ""  # where its structure comes from

    @abstractmethod
    def path(self, src: int, dst: int, channel: int = 0) -> Path | None:
        """Returns how data gets from `src` to `dst`, or None if no link or fabric joins them."""
