"""Checks a program against a topology: each send needs a path."""

from __future__ import annotations

from typing import Protocol

from gc3 import _core, errors
from gc3.topologies.model import Topology


class Compiled(Protocol):
    """A compiled program, such as `gc3.Program`."""

    @property
    def core(self) -> _core.Program:
        """The executable form."""
        ...


def check(
    program: Compiled, topology: Topology, *, max_diagnostics: int = 10, check: bool = True
) -> tuple[_core.Diagnostic, ...]:
    """Finds the sends of a program that have no path on a topology.

    Rank r of the program is rank r of the topology. If the topology has more ranks, the others are idle.

    Args:
        program: The program to check.
        topology: The machine on which it is to run.
        max_diagnostics: The number of findings after which the check stops.
        check: Whether to raise `gc3.UserError` with the findings; otherwise they are only returned.
    """
    ranks = program.core.rank_count
    found: list[_core.Diagnostic] = []
    if ranks > topology.rank_count:
        message = f"'{program.core.name}' has {ranks} ranks, '{topology.name}' has {topology.rank_count}"
        found += errors.error("TooFewRanks", message).diagnostics
    else:
        for rank, tb, peer, channel, step in program.core.sends():
            if topology.path(rank, peer, channel) is not None:
                continue
            names = f"{topology.ranks[rank].name} to {topology.ranks[peer].name}"
            message = f"rank {rank} sends to rank {peer} (threadblock {tb}, step {step}); on '{topology.name}' nothing "
            found += errors.error("NoPath", f"{message}joins {names}").diagnostics
            if len(found) >= max_diagnostics:
                break
    if check and found:
        raise errors.UserError(*found)
    return tuple(found)
