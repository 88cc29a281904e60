"""Levenberg and Marquardt's least squares, for fits of many parameters to simulated times.

Derivatives are differences. Residuals count in full up to a limit and beyond that linearly (P. J. Huber, Robust
estimation of a location parameter, Annals of Mathematical Statistics 35, 1964), so that a few measurements that were
disturbed do not decide. The damping follows D. W. Marquardt (SIAM Journal on Applied Mathematics 11, 1963).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    _Vector: TypeAlias = npt.NDArray[np.float64]

_DIFFERENCE = 0.02  # large against the picoseconds to which times are rounded
_LONGEST = 1.0  # step of a parameter
_FIRST_DAMPING, _LEAST_DAMPING = 1e-2, 1e-5
_TRIALS = 6  # of longer and shorter steps
_ENOUGH = 2e-3  # gain of a step, as a part of what it reduces


def least_squares(
    residuals: Callable[[Sequence[float]], Sequence[float]],
    start: Sequence[float],
    *,
    prior: float,
    limit: float,
    steps: int,
    begin: Callable[[str], None] = lambda _: None,
    ends: Callable[[], bool] = lambda: False,
) -> tuple[float, ...]:
    """Returns where the mean of the squared residuals, with what keeps parameters near their start, is least.

    Args:
        residuals: What should be 0 at a place.
        start: The first place.
        prior: The weight of the mean of squared distances from the start.
        limit: A residual above this counts linearly.
        steps: How many are made at most; each takes one evaluation for every parameter, and a few.
        begin: Called with the number of each step before it.
        ends: Asked before each step; if it says so, there is none.

    >>> found = least_squares(lambda x: [x[0] - 1, 2 * (x[1] + 2)], [0, 0], prior=0, limit=9, steps=20)
    >>> [round(x, 3) for x in found]
    [1.0, -2.0]
    """
    first = np.array(start, float)
    size = len(first)

    def at(place: _Vector) -> _Vector:
        return np.asarray(residuals(place.tolist()), float)

    def cost(misses: _Vector, place: _Vector) -> float:
        large = np.abs(misses)
        counted = np.where(large < limit, large**2, 2 * limit * large - limit**2)
        return float(counted.mean() + prior * ((place - first) ** 2).mean())

    place: _Vector = first
    misses = at(place)
    now, damping = cost(misses, place), _FIRST_DAMPING
    for number in range(steps):
        if ends():
            break
        begin(str(number + 1))
        units: _Vector = np.eye(size)
        slopes: _Vector = np.stack([(at(place + _DIFFERENCE * unit) - misses) / _DIFFERENCE for unit in units], axis=1)
        weighted: _Vector = slopes * np.minimum(1.0, limit / np.maximum(np.abs(misses), limit))[:, None]
        across: _Vector = np.transpose(weighted)
        normal: _Vector = np.matmul(across, slopes) / len(misses) + prior / size * units
        down: _Vector = np.matmul(across, misses) / len(misses) + prior / size * (place - first)
        for _ in range(_TRIALS):
            damped: _Vector = normal + (damping * normal + 1e-12) * units
            step = np.asarray(np.linalg.solve(damped, down), float)
            further: _Vector = place - np.maximum(np.minimum(step, _LONGEST), -_LONGEST)
            missed = at(further)
            if (then := cost(missed, further)) < now:
                break
            damping *= 4
        else:
            break
        gain = (now - then) / now
        place, misses, now = further, missed, then
        damping = max(damping / 5, _LEAST_DAMPING)
        if gain < _ENOUGH:
            break
    return tuple(place.tolist())
