"""Ranks that time programs on request, over FIFOs as in `gc3.comm.world`.

python -m gc3.comm.timed_rank FOLDER RANKS

They are forks of one process. The imports, which take longer than all else that a rank does before its first call, are
made once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from gc3 import _core, collectives
from gc3.comm import Communicator, init, timing
from gc3.comm.timed_work import Work
from gc3.comm.uneven import elements_of, uneven
from gc3.runtime.buffers import operation
from gc3.runtime.direct import DirectProgram
from gc3.runtime.options import EngineOptions
from gc3.runtime.program import Program

if TYPE_CHECKING:
    from gc3.datatypes import Array


_KEPT = 2  # buffers: on registered memory and on other


def main(arguments: list[str]) -> int:
    """Starts the ranks, and waits until all have ended or one has failed; returns the exit status."""
    place, ranks = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the requesting process
    running: set[int] = set()
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            _be_rank(place, rank, ranks)
        running.add(process)
    while running:
        process, status = os.wait()
        running.discard(process)
        if status:
            for other in running:
                os.kill(other, signal.SIGTERM)
            return 1
    return 0


def _be_rank(place: Path, rank: int, ranks: int) -> NoReturn:
    """Ends this process without what Python does at its end: to free all objects takes longer than some races."""
    status = 1
    try:
        _serve(place, rank, ranks)
        status = 0
    except BaseException:  # told, as at the end of any other process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _serve(place: Path, rank: int, ranks: int) -> None:
    """Answers requests to a rank until their pipe is closed."""
    # Without waiting for the other ends: that would last forever if the requesting process has ended.
    commands = os.open(place / f"command.{rank}", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(commands, True)
    with (
        open(commands) as requests,
        open(os.open(place / "answer", os.O_WRONLY | os.O_NONBLOCK), "w") as answers,
        init(rank, ranks, job=str(place)) as comm,
    ):
        timed = TimedRank(comm)
        program = lru_cache(maxsize=None)(Program.load)
        for line in requests:
            collective, size, warmup, iterations, _, mode = line.split()
            work = Work.read(mode)
            seconds = timed.seconds(program(work.file), work, collective, int(size), int(warmup), int(iterations))
            if rank == 0:
                answers.write("0 " + " ".join(f"{s:.9g}" for s in seconds) + "\n")
                answers.flush()


class TimedRank:
    """One of the ranks that time programs together."""

    def __init__(self, comm: Communicator) -> None:
        """Times on the ranks of a communicator, each of which makes one of these."""
        self._comm = comm
        self._known: dict[tuple[str, str, int, bool, bool], tuple[Array, Array]] = {}

    def seconds(
        self, program: Program, work: Work, collective: str, size: int, warmup: int, iterations: int
    ) -> list[float]:
        """Times calls with S = `size` bytes, on all ranks; the longest of the ranks' times for each call."""
        if work.skew > 1:
            return self._uneven(program, work, collective, size, warmup, iterations)
        model = program.collective
        count = collectives.count_for(model, size, 4)
        direct = DirectProgram(_core.lower(program.core)) if work.memory == "direct" else None
        return self._comm.time(
            collective,
            count,
            in_place=work.in_place,
            warmup=warmup,
            iterations=iterations,
            buffers=self._buffers(model, count, registered=work.memory != ""),
            program=direct or program,
            options=EngineOptions(work.slots, work.slot_bytes),
            thresholds=work.thresholds,
        )

    def _uneven(
        self, program: Program, work: Work, collective: str, size: int, warmup: int, iterations: int
    ) -> list[float]:
        comm = self._comm
        model = collectives.get(collective).model(comm.size)
        counts = uneven(model.v_counts, elements_of(model, size), work.skew)
        joined = _core.Joined.of(comm)
        ready = joined.prepare(program.stored, work.slots, work.slot_bytes, work.thresholds)
        at: list[list[int]] = []
        arrays: list[Array] = []
        for buffer, blocks in enumerate((model.input_blocks(comm.rank), model.output_blocks(comm.rank))):
            own = [counts[model.v_count(comm.rank, buffer, block)] for block in range(blocks)]
            arrays.append(np.ones(sum(own), np.float32))
            at.append([arrays[-1].ctypes.data + 4 * sum(own[:block]) for block in range(blocks)])
        how = operation("sum", model, "float32", comm.rank)
        inputs, outputs = at
        took = joined.time_v(ready, collective, counts, inputs, outputs, "float32", how, warmup, iterations)
        return comm.all_reduce(np.array(took), op="max").tolist()

    def _buffers(self, model: _core.Collective, count: int, *, registered: bool) -> tuple[Array, Array]:
        """Input and output, the same for all programs that are tried at a point."""
        key = model.name, model.condition, count, model.in_place, registered
        if key not in self._known:
            if len(self._known) == _KEPT:
                del self._known[next(iter(self._known))]
            make = self._comm.empty if registered else None
            rank, in_place = self._comm.rank, model.in_place
            self._known[key] = timing.buffers(model, rank, count, np.float32, in_place=in_place, make=make)
        return self._known[key]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
