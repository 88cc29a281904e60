"""Algorithms: functions that write a program, with their parameters and the collective they implement."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

from gc3 import collectives, errors
from gc3.lang.formula import Formula
from gc3.lang.source import SourceProgram

# A number, or a function of (some of) the algorithm's own parameters that returns it.
Number: TypeAlias = "int | Callable[..., int]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an algorithm; `default` is None if it is required."""

    name: str
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """The data that an algorithm sends for given parameters: `sent / of` times S for the busiest rank.

    S is the size as nccl-tests defines it: the largest buffer of any rank.
    """

    steps: int
    sent: int
    of: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The steps and data that an algorithm sends, as formulas of its parameters.

    >>> ring = Cost(steps="2*(R-1)", sent="2*(R-1)", of="R")
    >>> ring.at(R=4)
    Traffic(steps=6, sent=6, of=4)
    """

    # Length of the longest chain of messages, each of which is sent only after the one before has arrived. Messages of
    # one rank to several others count once, because they are in flight at the same time.
    steps: Formula
    sent: Formula  # largest number of chunks that a rank sends to others
    of: Formula  # number of chunks in S, so that the busiest rank sends sent / of times S bytes

    def __init__(self, *, steps: str, sent: str, of: str) -> None:
        """Parses the formulas; see `gc3.lang.formula` for what they may contain."""
        for name, text in (("steps", steps), ("sent", sent), ("of", of)):
            object.__setattr__(self, name, Formula(text))

    def at(self, **parameters: int) -> Traffic:
        """Returns the numbers for the given parameters."""
        return Traffic(self.steps(**parameters), self.sent(**parameters), self.of(**parameters))


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm: a function that writes a program for given parameters.

    Attributes:
        name: Its name on the command line.
        function: The function that writes the program.
        collective: Name of the collective it implements, or a function of the parameters that makes a custom one.
        parameters: Its parameters.
        in_place: Whether it is written for buffers that alias; None: it is correct in both modes.
        ranks: Number of ranks; None for a custom collective, which has its own.
        chunks: Chunks per block of the collective's buffers.
        root: The root of a rooted collective.
        gpus_per_node: G of (node, gpu) pairs; 0: ranks are plain numbers.
        scratch: Names of further scratch buffers.
        section: The paper section that describes it, such as "002 section 7.3".
        summary: What it does, in one line.
        good_for: When to use it.
        cost: The data that it sends; None if not given.
        in_switch: Whether it is for switches that multicast and add up, without which it is plain messages.
        file: Source file of the function.
        line: Its first line.
    """

    name: str
    function: Callable[..., None]
    collective: str | Callable[..., collectives.Collective]
    parameters: tuple[Parameter, ...]
    in_place: bool | None
    ranks: Number | None
    chunks: Number
    root: Number
    gpus_per_node: Number
    scratch: tuple[str, ...]
    section: str
    summary: str
    good_for: str
    cost: Cost | None
    in_switch: bool
    file: str
    line: int

    def __repr__(self) -> str:
        """Describes it in one line."""
        given = ", ".join(p.name if p.default is None else f"{p.name}={p.default}" for p in self.parameters)
        mode = {True: "in place", False: "out of place", None: "in and out of place"}[self.in_place]
        return f"<gc3.Algorithm {self.name}({given}): {self.collective_name}, {mode}>"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Runs the function inside the current program, as a part of another algorithm."""
        self.function(*args, **kwargs)

    @property
    def collective_name(self) -> str:
        """The collective's name; "custom" if the parameters decide."""
        return self.collective if isinstance(self.collective, str) else "custom"

    def about(self, **given: int) -> collectives.Collective:
        """Returns its collective for the parameters `given`.

        Raises:
            gc3.UserError: A parameter is missing, unknown or invalid.
        """
        if isinstance(self.collective, str):
            return collectives.get(self.collective)
        return self._evaluate(self.collective, self.complete(given))

    def begin(
        self, *, protocol: str = "Simple", in_place: bool | None = None, name: str | None = None, **given: int
    ) -> SourceProgram:
        """Returns an empty program for the parameters `given`.

        Raises:
            gc3.UserError: A parameter is missing, unknown or invalid.
        """
        values = self.complete(given)
        written_for = bool(in_place) if self.in_place is None else self.in_place
        ranks = self._number("ranks", self.ranks, values)
        return SourceProgram(
            name or self.name,
            self.collective if isinstance(self.collective, str) else self.about(**given),
            ranks=ranks,
            chunks=self._number("chunks", self.chunks, values),
            root=self._number("root", self.root, values, ranks if ranks and ranks > 0 else 1 << 31),
            in_place=written_for,
            as_in_place=in_place,
            protocol=protocol,
            scratch=self.scratch,
            gpus_per_node=self._number("gpus_per_node", self.gpus_per_node, values),
            where=(self.file, self.line),
        )

    def write(
        self, *, protocol: str = "Simple", in_place: bool | None = None, name: str | None = None, **given: int
    ) -> SourceProgram:
        """Returns the program for the parameters `given`.

        Raises:
            gc3.UserError: A parameter is missing, unknown or invalid, or the function misuses a chunk.
        """
        program = self.begin(protocol=protocol, in_place=in_place, name=name, **given)
        with program:
            self.function(**self.complete(given))
        return program

    def signature(self) -> str:
        """Returns the names of its parameters, with the defaults of those that have one."""
        return ", ".join(p.name if p.default is None else f"{p.name}={p.default}" for p in self.parameters) or "none"

    def takes(self, given: Mapping[str, int]) -> bool:
        """Returns whether it has the parameters `given`, and needs no others."""
        needed = {p.name for p in self.parameters if p.default is None}
        return needed <= given.keys() <= {p.name for p in self.parameters}

    def complete(self, given: Mapping[str, int]) -> dict[str, int]:
        """Returns the values of all parameters, including the defaults of those not given.

        Raises:
            gc3.UserError: A parameter is missing or unknown.
        """
        values: dict[str, int] = {}
        for parameter in self.with_defaults(given).parameters:
            if parameter.default is None:
                raise self._error(f"'{self.name}' needs a value for '{parameter.name}'; it takes {self.signature()}")
            values[parameter.name] = parameter.default
        return values

    def with_defaults(self, given: Mapping[str, int]) -> Algorithm:
        """Returns it with other values of parameters that are not given.

        Raises:
            gc3.UserError: A parameter is unknown.
        """
        known = {p.name for p in self.parameters}
        for name in given:
            if name not in known:
                raise self._error(f"'{self.name}' has no parameter '{name}'; it takes {self.signature()}")
        return replace(
            self, parameters=tuple(replace(p, default=given.get(p.name, p.default)) for p in self.parameters)
        )

    def for_ranks(self, ranks: int, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the parameters `given` if they are for so many ranks, or the collective has a number of its own.

        Raises:
            gc3.UserError: They are for others, missing or unknown.
        """
        serves = self._evaluate(self.ranks, self.complete(given))
        if serves not in (None, ranks):
            told = " ".join(f"{name}={value}" for name, value in given.items())
            raise self._error(f"'{self.name}' with {told} is for {serves} ranks, not for {ranks}")
        return given

    def _evaluate(self, number: Any, values: Mapping[str, int]) -> Any:
        if not callable(number):
            return number
        wanted = inspect.signature(number).parameters
        missing = [name for name in wanted if name not in values]
        if missing:
            raise self._error(f"'{self.name}' has no parameter '{missing[0]}', which its record refers to")
        return number(**{name: values[name] for name in wanted})

    def _number(self, what: str, number: Any, values: Mapping[str, int], end: int = 1 << 31) -> Any:
        """A number of the decorator; a constant or what is none is no mistake of who gives the parameters."""
        found = self._evaluate(number, values)
        low = 0 if what in ("root", "gpus_per_node") else 1
        fits = isinstance(found, Integral) and (callable(number) or low <= int(found) < end)
        if found is not None and not fits:
            raise self._error(f"'{self.name}': {what}={found!r}; expected a whole number from {low} to {end - 1}")
        return found

    def _error(self, message: str) -> errors.Gc3Error:
        return errors.error("BadArgument", message, file=self.file, line=self.line)


def _ranks(R: int) -> int:
    return R


def _nodes_times_gpus(N: int, G: int) -> int:
    return N * G


def _default_ranks(names: Sequence[str]) -> Number | None:
    if "R" in names:
        return _ranks
    return _nodes_times_gpus if "N" in names and "G" in names else None


def _gpus(G: int) -> int:
    return G


def _root(root: int) -> int:
    return root


def _names_of(cost: Cost | None) -> frozenset[str]:
    return cost.steps.names | cost.sent.names | cost.of.names if cost else frozenset()


def algorithm(
    collective: str | Callable[..., collectives.Collective],
    *,
    ranks: Number | None = None,
    chunks: Number = 1,
    root: Number | None = None,
    in_place: bool | None = False,
    gpus_per_node: Number | None = None,
    scratch: Sequence[str] = (),
    section: str = "",
    good_for: str = "",
    cost: Cost | None = None,
    in_switch: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., None]], Algorithm]:
    """Turns a function that writes a program into an algorithm.

    Numbers may be functions of the algorithm's parameters, matched by name.

    Args:
        collective: The collective that the algorithm implements.
        ranks: Number of ranks; by default R or N*G, if the function has these parameters.
        chunks: Chunks per block of the collective's buffers.
        root: The root of a rooted collective; by default root, if the function has that parameter, else 0.
        in_place: Whether the function is written for buffers that alias; None if it is correct in both modes.
        gpus_per_node: G of (node, gpu) pairs; by default G, if the function has that parameter.
        scratch: Names of scratch buffers besides "scratch".
        section: The paper section that describes the algorithm.
        good_for: When to use it.
        cost: The data that it sends.
        in_switch: Whether it is for switches that multicast and add up.
        name: The algorithm's name; by default the function's name.

    >>> from gc3._core import chunk
    >>> @algorithm("alltonext")
    ... def shift(R: int) -> None:
    ...     "Every rank sends to the next."
    ...     for rank in range(R - 1):
    ...         chunk(rank, "in", 0).copy(rank + 1, "out", 0)
    >>> shift.summary
    'Every rank sends to the next.'
    """

    def wrap(function: Callable[..., None]) -> Algorithm:
        code = function.__code__
        names = list(inspect.signature(function).parameters.values())
        own_name = name or function.__name__
        rooted = False
        if isinstance(collective, str):
            try:
                rooted = collectives.get(collective).rooted
            except errors.UserError as problem:
                raise errors.placed(problem, code.co_filename, code.co_firstlineno) from None
        for p in names:
            if p.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
                raise errors.error(
                    "BadArgument",
                    f"'{own_name}': parameters are given by name, so '{p}' cannot be one",
                    file=code.co_filename,
                    line=code.co_firstlineno,
                )
        number_of_ranks = ranks if ranks is not None else _default_ranks([p.name for p in names])
        if number_of_ranks is None and isinstance(collective, str):
            raise errors.error(
                "BadArgument",
                f"'{own_name}': give the number of ranks with ranks=",
                file=code.co_filename,
                line=code.co_firstlineno,
            )
        unknown = _names_of(cost) - {p.name for p in names}
        if unknown:
            raise errors.error(
                "BadArgument",
                f"'{own_name}' has no parameter '{min(unknown)}', which its cost refers to",
                file=code.co_filename,
                line=code.co_firstlineno,
            )
        has_gpus = any(p.name == "G" for p in names)
        return Algorithm(
            name=own_name,
            function=function,
            collective=collective,
            parameters=tuple(
                Parameter(p.name, None if p.default is inspect.Parameter.empty else p.default) for p in names
            ),
            in_place=in_place,
            ranks=number_of_ranks,
            chunks=chunks,
            root=root if root is not None else (_root if rooted and "root" in {p.name for p in names} else 0),
            gpus_per_node=gpus_per_node if gpus_per_node is not None else (_gpus if has_gpus else 0),
            scratch=tuple(scratch),
            section=section,
            summary=(inspect.getdoc(function) or "").split("\n", 1)[0],
            good_for=good_for,
            cost=cost,
            in_switch=in_switch,
            file=code.co_filename,
            line=code.co_firstlineno,
        )

    return wrap
