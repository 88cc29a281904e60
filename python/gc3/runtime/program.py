"""A compiled program: proven, saved, loaded, shown, and run on NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from gc3 import _core, collectives, datatypes, errors
from gc3.computing import Operation
from gc3.properties import describe
from gc3.runtime import for_target, recording, schedule, scratch, with_functions
from gc3.runtime.buffers import bind
from gc3.runtime.executable import Executable
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.support import files, knobs, notebook
from gc3.support.public import public

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.datatypes import Array


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the verifier.

    Attributes:
        diagnostics: The findings; if there are none, the program is proven.
        slots: FIFO slots per connection for which it is free of deadlock.
        transfers: Messages between ranks for each tile.
    """

    diagnostics: tuple[_core.Diagnostic, ...]
    slots: int
    transfers: int

    @property
    def ok(self) -> bool:
        """Whether the program is proven."""
        return not self.diagnostics

    def _repr_html_(self) -> str:
        """Shows it in a notebook."""
        proven = [("FIFO slots", f"{self.slots} or more"), ("messages in a tile", str(self.transfers))]
        found = [(d.code, f"{d.title}: {d.message}") for d in self.diagnostics]
        return notebook.card("proven" if self.ok else "not proven", proven if self.ok else found)


# The forms of a program, by the ending of the file. Readers decide by the content.
FORMS = {
    ".gc3": "GC3's own image",
    ".xml": "MSCCL XML",
    ".plan.json": "an execution plan of MSCCL++",
    ".txt": "the text form",
}


@dataclass(frozen=True, slots=True)
class Use:
    """The calls that the file of a program is for; MSCCL XML states more here than the program does."""

    in_place: bool  # for calls in place
    out_of_place: bool  # for calls out of place
    min_bytes: int = 0  # smallest size of the whole buffer
    max_bytes: int = 0  # largest size of the whole buffer; 0: no limit


# Functions for compute operations, by their names or by the operations themselves.
Functions: TypeAlias = "Mapping[str, Callable[..., None]] | Mapping[str | Operation, Callable[..., None]]"


