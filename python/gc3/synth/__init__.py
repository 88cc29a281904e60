"""Synthesis: finds schedules for a topology and a collective, proves them optimal, and writes programs (001).

>>> from gc3 import synth, topologies
>>> with synth.Solvers() as solvers:
...     session = synth.Session(synth.Network.of(topologies.load("dgx1")), solvers)
...     outcome = synth.Task(session, "allgather").solve(chunks=1, steps=2, rounds=2)
>>> outcome.status, outcome.fewest
('found', 'some data are 2 steps away')
>>> outcome.result.program().verify().ok
True
"""

from gc3.support.public import public_names
from gc3.synth.bounds.cuts import Bound
from gc3.synth.compose import repaired
from gc3.synth.compose.one_rank import OneRankResult, one_rank_schedules
from gc3.synth.methods.timed_trees import Costs
from gc3.synth.problem import FOUND, IMPOSSIBLE, OPEN, TimeUp
from gc3.synth.problem.check import Cache
from gc3.synth.problem.demand import NAMES, Demand, Piece
from gc3.synth.problem.network import MOST_PAIRS, Network
from gc3.synth.problem.schedule import Schedule
from gc3.synth.result import Order, Outcome, Point, Result
from gc3.synth.scratch_limit import LimitedTask, task_within
from gc3.synth.session import Session
from gc3.synth.solvers import Solvers
from gc3.synth.task import Task

__all__ = [
    "FOUND",
    "IMPOSSIBLE",
    "MOST_PAIRS",
    "NAMES",
    "OPEN",
    "Bound",
    "Cache",
    "Costs",
    "Demand",
    "LimitedTask",
    "Network",
    "OneRankResult",
    "Order",
    "Outcome",
    "Piece",
    "Point",
    "Result",
    "Schedule",
    "Session",
    "Solvers",
    "Task",
    "TimeUp",
    "one_rank_schedules",
    "repaired",
    "task_within",
]
public_names(__name__)
