"""A model of the times of all programs of a space, from those of some of them: a Gaussian process.

Programs of one shape take similar times if their settings are similar, and programs of all shapes gain in a similar way
from a protocol. So each time says something about the programs that were not simulated, and the model says how much it
knows of each (C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, chapter 2). The next
program is the one whose time may be the least (N. Srinivas et al., Gaussian Process Optimization in the Bandit Setting,
2010). Times at other sizes count less, the further away these are. No number here is fitted to a machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.datatypes import Array

# The number of the shape, protocol and FIFOs of a program, its instances, and what else divides its work.
Row: TypeAlias = tuple[int, int, int, int, tuple[int, ...]]

# The variances of the logarithm of a time: what programs have in common with those of the same protocol, of the same
# shape, and of both. A third to a half of the latter two is the same for all settings.
_PROTOCOL, _SHAPE, _BOTH = 1.0, 1.0, 0.5
_SHARED = 0.5, 0.3
_INSTANCES, _DIVIDED = 2.0, 2.5  # doublings of instances, and of what divides the work, after which programs differ
_FIFOS = 0.02  # of _BOTH: how much FIFOs matter
_SIZES = 4.0  # doublings of the size after which times differ
_NOISE = 1e-3  # times are not as smooth as the model
_FAR = 2.0  # the logarithm of how many times slower than the best counts as no better than anything slower
_DARING = 0.75  # standard deviations that a time may be below its estimate
LEAST = 1e-12  # seconds: of nothing, or of one rank alone, a call takes none
_SMALLER = 0.6  # a larger call may take less, where its messages queue in a better order


@dataclass(frozen=True)
class Known:
    """What is known of a program."""

    instructions: int = 0  # how many it has; 0: it cannot be compiled, or the machine does not hold it
    connections: int = 0  # of one instance: the most that a rank sends to, or receives from. Each needs a threadblock.
    times: dict[int, float] = field(default_factory=dict[int, float])  # its seconds by size
    bounds: dict[int, float] = field(default_factory=dict[int, float])  # seconds of its busiest link by size

    @classmethod
    def of(cls, program: _core.Program) -> Known:
        """Returns what is known of a program that was not simulated yet."""
        sends = program.sends() if max(program.instances, 1) == 1 else []
        out, into = Counter(rank for rank, *_ in sends), Counter(to for _, _, to, *_ in sends)
        return cls(program.instruction_count, max((*out.values(), *into.values()), default=0))

    def busy(self, size: int, of: Container[int] | None = None) -> float:
        """A time that its busiest link hardly takes less than; `of`: the sizes that may say so, or all that are known.

        A message takes time beside its bytes, so the time does not grow in proportion to the size: what two smaller
        calls differ by is continued. It does not grow evenly either, because small messages are rounded up, and from
        some size on a message is several.
        """
        bounds = [(at, seconds) for at, seconds in self.bounds.copy().items() if of is None or at in of]
        smaller = sorted((at, seconds) for at, seconds in bounds if at <= size)
        about = [size / at * seconds for at, seconds in bounds if at >= max(size, 1)]
        for (one, first), (other, second) in pairwise(smaller):
            about.append(second + (second - first) / (other - one) * (size - other))
        return max(_SMALLER * max(about, default=0.0), smaller[-1][1] if smaller else 0.0)

    def least(self, size: int, of: Container[int]) -> float:
        """A time that a call of this size is hardly below, by what is known of it at some sizes."""
        smaller = max((took for at, took in self.times.copy().items() if at < size and at in of), default=0.0)
        return max(_SMALLER * smaller, self.busy(size, of))


@dataclass(frozen=True, slots=True)
class Features:
    """What the model knows of the programs of a space, each an array over all of them."""

    shape: Array  # the number of the shape
    protocol: Array  # the number of the protocol
    fifos: Array  # the number of the choice of FIFOs
    instances: Array  # the logarithm to base 2
    divided: Array  # that of each parameter that divides the work, in a row for each program

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Features:
        """Returns those of some programs."""
        shape, protocol, fifos, instances, parts = zip(*rows, strict=True)
        divided = np.log2(np.maximum(np.array(parts, float), 1.0))
        return cls(np.array(shape), np.array(protocol), np.array(fifos), np.log2(np.array(instances, float)), divided)

    def at_least(self, index: int, *, any_protocol: bool = False) -> Array:
        """Returns which programs are of the same shape and protocol, with as many or more instances and parts."""
        alike = (self.shape == self.shape[index]) & (any_protocol | (self.protocol == self.protocol[index]))
        more = (self.divided >= self.divided[index]).all(axis=1)
        return alike & more & (self.instances >= self.instances[index])

    def covariance(self, index: int, others: Array | slice = slice(None)) -> Array:
        """Returns how much a program's time says about those of others."""
        same = self.protocol[others] == self.protocol[index]
        instances = np.abs(self.instances[others] - self.instances[index]) / _INSTANCES
        divided = np.linalg.norm(self.divided[others] - self.divided[index], axis=1) / _DIVIDED
        near = _matern(np.hypot(instances, divided))
        fifos = 1 - _FIFOS * (self.fifos[others] != self.fifos[index])
        shape = _SHAPE * _mixed(_SHARED[0], near) + _BOTH * _mixed(_SHARED[1], near) * same * fifos
        return _PROTOCOL * same * _matern(instances) + (self.shape[others] == self.shape[index]) * shape


