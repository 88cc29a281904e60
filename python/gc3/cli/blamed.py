"""Runs the user's code: its exceptions become errors at its lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import gc3
from gc3 import errors
from gc3.cli.output import apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

OWN = os.path.join(os.path.dirname(os.path.abspath(gc3.__file__)), "")


def blaming_the_user(file: str, work: Callable[[], T]) -> T:
    """Runs `work`, which runs the user's code in `file`; an exception of that code becomes an error at its line.

    Output of the code goes to standard error: standard output belongs to the command.
    """
    with apart():
        return blaming(file, work)


def blaming(file: str, work: Callable[[], T]) -> T:
    """The same; the output of the code goes where it is sent."""
    try:
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
    foreign = [p for p in places if not os.path.abspath(p[0]).startswith(OWN)]
    chosen = in_file or foreign
    return chosen[-1] if chosen else None


def _places(problem: BaseException) -> Iterator[tuple[str, int]]:
    trace: Any = problem.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
