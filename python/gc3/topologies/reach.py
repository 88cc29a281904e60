"""Whether a machine hangs together: data gets from each rank to each other, and each NIC leads to a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.parts import Fabric, Rank


def joined(topology: Topology) -> Topology:
    """Returns `topology` if it hangs together.

    A part of a machine need not, so this is asked of a machine that a user names, and not of every `Topology`.

    Raises:
        gc3.UserError: Some data cannot get from one rank to another, also not through others, or a NIC reaches no rank.
    """
    onward: dict[int, list[int]] = {}
    back: dict[int, list[int]] = {}
    for link in topology.links:
        onward.setdefault(link.src, []).append(link.dst)
        back.setdefault(link.dst, []).append(link.src)
    for links, way in ((onward, "from rank 0 to rank {}"), (back, "from rank {} to rank 0")):
        missed = sorted(set(range(topology.rank_count)) - _reached(topology, links))
        if missed:
            more = f" and {len(missed) - 1} others" if len(missed) > 1 else ""
            raise errors.error(
                "BadTopology",
                f"$.ranks[{missed[0]}]: no data gets {way.format(missed[0])}{more}, also not through other ranks; "
                f"expected links or fabrics that join all {topology.rank_count} ranks",
            )
    if ":without=" in topology.name:
        return topology  # the NICs of lost ranks stay
    used = {name for link in topology.links for name in link.via}
    for fabric in topology.fabrics:
        if topology.node_count == 1 or _joins(fabric, topology.ranks):  # one node of a cluster has its NICs, too
            used.update(name for port in fabric.ports for name in (*port.out, *port.into))
    for i, resource in enumerate(topology.resources):
        if resource.kind == "nic" and resource.name not in used:
            raise errors.error(
                "BadTopology",
                f"$.resources[{i}]: the NIC '{resource.name}' reaches no rank; expected a port that names it, "
                "of a fabric with ports of other ranks, on other nodes if it is across nodes",
            )
    return topology


def _joins(fabric: Fabric, ranks: Sequence[Rank]) -> bool:
    """Returns whether a port of a fabric reaches another one; then each does."""
    return len({ranks[port.rank].node if fabric.across_nodes else port.rank for port in fabric.ports}) > 1


def _reached(topology: Topology, links: Mapping[int, Sequence[int]]) -> set[int]:
    """The ranks that data of rank 0 gets to over links and fabrics, in time linear in their number."""
    found, left = {0}, [0]
    entered: dict[int, set[int]] = {}  # of each fabric, the nodes from which it was entered
    while left:
        rank = left.pop()
        near = set(links.get(rank, ()))
        for i in topology.ports(rank):
            fabric = topology.fabrics[i]
            node = topology.ranks[rank].node if fabric.across_nodes else -1
            before = entered.setdefault(i, set())
            if node not in before and len(before) < 2:  # noqa: PLR2004  two nodes have reached each other and the rest
                before.add(node)
                near.update(port.rank for port in fabric.ports if topology.ranks[port.rank].node != node)
        near -= found
        found |= near
        left += near
    return found
