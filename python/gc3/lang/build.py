"""Compiles an algorithm to a program, or to the text of any stage in between."""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal, overload

from gc3 import _core, errors
from gc3.lang.algorithm import Algorithm
from gc3.lang.source import SourceProgram
from gc3.runtime.classes import ClassProgram
from gc3.runtime.direct import DirectProgram
from gc3.runtime.program import Program

STAGES = tuple(_core.stages())

# Messages that a schedule may have in flight on a connection. Two let a ring of fused instructions make progress, and
# every engine has at least two slots.
DEFAULT_SLOTS = 2

MOST = (1 << 20) - 1  # limit of the instances, FIFO slots and threadblocks in a request


def _trace(
    source: Algorithm | SourceProgram,
    protocol: str,
    in_place: bool | None,
    name: str | None,
    parameters: dict[str, int],
) -> SourceProgram:
    if isinstance(source, SourceProgram):
        if parameters or name is not None or in_place is not None or protocol != "Simple":
            raise errors.error(
                "BadArgument", "a traced program already has a name, a protocol and parameters: do not pass them"
            )
        source.trace()
        return source
    if not isinstance(source, Algorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise errors.error("BadArgument", f"{source!r} is not an algorithm: decorate it with @gc3.algorithm(...)")
    with _without_collector():
        written = source.write(protocol=protocol, in_place=in_place, name=name, **parameters)
        written.trace()
        return written


@contextmanager
def _without_collector() -> Generator[None, None, None]:
    """Pauses Python's cyclic garbage collector, which made writing half a million transfers 1.5 times as slow.

    It examines all objects again whenever their number has grown by a quarter, and here nearly all are still needed.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_numbers(instances: int, slots: int, max_threadblocks: int, window: int, scratch: int | None) -> None:
    for what, value, low in (
        ("scratch", scratch or 0, 0),
        ("instances", instances, 1),
        ("slots", slots, 0),
        ("max_threadblocks", max_threadblocks, 0),
        ("window", window, 0),
    ):
        errors.whole(value, what, low, MOST)


def _checked(order: Sequence[int], trace: _core.Trace) -> list[int]:
    ranks, told = trace.collective.ranks, [errors.whole(rank, "a rank of order", 0, MOST) for rank in order]
    several = 0 < len(told) < ranks and ranks % len(told) == 0
    return [first + rank for first in range(0, ranks, len(told)) for rank in told] if several else told


@overload
def compile(
    source: Algorithm | SourceProgram,
    *,
    instances: int = ...,
    protocol: str = ...,
    in_place: bool | None = ...,
    slots: int = ...,
    max_threadblocks: int = ...,
    fuse: bool = ...,
    order: Sequence[int] = ...,
    window: int = ...,
    scratch: int | None = ...,
    name: str | None = ...,
    memory: Literal["fifo"] = ...,
    **parameters: int,
) -> Program: ...
@overload
def compile(
    source: Algorithm | SourceProgram,
    *,
    instances: int = ...,
    protocol: str = ...,
    in_place: bool | None = ...,
    slots: int = ...,
    max_threadblocks: int = ...,
    fuse: bool = ...,
    order: Sequence[int] = ...,
    window: int = ...,
    scratch: int | None = ...,
    name: str | None = ...,
    memory: Literal["direct"],
    **parameters: int,
) -> DirectProgram: ...
def compile(
    source: Algorithm | SourceProgram,
    *,
    instances: int = 1,
    protocol: str = "Simple",
    in_place: bool | None = None,
    slots: int = 0,
    max_threadblocks: int = 0,
    fuse: bool = True,
    order: Sequence[int] = (),
    window: int = 0,
    scratch: int | None = None,
    name: str | None = None,
    memory: str = "fifo",
    **parameters: int,
) -> Program | DirectProgram:
    """Traces an algorithm, checks it against its collective and compiles it.

    Args:
        source: An algorithm, or a program written with `with program:`.
        instances: Number of copies of the whole program that run in parallel, each on its part of the data.
        protocol: "Simple", "LL", "LL128", "Pull" or "Copy": see docs/ir.md.
        in_place: Whether input and output alias; None: as the algorithm is written. An algorithm written for the other
            mode is adapted with copies.
        slots: FIFO slots per connection that the schedule may use; 0: two.
        max_threadblocks: Largest number of threadblocks per rank; 0: no limit.
        fuse: Whether a receive and the sends of what it received may become one instruction.
        order: order[p] is the rank that does what the algorithm writes for rank p, such as the ranks of one host after
            those of another. The program is for the same collective; the rank of its root is order[root]. A shorter
            order is that of each node, if the nodes have as many ranks.
        window: Sends, and receives, that a rank has under way at most. Each rank posts them as the algorithm is
            written, waits for all of a window and then begins the next, as an MPI program with MPI_Waitall does; 1 is
            MPI_Sendrecv. Nothing is fused. 0: any number, in the compiler's order.
        scratch: Chunks of scratch, as the algorithm counts them, above which a rank uses their places again after their
            last readers. This needs less memory, and whoever writes there waits for these readers. The result may
            still need more. None: no place is used again.
        name: The program's name; None: the algorithm's.
        memory: "fifo": ranks send messages. "direct": ranks load from each other's registered buffers; whoever keeps
            a value loads all of its terms, in the order of the additions.
        **parameters: The algorithm's own parameters.

    Raises:
        gc3.UserError: The algorithm is wrong or cannot be compiled; the error has the line of the algorithm.
    """
    if memory not in ("fifo", "direct"):
        raise errors.error("BadArgument", f"memory={memory!r}; expected 'fifo' or 'direct'")
    if memory == "direct" and protocol != "Simple":
        raise errors.error("BadArgument", f"protocol={protocol!r} is one of messages: memory='direct' has none")
    _check_numbers(instances, slots, max_threadblocks, window, scratch)
    traced = _trace(source, protocol, in_place, name, parameters)
    trace = traced.trace()
    how = (instances, slots or DEFAULT_SLOTS, max_threadblocks, fuse, _checked(order, trace), window, scratch)
    classes = _core.compile_classes(trace, *how)
    made = Program(_core.compile(trace, *how), declared=traced.declared) if classes is None else ClassProgram(classes)
    if trace.symmetric:  # what all ranks do at once is compared with the postcondition here
        made.verify()
    return made if memory == "fifo" else DirectProgram(_core.lower(made.core), made)


def dump(
    source: Algorithm | SourceProgram,
    stage: str,
    *,
    instances: int = 1,
    protocol: str = "Simple",
    in_place: bool | None = None,
    slots: int = 0,
    max_threadblocks: int = 0,
    fuse: bool = True,
    order: Sequence[int] = (),
    window: int = 0,
    scratch: int | None = None,
    name: str | None = None,
    **parameters: int,
) -> str:
    """Returns the text of a stage of the compilation: one of `STAGES`.

    The other arguments are those of `compile`.
    """
    _check_numbers(instances, slots, max_threadblocks, window, scratch)
    trace = _trace(source, protocol, in_place, name, parameters).trace()
    return _core.dump(
        trace, stage, instances, slots or DEFAULT_SLOTS, max_threadblocks, fuse, _checked(order, trace), window, scratch
    )
