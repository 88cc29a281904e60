"""Nelder and Mead's downhill simplex, for fits of a few parameters to simulated times, which have no derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_STEP = 0.3
_ENOUGH = 1e-4


@dataclass(frozen=True, slots=True)
class Minimum:
    """A place and the value there."""

    place: tuple[float, ...]
    value: float


def minimize(function: Callable[[Sequence[float]], float], start: Sequence[float], *, evaluations: int) -> Minimum:
    """Returns the least value found from `start` in about `evaluations` evaluations.

    >>> found = minimize(lambda x: (x[0] - 1) ** 2 + (x[1] + 2) ** 2, [0, 0], evaluations=200)
    >>> [round(x, 2) for x in found.place]
    [1.0, -2.0]
    """

    def at(place: Sequence[float]) -> Minimum:
        return Minimum(tuple(place), function(place))

    size = len(start)
    simplex = [at(start)]
    simplex += [at([x + _STEP * (i == j) for j, x in enumerate(start)]) for i in range(size)]
    used = size + 1
    while used < evaluations:
        simplex.sort(key=lambda m: m.value)
        best, worst = simplex[0], simplex[-1]
        wide = max(max(m.place[j] for m in simplex) - min(m.place[j] for m in simplex) for j in range(size))
        if worst.value - best.value < _ENOUGH * (abs(best.value) + _ENOUGH) and wide < _ENOUGH:
            break
        centre = [sum(m.place[j] for m in simplex[:-1]) / size for j in range(size)]

        def along(part: float, centre: Sequence[float] = centre, worst: Minimum = worst) -> Minimum:
            return at([c + part * (c - w) for c, w in zip(centre, worst.place, strict=True)])

        tried = along(1.0)
        used += 1
        if tried.value < best.value:
            further = along(2.0)
            used += 1
            tried = further if further.value < tried.value else tried
        elif tried.value >= simplex[-2].value:
            nearer = along(0.5 if tried.value < worst.value else -0.5)
            used += 1
            if nearer.value >= min(tried.value, worst.value):
                shrunk = [at([(x + b) / 2 for x, b in zip(m.place, best.place, strict=True)]) for m in simplex[1:]]
                simplex = [best, *shrunk]
                used += size
                continue
            tried = nearer
        simplex[-1] = tried
    return min(simplex, key=lambda m: m.value)
