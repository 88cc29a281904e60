"""A machine with slow or busy links: parts of it carry a fraction of what they should."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gc3 import errors
from gc3.sim.platform import Platform, memory_name
from gc3.topologies.model import Topology
from gc3.topologies.parts import Resource

_LINK = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)
_SHOWN = 12


def degrade(on: Platform, changes: Iterable[tuple[str, float]]) -> Platform:
    """Returns a machine of which some parts are slower; those given twice are slower by both factors.

    Args:
        on: The machine.
        changes: Names with the fraction of their rate that is left. A name is that of a resource, as predictions call
            them ("node0.nic1.tx"), the beginning of such names up to a dot ("node0.nic1"), or a link in both directions
            ("0-1").

    Raises:
        gc3.UserError: There is no such part, or a fraction is not above 0 and at most 1.
    """
    slower = dict(on.slower)
    for what, fraction in changes:
        if not 0 < fraction <= 1:
            told = f"{fraction:g} for '{what}': a fraction of a rate is above 0 and at most 1"
            raise errors.error("BadSimulation", told)
        link = _LINK.fullmatch(what)
        wanted = (f"link {link[1]}->{link[2]}", f"link {link[2]}->{link[1]}") if link else (what,)
        for resource in _named(on.topology, what, wanted):
            slower[resource.name] = slower.get(resource.name, 1.0) * fraction
    return replace(on, slower=tuple(slower.items()))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of others, which takes its rate whatever the programs do.

    Attributes:
        where: The name of a part as in `degrade`; a link class, which stands for all resources of it; two ranks,
            "0-1", for all resources between them in both directions; "memory" of all ranks, or "rank3.memory".
        amount: Bytes per second on the wire; if `relative`, a fraction of each resource's line rate. Between two ranks
            that several ports join, each port has an equal part.
        relative: Whether it is a fraction.
    """

    where: str
    amount: float
    relative: bool = False


def background(on: Platform, traffic: Iterable[Traffic]) -> Platform:
    """Returns a machine of which programs have what other traffic leaves of the links.

    Args:
        on: The machine.
        traffic: All of it adds up where it meets.

    Raises:
        gc3.UserError: There is no such part or path, or nothing is left of a link.

    >>> from gc3.sim import platform
    >>> dict(background(platform("ring:R=4"), [Traffic("0-1", 0.25, relative=True)]).slower)
    {'link 0->1': 0.75, 'link 1->0': 0.75}
    """
    left = dict(on.slower)
    for one in traffic:
        for name, rate, share in _carried(on, one.where):
            left[name] = left.get(name, 1.0) - one.amount * share / (1.0 if one.relative else rate)
            if left[name] <= 0:
                raise errors.error(
                    "BadSimulation",
                    f"the background traffic of '{one.where}' leaves nothing of '{name}', which carries "
                    f"{1e-9 * rate:g} GB/s on the wire",
                )
    return replace(on, slower=tuple(left.items()))


def beside(on: Platform, computing: float) -> Platform:
    """Returns a machine of which other work occupies a part of the multiprocessors of every GPU all the time.

    Args:
        on: The machine.
        computing: That part, from 0 to less than 1. What the work reads and writes is another matter: `background`.

    Raises:
        gc3.UserError: It is not such a part, or the preset does not say how many threadblocks a GPU holds.

    >>> from gc3.sim import platform
    >>> beside(platform("ndv4"), 0.5).parameters.threadblocks
    54
    """
    limit = on.parameters.threadblocks
    if not 0 <= computing < 1:
        raise errors.error("BadSimulation", f"{computing:g} of the multiprocessors; it is from 0 to less than 1")
    if computing and not limit:
        told = f"preset '{on.parameters.name}' does not say how many threadblocks a GPU holds"
        raise errors.error("BadSimulation", told)
    left = int(round(limit * (1 - computing), 6))  # 80 * (1 - 0.9) is below 8
    if computing and not left:
        raise errors.error("BadSimulation", f"{computing:g} of the multiprocessors leaves no room for a threadblock")
    return replace(on, parameters=replace(on.parameters, threadblocks=left))


def _carried(on: Platform, where: str) -> list[tuple[str, float, float]]:
    """The resources that traffic uses: the name, the line rate, and the part of the traffic that it carries."""
    topology, memory = on.topology, on.parameters.memory_rate
    of_memory = [memory_name(rank) for rank in range(topology.rank_count if memory else 0)]
    if where == "memory" or where in of_memory:
        if not of_memory:
            raise errors.error("BadSimulation", f"preset '{on.parameters.name}' does not limit the memory of ranks")
        return [(name, memory, 1.0) for name in of_memory if where in ("memory", name)]
    return [(r.name, topology.bandwidth(r), share) for r, share in _on_wires(topology, where)]


def _on_wires(topology: Topology, where: str) -> list[tuple[Resource, float]]:
    link = _LINK.fullmatch(where)
    if link is None:
        of_class = [r for r in topology.all_resources if r.link_class == where]
        return [(resource, 1.0) for resource in of_class or _named(topology, where, (where,))]
    ranks = int(link[1]), int(link[2])
    if max(ranks) >= topology.rank_count or topology.path(*ranks) is None:
        raise errors.error("BadSimulation", f"'{topology.name}' has no path between the ranks of '{where}'")
    carried: list[tuple[Resource, float]] = []
    for src, dst in (ranks, ranks[::-1]):
        ports = topology.rails(src, dst)
        for channel in range(ports):
            path = topology.path(src, dst, channel)
            carried += [(topology.all_resources[i], 1.0 / ports) for i in (path.resources if path else ())]
    return carried


def _named(topology: Topology, what: str, wanted: tuple[str, ...]) -> list[Resource]:
    """The resources with one of the names that are wanted, or that begin with `what` and a dot."""
    known = topology.all_resources
    found = [r for r in known if r.name in wanted or r.name.startswith(f"{what}.")]
    if not found:
        some = ", ".join(r.name for r in known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
        raise errors.error("BadSimulation", f"'{topology.name}' has no '{what}'; it has {some}")
    return found
