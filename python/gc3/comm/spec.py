"""The program of a row of a selection table: what to compile, or which file to read, and its FIFOs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gc3 import _core, errors
from gc3.algorithms import load
from gc3.comm import programs
from gc3.lang import compile as compile_program
from gc3.runtime.program import Program, verify

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Spec:
    """The program to compile, or the file of a compiled one, and the FIFOs to run it with.

    Attributes:
        algorithm: Name in the library, or the file of a compiled program, named by its hash: see `gc3.comm.programs`.
        parameters: Its parameters: numbers, or what the call has: "ranks", "root", "nodes" or "ranks_per_node".
        instances: Copies of the program that run in parallel.
        protocol: "Simple", "LL" or "LL128".
        slots: FIFO slots per connection; 0: the engine's choice.
        slot_bytes: Bytes of a slot; 0: the engine's choice.
        thresholds: Thresholds of the engine of processes by name, None for never, instead of those that were measured.
        threadblocks: Most of a rank, as `gc3.compile` takes it: those that only send are joined with ones that only
            receive, if there are more; 0: no limit.
        order: The ranks of each node in the order in which the algorithm has them; empty: that of their numbers.
        memory: "direct": calls on registered memory run it as one-sided moves. "fifo": by messages.
    """

    algorithm: str
    parameters: tuple[tuple[str, int | str], ...]
    instances: int = 1
    protocol: str = "Simple"
    slots: int = 0
    slot_bytes: int = 0
    thresholds: tuple[tuple[str, int | None], ...] = ()
    threadblocks: int = 0
    order: tuple[int, ...] = ()
    memory: str = "fifo"

    def compile(
        self,
        ranks: int,
        *,
        root: int = 0,
        in_place: bool = False,
        prove: bool = True,
        nodes: int = 1,
        order: Sequence[int] = (),
    ) -> Program:
        """Returns the program for a call on so many hosts, proven unless the caller does that.

        `order`: the ranks of the first host, then those of the next, if that is not the order of their numbers. Ranks
        of a compiled program are renamed so if its collective allows it.

        Raises:
            gc3.UserError: It cannot be compiled or read, or is for other calls.
        """
        if self.is_file:
            program = programs.read(self.algorithm, ranks=ranks, root=root, in_place=in_place)
        else:
            program = self._compiled(ranks, root=root, in_place=in_place, nodes=nodes, order=order)
        if prove:
            verify(program, slots=self.slots)
        return program

    @property
    def compiled(self) -> Spec:
        """The same with the engine's FIFOs and thresholds: all that are compiled to the same program are equal."""
        return replace(self, slots=0, slot_bytes=0, thresholds=())

    @property
    def is_file(self) -> bool:
        """Whether the program is a file, and is not compiled."""
        return programs.is_name(self.algorithm)

    def _compiled(self, ranks: int, *, root: int, in_place: bool, nodes: int, order: Sequence[int]) -> Program:
        source = load(self.algorithm)
        order = self._ordered(ranks, order) if _core.is_symmetric(source.collective_name) else ()
        root = order.index(root) if order else root  # of the algorithm, before its ranks are renamed
        known = {"ranks": ranks, "root": root, "nodes": nodes, "ranks_per_node": ranks // nodes}
        wanted = {name: known[value] if isinstance(value, str) else value for name, value in self.parameters}
        given = source.for_ranks(ranks, wanted)  # else compiling may take long before it is refused
        return compile_program(
            source,
            instances=self.instances,
            protocol=self.protocol,
            in_place=in_place,
            max_threadblocks=self.threadblocks,
            order=order,
            memory="fifo",
            **given,
        )

    def _ordered(self, ranks: int, order: Sequence[int]) -> Sequence[int]:
        """The ranks of the first host, then those of the next, each in the order of the program."""
        size = len(self.order)
        if size and ranks % size:
            raise errors.error("BadArgument", f"an order of {size} ranks of each node does not divide {ranks} ranks")
        return [order[n + r] if order else n + r for n in range(0, ranks, size) for r in self.order] if size else order

    def recipe(self) -> _core.Recipe:
        """Returns the recipe by which communicators get the program."""

        def compiled(
            ranks: int, root: int, in_place: bool, nodes: int, order: list[int]
        ) -> _core.Program | _core.ClassProgram:
            return self.compile(ranks, root=root, in_place=in_place, prove=False, nodes=nodes, order=order).stored

        fifos, direct = (self.slots, self.slot_bytes, self.thresholds), self.memory == "direct"
        return _core.Recipe(compiled, str(self), *fifos, not self.is_file, direct)

    def __str__(self) -> str:
        """Describes it in one line."""
        slots = f", {self.slots} slots" if self.slots else ""
        bytes_ = f", slots of {self.slot_bytes} B" if self.slot_bytes else ""
        told = "".join(f", {name} {'never' if value is None else value}" for name, value in self.thresholds)
        direct = "" if self.memory == "fifo" else ", direct on registered memory"
        if self.is_file:
            return f"program {programs.short(self.algorithm)}{slots}{bytes_}{told}{direct}"
        given = "".join(f" {name}={value}" for name, value in self.parameters)
        instances = f", {self.instances} instances" if self.instances > 1 else ""
        told += f", at most {self.threadblocks} threadblocks" if self.threadblocks else ""
        told += f", order {' '.join(map(str, self.order))}" if self.order else ""
        return f"{self.algorithm}{given}, {self.protocol}{instances}{slots}{bytes_}{told}{direct}"

    def data(self) -> dict[str, Any]:
        """Returns it as a row of a table has it; a file by its place beside the table."""
        if self.is_file:
            data: dict[str, Any] = {"file": programs.place(self.algorithm)}
        else:
            data = {"algorithm": self.algorithm, "parameters": dict(self.parameters), "instances": self.instances}
            data |= {"protocol": self.protocol} | ({"threadblocks": self.threadblocks} if self.threadblocks else {})
            data |= {"order": list(self.order)} if self.order else {}
        data |= {} if self.memory == "fifo" else {"memory": self.memory}
        data |= {"slots": self.slots, "slot_bytes": self.slot_bytes}
        return data | ({"thresholds": dict(self.thresholds)} if self.thresholds else {})
