"""Reductions and distributions at the same time: overlapped halves, or for an all-reduce, pairs of trees."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gc3.synth import pairs, placing, result
from gc3.synth.limits import TimeUp
from gc3.synth.result import Result
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


def halves(session: Session, made: Result, how: str) -> Overlap | None:
    """Returns a result with its phases overlapped; None if that has no fewer rounds.

    Args:
        session: The time limit.
        made: The result.
        how: The method that found it.

    Raises:
        TimeUp: The time limit was reached.
    """
    session.tell("overlapping")
    problem, whole = made.problem, made.schedule
    schedule = placing.overlapped(
        made.network, problem.demands[-1], problem.contents, whole, session.left, moving=session.moving
    )
    if schedule.total_rounds >= made.schedule.total_rounds:
        return None
    method, colon, more = how.partition(":")
    more += " or less" if "tends to" in more else ""
    return Overlap(result.whole(made.network, made.problem, schedule), f"{method}, overlapped{colon}{more}", True)


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
    try:
        found = halves(session, made, how)
        fewest = fewest if found is None else found.result.schedule.total_rounds
        limited = ratio is None or ratio > enough or made.schedule.send_count <= _FEW_SENDS
        if made.collective == "allreduce" and limited and fewest > enough * made.chunks:
            paired = _paired(session, made)
            if paired is not None and paired.result.schedule.total_rounds < fewest:
                found = paired
    except TimeUp:
        pass  # what was found counts
    return found


def _paired(session: Session, made: Result) -> Overlap | None:
    session.tell("pairing trees")
    found = pairs.best(made.network, session.group(made.problem.demands[-1]), session.solvers, session.left)
    if found is None:
        return None
    ratio = found.ratio
    shown = ratio if ratio.denominator <= _LONG else f"about {float(ratio):.6f}"
    schedule = pairs.schedule(made.network, made.chunks, found, session.left, moving=session.moving)
    how = f"pairs of trees: with more chunks R/C tends to {shown}"
    return Overlap(result.whole(made.network, made.problem, schedule), how, False)
