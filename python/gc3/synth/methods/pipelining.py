"""Schedules of many chunks that are pipelined over trees: grown ones, or packed ones.

Reductions and distributions take place at the same time: as overlapped halves, or for an all-reduce, pairs of trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gc3.synth import result
from gc3.synth.methods import tree_growth, tree_packing
from gc3.synth.methods.tree_growth import fullest
from gc3.synth.problem import TimeUp
from gc3.synth.problem.demand import Demand
from gc3.synth.problem.schedule import Schedule, multicasts, overlapped
from gc3.synth.problem.symmetry import MANY_RANKS
from gc3.synth.result import Result
from gc3.synth.session import Session

NEAR = Fraction(101, 100)  # relative to the bound: nothing better is searched for
_FEW_SENDS = 1 << 20  # of one source of each orbit
_LARGE = 100_000_000  # of the effort of packing: some seconds
_FOR_PACKING = 0.5  # of the time that is left, if there is a schedule
_FEW_TO_PAIR = 20_000
_LONG = 10_000  # denominators


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule over trees."""

    schedule: Schedule
    # What its rounds over the chunks of a source tend to with more chunks, if that is known.
    ratio: Fraction | None = None
    packed: bool = False  # whether packed trees were made


def many_chunks(where: Session, wanted: Demand, halves: int) -> Planned:
    """Returns the schedule of a demand with about the fewest rounds, in any number of steps.

    So many `halves` are in a program; see `tree_growth.pipelined`.
    """
    key = (id(where.network), wanted.name, wanted.root, wanted.chunks)
    known = where.forests.get(key)
    if known is None or where.moving:
        return _searched(where, wanted, halves, key)
    return Planned(
        tree_packing.schedule(where.network, wanted, known, where.left, moving=False), known.ratio, packed=True
    )


def _searched(where: Session, wanted: Demand, halves: int, key: tuple[int, str, int, int]) -> Planned:
    """Keeps packed trees by the key."""
    where.tell("growing trees")
    # On large networks the linear program for such a bound takes longer than the trees, which often reach that by cuts.
    late = wanted.routes and wanted.ranks >= MANY_RANKS
    bound = (where.by_cuts(wanted) if late else where.any_steps(wanted)).rounds
    group = where.group(wanted)
    sends = sum(len(p.targets) * p.count for p in wanted.pieces)
    alike = tree_packing.applies(wanted)
    grown: Schedule | None = None
    # For few chunks, trees grown for each of them may need fewer rounds. Packed ones know nothing of multicasts.
    in_switch = multicasts(where.network, wanted)
    if in_switch or not alike or sends <= _FEW_SENDS * group.order:
        grown = tree_growth.growing(where, wanted, float(bound), halves)
        if late:
            where.any_steps(wanted, taken=grown.total_rounds)
        if in_switch and alike:
            return Planned(grown, fullest(where.network, grown) / wanted.pieces[0].count)
        if in_switch or not alike or grown.total_rounds <= NEAR * bound:
            return Planned(grown)
        load = fullest(where.network, grown)
        if load <= NEAR * bound and tree_packing.effort(where.network, wanted) > _LARGE:
            # Packed trees would need as many rounds, because of their depth, and take long.
            return Planned(grown, load / wanted.pieces[0].count)
    where.tell("packing trees")
    left = where.left if grown is None else _FOR_PACKING * where.left
    forest = tree_packing.best(where.network, wanted, bound / wanted.pieces[0].count, left)
    if grown is None:
        where.hurry()
    if forest is None:
        return Planned(grown or tree_growth.growing(where, wanted, float(bound), halves))
    packed = tree_packing.schedule(where.network, wanted, forest, where.left, moving=where.moving)
    if grown is not None and grown.total_rounds < packed.total_rounds:
        return Planned(grown, forest.ratio, packed=True)
    where.forests[key] = forest
    return Planned(packed, forest.ratio, packed=True)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A result that is better than a composition."""

    result: Result
    how: str  # the method
    composed: bool  # whether it still consists of the two halves


def overlapped_halves(session: Session, made: Result, how: str) -> Overlap | None:
    """Returns a result, found by the method `how`, with its phases overlapped; None if that has no fewer rounds."""
    session.tell("overlapping")
    problem, whole = made.problem, made.schedule
    schedule = overlapped(
        made.network, problem.demands[-1], problem.contents, whole, session.left, moving=session.moving
    )
    if schedule.total_rounds >= made.schedule.total_rounds:
        return None
    method, colon, more = how.partition(":")
    more += " or less" if "tends to" in more else ""
    return Overlap(result.whole(made.network, made.problem, schedule), f"{method}, overlapped{colon}{more}", True)


def best_overlap(session: Session, made: Result, enough: Fraction, ratio: Fraction | None, how: str) -> Overlap | None:
    """Returns the best result with fewer rounds than a reduction followed by a distribution; None if none was found.

    The search ends with an R/C of `enough`. If the composition's limit of R/C for many chunks, the ratio, is known and
    not above that, pairs of trees may save a few rounds, but not with many chunks.
    """
    found: Overlap | None = None
    fewest = made.schedule.total_rounds
    try:
        found = overlapped_halves(session, made, how)
        fewest = fewest if found is None else found.result.schedule.total_rounds
        limited = ratio is None or ratio > enough or made.schedule.send_count <= _FEW_TO_PAIR
        if made.collective == "allreduce" and limited and fewest > enough * made.chunks:
            paired = _paired(session, made)
            if paired is not None and paired.result.schedule.total_rounds < fewest:
                found = paired
    except TimeUp:
        pass  # what was found counts
    return found


def _paired(session: Session, made: Result) -> Overlap | None:
    session.tell("pairing trees")
    found = tree_packing.best_pairs(
        made.network, session.group(made.problem.demands[-1]), session.solvers, session.left
    )
    if found is None:
        return None
    ratio = found.ratio
    shown = ratio if ratio.denominator <= _LONG else f"about {float(ratio):.6f}"
    schedule = tree_packing.schedule_of_pairs(made.network, made.chunks, found, session.left, moving=session.moving)
    how = f"pairs of trees: with more chunks R/C tends to {shown}"
    return Overlap(result.whole(made.network, made.problem, schedule), how, False)
