"""`gc3 tune --topology` with few simulations of a point, for tests of what it does with what was found."""

from __future__ import annotations

from gc3.sim import Platform
from gc3.tune import Goal, SimulatedTuner


class Few(SimulatedTuner):
    """To set in the place of `gc3.cli.tune.SimulatedTuner`."""

    def __init__(self, goal: Goal, on: Platform, *, target: str | None = None) -> None:
        """Simulates 30 programs of a point."""
        super().__init__(goal, on, target=target, most=30)
