"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from gc3 import algorithms, collectives, datatypes, errors
from gc3.cli import blamed, completion
from gc3.cli.parsed import Parsed
from gc3.lang.build import MOST
from gc3.runtime.options import EngineOptions
from gc3.support.sizes import parse_size
from gc3.support.words import split_values

Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"
T = TypeVar("T")


if TYPE_CHECKING:
    from gc3 import _core


class Names(Parsed):
    """A list of names out of some, separated by commas; "all" for all of them."""

    name = "list"

    def __init__(self, known: tuple[str, ...]) -> None:
        """Takes the known names."""
        self._known = known

    def parse(self, text: str) -> tuple[str, ...]:
        """Returns the names in the order in which they are known."""
        given = text.split(",")
        for name in given:
            if name not in (*self._known, "all"):
                raise ValueError(f"'{name}' is unknown; expected {', '.join(self._known)} or all")
        return self._known if "all" in given else tuple(name for name in self._known if name in given)


class Counts(Parsed):
    """A list of numbers of ranks, separated by commas."""

    name = "list"

    def __init__(self, least: int = 1) -> None:
        """Takes the smallest number allowed."""
        self._least = least

    def parse(self, text: str) -> tuple[int, ...]:
        """Returns the numbers in their order."""
        numbers = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and int(part) >= self._least for part in numbers):
            raise ValueError(f"'{text}' is not a list of numbers from {self._least}, such as 2,4,8")
        return tuple(dict.fromkeys(map(int, numbers)))


class Skews(Parsed):
    """A list of numbers above 1, separated by commas."""

    name = "list"

    def parse(self, text: str) -> tuple[float, ...]:
        """Returns the numbers."""
        try:
            skews = tuple(float(part) for part in text.split(","))
        except ValueError:
            skews = ()
        if not skews or not all(1 < skew < math.inf for skew in skews):
            raise ValueError(f"'{text}' is not a list of numbers above 1, such as 2,8")
        return skews


class Positive(click.FloatRange):
    """A number above zero; refuses "nan" and "inf"."""

    def __init__(self) -> None:
        """Takes no bounds."""
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


no_check_option = click.option("--no-check", is_flag=True, help="Do not compare with NumPy's result.")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")

dtype_option = click.option(
    "--dtype",
    "-d",
    type=click.Choice(list(datatypes.DTYPES)),
    default="float32",
    show_default=True,
    help="Data type of the elements.",
)
op_option = click.option(
    "--op",
    type=click.Choice(datatypes.OPS),
    default="sum",
    show_default=True,
    help="Reduction, for collectives that reduce.",
)


def _count(text: str, *, least: int = 1, most: int = MOST) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return number


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return text

    return parse


def _yes(text: str) -> bool:
    return _one_of(("yes", "no"))(text) == "yes"


def _order(text: str) -> tuple[int, ...]:
    parts = text.split("+")
    if sorted(parts, key=lambda part: (len(part), part)) != [str(rank) for rank in range(len(parts))]:
        raise ValueError("the ranks of a node in another order, such as 0+1+3+2")
    return tuple(map(int, parts))


def _collective(text: str) -> str | _core.Collective:
    """The collective of a file: one that gc3 knows, or PATH.py:NAME."""
    if text in collectives.BUILTIN:
        return text
    path, separator, name = text.rpartition(":")
    if not separator or not path.endswith(".py"):
        raise ValueError(f"one of {', '.join(collectives.BUILTIN)}, or PATH.py:NAME")
    return blamed.blaming_the_user(path, lambda: algorithms.load_collective(path, name)).model()


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile an algorithm, or read a compiled program: what follows its name, and the fields of `KEYS`."""

    parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    instances: int | None = None
    protocol: str | None = None
    in_place: bool | None = None
    max_threadblocks: int | None = None
    fuse: bool | None = None
    window: int | None = None
    slots: int | None = None
    memory: str | None = None
    order: tuple[int, ...] | None = None
    collective: str | _core.Collective | None = None
    prove: bool = True
    script: tuple[str, ...] = ()  # the command line of a script of MSCCLang

    def only_for_algorithms(self) -> list[str]:
        """Returns the given keys that do not apply to a compiled program."""
        keys = ("instances", "protocol", "max_threadblocks", "fuse", "window", "slots", "memory", "order")
        return [*self.parameters, *(key for key in keys if getattr(self, key) is not None)]

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of `gc3.compile`."""
        return {
            "instances": self.instances or 1,
            "protocol": self.protocol or "Simple",
            "in_place": self.in_place,
            "max_threadblocks": self.max_threadblocks or 0,
            "fuse": self.fuse is not False,
            "window": self.window or 0,
            "slots": self.slots or 0,
            "order": self.order or (),
            **self.parameters,
        }


