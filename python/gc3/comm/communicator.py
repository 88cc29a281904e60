"""The communicator. A script that uses it is started by torchrun, mpirun or srun, or with RANK and WORLD_SIZE set.

>>> from gc3.comm import init
>>> with init(rank=0, size=1) as comm:
...     comm.all_reduce([1.0, 2.0])
array([1., 2.])
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gc3 import _core, collectives, datatypes, errors
from gc3.collectives import Collective
from gc3.comm import messages, objects, timing
from gc3.comm.devices import Devices
from gc3.comm.own import OwnPrograms
from gc3.comm.v_forms import told
from gc3.runtime.buffers import operation
from gc3.runtime.direct import DirectProgram
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.runtime.program import Program, verify
from gc3.support.public import of_all_ranks, users_line
from gc3.support.starting import start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.comm.adapting import Learning
    from gc3.datatypes import Array

_MOST = 2**63 - 1  # the largest number of bytes or elements, and the largest key, in the core


class Communicator(OwnPrograms):
    """Ranks that call collectives together, each on its own arrays.

    All ranks make the same calls in the same order, with the same counts, types and reductions. If a rank makes other
    calls, ends or stops, the calls of all ranks fail with `CommError`, and the communicator cannot be used any more.
    Arrays are NumPy arrays, or objects with the buffer protocol or DLPack on the CPU. Results are new NumPy arrays
    unless `out` is given. If the collective can work in place, `out` may be the memory of the input, then on all ranks.
    A method whose name ends in ``_async`` returns a `Handle` at once. A call that makes no progress for `timeout`
    seconds fails on all ranks, which ends the communicator; None: the time-out of the communicator.

    Arrays on CUDA devices are those of PyTorch, CuPy and other libraries with DLPack or ``__cuda_array_interface__``. A
    call on them puts work on the current stream of their library and returns. Results are arrays of the same library.
    """

    def __init__(self, joined: _core.Joined, timeout: float, learning: Learning | None = None) -> None:
        """To be called only by `init`, `split` and `group`."""
        super().__init__(joined)
        self._timeout = timeout
        self._process = os.getpid()
        self._devices = Devices(self.rank, self.size, self._exchange, self._make_proxy, timeout)
        self._learning = learning
        keeps = learning if self.rank == 0 and not self.hosts else None
        self._finalizer = weakref.finalize(self, _close_in, joined, self._process, keeps)
        _communicators[self] = self._finalizer

    def __repr__(self) -> str:
        """Describes it by rank and size."""
        return f"<gc3.Communicator rank {self.rank} of {self.size}>"

    def __enter__(self) -> Communicator:
        """Returns itself; the end of the block closes the communicator."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes the communicator; after an exception, running calls are aborted."""
        if kind is not None and self.usable:
            self._devices.leave()
            if self._joined.busy:
                self.abort()
        self.close()

    # Messages between two ranks; the others are in the core.

    def sendrecv(
        self,
        x: Any,
        to: int,
        out: Any,
        source: int | None = None,
        tag: int = 0,
        *,
        timeout: float | None = None,
    ) -> _core.Status:
        """Sends `x` to rank `to` and receives into `out` from `source`, or any rank, at once, both with `tag`.

        Raises:
            gc3.UserError: As `send` and `recv`.
            gc3.CommError: As `send` and `recv`.
        """
        found = self._joined.run_messages([(True, x, to, tag), (False, out, source, tag)], timeout)
        return cast("_core.Status", found[1])

    def batch(
        self, operations: Sequence[messages.Send | messages.Recv], *, timeout: float | None = None
    ) -> list[_core.Status | None]:
        """Does all of the sends and receives at once, so that their order does not matter.

        Args:
            operations: `gc3.Send` and `gc3.Recv`.
            timeout: Seconds after which this call ends alone; None: those of the communicator, which ends then.

        Returns:
            Of each receive its `Status`, of each send None.

        Raises:
            gc3.UserError: As `send` and `recv`.
            gc3.CommError: As `send` and `recv`.
        """
        return self._joined.run_messages([messages.described(operation) for operation in operations], timeout)

    # Objects. Unpickling runs code that the sender has chosen, so it is refused if a rank has changed its user.

    @of_all_ranks
    def broadcast_object(self, obj: Any, root: int = 0) -> Any:
        """Returns the root's `obj` on all ranks: on the root the object itself, elsewhere a copy made with pickle.

        Raises:
            gc3.UserError: `obj` cannot be pickled, or its copy cannot be made here. The communicator stays usable.
            gc3.CommError: The root could not pickle it, or a rank is of another user.
        """
        return objects.broadcast(self, obj, self._root(root))

    @of_all_ranks
    def all_gather_object(self, obj: Any) -> list[Any]:
        """Returns the objects of all ranks, by rank; raises the errors of `broadcast_object`."""
        return objects.all_gather(self, obj) or []

    @of_all_ranks
    def gather_object(self, obj: Any, root: int = 0) -> list[Any] | None:
        """Returns the objects of all ranks on the root, None elsewhere; raises the errors of `broadcast_object`."""
        return objects.all_gather(self, obj, self._root(root))

    @of_all_ranks
    def scatter_object(self, objs: Sequence[Any] | None = None, root: int = 0) -> Any:
        """Returns the root's ``objs[r]`` on rank r; raises the errors of `broadcast_object`. Other ranks give None."""
        return objects.scatter(self, objs, self._root(root))

    def send_object(self, obj: Any, to: int, tag: int = 0, timeout: float | None = None) -> None:
        """Sends an object to rank `to`, which calls `recv_object`; raises the errors of `send` and of pickle."""
        objects.send(self, obj, to, tag, timeout)

    def recv_object(self, source: int | None = None, tag: int | None = None, timeout: float | None = None) -> Any:
        """Returns the first object that rank `source`, or any, has sent with tag `tag`, or any, by `send_object`.

        Raises:
            gc3.UserError: The object cannot be made here.
            gc3.CommError: As `recv`; or a rank is of another user, or has ended, so that whose it was is unknown.
        """
        return objects.recv(self, source, tag, timeout)

    # Programs of the caller, and the choice among programs.

    @told
    def load(
        self, program: Program | str | os.PathLike[str], *, min_size: int = 0, max_size: int | None = None
    ) -> Program:
        """Makes a program serve the calls of its collective, before all rows of the table. All ranks must load it.

        Args:
            program: A compiled program, or the path of a program file. It is verified first.
            min_size: The program serves calls of S >= `min_size` bytes ...
            max_size: ... and S < `max_size`; None: no limit.

        Raises:
            gc3.UserError: The program does not fit this communicator, or does not implement its collective.
        """
        errors.whole(min_size, "min_size", 0, _MOST)
        errors.whole(_MOST if max_size is None else max_size, "max_size", min_size, _MOST)
        loaded = Program.load(program) if isinstance(program, str | os.PathLike) else program
        if isinstance(loaded, DirectProgram):
            raise errors.error("BadArgument", f"{loaded.name} is one-sided, and serves only comm.run(program, ...)")
        verify(loaded)
        about = f"{loaded.name}, {loaded.protocol}"
        self._joined.load_proven(loaded.stored, min_size, max_size, f"the loaded program {loaded.name}", about)
        return loaded

    @of_all_ranks
    def run(
        self,
        program: Program | DirectProgram | Collective,
        x: Any,
        out: Any = None,
        op: datatypes.Op = "sum",
        *,
        count: int | None = None,
        dtype: Any = None,
    ) -> Array | None:
        """Runs a program on this rank's input, or the table's for a custom collective. All ranks must run it.

        A program from a file is verified before its first run. A one-sided program needs the arrays that other ranks
        load from or store into in registered memory (`empty`, `register`); if one is not, messages of the same
        algorithm serve the call, and `explain` says so.

        Args:
            program: The program; or a collective that `gc3.collectives.custom` has made, for which the table must have
                a row (`gc3 tune PATH.py:FUNCTION`) or a program be loaded (`load`). Its condition is compared, so ranks
                that define it otherwise are told.
            x: This rank's input; None if the rank has no input in the collective. Only a part that is also `out`
                changes.
            out: This rank's output. If it is None and the rank has an output, a new array: with the shape of the input
                if both have the same size, and one-dimensional otherwise.
            op: The reduction.
            count: Elements per block; needed if the rank has neither input nor output.
            dtype: The type of the elements if this rank gives no array; None: float32.
        """
        try:  # as `told` does, which would take an eighth of a small call
            plain = type(program) is Program or (type(program) is DirectProgram and out is not None)
            plain = plain and count is dtype is None
            ready = self._prepared.get(cast("Program", program)) if plain else None
            found = self._joined.run_plain(ready, x, out, op)
            return self._run_program(program, *found, op, count, dtype) if isinstance(found, tuple) else found
        except errors.UserError as problem:
            self._joined.refuse(problem.diagnostics[0])
            raise

    def explain(
        self,
        collective: str | Collective,
        count: int | Sequence[int],
        dtype: Any = "float32",
        *,
        in_place: bool = False,
        root: int = 0,
        counts: Any = None,
    ) -> _core.Explanation:
        """Explains which program serves a call of `count` elements per block, from which row of the table, and why.

        Args:
            collective: Its name, or a custom one.
            count: Elements per block. A list: those of each array of one call of many arrays (`coalesce`).
            dtype: Their type.
            in_place: Whether input and output are the same memory.
            root: The root.
            counts: Of a v-form, the elements of all blocks instead of `count`: the matrix of an all-to-all, else a
                number for each rank.
        """
        if isinstance(collective, Collective):
            return self._explain_own(collective, count, dtype, in_place=in_place)
        listed = isinstance(count, list | tuple)
        many = [errors.whole(c, "count", 0, _MOST) for c in cast("Sequence[Any]", count)] if listed else []
        each = 0 if counts is not None else sum(many) if listed else count
        key = self._key(collective, cast("int", each), dtype, in_place=in_place, root=root)
        found = self._joined.explain_call(*key, counts, len(many))
        found.devices = self._devices.explain()
        return found

    @told
    def time(
        self,
        collective: str,
        count: int,
        dtype: Any = "float32",
        op: datatypes.Op = "sum",
        *,
        in_place: bool = False,
        root: int = 0,
        warmup: int = 5,
        iterations: int = 20,
        buffers: tuple[Array | None, Array | None] | None = None,
        program: Program | DirectProgram | None = None,
        options: EngineOptions = DEFAULT_OPTIONS,
        thresholds: Sequence[tuple[str, int | None]] = (),
    ) -> list[float]:
        """Returns the seconds of each of `iterations` calls of `count` elements per block, on the slowest rank.

        There is a barrier before each call, and no Python code between the calls. If given, `buffers` are this rank's
        input and output, and `program` is the program, with the FIFOs of `options` and the `thresholds` of a row of a
        table.
        """
        errors.whole(count, "count", 0, _MOST)
        errors.whole(warmup, "warmup")
        errors.whole(iterations, "iterations", 1)
        element = datatypes.name(datatypes.dtype(dtype))
        if program is None:
            key = self._key(collective, count, dtype, in_place=in_place, root=root)
            ready = self._joined.find_program(*key)
            model = collectives.get(collective).model(self.size, root=key[-1], in_place=in_place)
        else:
            ready, model = self._prepare(program, options, thresholds), program.collective
        if buffers is None:
            typed = datatypes.dtype(dtype)
            given, result = timing.buffers(model, self.rank, count, typed, in_place=in_place)
        else:
            given, result = timing.checked(buffers)
        own = self._joined.time_ready(
            ready, given, result, count, element, operation(op, model, element, self.rank), warmup, iterations
        )
        return self.all_reduce(np.array(own), op="max").tolist()

    # The communicator itself.

    @told
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Returns a communicator of the ranks with the same color, ordered by key; None for color None."""
        color = None if color is None else errors.whole(color, "color")
        key = errors.whole(key, "key", -_MOST, _MOST)
        joined = self._joined.split_off(color, key)
        return None if joined is None else Communicator(joined, self._timeout, self._learning)

    @of_all_ranks
    def group(self, ranks: Sequence[int], *, name: str = "", timeout: float | None = None) -> Communicator:
        """Returns a communicator of some ranks. Only these ranks call it.

        The new communicator has its own order of calls. Calls of this communicator may be running. Groups with a name
        are told apart by ranks and name: on one host, ranks and threads may make and use them in any order,
        and do not wait for each other before their first call. Between hosts they are made in one order. Groups without
        one are made in the same order on any two ranks that are in several of them, by one thread, and in order with
        the calls of this communicator that are waited for. A difference that can be seen is an error on all ranks at
        once, and ends this communicator: another list, another call, or another line of the program. Two groups of the
        same ranks that one line makes, as in a loop, are only told apart by names.

        Args:
            ranks: Ranks of this communicator, including this one. In this order they become ranks 0, 1, ... of the new
                one. All of them must give the same list.
            name: A name, the same on all of them, also for the error messages of the new communicator. Groups of the
                same ranks and name are made in the same order.
            timeout: Seconds after which a call of it without progress fails; None: as for this communicator.

        Raises:
            gc3.UserError: The list is invalid.
            gc3.CommError: One of the ranks has ended, or does not make the group in time.
        """
        members: list[int] | None = None
        try:
            members = [errors.whole(rank, "rank", 0, self.size - 1, name="RankOutOfRange") for rank in ranks]
            waits = self._timeout if timeout is None else seconds(timeout)
            file, line = users_line()
            place = f"{os.path.basename(file)}:{line}" if file and not name else ""
            return Communicator(self._joined.group_of(members, str(name), waits, place), waits, self._learning)
        except errors.UserError as problem:
            outside = members is not None and len(set(members)) == len(members) and self.rank not in members
            if not outside:  # else nobody waits for this rank
                self._joined.refuse(problem.diagnostics[0])
            raise

    @functools.partial(of_all_ranks, tells="_refuse_shrink")
    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Returns a communicator of the ranks that have neither ended nor closed this one, in their order.

        For use after a `CommError` because a rank was lost; calls of this communicator fail from then on. All ranks
        that are left call it. If more ranks end meanwhile, the others go on with the rest. Programs that were loaded
        for this number of ranks serve the new communicator only if no rank was lost; `load` gives it new ones.

        Args:
            timeout: Seconds to wait for the other ranks, and after which a call of the new communicator without
                progress fails; None: as for this communicator.

        Raises:
            gc3.CommError: A rank that is left does not call it in time, or calls it with wrong arguments.
        """
        try:
            waits = self._timeout if timeout is None else seconds(timeout)
        except errors.UserError as problem:
            self._refuse_shrink(problem.diagnostics[0])
            raise
        return Communicator(self._joined.shrunk(waits), waits, self._learning)

    def abort(self) -> None:
        """Makes running calls and all later ones fail, on all ranks. In a fork of the process it does nothing."""
        if os.getpid() == self._process:
            self._devices.abort()
            self._joined.abort()

    def synchronize(self) -> None:
        """Waits for the work that calls on device arrays have put on streams.

        Raises:
            gc3.CommError: One of these calls has failed.
        """
        self._joined.settle()
        self._devices.synchronize()

    def close(self) -> None:
        """Waits for started calls, and leaves. After calls on device arrays it is collective."""
        if self.usable:
            self._joined.settle(closes=True)
            self._devices.close()
            self._finalizer()

    def _refuse(self, problem: _core.Diagnostic) -> None:
        self._joined.refuse(problem)

    def _refuse_shrink(self, problem: _core.Diagnostic) -> None:
        """As `_refuse`, of `shrink`: the others meet outside the order of calls, which may have ended."""
        with contextlib.suppress(errors.Gc3Error):
            self._joined.shrunk(self._timeout, problem)

    def _root_of(self, root: Any) -> int:
        return errors.whole(root, "root", 0, self.size - 1, name="RankOutOfRange")

    _root = told(_root_of)  # where the other ranks wait for this one

    def _key(
        self, collective: str, count: int, dtype: Any, *, in_place: bool, root: Any
    ) -> tuple[str, int, str, bool, int]:
        """The arguments by which the core finds the program of a call."""
        number, element = errors.whole(count, "count", 0, _MOST), datatypes.name(datatypes.dtype(dtype))
        return collectives.get(collective).name, number, element, in_place, self._root_of(root)

    def _run_on_device(
        self,
        recipe: _core.DeviceRecipe,
        device: int,
        given: int,
        result: int,
        count: int,
        dtype: str,
        op: _core.Operation,
        stream: int,
    ) -> None:
        """Runs a call on device arrays. The core calls this, because the engines of devices are connected in Python."""
        self._devices.call(recipe, device).enqueue(given, result, count, dtype, op, stream)

    def _make_proxy(self) -> _core.CudaProxy | None:
        """Returns what carries messages of devices to other hosts."""
        return _core.make_cuda_proxy(self._joined)

    def _exchange(self, own: bytes) -> list[bytes]:
        """Returns the bytes that all ranks give at the same point of their calls; all have the same length."""
        return [part.tobytes() for part in np.split(self.all_gather(np.frombuffer(own, np.uint8)), self.size)]


def seconds(timeout: Any) -> float:
    """Returns a time-out in seconds; raises `gc3.UserError` if it is invalid."""
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise errors.error("BadOption", f"timeout={timeout!r}; expected a number of seconds above 0")
    return timeout


def _close_in(joined: _core.Joined, process: int, learning: Learning | None) -> None:
    if os.getpid() == process and joined.inside:  # `done` has released it, whose thread cannot wait for itself
        start_thread("a thread that closes a communicator", _close_in, joined, process, learning)
    elif os.getpid() == process:
        # After an exception, this program will not make the calls for which other ranks wait.
        joined.close(at_once=getattr(sys, "last_value", None) is not None)
        if learning is not None:
            learning.keep(joined)


# With what closes each of them, in the order in which they were made.
_communicators: weakref.WeakKeyDictionary[Communicator, weakref.finalize[Any, Any]] = weakref.WeakKeyDictionary()


def in_use() -> list[Communicator]:
    """Returns the communicators of this process that are open, in the order in which they were made."""
    return [comm for comm in list(_communicators) if comm.usable]


def _note_fork() -> None:
    for finalizer in list(_communicators.values()):
        finalizer.detach()  # a forked process must not use the resources of its parent


os.register_at_fork(after_in_child=_note_fork)
