"""The papers' claims, and the simulator's results for them: `make reproduce`.

Parameters come from the presets; none was chosen with a claim in view. Claims of class C (whole applications, traffic
of other tenants, libraries without published parameters) cannot be simulated and are listed as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from claims import gc3_nodes, gc3_ring, osu, sccl
from claims.bench import Bench
from claims.claim import Claim, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "000": "GC3, first version",
        "001": "SCCL",
        "002": "GC3, third version",
        "003": "a summary of GC3",
        "004": "hierarchical and adaptive AllToAll",
    }
)
OUT_OF_REACH = (
    ("001 section 5.5, figure 7", "AllGather on Z52 against RCCL: the parameters of RCCL on MI50 are not published"),
    ("002 section 7.3", "Speed-ups between 2 and 64 MB fluctuate: other tenants' traffic"),
    ("002 section 7.5", "Applications: 1.22 to 1.29x on 8 A100, 1.10 to 1.89x on 256; [on CPUs](#applications)"),
    ("004 figures 12 and 13", "Other MPI libraries and NCCL on Lassen: the cost of their software is not published"),
    ("004 sections IV-C and IV-D", "Applications: 3-D FFT 15 to 25 %, K-FAC up to 8 %; [on CPUs](#applications)"),
)
# What holds by a formula that is evaluated on its own numbers, or by a constant that the presets or topologies were
# given: agreement says nothing of the simulator.
GIVEN: Mapping[str, str] = MappingProxyType(
    {
        "000-4-tile": "a constant of the presets",
        "000-4-protocols": "constants of the presets",
        "000-4-threadblock": "the quotient of two constants",
        "000-6.4-speedup": "follows from one constant, the rate of a connection through a NIC",
        "001-2.5-synthesized": "a formula",
        "001-4-copies": "the quotient of two constants",
        "001-4-push": "follows from one constant, the bytes of a request",
        "001-5.4-rows": "a formula",
        "001-5.5-z52": "a formula",
    }
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and its result."""

    claim: Claim
    outcome: Outcome


def catalogue() -> tuple[Claim, ...]:
    """Returns all claims by paper and section, those that are `GIVEN` last.

    >>> {claim.kind for claim in catalogue()} == {"A", "B"}
    True
    """
    found = [c for module in (gc3_ring, gc3_nodes, sccl, osu) for c in module.claims()]
    return tuple(sorted(found, key=lambda c: (c.name in GIVEN, c.paper, c.section)))


def reproduce(chosen: Sequence[Claim]) -> Iterator[Verdict]:
    """Yields the verdict on each claim in turn."""
    bench = Bench()
    for claim in chosen:
        yield Verdict(claim, claim.check(bench))
