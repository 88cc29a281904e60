"""MSCCLang's programs and references, over gc3's language: each operation is traced, checked and proven there."""

from __future__ import annotations

import inspect
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gc3 import _core, errors
from gc3.lang import SourceProgram, build
from gc3.mscclang.purpose import Buffers, Collective, Known, Value, is_in_place, model_of
from gc3.mscclang.values import Buffer, Chunk, ReduceChunk, ThreadblockPolicy

if TYPE_CHECKING:
    from types import TracebackType

    from gc3.mscclang.machines import Topology
    from gc3.runtime.program import Program

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_current: ContextVar[MSCCLProgram | None] = ContextVar("gc3_mscclang_program", default=None)
_SHOWN = 10  # wrong outputs that Check() lists


@dataclass
class Record:
    """What the run of a script leaves.

    Attributes:
        programs: The programs whose `with` block ended, in order.
        prints_xml: Whether XML() writes to standard output.
    """

    prints_xml: bool = False
    programs: list[MSCCLProgram] = field(default_factory=list["MSCCLProgram"])


record: ContextVar[Record | None] = ContextVar("gc3_mscclang_record", default=None)


def caller() -> tuple[str, int]:
    """Returns file and line of the innermost code outside this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def fail(name: str, message: str) -> errors.Gc3Error:
    """Returns the error called `name` at the script's line."""
    file, line = caller()
    return errors.error(name, message, file=file, line=line)


