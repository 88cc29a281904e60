"""The object of a command: a compiled program, an algorithm of the catalogue, or one in a user's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import gc3
from gc3 import algorithms, errors, lang
from gc3.cli.output import apart, working
from gc3.runtime.program import Program
from gc3.support import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gc3 import _core
    from gc3.cli.options import CompileOptions

T = TypeVar("T")

_OWN = os.path.join(os.path.dirname(os.path.abspath(gc3.__file__)), "")

# Of other names, a file is a program if its content is: the text form has no suffix of its own.
_PROGRAMS = (".gc3", ".xml")


def is_program(spec: str) -> bool:
    """Returns whether `spec` names a file with a compiled program rather than an algorithm."""
    if spec.endswith(_PROGRAMS):
        return True
    if files.is_device(spec):
        raise click.UsageError(
            f"'{spec}' is a pipe or a device. A program may be read several times: write it to a file, and name that"
        )
    return not spec.endswith(".json") and ".py:" not in f"{spec}:" and Path(spec).is_file()


def algorithm(spec: str) -> lang.Algorithm:
    """Returns the algorithm that `spec` names."""
    return blaming_the_user(spec.partition(":")[0], lambda: algorithms.load(spec))


def compiled(spec: str, options: CompileOptions, *, slots: int = 0, in_place: bool | None = None) -> Program:
    """Returns the program that `spec` names, compiled if needed.

    Args:
        spec: A compiled program (.gc3, .xml), an algorithm of the catalogue, PATH.py:FUNCTION or PATH.json.
        options: How to compile an algorithm, or to read a program.
        slots: FIFO slots per connection that an algorithm's schedule may use; 0: the compiler's choice.
        in_place: Overrides that of `options` if not None.
    """
    mode = options.in_place if in_place is None else in_place
    if is_program(spec):
        useless = options.only_for_algorithms()
        if useless:
            raise click.UsageError(f"'{spec}' is compiled already: {', '.join(useless)} cannot change it")
        with working(f"reading {spec}"):
            return Program.load(spec, collective=options.collective or "", in_place=mode)
    chosen = algorithm(spec)
    if options.collective is not None:
        raise click.UsageError(f"'{spec}' is an algorithm of {chosen.collective_name}: --collective cannot change it")
    arguments: dict[str, Any] = {**options.arguments(), "slots": slots, "in_place": mode}
    with working(f"compiling {chosen.name}"):
        return _written(chosen, options, lambda: lang.compile(chosen, **arguments))


def modes(spec: str, options: CompileOptions, *, slots: int = 0) -> list[Program]:
    """Returns the program of `compiled` and, if it comes from a file that allows the other mode, too, that one as well.

    --in-place and --out-of-place restrict it to one.
    """
    first = compiled(spec, options, slots=slots)
    use = first.use
    if options.in_place is not None or use is None or not (use.in_place and use.out_of_place):
        return [first]
    return [first, compiled(spec, options, slots=slots, in_place=not first.in_place)]


def demanded(spec: str, options: CompileOptions) -> tuple[str, _core.Collective]:
    """Returns the name of the program that `spec` names and its collective; does not verify the program."""
    if is_program(spec):
        program = compiled(spec, options)
        return program.name, program.collective
    chosen = algorithm(spec)
    given: dict[str, Any] = {**options.parameters, "in_place": options.in_place}
    return chosen.name, _written(chosen, options, lambda: chosen.begin(**given)).model


def dumped(spec: str, stage: str, options: CompileOptions, *, slots: int = 0) -> str:
    """Returns the text of a stage of compiling the algorithm that `spec` names."""
    chosen = algorithm(spec)
    return _written(chosen, options, lambda: lang.dump(chosen, stage, slots=slots, **options.arguments()))


def _written(chosen: lang.Algorithm, options: CompileOptions, work: Callable[[], T]) -> T:
    """Runs `work`, which writes the algorithm for the parameters of the command line.

    Parameters that an algorithm of the library cannot handle, and parameters that make no valid collective for any
    algorithm, are mistakes on the command line.
    """
    given = ", ".join(f"-D {name}={value}" for name, value in options.parameters.items())
    try:
        _names_fit(chosen, options)
        return blaming_the_user(chosen.file, work)
    except errors.UserError as problem:
        impossible = problem.diagnostics[0].name == "BadCollective" and problem.line == chosen.line
        if not given or not (impossible or problem.file.startswith(_OWN)):
            raise
        raise click.UsageError(f"{given} does not suit {chosen.name}: {problem.message}") from problem


def _names_fit(chosen: lang.Algorithm, options: CompileOptions) -> None:
    try:
        chosen.complete(options.parameters)
    except errors.UserError as problem:
        raise click.UsageError(f"{problem.diagnostics[0].message} (-D NAME=VALUE)") from problem


def blaming_the_user(file: str, work: Callable[[], T]) -> T:
    """Runs `work`, which runs the user's code in `file`; an exception of that code becomes an error at its line.

    Output of the code goes to standard error: standard output belongs to the command.
    """
    try:
        with apart():
            return work()
    except (errors.Gc3Error, KeyboardInterrupt, MemoryError):
        raise
    except SyntaxError as problem:
        where = (problem.filename or file, problem.lineno or 1)
        raise _raised(f"SyntaxError: {problem.msg}", where) from problem
    except BaseException as problem:  # including SystemExit and the user's own subclasses of BaseException
        where = _innermost(problem, file)
        if where is None:
            raise
        what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise _raised(what, where) from problem


def _raised(what: str, where: tuple[str, int]) -> errors.Gc3Error:
    return errors.error("AlgorithmRaised", what, file=where[0], line=where[1])


def _innermost(problem: BaseException, file: str) -> tuple[str, int] | None:
    """The innermost place in the user's file, or in any code outside gc3."""
    places = [place for place in _places(problem) if os.path.isfile(place[0])]
    in_file = [place for place in places if os.path.realpath(place[0]) == os.path.realpath(file)]
    foreign = [p for p in places if not os.path.abspath(p[0]).startswith(_OWN)]
    chosen = in_file or foreign
    return chosen[-1] if chosen else None


def _places(problem: BaseException) -> Iterator[tuple[str, int]]:
    trace: Any = problem.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
