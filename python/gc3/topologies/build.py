"""Building a topology part by part."""

from __future__ import annotations

from collections.abc import Iterable

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.parts import Fabric, Level, Link, LinkClass, Port, Rank, Resource


class Builder:
    """Collects the parts of a topology. A link class is added when it is used first.

    >>> from gc3.topologies.wires import NVLINK2
    >>> pair = Builder("pair", summary="Two GPUs.")
    >>> a, b = pair.rank("gpu0"), pair.rank("gpu1")
    >>> pair.join(a, b, NVLINK2, lanes=2)
    >>> pair.build().path(0, 1).resources
    (0,)
    """

    def __init__(self, name: str, *, processor: str = "", summary: str = "", source: str = "") -> None:
        """Starts an empty topology; `processor` is the class of the ranks that are added without one."""
        self._name = name
        self._processor = processor
        self._summary = summary
        self._source = source
        self._ranks: list[Rank] = []
        self._classes: dict[str, LinkClass] = {}
        self._resources: list[Resource] = []
        self._links: list[Link] = []
        self._fabrics: list[Fabric] = []
        self._levels: list[Level] = []

    def rank(
        self,
        name: str,
        *,
        node: int = 0,
        socket: int = 0,
        kind: str = "gpu",
        position: tuple[float, float] | None = None,
        processor: str | None = None,
    ) -> int:
        """Adds a rank and returns its number."""
        self._ranks.append(
            Rank(name, node, socket, kind, position, self._processor if processor is None else processor)
        )
        return len(self._ranks) - 1

    def resource(self, name: str, kind: str, link_class: LinkClass, lanes: int = 1) -> str:
        """Adds a shared resource and returns its name."""
        self._resources.append(Resource(name, kind, self._class(link_class), lanes))
        return name

    def duplex(self, name: str, kind: str, link_class: LinkClass, lanes: int = 1) -> tuple[str, str]:
        """Adds both directions of a shared resource and returns their names: outwards, inwards."""
        return (
            self.resource(f"{name}.out", kind, link_class, lanes),
            self.resource(f"{name}.in", kind, link_class, lanes),
        )

    def link(self, src: int, dst: int, link_class: LinkClass, *, lanes: int = 1, via: Iterable[str] = ()) -> None:
        """Adds a link in one direction."""
        self._links.append(Link(src, dst, self._class(link_class), lanes, tuple(via)))

    def join(self, a: int, b: int, link_class: LinkClass, *, lanes: int = 1) -> None:
        """Adds a link in each direction."""
        self.link(a, b, link_class, lanes=lanes)
        self.link(b, a, link_class, lanes=lanes)

    def fabric(self, name: str, link_class: LinkClass, ports: Iterable[Port], *, across_nodes: bool = False) -> None:
        """Adds a switched network."""
        self._fabrics.append(Fabric(name, self._class(link_class), tuple(ports), across_nodes))

    def level(self, name: str, groups: Iterable[int]) -> None:
        """Adds a level of groups; `groups` has the group of each node. Levels of smaller groups come first."""
        self._levels.append(Level(name, tuple(groups)))

    def build(self) -> Topology:
        """Returns the topology."""
        return Topology(
            name=self._name,
            ranks=tuple(self._ranks),
            classes=tuple(self._classes.values()),
            resources=tuple(self._resources),
            links=tuple(self._links),
            fabrics=tuple(self._fabrics),
            levels=tuple(self._levels),
            summary=self._summary,
            source=self._source,
        )

    def _class(self, link_class: LinkClass) -> str:
        known = self._classes.setdefault(link_class.name, link_class)
        if known != link_class:
            raise errors.error("BadTopology", f"two different classes are called '{link_class.name}'")
        return link_class.name
