"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from gc3 import algorithms, collectives, datatypes, errors
from gc3.cli import blamed, completion
from gc3.cli.sizes import Size
from gc3.lang.build import MOST
from gc3.runtime.program import EngineOptions

Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"
T = TypeVar("T")


if TYPE_CHECKING:
    from gc3 import _core

    _NamesType = click.ParamType[tuple[str, ...]]
    _CountsType = click.ParamType[tuple[int, ...]]
    _SkewsType = click.ParamType[tuple[float, ...]]
    _CollectiveType = click.ParamType["str | _core.Collective"]
else:  # older versions of click have no type argument
    _NamesType = _CountsType = _SkewsType = _CollectiveType = click.ParamType


class Names(_NamesType):
    """A list of names out of some, separated by commas; "all" for all of them."""

    name = "list"

    def __init__(self, known: tuple[str, ...]) -> None:
        """Takes the known names."""
        self._known = known

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Returns the names in the order in which they are known."""
        given = value.split(",") if isinstance(value, str) else value
        for name in given:
            if name not in (*self._known, "all"):
                self.fail(f"'{name}' is unknown; expected {', '.join(self._known)} or all", param, ctx)
        return self._known if "all" in given else tuple(name for name in self._known if name in given)


class Counts(_CountsType):
    """A list of numbers of ranks, separated by commas."""

    name = "list"

    def __init__(self, least: int = 1) -> None:
        """Takes the smallest number allowed."""
        self._least = least

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Returns the numbers, in ascending order."""
        if not isinstance(value, str):
            return value
        numbers = [text.strip() for text in value.split(",")]
        if not all(text.isdecimal() and int(text) >= self._least for text in numbers):
            self.fail(f"'{value}' is not a list of numbers from {self._least}, such as 2,4,8", param, ctx)
        return tuple(dict.fromkeys(int(text) for text in numbers))