class MSCCLProgram:
    """A program of a script: the operations inside `with MSCCLProgram(...):` become part of it."""

    def __init__(
        self,
        name: str,
        topo: Topology,
        collective: Collective,
        instances: int,
        protocol: str = "Simple",
        threadblock_policy: ThreadblockPolicy = ThreadblockPolicy.auto,
        interleaved_replication: bool = True,
        instr_fusion: bool = True,
        check_xml: bool = True,
        dependence_nop: bool = False,
    ) -> None:
        """Takes the arguments of MSCCLang; gc3 always checks, and its schedules need no `dependence_nop`.

        Raises:
            gc3.UserError: The collective does not fit the topology, or is none.
        """
        del check_xml, dependence_nop
        self.name = name
        self.topo = topo
        self.collective = collective
        self.num_ranks = topo.num_nodes()
        self.instances = instances
        self.protocol = protocol
        self.threadblock_policy = threadblock_policy
        self.interleaved_replication = interleaved_replication
        self.instr_fusion = instr_fusion
        self.where = caller()
        self.buffers: Buffers = collective.init_buffers()
        self.remarks: dict[str, int] = {}  # what msccl-tools would have done wrong, with the first line
        self.prints_xml = False
        self._nothing: tuple[str, int] | None = None  # what the last chunk() did not find, and its line
        self._scratch: dict[Any, str] = {}
        self._tokens: list[Any] = []
        if len(self.buffers) != self.num_ranks or collective.num_ranks != self.num_ranks:
            raise fail(
                "BadCollective",
                f"'{name}': the topology has {self.num_ranks} ranks, the collective {collective.num_ranks} and buffers "
                f"for {len(self.buffers)}",
            )
        about, chunks = model_of(collective, self.buffers)
        self.source = SourceProgram(
            name,
            about,
            ranks=self.num_ranks,
            chunks=chunks,
            in_place=is_in_place(collective, self.buffers),
            protocol=protocol,
            where=self.where,
            helpers=_OWN,
        )

    def __enter__(self) -> None:
        """Makes this the current program; like the original, it gives `as` nothing."""
        if _current.get() is not None:
            raise fail("BadArgument", "another MSCCLProgram is open: MSCCLang's programs do not nest")
        self._tokens.append(_current.set(self))
        self.source.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the program."""
        self.source.__exit__(kind, problem, trace)
        _current.reset(self._tokens.pop())
        if problem is not None:
            if self._nothing is not None and "NoneType" in str(problem) and not isinstance(problem, errors.Gc3Error):
                what, line = self._nothing
                file = self.where[0]
                raise errors.error("UninitializedChunk", what, file=file, line=line) from problem
            return
        kept = record.get()
        if kept is not None:
            kept.programs.append(self)
            if self.prints_xml and kept.prints_xml:
                sys.stdout.write(self.generate_xml() + "\n")

    # What scripts call.

    def check(self) -> bool:
        """Asks the collective whether the buffers hold its result."""
        return self.collective.check(self) is not False

    def lower(self) -> Program:
        """Returns the compiled program.

        Raises:
            gc3.UserError: It does not implement its collective, or cannot be compiled.
        """
        return self.compiled()

    def generate_xml(self) -> str:
        """Returns the program as MSCCL XML, in the dialect of microsoft/msccl."""
        return self.compiled().core.to_xml("msccl", None, 0, 0).rstrip("\n")

    # What gc3 calls.

    def compiled(
        self, instances: int | None = None, max_threadblocks: int = 0, slots: int = 0, *, fuse: bool = True
    ) -> Program:
        """Returns the compiled program; `instances` overrides the script's.

        Raises:
            gc3.UserError: It does not implement its collective, or cannot be compiled.
        """
        self.judge()
        how = self._how(instances, fuse)
        return build.compile(self.source, slots=slots, max_threadblocks=max_threadblocks, memory="fifo", **how)

    def dumped(
        self, stage: str, instances: int | None = None, max_threadblocks: int = 0, slots: int = 0, *, fuse: bool = True
    ) -> str:
        """Returns the text of a stage of the compilation."""
        return build.dump(
            self.source, stage, slots=slots, max_threadblocks=max_threadblocks, **self._how(instances, fuse)
        )

    def _how(self, instances: int | None, fuse: bool) -> dict[str, Any]:
        return {"instances": self.instances if instances is None else instances, "fuse": fuse and self.instr_fusion}

    def judge(self) -> None:
        """Refuses the program if the script's own check() does.

        Raises:
            gc3.UserError: It does.
        """
        if isinstance(self.collective, Known) or self.check():
            return
        file, line = self.where
        what = f"check() of {type(self.collective).__name__} refuses what '{self.name}' makes"
        raise errors.error("PostconditionUnmet", what, file=file, line=line)

    def states_no_result(self) -> bool:
        """Returns whether the collective has no check(), so that any result is right."""
        return type(self.collective).check is Collective.check

    def meets(self) -> bool:
        """Returns whether the outputs hold what the known collective requires; prints those that do not."""
        problems = self.source.check(_SHOWN)
        for problem in problems:
            sys.stdout.write(problem.message + "\n")
        return not problems

    def remark(self, text: str) -> None:
        """Remembers what msccl-tools would have done wrong, with its first line."""
        self.remarks.setdefault(text, caller()[1])

    # Places.

    def place(self, rank: Any, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for."""
        if isinstance(rank, int) and 0 <= rank < self.num_ranks:
            return self.collective.get_buffer_index(rank, buffer, index)
        raise fail("RankOutOfRange", f"rank {rank!r} of {self.num_ranks}")

    def there(self, rank: int, buffer: Any) -> list[Value]:
        """Returns the values of a buffer; a scratch buffer begins empty."""
        return self.buffers[rank].setdefault(buffer, [])

    def spelled(self, buffer: Any) -> str:
        """Returns gc3's name of a buffer; any key names a scratch buffer."""
        if buffer is Buffer.input or buffer is Buffer.output:
            return buffer.name
        if buffer is Buffer.scratch or buffer == "scratch":
            return "scratch"
        if buffer not in self._scratch:
            name = str(buffer)
            while name in {"input", "output", "in", "out", "sc", "scratch", "", *self._scratch.values()}:
                name += "'"
            self._scratch[buffer] = name
            self.source.scratch_buffer(name)
        return self._scratch[buffer]

    def linked(self, src: int, dst: int) -> None:
        """Refuses a transfer between ranks without a link."""
        if src != dst and not self.topo.link(src, dst):
            raise fail(
                "NoPath", f"no link from rank {src} to rank {dst} in {getattr(self.topo, 'name', 'the topology')}"
            )

    def nothing(self, rank: int, buffer: Any, index: int) -> None:
        """Remembers that chunk() found nothing, for a better message if the script goes on with it."""
        what = f"{self.spelled(buffer)}[{index}] of rank {rank} was never written, so chunk() returned None"
        self._nothing = (what, caller()[1])