@dataclass(frozen=True, eq=False, repr=False)
class Program(Executable["_core.Program"]):
    """An executable program: one schedule per rank that implements a collective. Immutable.

    Made by `gc3.compile` and `Program.load`.

    Attributes:
        core: The program as an object of the core.
        use: The calls that its file allows it for; None if it was compiled.
        declared: Its compute operations by name, if it was compiled here.
    """

    core: _core.Program
    use: Use | None = None
    declared: Mapping[str, Operation] = field(default_factory=dict[str, "Operation"])
    _engines: dict[EngineOptions, _core.ThreadsEngine] = field(
        default_factory=dict[EngineOptions, "_core.ThreadsEngine"]
    )
    _proven: set[int] = field(default_factory=set[int])  # proven for this many FIFO slots and more

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        *,
        collective: str | _core.Collective = "",
        in_place: bool | None = None,
        runtime: str | None = None,
    ) -> Program:
        """Reads a program that `save` or ``gc3 compile -o`` wrote, or MSCCL XML of any writer.

        Args:
            path: The file; its content tells the form.
            collective: The collective of MSCCL XML that does not name one itself (``coll="custom"``): a name, or a
                custom one, as `gc3.collectives.custom(...).model()`.
            in_place: Which of its modes to read, if MSCCL XML allows both; None: out of place.
            runtime: Read what this runtime ("msccl", "azure" or "rccl") executes for MSCCL XML, which may differ from
                the meaning of the file; None: read the meaning of the file.

        Raises:
            gc3.UserError: It cannot be read, or the runtime refuses it.
        """
        file = _core.load_file(_name(path, "FileUnreadable"), collective, in_place, runtime)
        use = Use(file.in_place, file.out_of_place, file.min_bytes, file.max_bytes)
        if file.classes is not None:
            return import_module("gc3.runtime.classes").ClassProgram(file.classes, use)  # it is a Program
        return Program(file.program, use)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        dialect: str | None = None,
        target: str | None = None,
        min_bytes: int = 0,
        max_bytes: int = 0,
    ) -> None:
        """Writes the program in the form of the ending of `path`: see `FORMS`.

        Each form but the execution plan contains everything needed to verify and run the program. A file of that name
        is replaced atomically.
        A device or a pipe without a known ending gets the image.

        Args:
            path: The file.
            dialect: The dialect of MSCCL XML: "msccl" or "rccl"; None: the target's, or else "msccl".
            target: The runtime that the XML is for, for which it is proven: "msccl", "azure" or "rccl"; None: any.
            min_bytes: The XML is for whole buffers of at least this size.
            max_bytes: And of at most this size; 0: no limit.

        Raises:
            gc3.UserError: The file has another ending, cannot be written, or cannot express the options.
        """
        name = _name(path, "FileUnwritable")
        ending = ending_of(name)
        if ending != ".xml":
            if dialect or target or min_bytes or max_bytes:
                raise errors.error("BadArgument", f"'{name}' does not end in .xml: the image has no dialects or limits")
            if ending == ".plan.json":
                from gc3 import mscclpp  # noqa: PLC0415  slow to import for each rank, and few save plans

                mscclpp.check(self.described)  # before the steps of all ranks are made
                mscclpp.save(self.core, name)
            else:
                self.stored.save_text(name) if ending == ".txt" else self.stored.save(name)
            return
        if 0 < max_bytes < min_bytes:
            raise errors.error("BadArgument", f"'{name}' would be for no size: {min_bytes} B to {max_bytes} B")
        if target is not None:
            for_target.prove(self.core, target, dialect or dialect_of(target), min_bytes, max_bytes)
        self._save_xml(name, dialect or dialect_of(target), target, min_bytes, max_bytes)

    def _save_xml(self, *how: Any) -> None:
        self.core.save_xml(*how)

    @property
    def stored(self) -> _core.Program | _core.ClassProgram:
        """What its files contain."""
        return self.core

    @property
    def whole(self) -> Program:
        """The same program with the steps of all ranks."""
        return self

    @property
    def expands(self) -> bool:
        """Whether it has the steps of all ranks, or can have them."""
        return True

    @property
    def protocol(self) -> str:
        """``Simple``, ``LL`` or ``LL128``."""
        return self.core.protocol

    def of_rank(self, rank: int) -> tuple[_core.Program, int]:
        """Returns a program with the steps of a rank, which may be of fewer ranks, and the rank's place there."""
        return self.core, rank

    def threadblocks(self, rank: int) -> tuple[schedule.Threadblock, ...]:
        """Returns the threadblocks of a rank with their instructions.

        Raises:
            gc3.UserError: There is no such rank.
        """
        return schedule.threadblocks(*self.of_rank(errors.whole(rank, "rank", name="RankOutOfRange")), rank)

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash((self.name, self.collective.name, self.ranks, self.protocol, self.in_place))

    def __reduce__(self) -> tuple[Any, ...]:
        """A program is pickled and copied as its image. Its engines are not copied, but made again when it runs."""
        return Program, (self.core, self.use)

    def __repr__(self) -> str:
        """Describes it in one line."""
        mode = "in place" if self.in_place else "out of place"
        return f"<gc3.Program {self.name}: {self.collective.name}, {self.ranks} ranks, {self.protocol}, {mode}>"

    def verify(self, *, slots: int = 0, max_threadblocks: int = 0, max_channels: int = 0) -> Report:
        """Proves the program, or raises `UserError` with every finding: see `gc3.verify`."""
        return verify(self, slots=slots, max_threadblocks=max_threadblocks, max_channels=max_channels)

    def prove(self, *limits: Any) -> _core.VerifyReport:
        """Returns what the verifier finds: see `gc3.verify`, whose arguments these are in order."""
        return _core.verify(self.core, *limits)

    def check_proven(self, slots: int = 0) -> None:
        """Proves a program from a file, which may hold anything, before its first run.

        Args:
            slots: FIFO slots per connection that it will run with; 0: the number that the program states, or more.

        Raises:
            gc3.UserError: The findings.
        """
        if self.use is not None and not any(proven <= (slots or self.core.slots) for proven in self._proven):
            verify(self, slots=slots)

    def check_v_form(self) -> None:
        """Finds out whether the program serves calls whose blocks differ in length, such as `all_to_all_v`.

        It does if every chunk that a step moves belongs to one block of the collective, whatever the counts: then both
        sides know the length of each message before it is sent.

        Raises:
            gc3.UserError: It does not, with the step (GC3-V012).
        """
        _core.check_v_form(self.core)

    def trust(self, slots: int = 0) -> None:
        """Lets a program from a file run with `slots` FIFO slots or more without a proof, as ``prove=no`` does."""
        self._proven.add(slots)

    def run(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
        slots: int = 0,
        slot_bytes: int = 0,
        workers: int = 0,
        timeout: float | None = None,
        seed: int | None = None,
    ) -> list[Array | None]:
        """Runs the program on this machine's CPU, with ranks as threads, and returns each rank's output.

        A program from a file is proven before its first run.

        Args:
            inputs: One array per rank, or None for a rank without input. They are not changed in either mode, except
                a part that is also in `outputs`.
            op: One of `gc3.datatypes.OPS` that accepts the type, or `gc3.PreMulSum`; used by
                reducing collectives only.
            outputs: Arrays to write to, one per rank; allocated if not given.
            count: Elements per block; found from the inputs if not given.
            dtype: The data type; found from the arrays if not given.
            slots: See `EngineOptions`, also for the following.
            slot_bytes: Size of a FIFO slot.
            workers: OS threads.
            timeout: Seconds.
            seed: Deterministic mode.

        Returns:
            One array per rank, None for a rank without output. A new array has the shape of that rank's input
            if it is as large, and one dimension otherwise.
        """
        bound = bind(self.collective, inputs, outputs, count, dtype)
        options = EngineOptions(slots, slot_bytes, workers, timeout, seed)
        self.engine(options).run(*bound.call(op))
        return bound.finish()

    def bind(self, functions: Functions, *, check: bool = False) -> with_functions.Bound:
        """Binds functions to the compute operations of the program, by name.

        A function is called as ``f(*views, out=view)`` with NumPy views of its chunks, and fills `out`; of several
        results, `out` is a tuple.

        Args:
            functions: The functions, by name or by operation. A file may declare anything: if one says that an
                operation has properties, it must be a `gc3.op` that says the same.
            check: Calls each several times, on guarded copies: one that writes an operand or beside its results, leaves
                a part of them, does not make the same of the same operands, or does not have its declared properties
                is an error of the run. For tests: it is slow.

        Raises:
            gc3.UserError: The operations of the program are others.
        """
        given = cast("Mapping[str | Operation, Callable[..., None]]", functions)
        known = dict(self.declared) | {key.name: key for key in given if isinstance(key, Operation)}
        for name, properties in self.core.collective.operations:
            found = known.get(name)
            told = describe(properties)
            if told and found is None:
                raise errors.error(
                    "BadArgument",
                    f"the file of the program declares '{errors.shown(name)}' {told}: bind the function to a gc3.op "
                    "that does so, instead of its name",
                )
            if found is not None and found.properties != tuple(properties):
                other = describe(found.properties) or "nothing"
                raise errors.error(
                    "BadArgument",
                    f"the program declares {told or 'nothing'} of '{errors.shown(name)}', and the operation {other}",
                )
        by_name = {key.name if isinstance(key, Operation) else key: value for key, value in given.items()}
        return with_functions.Bound(self.core, by_name, self.engine, known, check=check)

    def record(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        most: int,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
        warmup: int = 5,
        options: EngineOptions = DEFAULT_OPTIONS,
    ) -> recording.Recording:
        """Runs `warmup` + 1 times and returns a recording of the last run, of at most `most` steps."""
        errors.whole(most, "most", 1)
        errors.whole(warmup, "warmup")
        bound = bind(self.collective, inputs, outputs, count, dtype)
        engine = self.engine(options)
        call = bound.call(op)
        engine.time(*call, warmup, 0)
        found = engine.record(*call, most)
        bound.finish()
        return recording.join(self.core, "threads", engine.slots, [recording.part(found)])

    def info(self) -> dict[str, Any]:
        """Returns the properties of the program as plain data."""
        collective = self.collective
        per_rank = self.core.threadblocks_per_rank
        return {
            "name": self.name,
            "collective": collective.name,
            "ranks": collective.ranks,
            "chunks": collective.chunks,
            "root": collective.root if collectives.rooted(collective) else None,
            "in_place": collective.in_place,
            "protocol": self.protocol,
            "instances": self.core.instances,
            "slots": self.core.slots,
            "threadblocks": self.core.threadblock_count,
            "max_threadblocks_per_rank": max(per_rank, default=0),
            "scratch_share": str(scratch.share(self.core)),
            "instructions": self.core.instruction_count,
            "dependencies": self.core.dependency_count,
        }

    def engine(self, options: EngineOptions) -> _core.ThreadsEngine:
        """Returns the engine of threads with these options, made on first use."""
        engine = self._engines.get(options)
        if engine is None or not engine.usable:
            self.check_proven(options.slots)
            set_up = knobs.read()
            engine = _core.ThreadsEngine(
                self.core,
                slots=options.slots or set_up.slots,
                slot_bytes=options.slot_bytes or set_up.slot_bytes,
                workers=options.workers or set_up.workers,
                timeout=set_up.timeout if options.timeout is None else options.timeout,
                seed=options.seed,
                pin=set_up.pin != "0",
            )
            # One engine at a time: each holds FIFO memory and threads, and callers rarely alternate.
            self._engines.clear()
            self._engines[options] = engine
        return engine


