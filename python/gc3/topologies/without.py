"""A machine that has lost links or ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gc3 import errors
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound, Fabric, Level, Port


def without(topology: Topology, links: Iterable[tuple[int, int]] = (), ranks: Iterable[int] = ()) -> Topology:
    """Returns a topology that has lost links or ranks.

    Args:
        topology: The whole machine.
        links: Pairs of ranks; their direct links are lost in both directions.
        ranks: Ranks that are lost with their links and ports. Later ranks get lower numbers; a node without ranks is
            lost, too, and later nodes get lower numbers.

    Raises:
        gc3.UserError: There is no such link or rank, a switch joins the two ranks, or no rank is left.
    """
    cut = {frozenset(link) for link in links}
    lost = set(ranks)
    for rank in sorted(lost.union(*cut)):
        if not 0 <= rank < topology.rank_count:
            raise errors.error("RankOutOfRange", f"{rank} of {topology.rank_count} ranks of '{topology.name}'")
    joined = {frozenset((link.src, link.dst)) for link in topology.links}
    for pair in sorted(map(sorted, cut - joined)):
        what = "-".join(map(str, pair))
        shared = len(pair) == 2 and topology.path(*pair) is not None  # noqa: PLR2004
        why = "a switch joins these ranks; leave out a rank" if shared else "no link joins these ranks"
        raise errors.error("BadArgument", f"link {what} of '{topology.name}': {why}")
    if len(lost) >= topology.rank_count:
        raise errors.error("BadArgument", f"no rank of '{topology.name}' is left")
    place = {old: new for new, old in enumerate(r for r in range(topology.rank_count) if r not in lost)}
    text = "+".join([*("-".join(map(str, sorted(pair))) for pair in sorted(cut, key=sorted)), *map(str, sorted(lost))])
    nodes = sorted({topology.ranks[old].node for old in place})  # those that are left
    return replace(
        topology,
        name=f"{topology.name}:without={text}",
        ranks=tuple(replace(topology.ranks[old], node=nodes.index(topology.ranks[old].node)) for old in place),
        levels=tuple(Level(v.name, _from_0([v.groups[node] for node in nodes])) for v in topology.levels),
        links=tuple(
            replace(link, src=place[link.src], dst=place[link.dst])
            for link in topology.links
            if link.src in place and link.dst in place and frozenset((link.src, link.dst)) not in cut
        ),
        fabrics=tuple(_fabric(fabric, place) for fabric in topology.fabrics),
        bounds=None if topology.bounds is None else tuple(_bounds(topology.bounds, place, cut)),
        summary=f"{topology.summary}, without {text.replace('+', ', ')}".removeprefix(", "),
    )


def parse(text: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns the links and ranks that a text such as "0-1+3" names.

    >>> parse("0-1+3")
    ([(0, 1)], [3])
    """
    links: list[tuple[int, int]] = []
    ranks: list[int] = []
    for part in text.split("+"):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip(), re.ASCII)
        if found is None:
            raise errors.error("BadArgument", f"'{part}'; expected a link such as 0-1 or a rank such as 3")
        if found[2] is None:
            ranks.append(int(found[1]))
        else:
            links.append((int(found[1]), int(found[2])))
    return links, ranks


def _from_0(groups: list[int]) -> tuple[int, ...]:
    """Numbers groups without gaps, in the same order."""
    left = sorted(set(groups))
    return tuple(left.index(group) for group in groups)


def _fabric(fabric: Fabric, place: dict[int, int]) -> Fabric:
    return replace(fabric, ports=tuple(Port(place[p.rank], p.out, p.into) for p in fabric.ports if p.rank in place))


def _bounds(bounds: Iterable[Bound], place: dict[int, int], cut: set[frozenset[int]]) -> Iterable[Bound]:
    """The bounds for the pairs that are left; each limits the remaining pairs as it limited all of them."""
    for bound in bounds:
        pairs = [(a, b) for a, b in bound.pairs if a in place and b in place and frozenset((a, b)) not in cut]
        if pairs:
            yield Bound(tuple((place[a], place[b]) for a, b in pairs), bound.chunks)
