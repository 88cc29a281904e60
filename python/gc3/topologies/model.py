"""A machine: its parts, checked, and the paths between its ranks.

The path from one rank to another is their link. If there is none, it goes through the first fabric that joins them. If
there is no such fabric either, there is no path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from gc3 import errors
from gc3.support import notebook
from gc3.topologies.parts import LinkClass, Parts, Path, Resource
from gc3.topologies.processors import NCCL, PROCESSORS
from gc3.topologies.structure import first_defect

# The ports of a rank to a fabric: the resources that sending and receiving use.
_Ports: TypeAlias = "list[tuple[tuple[int, ...], tuple[int, ...]]]"
_MOST_FACTS = 10  # of a topology's text


@dataclass(frozen=True)
class Topology(Parts):
    """A machine; its attributes are those of `gc3.topologies.parts.Parts`."""

    def __post_init__(self) -> None:
        """Raises `gc3.UserError` if the parts contradict each other."""
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

    @property
    def title(self) -> str:
        """Its name, for titles: of several nodes with their number."""
        return f"{self.name} of {self.node_count} nodes" if self.node_count > 1 else self.name

    @cached_property
    def rank_levels(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The name of each level, nodes first, and the group of each rank on it.

        >>> from gc3 import topologies
        >>> topologies.load("hierarchical:N=4,G=1,rack=2").rank_levels
        (('node', (0, 1, 2, 3)), ('rack', (0, 0, 1, 1)))
        """
        nodes = tuple(rank.node for rank in self.ranks)
        return (("node", nodes), *((v.name, tuple(v.groups[node] for node in nodes)) for v in self.levels))

    def __repr__(self) -> str:
        """Describes it in a few lines; `gc3.topologies.dumps` writes all of it."""
        shown = [f"  {name}: {value}" for name, value in self._facts()[:_MOST_FACTS]]
        more = len(self._facts()) - len(shown)
        return "\n".join([f"<gc3.Topology {self.name}", *shown, *([f"  and {more} more"] if more else [])]) + ">"

    def _repr_html_(self) -> str:
        """Shows it in a notebook."""
        return notebook.card(self.name, self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        rows = [
            ("ranks", str(self.rank_count)),
            ("nodes", str(self.node_count)),
            ("processor", self.processor or "unknown or mixed"),
        ]
        for kind in self.classes:
            rate = kind.bandwidth_bytes_per_s
            known = "bandwidth unknown" if rate is None else f"{rate / 1e9:.4g} GB/s a lane"
            latency = "" if kind.latency_s is None else f", {1e6 * kind.latency_s:.3g} us"
            rows.append((f"link class {kind.name}", known + latency))
        return rows

    @cached_property
    def processor(self) -> str | None:
        """The processor class of all ranks, empty if it is not known; None if ranks differ."""
        first = self.ranks[0].processor
        return first if all(rank.processor == first for rank in self.ranks) else None

    @cached_property
    def threadblocks(self) -> int:
        """The number of threadblocks of NCCL's or MSCCL's kernels that each rank holds at once; 0: not known.

        >>> from gc3 import topologies
        >>> topologies.load("ndv4").threadblocks, topologies.load("ring", R=4).threadblocks
        (108, 0)
        """
        known = (PROCESSORS.get(name) for name in {rank.processor for rank in self.ranks})
        return min((p.threadblocks(NCCL) for p in known if p is not None), default=0)

    @property
    def multicasts(self) -> bool:
        """Whether it has switches that multicast and add up."""
        return any(c.multicast_efficiency for c in self.classes)

    @cached_property
    def all_resources(self) -> tuple[Resource, ...]:
        """The shared resources and, after them, the wire of each link that has lanes."""
        wires = (
            Resource(f"link {link.src}->{link.dst}", "link", link.link_class, link.lanes)
            for link in self.links
            if link.lanes
        )
        return (*self.resources, *wires)

    @cached_property
    def most_pairs(self) -> int:
        """The pairs of ranks, (from, to), that links and fabrics join; some may be counted twice."""
        found = len(self.links)
        for fabric in self.fabrics:
            members = {port.rank for port in fabric.ports}
            near = Counter(self.ranks[r].node if fabric.across_nodes else r for r in members)
            found += len(members) ** 2 - sum(n * n for n in near.values())
        return found

    def reached(self, src: int) -> list[int]:
        """Returns the ranks that share a link or a fabric with `src`, ascending: all to which there is a path."""
        fabrics = (self._members[i] for i in self._ports[src])
        return sorted(set(self._onward.get(src, ())).union(*fabrics) - {src})

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
            channel: If a rank has several ports to a fabric, channel c uses port c modulo their number.
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
        """Returns the number of ports that channels from `src` to `dst` use: 0 without a path, 1 on a link."""
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
    def _onward(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for link in self.links:
            found.setdefault(link.src, []).append(link.dst)
        return found

    @cached_property
    def _members(self) -> list[frozenset[int]]:
        return [frozenset(port.rank for port in fabric.ports) for fabric in self.fabrics]

    def ports(self, rank: int) -> Mapping[int, _Ports]:
        """Returns the ports of a rank by the number of the fabric, in the order of the fabrics.

        A port is the resources, by number, of what leaves over it and of what enters.
        """
        return self._ports[rank]

    @cached_property
    def _ports(self) -> list[dict[int, _Ports]]:
        """For each rank its ports, by the index of the fabric, in the order of the fabrics."""
        found: list[dict[int, _Ports]] = [{} for _ in self.ranks]
        for i, fabric in enumerate(self.fabrics):
            for port in fabric.ports:
                out = tuple(self._index[name] for name in port.out)
                into = tuple(self._index[name] for name in port.into)
                found[port.rank].setdefault(i, []).append((out, into))
        return found
