"""What the steps of a run do, in words: opcode, chunks, buffers, peers, channel and line."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from gc3 import _core
from gc3.runtime import schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.runtime.schedule import Instruction, Line, Threadblock


class Details:
    """The steps of a program; threadblocks are counted over all ranks, and read when they are asked for."""

    def __init__(self, program: _core.Program) -> None:
        """Takes the program."""
        self.program = program
        self.causes = _core.sim_causes()
        self._first = list(accumulate(program.threadblocks_per_rank, initial=0))
        self._ranks = [rank for rank, count in enumerate(program.threadblocks_per_rank) for _ in range(count)]
        self._known: dict[int, Sequence[Threadblock]] = {}

    @cached_property
    def lines(self) -> list[Line]:
        """The distinct lines of the program."""
        return schedule.lines(self.program)

    def local(self, tb: int) -> int:
        """Returns the number of a threadblock within its rank."""
        return tb - self._first[self._ranks[tb]]

    def threadblock(self, tb: int) -> Threadblock:
        """Returns a threadblock."""
        rank = self._ranks[tb]
        if rank not in self._known:
            self._known[rank] = schedule.threadblocks(self.program, rank)
        return self._known[rank][self.local(tb)]

    def instruction(self, tb: int, step: int) -> Instruction:
        """Returns a step."""
        return self.threadblock(tb).steps[step]

    def action(self, tb: int, step: int) -> str:
        """Returns what a step does, as "recv_reduce_send in[2] from 3 to 1 ch 0"."""
        block, done = self.threadblock(tb), self.instruction(tb, step)
        if done.operation:
            reads, writes = (" ".join(place(at, 1) for at in each) for each in (done.reads, done.writes))
            return f"{done.operation} {reads} -> {writes}"
        text = done.opcode
        if done.source is not None:
            text += f" {place(done.source, done.count)}"
        if done.target is not None:
            text += f" -> {place(done.target, done.count)}"
        if done.receives:
            text += f" from rank {block.recv_peer}"
        if done.sends:
            text += f" to rank {block.send_peer}"
        return text + (f", channel {block.channel}" if done.sends or done.receives else "")

    def step(self, tb: int, step: int, tile: int) -> str:
        """Returns the description of a step in a tile."""
        return f"rank {self._ranks[tb]} threadblock {self.local(tb)} step {step}, tile {tile}: {self.action(tb, step)}"

    def name(self, tb: int) -> str:
        """Names a threadblock within its rank."""
        computes = self.threadblock(tb).computes
        return f"{self.local(tb)} computes" if computes else f"{self.local(tb)}"

    def line(self, tb: int, step: int) -> str:
        """Returns the line of a step and its callers; empty if it is not known."""
        line = self.instruction(tb, step).line
        return "" if line is None else str(line)


class OneSidedDetails(Details):
    """The steps of a one-sided program, by the text form; their lines are not known."""

    def __init__(self, core: _core.DirectSimulator) -> None:
        """Takes the program on a machine."""
        self.causes = _core.sim_causes()
        self._names = core
        self._ranks = core.rank_of()
        self._first = [
            self._ranks.index(rank) if rank in self._ranks else 0 for rank in range(max(self._ranks, default=0) + 1)
        ]

    def action(self, tb: int, step: int) -> str:
        """Returns a step, as "signal 3 relaxed"."""
        return self._names.step_name(tb, step).partition(" (")[2].removesuffix(")")

    def name(self, tb: int) -> str:
        """Names a threadblock within its rank."""
        return str(self.local(tb))

    def line(self, tb: int, step: int) -> str:
        """Returns nothing."""
        return ""


def place(at: tuple[str, int], count: int) -> str:
    """Names chunks of a buffer.

    >>> place(("input", 3), 2)
    'input[3..4]'
    """
    buffer, first = at
    return f"{buffer}[{first}]" if count == 1 else f"{buffer}[{first}..{first + count - 1}]"
