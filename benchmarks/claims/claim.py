"""A claim of a paper, and the rules by which it counts as reproduced.

The rules are the same for all claims, and no parameter was chosen with a claim in view:

* a counted number must be met exactly;
* a speed-up must lie within 25 % of the paper's, and its gain (the part above 1) between half and twice the paper's;
* a size from which on something holds must lie within a factor of 2 of the paper's;
* "A is faster than B" needs A to be faster by at least 2 %, in the geometric mean if it is for a range of sizes;
* where a paper gives a range or a word instead of a number, the claim's function has the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gc3.report.style import short_size

if TYPE_CHECKING:
    from claims.bench import Bench, Variant

_NEAR = 0.25
_GAIN = 2.0
_CROSSOVER = 2.0
FASTER = 1.02
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a claim.

    Attributes:
        expected: The paper's number or order, as text.
        found: The simulator's.
        reproduced: Whether that is the same by the rules.
        detail: Where it was found: size, program.
    """

    expected: str
    found: str
    reproduced: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper."""

    name: str  # unique, such as "002-7.1.1-ring": the number of the paper, the section, and a word
    kind: str  # "A": counting and alpha-beta costs decide; "B": it takes rates, protocols, FIFOs and launches
    text: str  # what the paper says, with machine and sizes
    check: Callable[[Bench], Outcome]  # computes the result
    why_not: str = ""  # why it is not reproduced; only shown if it is not
    section: str = ""  # that of the paper, if not as in the name

    def __post_init__(self) -> None:
        """Takes the section of the name."""
        object.__setattr__(self, "section", self.section or self.name.split("-")[1])

    @property
    def paper(self) -> str:
        """The number of the paper: 000, 001, 002, 003, 004."""
        return self.name.partition("-")[0]


def speedup(expected: float, found: float, detail: str = "") -> Outcome:
    """Returns the outcome of a claimed speed-up.

    >>> speedup(1.9, 1.5).reproduced, speedup(1.14, 1.02).reproduced
    (True, False)
    """
    near = abs(found / expected - 1) <= _NEAR
    gain = (found - 1) / (expected - 1)
    return Outcome(f"{expected:g}x", f"{found:.2f}x", near and 1 / _GAIN <= gain <= _GAIN, detail)


def greatest(expected: float, ratios: Mapping[int, float], detail: str = "at {}") -> Outcome:
    """Returns the outcome of the greatest of some speed-ups, by size, which `detail` takes."""
    best = max(ratios, key=ratios.__getitem__)
    return speedup(expected, ratios[best], detail.format(short_size(best)))


def over_nccl(
    expected: float, machine: str, collective: str, candidates: Sequence[Variant], sizes: Sequence[int]
) -> Callable[[Bench], Outcome]:
    """Returns the check of the greatest speed-up over NCCL, of the fastest candidate of each size."""

    def check(bench: Bench) -> Outcome:
        best = bench.best_over_nccl(machine, collective, candidates, sizes)
        return speedup(expected, best.speedup, str(best))

    return check


def ratio_of_one(found: float, within: float, detail: str = "") -> Outcome:
    """Returns the outcome of "as fast as": `found` is within a part of 1."""
    return Outcome("1.0x", f"{found:.2f}x", abs(found - 1) <= within, detail)


def exactly(expected: float, found: float, unit: str = "", detail: str = "") -> Outcome:
    """Returns the outcome of a number that is counted."""
    same = math.isclose(expected, found, rel_tol=_EXACT, abs_tol=1e-12)
    suffix = f" {unit}" if unit else ""
    return Outcome(f"{expected:.6g}{suffix}", f"{found:.6g}{suffix}", same, detail)


def faster(what: str, ratio: float, detail: str = "") -> Outcome:
    """Returns the outcome of "A is faster than B", for the time of B over that of A."""
    return Outcome(what, f"{ratio:.2f}x", ratio >= FASTER, detail)


def crossover(expected: float, found: float | None, unit: str, scale: float, detail: str = "") -> Outcome:
    """Returns the outcome of a size in bytes from which on something holds; None where it nowhere does."""
    shown = "nowhere" if found is None else f"{found / scale:g} {unit}"
    same = found is not None and 1 / _CROSSOVER <= found / expected <= _CROSSOVER
    return Outcome(f"{expected / scale:g} {unit}", shown, same, detail)


def plateau(expected: float, found: float, unit: str, detail: str = "") -> Outcome:
    """Returns the outcome of a measured number other than a speed-up."""
    return Outcome(f"{expected:g} {unit}", f"{found:.4g} {unit}", abs(found / expected - 1) <= _NEAR, detail)
