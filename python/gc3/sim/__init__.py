"""Predicts and explains the time of a program on a machine.

>>> import gc3
>>> from gc3 import algorithms, sim
>>> ring = gc3.compile(algorithms.load("ring_allreduce"), R=8, channels=8)
>>> on = sim.platform("ndv4")
>>> sim.Simulation(ring, on).run(1 << 26).busbw < 240
True
"""

from gc3.sim.alpha_beta import AlphaBeta
from gc3.sim.degrade import Traffic, background, beside, degrade
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, opcode_factors
from gc3.sim.platform import Platform
from gc3.sim.predict import Disturbance, Prediction, Simulation, platform, simulate
from gc3.sim.presets import PRESETS
from gc3.sim.together import Part, Together, together
from gc3.support.public import public_names

__all__ = [
    "PRESETS",
    "AlphaBeta",
    "Disturbance",
    "Evidence",
    "Parameters",
    "Part",
    "Platform",
    "Prediction",
    "ProtocolParameters",
    "Simulation",
    "Together",
    "Traffic",
    "background",
    "beside",
    "degrade",
    "opcode_factors",
    "platform",
    "simulate",
    "together",
]
public_names(__name__)