class Surrogate:
    """The model at one size.

    The inverse of the covariance's Cholesky factor grows by a row with each time, and so does its product with the
    covariances of the space, so that a time costs one pass over the space.
    """

    def __init__(self, features: Features, most: int) -> None:
        """Knows nothing yet; `most`: how many times it can take."""
        count = len(features.shape)
        self._features = features
        self._variance = np.full(count, _PROTOCOL + _SHAPE + _BOTH)
        self._whole = _PROTOCOL + _SHAPE + _BOTH + _NOISE
        self._rows = np.zeros((most, count), np.float32)  # a pass over them is what a time costs
        self._inverse = np.zeros((most, most))
        self._indices: list[int] = []
        self._away: list[float] = []
        self._logs: list[float] = []  # of times at this size, and of ratios to the best time at others
        self._own: list[bool] = []
        self._least: Array | None = None  # by program, until another time is known

    def add_elsewhere(self, index: int, doublings: float, ratio: float) -> None:
        """Takes a time at another size, so many doublings larger, as its ratio to the best one there.

        All of them come before those at this size.
        """
        before = np.array(self._indices, int)
        away = np.exp(-np.abs(np.array(self._away) - doublings) / _SIZES)
        known = self._features.covariance(index, before) * away
        self._add(index, doublings, self._inverse[: len(before), : len(before)] @ known)
        self._logs.append(math.log(ratio))
        self._own.append(False)

    def add(self, index: int, seconds: float) -> None:
        """Takes a time at this size."""
        self._add(index, 0.0, self._rows[: len(self._indices), index].astype(float))
        self._logs.append(math.log(max(seconds, LEAST)))
        self._own.append(True)

    def _add(self, index: int, doublings: float, lower: Array) -> None:
        count = len(lower)
        pivot = math.sqrt(max(self._whole - float(lower @ lower), _NOISE))
        self._inverse[count, :count] = lower @ self._inverse[:count, :count] / -pivot
        self._inverse[count, count] = 1 / pivot
        row = self._features.covariance(index) * math.exp(-abs(doublings) / _SIZES)
        self._rows[count] = (row - self._over_the_space(lower)) / pivot
        self._variance -= self._rows[count] ** 2
        self._indices.append(index)
        self._away.append(doublings)
        self._least = None

    def _over_the_space(self, weights: Array) -> Array:
        """The product with the rows; by `einsum`, since threads of BLAS cost more than they save here."""
        return np.einsum("i,ij->j", weights.astype(np.float32), self._rows[: len(weights)])

    def most_promising(self, open_to: Array) -> int:
        """Returns the program whose time may be the least, of those that a mask leaves."""
        if self._least is None:
            self._least = self._estimates() - _DARING * np.sqrt(np.maximum(self._variance, 0.0))
        return int(np.where(open_to, self._least, math.inf).argmin())

    def _estimates(self) -> Array:
        """The logarithms of the times, from that of the best one on."""
        count = len(self._logs)
        if not count:
            return np.zeros(len(self._variance))
        own, values = np.array(self._own), np.array(self._logs)
        if own.any():
            values[own] -= values[own].min()
        values = np.minimum(values, _FAR)
        weights = self._inverse[:count, :count] @ (values - values.mean())
        return values.mean() + self._over_the_space(weights)


def _mixed(shared: float, near: Array) -> Array:
    return shared + (1 - shared) * near


def _matern(distance: Array) -> Array:
    """Matern's covariance of order 3/2: once differentiable, as times are."""
    scaled = math.sqrt(3) * distance
    return (1 + scaled) * np.exp(-scaled)
