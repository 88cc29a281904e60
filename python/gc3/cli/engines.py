"""The engines on which the commands run programs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from gc3 import cuda
from gc3.cli import output
from gc3.comm.tool_ranks import Ranks
from gc3.runtime.measure import Timer
from gc3.runtime.options import EngineOptions
from gc3.runtime.program import Program

if TYPE_CHECKING:
    from gc3.cli.options import Engine
    from gc3.datatypes import Array
    from gc3.runtime.recording import Recording


@contextmanager
def timer(engine: Engine, thresholds: tuple[tuple[str, int | None], ...] = ()) -> Generator[Timer, None, None]:
    """Yields a timer of programs on an engine; its processes, with `thresholds`, end with the block."""
    options = engine.options
    if engine.name == "threads":

        def on_threads(program: Program, inputs: Sequence[Array | None], **how: Any) -> list[float]:
            return program.time(inputs, options=options, **how)

        yield on_threads
        return
    _check_for_others(options)
    ready: dict[Program, cuda.Engine | Ranks] = {}
    with ExitStack() as running:

        def on_others(program: Program, inputs: Sequence[Array | None], **how: Any) -> list[float]:
            if program not in ready and engine.name == "cuda":
                made = cuda.Engine(program, options)
                if made.copies and not ready:
                    output.remark(f"protocol Copy: messages are moved by {made.copies}")
                ready[program] = made
            elif program not in ready:
                ready[program] = running.enter_context(Ranks(program, options, thresholds))
            return ready[program].time(inputs, **how)

        yield on_others


def record(engine: Engine, program: Program, inputs: Sequence[Array | None], **how: Any) -> Recording:
    """Runs a program on an engine and returns a recording of its threadblocks."""
    options = engine.options
    if engine.name == "threads":
        return program.record(inputs, options=options, **how)
    _check_for_others(options)
    with Ranks(program, options) as ranks:
        return ranks.record(inputs, **how)


def _check_for_others(options: EngineOptions) -> None:
    if options.workers or options.seed is not None:
        raise click.UsageError("workers and seed are for --engine threads")