@dataclass(eq=False)
class Ref:
    """The chunks at a place; unlike gc3's, a reference stands for whatever is there now."""

    rank: int
    buffer: Any
    index: int
    size: int
    prog: MSCCLProgram

    def __repr__(self) -> str:
        """Returns place and size."""
        return f"Ref(Buffer:{self.buffer}, Index:{self.index}, Size:{self.size}, Rank:{self.rank})"

    def now(self) -> _core.ChunkRef:
        """Returns gc3's reference to what is there now."""
        return _core.chunk(self.rank, self.prog.spelled(self.buffer), self.index, self.size)

    def values(self) -> list[Value]:
        """Returns what is there now."""
        found = self.prog.there(self.rank, self.buffer)[self.index : self.index + self.size]
        return found + [None] * (self.size - len(found))

    def put(self, values: list[Value]) -> None:
        """Keeps what an operation has written here."""
        there = self.prog.there(self.rank, self.buffer)
        there.extend([None] * (self.index + self.size - len(there)))
        there[self.index : self.index + self.size] = values

    def directives(self, sendtb: int, recvtb: int, ch: int) -> dict[str, int | None]:
        """Returns the directives of an operation; the automatic policy takes no threadblocks."""
        manual = self.prog.threadblock_policy is ThreadblockPolicy.manual
        given = {"sendtb": sendtb if manual else -1, "recvtb": recvtb if manual else -1, "ch": ch}
        return {name: None if value == -1 else value for name, value in given.items()}

    def copy(
        self, dst: int, buffer: Any = None, index: int = -1, sendtb: int = -1, recvtb: int = -1, ch: int = -1
    ) -> Ref:
        """Copies these chunks to (dst, buffer, index); without an index, to the end of a scratch buffer.

        With `dst` alone: to the same place there.
        """
        prog = self.prog
        if buffer is None and index == -1:
            buffer, index = self.buffer, self.index
        elif buffer is None:
            raise fail("NoSuchPlace", "copy() with an index but without a buffer: give both")
        elif index == -1:
            if buffer is Buffer.input or buffer is Buffer.output:
                raise fail("NoSuchPlace", f"copy() to {buffer.name} without an index: give it")
            prog.place(dst, buffer, 0)
            index = len(prog.there(dst, buffer))
        # As in msccl-tools, the names of aliased places are those of the sender.
        buffer, index = prog.place(self.rank, buffer, index)
        prog.place(dst, buffer, index)
        prog.linked(self.rank, dst)
        there = Ref(dst, buffer, index, self.size, prog)
        self._replicated(there)
        self.now().copy(dst, prog.spelled(buffer), index, **self.directives(sendtb, recvtb, ch))
        there.put(self.values())
        return there

    def reduce(self, other: Any, *given: Any, sendtb: int = -1, recvtb: int = -1, ch: int = -1, **named: Any) -> Ref:
        """Adds `other` to these chunks.

        Earlier versions had reduce(rank, buffer, index), which adds these chunks to those there.
        """
        if isinstance(other, int):
            named.update(zip(("buffer", "index"), given, strict=False))
            buffer, index = self.prog.place(other, named.get("buffer", self.buffer), named.get("index", self.index))
            target = Ref(other, buffer, index, self.size, self.prog)
            return target.reduce(self, sendtb=sendtb, recvtb=recvtb, ch=ch)
        if not isinstance(other, Ref):
            raise fail("BadArgument", f"reduce() takes a reference, not {other!r}")
        tb = dict(zip(("sendtb", "recvtb", "ch"), given, strict=False))
        sendtb, recvtb, ch = tb.get("sendtb", sendtb), tb.get("recvtb", recvtb), tb.get("ch", ch)
        self.prog.linked(other.rank, self.rank)
        self._replicated(other)
        if other.rank != self.rank and (other.buffer, other.index) != (self.buffer, self.index):
            self.prog.remark(
                "a reduction between different places of two ranks: in the XML of msccl-tools, runtimes add the wrong "
                "place, because it names the sender's where they read their own; here the places are right"
            )
        self.now().reduce(other.now(), **self.directives(sendtb, recvtb, ch))
        self.put([_sum(a, b) for a, b in zip(self.values(), other.values(), strict=True)])
        return self

    def _replicated(self, other: Ref) -> None:
        prog = self.prog
        if prog.instances > 1 and prog.interleaved_replication and max(self.size, other.size) > 1:
            prog.remark(
                "several chunks at once with instances and interleaved replication: the instances of msccl-tools race "
                "here; ours each take their own part of every chunk"
            )

    send = copy
    assign = copy

    def split(self, num: int) -> list[Ref]:
        """Returns `num` references to equally many chunks each."""
        if num < 1 or self.size % num:
            raise fail("BadCount", f"{self.size} chunks split into {num}")
        each = self.size // num
        return [Ref(self.rank, self.buffer, self.index + i * each, each, self.prog) for i in range(num)]

    def group(self, other: Ref) -> Ref:
        """Returns one reference from the first chunk of both to the last."""
        if (self.rank, self.buffer) != (other.rank, other.buffer):
            raise fail("NoSuchPlace", f"{self} and {other} are not in one buffer: a group is")
        first = min(self.index, other.index)
        end = max(self.index + self.size, other.index + other.size)
        return Ref(self.rank, self.buffer, first, end - first, self.prog)

    def _chunk(self, index: int) -> Chunk:
        value = self.prog.there(self.rank, self.buffer)[self.index + index]
        if isinstance(value, ReduceChunk) and value.chunks:
            value = value.chunks[0]
        if not isinstance(value, Chunk):
            raise fail("UninitializedChunk", f"{self} holds no chunk with a place of origin")
        return value

    def get_origin_index(self, index: int = 0) -> int:
        """Returns the index that a chunk had in its input."""
        return self._chunk(index).origin_index

    def get_origin_rank(self, index: int = 0) -> int:
        """Returns the rank whose input a chunk was."""
        return self._chunk(index).origin_rank

    def get_dst_index(self, index: int = 0) -> int:
        """Returns the index of the output that a chunk goes to."""
        return self._chunk(index).dst_index

    def get_dst_rank(self, index: int = 0) -> int:
        """Returns the rank whose output a chunk goes to; -1: to every rank."""
        return self._chunk(index).dst_rank

    def print_chunk_info(self, index: int = 0) -> None:
        """Prints what a chunk is."""
        sys.stdout.write(f"{self.prog.there(self.rank, self.buffer)[self.index + index]}\n")


