"""The order in which programs are timed on this machine: that of their simulated times."""

from __future__ import annotations

from dataclasses import replace

from gc3 import topologies
from gc3.comm.selection import Spec
from gc3.runtime.measure import cores
from gc3.sim import Platform, presets
from gc3.tune.guided import Search


class Predictor:
    """Simulates programs on as many ranks of this machine, with the rates of the preset of the engine.

    The preset was measured on another machine, so its order only says what to time first.
    """

    def __init__(self, collective: str, ranks: int, engine: str, *, in_place: bool, skew: float) -> None:
        """Simulates nothing yet; `engine`: "processes" or "threads"."""
        parameters = replace(presets.get(f"cpu-{engine}"), cores=cores())
        on = Platform(topologies.load("cpu", R=ranks), parameters)
        self._search = Search(collective, on, ranks, in_place=in_place, skew=skew)

    def seconds(self, spec: Spec, size: int) -> float:
        """Returns the simulated time of a program at S = `size` bytes; infinite if it cannot be simulated."""
        return self._search.seconds(replace(spec, thresholds=()), size)
