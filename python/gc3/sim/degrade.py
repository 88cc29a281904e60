"""A machine with slow links: parts of it carry a fraction of what they should."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gc3 import errors
from gc3.sim.platform import Platform

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
    known = [resource.name for resource in on.topology.all_resources]
    for what, fraction in changes:
        if not 0 < fraction <= 1:
            told = f"{fraction:g} for '{what}': a fraction of a rate is above 0 and at most 1"
            raise errors.error("BadSimulation", told)
        link = _LINK.fullmatch(what)
        wanted = (f"link {link[1]}->{link[2]}", f"link {link[2]}->{link[1]}") if link else (what,)
        found = [name for name in known if name in wanted or name.startswith(f"{what}.")]
        if not found:
            some = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
            raise errors.error("BadSimulation", f"'{on.topology.name}' has no '{what}'; it has {some}")
        for name in found:
            slower[name] = slower.get(name, 1.0) * fraction
    return replace(on, slower=tuple(slower.items()))
