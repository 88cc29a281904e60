"""From an algorithm to a program that can be run, and to the text of any stage between."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from gc3 import _core, errors
from gc3.lang.algorithm import Algorithm
from gc3.lang.source import SourceProgram
from gc3.runtime.program import Program

STAGES = tuple(_core.stages())

# Messages that a schedule may have under way on a connection. Two let a ring of fused instructions turn, and every
# engine has at least two slots.
DEFAULT_SLOTS = 2

MOST = (1 << 20) - 1  # instances, FIFO slots or threadblocks that can be asked for


def _trace(
    source: Algorithm | SourceProgram,
    protocol: str,
    in_place: bool | None,
    name: str | None,
    parameters: dict[str, int],
) -> _core.Trace:
    if isinstance(source, SourceProgram):
        if parameters or name is not None or in_place is not None or protocol != "Simple":
            raise errors.error("BadArgument", "a traced program has its name, protocol and parameters already")
        return source.trace()
    if not isinstance(source, Algorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise errors.error("BadArgument", f"{source!r} is not an algorithm: decorate it with @gc3.algorithm(...)")
    with _without_collector():
        return source.write(protocol=protocol, in_place=in_place, name=name, **parameters).trace()


@contextmanager
def _without_collector() -> Generator[None, None, None]:
    """Pauses Python's cyclic collector: writing half a million transfers took half as long again with it.

    It looks through all objects anew whenever there are a quarter more, and here nearly all are still needed.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_numbers(instances: int, slots: int, max_threadblocks: int) -> None:
    for what, value, low in (
        ("instances", instances, 1),
        ("slots", slots, 0),
        ("max_threadblocks", max_threadblocks, 0),
    ):
        errors.whole(value, what, low, MOST)


def compile(
    source: Algorithm | SourceProgram,
    *,
    instances: int = 1,
    protocol: str = "Simple",
    in_place: bool | None = None,
    slots: int = 0,
    max_threadblocks: int = 0,
    name: str | None = None,
    **parameters: int,
) -> Program:
    """Traces an algorithm, checks it against its collective and compiles it.

    Args:
        source: An algorithm, or a program written with `with program:`.
        instances: How many replicas of the whole program run in parallel, each on its part of the data.
        protocol: "Simple", "LL" or "LL128".
        in_place: Whether input and output alias; None: as the algorithm is written. An algorithm written for the other
            mode is adapted with copies.
        slots: FIFO slots per connection the schedule may rely on; 0: two.
        max_threadblocks: Most threadblocks per rank; 0: no limit.
        name: The program's name; None: the algorithm's.
        **parameters: The algorithm's own parameters.

    Raises:
        gc3.UserError: With the line of the algorithm where the mistake is.
    """
    _check_numbers(instances, slots, max_threadblocks)
    trace = _trace(source, protocol, in_place, name, parameters)
    return Program(_core.compile(trace, instances, slots or DEFAULT_SLOTS, max_threadblocks))


def dump(
    source: Algorithm | SourceProgram,
    stage: str,
    *,
    instances: int = 1,
    protocol: str = "Simple",
    in_place: bool | None = None,
    slots: int = 0,
    max_threadblocks: int = 0,
    name: str | None = None,
    **parameters: int,
) -> str:
    """Returns the text of a stage of the compilation: one of `STAGES`.

    The other arguments are those of `compile`.
    """
    _check_numbers(instances, slots, max_threadblocks)
    trace = _trace(source, protocol, in_place, name, parameters)
    return _core.dump(trace, stage, instances, slots or DEFAULT_SLOTS, max_threadblocks)
