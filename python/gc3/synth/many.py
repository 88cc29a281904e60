"""Schedules of many chunks that are pipelined over trees: grown ones, or packed ones."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gc3.synth import in_switch, pipeline, trees
from gc3.synth.demand import Demand
from gc3.synth.in_switch import fullest
from gc3.synth.schedule import Schedule
from gc3.synth.search import Session
from gc3.synth.symmetry import MANY_RANKS

NEAR = Fraction(101, 100)  # relative to the bound: nothing better is searched for
_FEW_SENDS = 1 << 20  # of one source of each orbit
_LARGE = 100_000_000  # of the effort of packing: some seconds
_FOR_PACKING = 0.5  # of the time that is left, if there is a schedule


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule over trees.

    Attributes:
        schedule: The schedule.
        ratio: What its rounds over the chunks of a source tend to with more chunks, if that is known.
        packed: Whether packed trees were made.
    """

    schedule: Schedule
    ratio: Fraction | None = None
    packed: bool = False


def growing(where: Session, wanted: Demand, fewest: float, halves: int = 1) -> Schedule:
    """Returns a schedule of trees that are grown for each chunk, and use the switches that multicast where these help.

    Args:
        where: The network, and the time limit.
        wanted: The demand.
        fewest: A lower bound on the rounds.
        halves: The number of such schedules in a program; see `pipeline.pipelined`.

    Raises:
        TimeUp: The time limit was reached.
    """
    network, group = where.network, where.group(wanted)
    if in_switch.applies(network, wanted):
        return in_switch.pipelined(network, wanted, group, fewest, where.left, moving=where.moving)
    return pipeline.pipelined(network, wanted, group, fewest, where.left, halves=halves, moving=where.moving)


def many_chunks(where: Session, wanted: Demand, halves: int) -> Planned:
    """Returns the schedule of a demand with about the fewest rounds, in any number of steps.

    Args:
        where: The network, and the time limit.
        wanted: The demand.
        halves: The number of such schedules in a program; see `pipeline.pipelined`.

    Raises:
        TimeUp: The time limit was reached.
    """
    key = (id(where.network), wanted.name, wanted.root, wanted.chunks)
    known = where.forests.get(key)
    if known is None or where.moving:
        return _searched(where, wanted, halves, key)
    return Planned(trees.schedule(where.network, wanted, known, where.left, moving=False), known.ratio, packed=True)


def _searched(where: Session, wanted: Demand, halves: int, key: tuple[int, str, int, int]) -> Planned:
    """Keeps packed trees by the key."""
    where.tell("growing trees")
    # On large networks the linear program for such a bound takes longer than the trees, which often reach that by cuts.
    late = wanted.routes and wanted.ranks >= MANY_RANKS
    bound = (where.by_cuts(wanted) if late else where.any_steps(wanted)).rounds
    group = where.group(wanted)
    sends = sum(len(p.targets) * p.count for p in wanted.pieces)
    alike = trees.applies(wanted)
    grown: Schedule | None = None
    # For few chunks, trees grown for each of them may need fewer rounds. Packed ones know nothing of multicasts.
    multicasts = in_switch.applies(where.network, wanted)
    if multicasts or not alike or sends <= _FEW_SENDS * group.order:
        grown = growing(where, wanted, float(bound), halves)
        if late:
            where.any_steps(wanted, taken=grown.total_rounds)
        if multicasts and alike:
            return Planned(grown, fullest(where.network, grown) / wanted.pieces[0].count)
        if multicasts or not alike or grown.total_rounds <= NEAR * bound:
            return Planned(grown)
        load = fullest(where.network, grown)
        if load <= NEAR * bound and trees.effort(where.network, wanted) > _LARGE:
            # Packed trees would need as many rounds, because of their depth, and take long.
            return Planned(grown, load / wanted.pieces[0].count)
    where.tell("packing trees")
    left = where.left if grown is None else _FOR_PACKING * where.left
    forest = trees.best(where.network, wanted, bound / wanted.pieces[0].count, left)
    if grown is None:
        where.hurry()
    if forest is None:
        return Planned(grown or growing(where, wanted, float(bound), halves))
    packed = trees.schedule(where.network, wanted, forest, where.left, moving=where.moving)
    if grown is not None and grown.total_rounds < packed.total_rounds:
        return Planned(grown, forest.ratio, packed=True)
    where.forests[key] = forest
    return Planned(packed, forest.ratio, packed=True)