def ending_of(name: str) -> str:
    """Returns the ending of a file of `FORMS`.

    Raises:
        gc3.UserError: The ending is not one of `FORMS`.

    >>> ending_of("out/ring.xml")
    '.xml'
    """
    ending = ".plan.json" if name.endswith(".plan.json") else os.path.splitext(name)[1]
    if ending in FORMS:
        return ending
    if files.is_device(name):
        return ".gc3"
    known = ", ".join(f"{suffix} for {what}" for suffix, what in FORMS.items())
    raise errors.error("BadArgument", f"'{name}': the ending selects the form of the program: {known}")


def dialect_of(target: str | None) -> str:
    """Returns the dialect of MSCCL XML that a runtime reads; "msccl" if none is given.

    >>> dialect_of("azure"), dialect_of(None)
    ('rccl', 'msccl')
    """
    targets = _core.xml_targets()
    if target is not None and target not in targets:
        raise errors.error("BadArgument", f"there is no target '{target}'; expected one of {', '.join(targets)}")
    return "msccl" if target is None else targets[target]


def check_program(program: Program) -> None:
    """Checks that a caller's argument is a program."""
    if not isinstance(program, Program):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise errors.error("BadArgument", f"{program!r} is not a program: make one with gc3.compile")


def verify(
    program: Program,
    *,
    slots: int = 0,
    max_threadblocks: int = 0,
    max_channels: int = 0,
    max_diagnostics: int = 10,
    chunk_per_slot: bool = False,
    properties: bool = True,
    check: bool = True,
) -> Report:
    """Proves that a program implements its collective without race or deadlock.

    Args:
        program: The program to prove.
        slots: FIFO slots per connection to prove freedom from deadlock for; 0: the number that the program
            states.
        max_threadblocks: Limit per rank; 0: none.
        max_channels: Limit; 0: none.
        max_diagnostics: Stop after this many findings.
        chunk_per_slot: Prove freedom from deadlock under the assumption that every chunk of a message takes its own
            FIFO slot, as in the runtimes that read MSCCL XML.
        properties: Whether the proof may use what is declared of compute operations.
        check: Raise `UserError` with the findings; otherwise they are only in the report.
    """
    check_program(program)
    for what, value in (
        ("slots", slots),
        ("max_threadblocks", max_threadblocks),
        ("max_channels", max_channels),
        ("max_diagnostics", max_diagnostics),
    ):
        errors.whole(value, what, 1 if what == "max_diagnostics" else 0)
    found = program.prove(slots, max_threadblocks, max_channels, max_diagnostics, chunk_per_slot, properties)
    report = Report(tuple(found.diagnostics), found.slots, found.transfers)
    if report.ok:
        program.trust(report.slots)
    if check and not report.ok:
        raise errors.UserError(*report.diagnostics)
    return report


def _name(path: str | os.PathLike[str], error: str) -> str:
    """The file name in the form that the core takes."""
    name = os.fsdecode(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise errors.error(error, f"{name!r}: not a name in UTF-8") from None
    if "\0" in name:
        raise errors.error(error, f"{name!r}: a file name must not contain a zero byte")
    return name


public(Program)
