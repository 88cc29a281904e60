"""Finds the best program for each collective, number of ranks and size by measuring: `gc3 tune`."""

from gc3.tune.ranges import Range, ranges, table
from gc3.tune.record import Record
from gc3.tune.search import Found, Goal, Measured, Tuner
from gc3.tune.space import candidates

__all__ = ["Found", "Goal", "Measured", "Range", "Record", "Tuner", "candidates", "ranges", "table"]
