"""A rank process of `gc3.comm.tool_ranks`: serves the requests of its parent, and ends with it."""

from __future__ import annotations

import mmap
import os
import signal
import sys
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from gc3 import _core, errors
from gc3.comm.tool_ranks import Failure, Start, Work
from gc3.runtime import recording
from gc3.support import knobs

if TYPE_CHECKING:
    from gc3.datatypes import Array


def serve(pipe: Connection[Any, Any]) -> None:
    """Answers requests until the parent closes its end."""
    start: Start = pipe.recv()
    set_up = knobs.read(tell=False)  # the parent reports it
    options = set_up.pin, False, set_up.wait, bool(set_up.single_copy), set_up.probe, set_up.cache
    meeting = start.rank, start.size, start.job, 0, set_up.join_timeout, start.timeout
    joined = _core.join(*meeting, *options, _core.Selection([]))
    try:
        rank = _Rank(joined, start)
        pipe.send([])
        while True:
            work: Work = pipe.recv()
            pipe.send(rank.do(work, reduction.recv_handle(pipe)))
    finally:
        joined.close(at_once=False)


class _Rank:
    """One rank and the program that it runs."""

    def __init__(self, joined: _core.Joined, start: Start) -> None:
        self._joined = joined
        program = _core.ClassProgram.from_bytes(start.image)  # or one that has the steps of all ranks
        self._made = joined.prepare(program, start.slots, start.slot_bytes, start.thresholds)

    def do(self, work: Work, file: int) -> Any:
        """Returns the seconds of each run, or a recording of one of them. Closes `file`, the shared memory."""
        try:
            memory = mmap.mmap(file, os.fstat(file).st_size)
        finally:
            os.close(file)
        with memory:

            def view(span: tuple[int, int] | None) -> Array | None:
                return None if span is None else np.frombuffer(memory, np.uint8, span[1], span[0])

            call = view(work.input), view(work.output), work.count, work.dtype, _core.Operation(work.op, work.factors)
            try:
                seconds = self._joined.time_ready(self._made, *call, work.warmup, work.iterations)
                if not work.most:
                    return seconds
                return self._made.slots, recording.part(self._joined.record_ready(self._made, *call, work.most))
            finally:
                del call


def main() -> int:
    """Serves the parent over the pipe that the command line names before the parent's process."""
    _core.die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    with Connection(int(sys.argv[1])) as pipe:
        try:
            serve(pipe)
        except EOFError:
            return 0
        except errors.Gc3Error as problem:
            pipe.send(Failure.of(problem))
            return 1
        except OSError as problem:  # what the system refuses to this process, such as room for its part of the data
            pipe.send(Failure("SystemRefused", f"process {os.getpid()}, a rank: {problem}", ()))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
