"""How much the time depends on each parameter of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gc3.sim import settings
from gc3.sim.platform import Platform
from gc3.sim.predict import UNDISTURBED, Compiled, Disturbance, Simulation

# Parameters are changed by this fraction, down, and up as far as their range permits.
STEP = 0.05


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The effect of a parameter on the time of a program."""

    name: str  # of the parameter, as in `gc3.sim.settings`
    value: float  # what it is: seconds, bytes per second, or plain
    # for each size, percent that the time changes where the parameter changes by one percent; exactly, the slope of
    # logarithms from 5 % less to 5 % more, or to the most that the parameter can be
    elasticity: tuple[float, ...]

    @property
    def greatest(self) -> float:
        """The largest absolute elasticity at any size."""
        return max((abs(e) for e in self.elasticity), default=0.0)


def names(on: Platform, protocol: str) -> list[str]:
    """Returns the parameters that can affect a program of a protocol."""
    others = tuple(f"{p}." for p in on.parameters.protocols if p != protocol)
    return [name for name in settings.names(on) if not name.startswith(others)]


def sensitivities(
    program: Compiled,
    on: Platform,
    sizes: Sequence[int],
    *,
    dtype: str = "float32",
    sharing: str = "serial",
    disturbance: Disturbance = UNDISTURBED,
) -> Iterator[Sensitivity]:
    """Yields the sensitivity to each parameter in turn.

    Times of slots and slices are not smooth: if a change of 5 % changes the order of messages in a link's queue, the
    number is valid only for this change.

    >>> import gc3
    >>> from gc3 import algorithms, sim
    >>> ring = gc3.compile(algorithms.load("ring_allreduce"), R=8)
    >>> found = {s.name: s for s in sensitivities(ring, sim.platform("ndv4"), [1 << 10])}
    >>> 0.1 < found["launch"].elasticity[0] < 0.9, found["hdr.bandwidth"].greatest
    (True, 0.0)
    """

    def times(machine: Platform) -> list[float]:
        simulation = Simulation(program, machine)
        return [simulation.run(size, dtype=dtype, sharing=sharing, disturbance=disturbance).time_s for size in sizes]

    for name in names(on, program.core.protocol):
        value = settings.get(on, name)
        ends = value * (1 - STEP), min(value * (1 + STEP), settings.most(name))
        low, high = (times(settings.apply(on, [settings.Setting(name, end)])) for end in ends)
        width = math.log(ends[1] / ends[0])
        slopes = (math.log(b / a) / width if a > 0 and b > 0 else 0.0 for a, b in zip(low, high, strict=True))
        yield Sensitivity(name, value, tuple(slopes))