class Skews(_SkewsType):
    """A list of numbers above 1, separated by commas."""

    name = "list"

    def convert(
        self, value: str | tuple[float, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Returns the numbers."""
        if not isinstance(value, str):
            return value
        try:
            skews = tuple(float(text) for text in value.split(","))
        except ValueError:
            skews = ()
        if not skews or not all(1 < skew < math.inf for skew in skews):
            self.fail(f"'{value}' is not a list of numbers above 1, such as 2,8", param, ctx)
        return skews


class CollectiveOf(_CollectiveType):
    """The collective of a file: one that gc3 knows, or PATH.py:NAME."""

    name = "collective"

    def convert(
        self, value: str | _core.Collective, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | _core.Collective:
        """Returns the name, or the collective that the file defines."""
        if not isinstance(value, str) or value in collectives.BUILTIN:
            return value
        path, separator, name = value.rpartition(":")
        if not separator or not path.endswith(".py"):
            known = ", ".join(collectives.BUILTIN)
            self.fail(f"'{value}' is neither of {known} nor PATH.py:NAME", param, ctx)
        return blamed.blaming_the_user(path, lambda: algorithms.load_collective(path, name)).model()


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


def _all(*options: Decorator) -> Decorator:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return wrap


no_verify_option = click.option("--no-verify", is_flag=True, help="Do not prove the program first.")
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


def parse_definitions(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> dict[str, int]:
    """Returns the parameters that ``-D NAME=VALUE`` gives."""
    values: dict[str, int] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE, as in -D R=8")
        try:
            values[name] = int(value, 0)
        except ValueError:
            raise click.BadParameter(f"'{value}' is not a whole number, as in -D {name}=8") from None
    return values


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile an algorithm, or read a compiled program."""

    parameters: dict[str, int]
    instances: int | None
    protocol: str | None
    in_place: bool | None
    max_threadblocks: int | None
    collective: str | _core.Collective | None
    fuse: bool = True
    window: int | None = None
    script: tuple[str, ...] = ()  # the command line of a script of MSCCLang

    def only_for_algorithms(self) -> list[str]:
        """Returns the given options that do not apply to a compiled program."""
        names = {
            "-D": bool(self.parameters),
            "--instances": self.instances is not None,
            "--protocol": self.protocol is not None,
            "--max-threadblocks": self.max_threadblocks is not None,
            "--no-fusion": not self.fuse,
            "--window": self.window is not None,
        }
        return [name for name, is_given in names.items() if is_given]

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of `gc3.compile`."""
        return {
            "instances": self.instances or 1,
            "protocol": self.protocol or "Simple",
            "in_place": self.in_place,
            "max_threadblocks": self.max_threadblocks or 0,
            "fuse": self.fuse,
            "window": self.window or 0,
            **self.parameters,
        }


_COMPILE = _all(
    click.option(
        "-D",
        "parameters",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parse_definitions,
        shell_complete=completion.parameters,
        help="A parameter of the algorithm; once for each.",
    ),
    click.option(
        "--instances",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Run N copies of the program in parallel, each on its part of the data.  [default: 1]",
    ),
    click.option(
        "--protocol",
        type=click.Choice(datatypes.PROTOCOLS),
        help="The message format: LL has the lowest latency.  [default: Simple]",
    ),
    click.option(
        "--in-place/--out-of-place",
        "in_place",
        default=None,
        help="Whether input and output share memory.  [default: as the algorithm is written; of an .xml file for both: "
        "out of place]",
    ),
    click.option(
        "--max-threadblocks",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Largest number of threadblocks per rank.  [default: no limit]",
    ),
    click.option(
        "--collective",
        type=CollectiveOf(),
        metavar="NAME",
        shell_complete=completion.problems,
        help="The collective of an .xml file that does not name one itself (coll=custom): "
        f"{', '.join(collectives.BUILTIN)}, or PATH.py:NAME of one made by gc3.collectives.custom.",
    ),
    click.option(
        "--no-fusion", is_flag=True, help="Keep a receive and the send of what it received apart: for comparisons."
    ),
    click.option(
        "--window",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Each rank posts its sends and receives in the order of the algorithm, N of each at a time, as an MPI "
        "program: 1 is MPI_Sendrecv.  [default: no limit, in the compiler's order]",
    ),
)

ENGINES = ("threads", "processes")  # of the CPU
_ENGINE = click.option(
    "--engine",
    "engine_name",
    type=click.Choice((*ENGINES, "cuda")),
    default="threads",
    show_default=True,
    help="What a rank is: threads of this process, a process of its own, or threadblocks of a CUDA device.",
)
_DEVICES = click.option(
    "--devices",
    type=Counts(0),
    metavar="N,...",
    help="With --engine cuda: the devices to which the ranks are assigned in turn.  [default: 0]",
)
_SETTINGS = _all(
    click.option(
        "--slots",
        type=click.IntRange(min=1),
        metavar="N",
        help="FIFO slots per connection.  [default: the engine's choice]",
    ),
    click.option(
        "--slot-bytes",
        type=Size(least=1),
        metavar="SIZE",
        help="Size of a FIFO slot, which bounds a tile.  [default: the engine's choice]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="OS threads.  [default: one per core]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End a run that makes no progress for this long.  [default: 30]",
    ),
    click.option(
        "--seed",
        type=int,
        metavar="N",
        help="Use one worker and an order drawn from N: the same seed gives the same interleaving.",
    ),
)


def compile_options(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the options of compiling, as its argument `how`."""

    @wraps(command)
    def with_how(
        parameters: dict[str, int],
        instances: int | None,
        protocol: str | None,
        in_place: bool | None,
        max_threadblocks: int | None,
        collective: str | _core.Collective | None,
        no_fusion: bool,
        window: int | None,
        **others: object,
    ) -> T:
        how = CompileOptions(
            parameters,
            instances,
            protocol,
            in_place,
            max_threadblocks,
            collective,
            fuse=not no_fusion,
            window=window,
        )
        return command(how=how, **others)

    return _COMPILE(with_how)


def script_arguments(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command with `how` the arguments of a script of MSCCLang, after ``--``."""

    @click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARG...]")
    @wraps(command)
    def with_script(script: tuple[str, ...], how: CompileOptions, **others: object) -> T:
        return command(how=replace(how, script=script), **others)

    return with_script


def engine_options(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the choice of the engine, as its argument `engine_name`, and its options, as `engine`."""

    @wraps(command)
    def with_devices(engine_name: str, devices: tuple[int, ...] | None, engine: EngineOptions, **others: object) -> T:
        if devices is not None and engine_name != "cuda":
            raise click.UsageError("--devices is for --engine cuda")
        return command(engine_name=engine_name, engine=replace(engine, devices=devices or ()), **others)

    return _ENGINE(_DEVICES(engine_settings(with_devices)))


def engine_settings(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the options of the engine, as its argument `engine`."""

    @wraps(command)
    def with_engine(
        slots: int | None,
        slot_bytes: int | None,
        workers: int | None,
        timeout: float | None,
        seed: int | None,
        **others: object,
    ) -> T:
        try:
            engine = EngineOptions(slots or 0, slot_bytes or 0, workers or 0, timeout, seed)
        except errors.UserError as problem:
            raise click.UsageError(problem.message) from None
        return command(engine=engine, **others)

    return _SETTINGS(with_engine)
