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
from gc3.synth.answer import FOUND, IMPOSSIBLE, OPEN
from gc3.synth.cache import Cache
from gc3.synth.cuts import Bound
from gc3.synth.demand import NAMES, Demand, Piece
from gc3.synth.limited import LimitedTask, task_within
from gc3.synth.limits import TimeUp
from gc3.synth.network import Network
from gc3.synth.outcome import Outcome, Point
from gc3.synth.repair import repaired
from gc3.synth.result import Order, Result
from gc3.synth.schedule import Schedule
from gc3.synth.search import Session
from gc3.synth.solvers import Solvers
from gc3.synth.task import Task
from gc3.synth.timed import Costs

__all__ = [
    "FOUND",
    "IMPOSSIBLE",
    "NAMES",
    "OPEN",
    "Bound",
    "Cache",
    "Costs",
    "Demand",
    "LimitedTask",
    "Network",
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
    "repaired",
    "task_within",
]
public_names(__name__)
