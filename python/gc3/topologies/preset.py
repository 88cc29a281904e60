"""Presets: functions that make a topology, with their parameters and their sources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gc3 import errors
from gc3.topologies.model import Topology


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a preset; `default` is None if it must be given."""

    name: str
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Preset:
    """A family of machines.

    Attributes:
        name: Its name on the command line.
        function: The function that makes the topology.
        parameters: The parameters of the function.
        generic: Whether it is a generic shape, and not a machine that exists.
        summary: One line that describes the topology.
        source: Where its structure comes from.
    """

    name: str
    function: Callable[..., Topology]
    parameters: tuple[Parameter, ...]
    generic: bool
    summary: str
    source: str

    def build(self, given: Mapping[str, int]) -> Topology:
        """Returns the topology for the parameters `given`.

        Raises:
            gc3.UserError: A parameter is missing, unknown or out of range.
        """
        known = {p.name: p.default for p in self.parameters}
        takes = ", ".join(n if d is None else f"{n}={d}" for n, d in known.items()) or "none"
        for name in given:
            if name not in known:
                raise errors.error("BadArgument", f"'{self.name}' has no parameter '{name}'; it takes {takes}")
        values: dict[str, int] = {}
        for name, default in known.items():
            value = given.get(name, default)
            if value is None:
                raise errors.error("BadArgument", f"'{self.name}' needs a value for '{name}'; it takes {takes}")
            values[name] = value
        made = self.function(**values)
        return replace(made, name=self.name, parameters=tuple(values.items()), summary=self.summary, source=self.source)


def topology(*, source: str, generic: bool = False) -> Callable[[Callable[..., Topology]], Preset]:
    """Turns a function that returns a topology into a preset with the name of the function.

    Args:
        source: Where the structure comes from.
        generic: Whether it is a generic shape, and not a machine that exists.
    """

    def wrap(function: Callable[..., Topology]) -> Preset:
        parameters = tuple(
            Parameter(p.name, None if p.default is inspect.Parameter.empty else p.default)
            for p in inspect.signature(function).parameters.values()
        )
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        return Preset(function.__name__, function, parameters, generic, summary, source)

    return wrap


def require(name: str, value: int, least: int, most: int) -> None:
    """Raises `gc3.UserError` if a parameter is outside its range."""
    if not least <= value <= most:
        raise errors.error("BadArgument", f"{name}={value}; expected a number from {least} to {most}")
