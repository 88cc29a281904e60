"""Reductions and distributions at the same time: overlapped halves, or for an all-reduce, pairs of trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gc3.synth import pairs, placing, result
from gc3.synth.limits import TimeUp
from gc3.synth.result import Result
from gc3.synth.schedule import Schedule
from gc3.synth.search import Session

_FEW_SENDS = 20_000
_LONG = 10_000  # denominators


@dataclass(frozen=True, slots=True)
class Overlap:
    """A result that is better than a composition.

    Attributes:
        result: The result.
        how: The method.
        composed: Whether it still consists of the two halves.
    """

    result: Result
    how: str
    composed: bool


def best(session: Session, made: Result, enough: Fraction, ratio: Fraction | None, how: str) -> Overlap | None:
    """Returns the best result with fewer rounds than a reduction followed by a distribution; None if none was found.

    Args:
        session: The solvers, and the time limit.
        made: The composition.
        enough: R/C with which the search ends.
        ratio: The composition's limit of R/C for many chunks, if it is known. If it is not above `enough`, pairs of
            trees may save a few rounds, but not with many chunks.
        how: The method that found the composition.
    """
    found: Overlap | None = None
    fewest = made.schedule.total_rounds
    with_pairs = made.collective == "allreduce" and (
        ratio is None or ratio > enough or made.schedule.send_count <= _FEW_SENDS
    )
    candidates = _candidates(session, made, how, with_pairs=with_pairs)
    try:
        while fewest > enough * made.chunks and (candidate := next(candidates, None)) is not None:
            schedule, method, composed = candidate
            if schedule.total_rounds < fewest:
                found = Overlap(result.whole(made.network, made.problem, schedule), method, composed)
                fewest = schedule.total_rounds
    except TimeUp:
        pass  # what was found counts
    return found


def _candidates(session: Session, made: Result, how: str, *, with_pairs: bool) -> Iterator[tuple[Schedule, str, bool]]:
    session.tell("overlapping")
    method, colon, limit = how.partition(":")
    yield (
        placing.overlapped(made.network, made.schedule, session.left),
        f"{method}, halves overlapped{colon}{limit}{' or less' if limit else ''}",
        True,
    )
    if not with_pairs:
        return
    session.tell("pairing trees")
    found = pairs.best(made.network, session.group(made.problem.demands[-1]), session.solvers, session.left)
    if found is not None:
        ratio = found.ratio
        shown = ratio if ratio.denominator <= _LONG else f"about {float(ratio):.6f}"
        schedule = pairs.schedule(made.network, made.chunks, found, session.left)
        yield schedule, f"pairs of trees: with more chunks R/C tends to {shown}", False
