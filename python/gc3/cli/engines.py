"""The engines that the commands run programs on."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gc3.comm.spawn import Ranks
from gc3.measure import Timer
from gc3.program import EngineOptions, Program

if TYPE_CHECKING:
    from gc3.datatypes import Array


@contextmanager
def timer(name: str, options: EngineOptions) -> Generator[Timer, None, None]:
    """Yields what times programs on the engine called `name`; its processes end with the block."""
    if name == "threads":

        def on_threads(program: Program, inputs: Sequence[Array | None], **how: Any) -> list[float]:
            return program.time(inputs, options=options, **how)

        yield on_threads
        return
    if options.workers or options.seed is not None:
        raise click.UsageError("--workers and --seed are for --engine threads")
    running: dict[Program, Ranks] = {}

    def on_processes(program: Program, inputs: Sequence[Array | None], **how: Any) -> list[float]:
        ranks = running.get(program)
        if ranks is None:
            ranks = running[program] = Ranks(program, options)
        return ranks.time(inputs, **how)

    try:
        yield on_processes
    finally:
        for ranks in running.values():
            ranks.close()
