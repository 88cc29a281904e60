"""Read-only views of a program's schedule: the threadblocks of a rank and their instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gc3 import _core, errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@cache
def _opcodes() -> Mapping[str, _core.OpcodeInfo]:
    return {op.name: op for op in _core.opcodes()}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's code."""

    file: str  # the file's name as Python knows it
    number: int  # the line, from 1
    caller: Line | None = None  # the line that called the function of this one; None if there is none

    def __str__(self) -> str:
        """Names it and its callers, as "_ring.py:8, called from ring.py:20"."""
        name = f"{Path(self.file).name}:{self.number}"
        return name if self.caller is None else f"{name}, called from {self.caller}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a threadblock."""

    opcode: str  # its name in ``docs/reference/opcodes.md``
    # buffer and first chunk that it reads on its rank; None if it reads only what it receives
    source: tuple[str, int] | None
    target: tuple[str, int] | None  # buffer and first chunk that it writes on its rank; None if it writes nothing there
    count: int  # number of chunks; 0 for nop
    depends: tuple[tuple[int, int], ...]  # the steps (threadblock, step) of its rank that must end before
    # Where the user wrote it; None if that is not known. A fused instruction has the line of what it receives.
    line: Line | None = None
    operation: str = ""  # the compute operation that it applies; else empty
    reads: tuple[tuple[str, int], ...] = ()  # of an operation, the chunks that it reads
    writes: tuple[tuple[str, int], ...] = ()  # and those that it writes

    @property
    def sends(self) -> bool:
        """Whether it sends to the threadblock's send peer."""
        return _opcodes()[self.opcode].sends

    @property
    def receives(self) -> bool:
        """Whether it receives from the threadblock's receive peer."""
        return _opcodes()[self.opcode].receives

    @property
    def reduces(self) -> bool:
        """Whether it combines the source with what it receives, or with the target if it receives nothing."""
        return _opcodes()[self.opcode].reduces


@dataclass(frozen=True, slots=True)
class Threadblock:
    """Instructions that run one after the other."""

    rank: int  # its rank
    index: int  # its number there
    send_peer: int | None  # the rank that it sends to, or None
    recv_peer: int | None  # the rank that it receives from, or None
    channel: int  # the channel of both connections
    steps: tuple[Instruction, ...]  # its instructions in order

    @property
    def computes(self) -> bool:
        """Whether it holds the compute operations of its rank, which have an order of their own."""
        return any(step.operation for step in self.steps)

    def __repr__(self) -> str:
        """Describes it in one line."""
        sends = "" if self.send_peer is None else f"sends to {self.send_peer}, "
        receives = "" if self.recv_peer is None else f"receives from {self.recv_peer}, "
        local = "computes" if self.computes else "local"
        peers = f"{sends}{receives}channel {self.channel}" if sends or receives else local
        return f"<Threadblock {self.index} of rank {self.rank}: {peers}, {len(self.steps)} steps>"


def threadblocks(program: _core.Program, place: int, rank: int | None = None) -> tuple[Threadblock, ...]:
    """Returns the threadblocks of the rank that stands at this place of the program; `rank`: its number."""
    known = lines(program)
    return tuple(
        Threadblock(
            place if rank is None else rank,
            index,
            given["send_peer"],
            given["recv_peer"],
            given["channel"],
            tuple(_instruction(step, known) for step in given["steps"]),
        )
        for index, given in enumerate(program.threadblocks_of(place))
    )


def lines(program: _core.Program) -> list[Line]:
    """Returns the distinct lines of the user's code; none if they are not known."""
    found: list[Line] = []
    for file, number, caller in program.source_lines:
        found.append(Line(errors.shown(file), number, None if caller is None else found[caller]))
    return found


def _instruction(given: Mapping[str, Any], known: Sequence[Line]) -> Instruction:
    def place(operand: Mapping[str, Any] | None) -> tuple[str, int] | None:
        return None if operand is None else (operand["buffer"], operand["chunk"])

    def places(name: str) -> tuple[tuple[str, int], ...]:
        return tuple((operand["buffer"], operand["chunk"]) for operand in given.get(name, ()))

    at: int | None = given.get("line")
    return Instruction(
        given["opcode"],
        place(given["src"]),
        place(given["dst"]),
        given["count"],
        tuple((tb, step) for tb, step in given["deps"]),
        None if at is None else known[at],
        given.get("operation", ""),
        places("reads"),
        places("writes"),
    )