# What may follow the name of a program besides the parameters of its algorithm, with the names of `gc3.compile`.
KEYS: dict[str, Callable[[str], Any]] = {
    "instances": _count,
    "protocol": _one_of(datatypes.PROTOCOLS),
    "in_place": _yes,
    "max_threadblocks": _count,
    "fuse": _yes,
    "window": _count,
    "slots": _count,
    "memory": _one_of(("fifo", "direct")),
    "order": _order,
    "collective": _collective,
    "prove": _yes,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A program as a command line names it: NAME, or NAME:key=value,..."""

    text: str
    name: str
    how: CompileOptions
    own: Mapping[str, str] = field(default_factory=dict[str, str])  # keys of the command

    def changed(self, **changes: Any) -> Asked:
        """Returns it with other options of compiling."""
        return replace(self, how=replace(self.how, **changes))

    def with_settings(self, settings: str, label: str = "") -> str:
        """Returns its text, or its label, with more settings."""
        return f"{label or self.text}{':' if self.text == self.name else ','}{settings}"


def _split(text: str, example: str) -> tuple[str, dict[str, str]]:
    try:
        return split_values(text)
    except ValueError as part:
        raise ValueError(f"'{part}' of '{text}' is not key=value, as in {example}") from None


class Program(Parsed):
    """A program on the command line."""

    name = "program"

    def __init__(self, own: tuple[str, ...] = (), *, unproven: bool = False) -> None:
        """Takes further keys that the command knows, and whether it can do without a proof."""
        self._own = own
        self._unproven = unproven

    def parse(self, text: str) -> Asked:
        """Returns what the text names."""
        name, values = _split(text, "ring_allreduce:R=8,protocol=LL")
        own = {key: values.pop(key) for key in self._own if key in values}
        parameters: dict[str, int] = {}
        known: dict[str, Any] = {}
        for key, value in values.items():
            try:
                if key in KEYS:
                    known[key] = KEYS[key](value)
                else:
                    parameters[key] = int(value, 0)
            except errors.Gc3Error:  # of the file of a collective
                raise
            except ValueError as expected:
                what = expected if key in KEYS else f"a whole number for a parameter, or one of {', '.join(KEYS)}"
                raise ValueError(f"'{key}={value}' of '{text}': expected {what}") from None
        if not known.get("prove", True) and not self._unproven:
            raise ValueError(f"'prove=no' of '{text}': this command proves every program")
        return Asked(text, name, CompileOptions(parameters, **known), own)


ENGINES = ("threads", "processes")  # of the CPU


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine as a command line names it."""

    name: str
    options: EngineOptions


class _EngineSpec(Parsed):
    """An engine on the command line: NAME, or NAME:key=value,..."""

    name = "engine"

    def __init__(self, names: tuple[str, ...]) -> None:
        """Takes the names of the engines that the command knows."""
        self._names = names

    def parse(self, text: str) -> Engine:
        """Returns the engine."""
        name, values = _split(text, "threads:slots=2")
        if name not in self._names:
            raise ValueError(f"'{name}' is not one of {', '.join(self._names)}.")
        if "devices" in values and name != "cuda":
            raise ValueError(f"'devices={values['devices']}' is for cuda")
        known: dict[str, Any] = {}
        for key, value in values.items():
            if key not in _ENGINE_KEYS:
                raise ValueError(f"'{key}' of '{text}' is not known; expected {', '.join(_ENGINE_KEYS)}")
            try:
                known[key] = _ENGINE_KEYS[key](value)
            except ValueError as expected:
                raise ValueError(f"'{key}={value}' of '{text}': expected {expected}") from None
        try:
            return Engine(name, EngineOptions(**known))
        except errors.UserError as problem:
            raise ValueError(problem.message) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("a number of seconds above 0")
    return seconds


def _bytes(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size < 1:
        raise ValueError("a size from 1 B, such as 64KiB")
    return size


_WIDE = partial(_count, most=(1 << 32) - 1)
_ENGINE_KEYS: dict[str, Callable[[str], Any]] = {
    "slots": _WIDE,
    "slot_bytes": _bytes,
    "workers": _WIDE,
    "timeout": _seconds,
    "seed": partial(_count, least=0, most=(1 << 64) - 1),
    "devices": lambda text: tuple(_count(part, least=0) for part in text.split("+")),
}


def engine_option(
    names: tuple[str, ...] = (*ENGINES, "cuda"), default: str | None = "threads", what: str = ""
) -> Decorator:
    """Returns the option --engine."""
    return click.option(
        "--engine",
        type=_EngineSpec(names),
        default=default,
        show_default=default is not None,
        metavar="NAME[:KEY=VALUE,...]",
        help=what
        or f"What a rank is: {', '.join(names)}. It may have slots (FIFO slots per connection), slot_bytes, workers "
        "(OS threads), timeout (seconds without progress), seed (of the order in which one worker runs the threads), "
        "and devices of cuda in turn: cuda:devices=0+1.",
    )


def program_argument(
    name: str = "spec", metavar: str = "X", own: tuple[str, ...] = (), *, many: bool = False, unproven: bool = False
) -> Decorator:
    """Returns the argument that names a program, or several."""
    return click.argument(
        name,
        type=Program(own, unproven=unproven),
        metavar=f"{metavar}..." if many else metavar,
        nargs=-1 if many else 1,
        required=True,
        shell_complete=completion.programs,
    )


def script_arguments(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command with the argument `spec` the arguments of a script of MSCCLang, after ``--``."""

    @click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARG...]")
    @wraps(command)
    def with_script(script: tuple[str, ...], spec: Asked, **others: object) -> T:
        return command(spec=spec.changed(script=script), **others)

    return with_script
