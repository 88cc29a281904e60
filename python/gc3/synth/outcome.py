"""What a search finds: the result for an instance, and the points of a frontier."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gc3.synth.result import Result


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for an instance of a collective.

    Attributes:
        status: "found", "impossible" or "open".
        result: The result.
        how: The method, or the proof that there is none.
        fewest: The proof that there are no fewer rounds for these chunks and steps; None if there is no simple one.
        seconds: The time it took.
        composed: Whether `fewest` and "impossible" are of a reduction followed by a distribution, such as a
            reduce-scatter and an all-gather, not of every algorithm.
    """

    status: str
    result: Result | None
    how: str
    fewest: str | None
    seconds: float
    composed: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the frontier of steps and R/C.

    Attributes:
        chunks: C.
        steps: S.
        rounds: R.
        outcome: The result.
        bound: A proven lower bound on R/C in this many steps, for any number of chunks; of an all-reduce, for those
            built from a reduce-scatter and an all-gather, and so for custom collectives that reduce.
        proof: The proof of the bound.
        optimal: Whether the bound is reached.
        latency: Whether no algorithm has fewer steps.
        bandwidth: Whether no algorithm has a lower R/C in any number of steps.
        open: Candidates (C, R) with lower R/C that were neither found nor proven impossible.
    """

    chunks: int
    steps: int
    rounds: int
    outcome: Outcome
    bound: Fraction
    proof: str
    optimal: bool
    latency: bool
    bandwidth: bool
    open: tuple[tuple[int, int], ...]

    @property
    def ratio(self) -> Fraction:
        """R/C."""
        return Fraction(self.rounds, self.chunks)