def _sum(a: Value, b: Value) -> Value:
    return a if b is None else b if a is None else a.reduce(b)


def _open() -> MSCCLProgram:
    program = _current.get()
    if program is None:
        raise fail("NoProgram", "no MSCCLProgram is open: call this inside `with MSCCLProgram(...):`")
    return program


def chunk(rank: int, buffer: Any, index: int = 0, size: int = 1) -> Ref | None:
    """Returns a reference to `size` chunks at a place; None if the first was never written."""
    prog = _open()
    buffer, index = prog.place(rank, buffer, index)
    ref = Ref(rank, buffer, index, size, prog)
    if index >= 0 and index < len(prog.there(rank, buffer)) and ref.values()[0] is None:
        prog.nothing(rank, buffer, index)
        return None
    ref.now()
    return ref


def Check() -> bool:  # noqa: N802  MSCCLang's name
    """Returns whether the outputs hold what the collective requires; prints those that do not."""
    return _open().check()


def XML() -> None:  # noqa: N802  MSCCLang's name
    """Prints the program as MSCCL XML when it ends."""
    _open().prints_xml = True


def Print() -> None:  # noqa: N802  MSCCLang's name
    """Prints the operations so far, one a line."""
    sys.stdout.write(f"{_open().name}\n")


def create_scratch(rank: int, name: Any) -> None:
    """Makes a scratch buffer; copy() makes them, too."""
    prog = _open()
    prog.place(rank, name, 0)
    prog.there(rank, name)
