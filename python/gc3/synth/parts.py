"""Schedules of the parts of a composition (see `hierarchical`): searched for, or of grown trees."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from gc3.synth import cuts
from gc3.synth.answer import OPEN
from gc3.synth.demand import Demand
from gc3.synth.many import growing
from gc3.synth.network import Network
from gc3.synth.schedule import Schedule
from gc3.synth.search import Session

Solve: TypeAlias = Callable[[Session, Network, Demand], Schedule]

_SECONDS = 10.0
_SHARE = 0.3  # of the time that is left
_BETTER = 1.0  # seconds for each number of steps, if there is a schedule
_QUICK = 2.0  # seconds
_MORE_STEPS = 2  # that a part may take above the fewest


def solved(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a good schedule of a part: the fewest rounds in the fewest steps, or in a few more.

    Raises:
        TimeUp: The time limit of the session was reached.
    """
    return _solved(session, network, demand, _SECONDS, _MORE_STEPS)


def quick(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a schedule of a part in the fewest steps, if one is soon found.

    Raises:
        TimeUp: The time limit of the session was reached.
    """
    return _solved(session, network, demand, _QUICK, 0)


def grown(session: Session, network: Network, demand: Demand) -> Schedule:
    """Returns a schedule of a part that takes no time to speak of, but many steps: of trees grown for each chunk.

    Raises:
        TimeUp: The time limit of the session was reached.
    """
    own = replace(session, network=network, cache=None)
    return growing(own, demand, float(own.by_cuts(demand).rounds))


def _solved(session: Session, network: Network, demand: Demand, seconds: float, more: int) -> Schedule:
    most = time.monotonic() + min(_SHARE * session.left, seconds)
    own = replace(session, network=network, cache=None, deadline=most)
    least = max(cuts.least_steps(network, demand), 1)
    fewest = math.ceil(own.any_steps(demand).rounds)
    best: Schedule | None = None
    for steps in range(least, least + more + 1):
        for rounds in itertools.count(max(fewest, steps)):
            if time.monotonic() > most or (best is not None and rounds >= best.total_rounds):
                break
            own.deadline = most if best is None else min(most, time.monotonic() + _BETTER)
            answer = own.solve(demand, steps, rounds)
            best = best if answer.schedule is None else answer.schedule
            if answer.status == OPEN and best is not None:
                break  # with one round more it is about as hard
        if best is not None and best.total_rounds <= fewest:
            break
    return best or grown(session, network, demand)
