"""Finds the best program for each collective, number of ranks and size by measuring: `gc3 tune`.

Or by simulating, synthesized programs included: `gc3 synth best`.
"""

from gc3.support.public import public_names
from gc3.tune.best import Best
from gc3.tune.goal import Found, Goal, Measured, Own
from gc3.tune.guided_search import One, Search
from gc3.tune.hosts import HostTimer, serve
from gc3.tune.on_ranks import Tuner
from gc3.tune.ranges import Range, ranges, registered_ranges, table
from gc3.tune.record import Record
from gc3.tune.schedules import schedules
from gc3.tune.simulated import SimulatedTuner, choose, simplest
from gc3.tune.space import candidates, check_fits

__all__ = [
    "Best",
    "Found",
    "Goal",
    "HostTimer",
    "Measured",
    "One",
    "Own",
    "Range",
    "Record",
    "Search",
    "SimulatedTuner",
    "Tuner",
    "candidates",
    "check_fits",
    "choose",
    "ranges",
    "registered_ranges",
    "schedules",
    "serve",
    "simplest",
    "table",
]
public_names(__name__)
