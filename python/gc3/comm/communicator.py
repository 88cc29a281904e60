"""The communicator: what a script calls, started by torchrun, mpirun, srun, or with RANK and WORLD_SIZE set.

>>> from gc3.comm import init
>>> with init(rank=0, size=1) as comm:
...     comm.all_reduce([1.0, 2.0])
array([1., 2.])
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gc3 import _core, collectives, datatypes, errors
from gc3.buffers import bind_rank
from gc3.comm import arrays, timing
from gc3.comm.arrays import AnyArray
from gc3.comm.devices import Devices
from gc3.comm.progress import Handle, Progress
from gc3.comm.selection import Table
from gc3.comm.serving import Explanation, Serving
from gc3.cuda.arrays import DeviceArray
from gc3.program import DEFAULT_OPTIONS, EngineOptions, Program, check_program, verify

if TYPE_CHECKING:
    from gc3.datatypes import Array

T = TypeVar("T")

_MOST = 2**63 - 1  # bytes, elements, keys: what the core can count

_numbers = itertools.count()  # of communicators, in the order in which they were made


class Communicator:
    """Ranks that call collectives together, each on its own arrays.

    Every rank makes the same calls in the same order, with the same counts, types and reductions; a rank that does
    otherwise, ends or stops makes the calls of all ranks fail with `CommError`, and the communicator is of no further
    use. Arrays are NumPy arrays or anything with the buffer protocol or DLPack on the CPU. Results are new NumPy arrays
    unless `out` is given; `out` may be the memory of the input where the collective can work in place, then on every
    rank. A method whose name ends in ``_async`` returns a `Handle` at once.

    Arrays on CUDA devices are those of PyTorch, CuPy and whatever has DLPack or ``__cuda_array_interface__``. A call on
    them puts work on the stream that their library works on now and returns; results are arrays of the same library.
    """

    def __init__(self, core: _core.Communicator, table: Table, timeout: float) -> None:
        """Made by `init` and `split`."""
        self._core = core
        self._table = table
        self.rank = core.rank
        self.size = core.size
        self._progress = Progress()
        self._serving = Serving(core, table)
        self._timeout = timeout
        self._devices = Devices(core, self._exchange, table, timeout)
        self._usable = "yes"
        self.number = next(_numbers)
        self._finalizer = weakref.finalize(self, _close_in, core, self._progress, os.getpid())
        _communicators.add(self)

    def __repr__(self) -> str:
        """Says which rank this is."""
        return f"<gc3.Communicator rank {self.rank} of {self.size}>"

    def __enter__(self) -> Communicator:
        """Returns itself; the communicator is closed on the way out."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes the communicator; where an exception is the reason, calls under way are given up."""
        if kind is not None:
            self._devices.leave()
            if self._progress.busy:
                self.abort()
        self.close()

    # The collectives. Each has a private form that does the work, for both the plain and the asynchronous one.

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> Array:
        """Returns the reduction of all ranks' `x` on every rank; `out` may be `x`."""
        return self._in_turn(partial(self._all_reduce, x, op, out))

    def all_reduce_async(self, x: Any, op: str = "sum", out: Any = None) -> Handle[Array]:
        """Starts `all_reduce`."""
        return self._start(partial(self._all_reduce, x, op, out))

    def all_gather(self, x: Any, out: Any = None) -> Array:
        """Returns all ranks' `x`, joined along the first axis, on every rank; `x` may be this rank's part of `out`."""
        return self._in_turn(partial(self._all_gather, x, out))

    def all_gather_async(self, x: Any, out: Any = None) -> Handle[Array]:
        """Starts `all_gather`."""
        return self._start(partial(self._all_gather, x, out))

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> Array:
        """Returns part r of the reduction of all ranks' `x` on rank r, parts being equal along the first axis."""
        return self._in_turn(partial(self._reduce_scatter, x, op, out))

    def reduce_scatter_async(self, x: Any, op: str = "sum", out: Any = None) -> Handle[Array]:
        """Starts `reduce_scatter`."""
        return self._start(partial(self._reduce_scatter, x, op, out))

    def all_to_all(self, x: Any, out: Any = None) -> Array:
        """Returns, as part s along the first axis, part r of rank s's `x` on rank r; `out` may be `x`."""
        return self._in_turn(partial(self._all_to_all, x, out))

    def all_to_all_async(self, x: Any, out: Any = None) -> Handle[Array]:
        """Starts `all_to_all`."""
        return self._start(partial(self._all_to_all, x, out))

    def broadcast(self, x: Any, root: int = 0) -> Array:
        """Overwrites `x` with the root's `x` on every other rank, and returns it."""
        return self._in_turn(partial(self._broadcast, x, root))

    def broadcast_async(self, x: Any, root: int = 0) -> Handle[Array]:
        """Starts `broadcast`."""
        return self._start(partial(self._broadcast, x, root))

    def reduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None) -> Array | None:
        """Returns the reduction of all ranks' `x` on the root, None elsewhere."""
        return self._in_turn(partial(self._reduce, x, op, root, out))

    def reduce_async(self, x: Any, op: str = "sum", root: int = 0, out: Any = None) -> Handle[Array | None]:
        """Starts `reduce`."""
        return self._start(partial(self._reduce, x, op, root, out))

    def gather(self, x: Any, root: int = 0, out: Any = None) -> Array | None:
        """Returns all ranks' `x`, joined along the first axis, on the root, None elsewhere."""
        return self._in_turn(partial(self._gather, x, root, out))

    def gather_async(self, x: Any, root: int = 0, out: Any = None) -> Handle[Array | None]:
        """Starts `gather`."""
        return self._start(partial(self._gather, x, root, out))

    def scatter(self, x: Any, root: int = 0, out: Any = None) -> Array:
        """Returns part r along the first axis of the root's `x` on rank r; other ranks than the root need `out`."""
        return self._in_turn(partial(self._scatter, x, root, out))

    def scatter_async(self, x: Any, root: int = 0, out: Any = None) -> Handle[Array]:
        """Starts `scatter`."""
        return self._start(partial(self._scatter, x, root, out))

    def all_to_next(self, x: Any, out: Any = None) -> Array | None:
        """Returns the `x` of the rank before this one; None on rank 0."""
        return self._in_turn(partial(self._all_to_next, x, out))

    def all_to_next_async(self, x: Any, out: Any = None) -> Handle[Array | None]:
        """Starts `all_to_next`."""
        return self._start(partial(self._all_to_next, x, out))

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._in_turn(self._core.barrier)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
        """Returns a new array, of zeros, that all ranks can read: large calls on it need no copies on their way.

        The memory is shared among the processes of the job, and given back when the array and its views are gone.
        """
        typed = datatypes.dtype(dtype)
        sizes = shape if isinstance(shape, tuple) else (shape,)
        sizes = tuple(errors.whole(length, "shape", 0, _MOST, name="BadBuffer") for length in sizes)
        size = errors.whole(math.prod(sizes) * typed.itemsize, "bytes", 0, _MOST, name="OutOfMemory")
        self._check_usable()
        return np.ndarray(sizes, typed, self._core.empty(size))

    # Programs of one's own, and the choice among programs.

    def load(
        self, program: Program | str | os.PathLike[str], *, min_size: int = 0, max_size: int | None = None
    ) -> Program:
        """Makes a program serve the calls of its collective, before any row of the table. All ranks load it.

        Args:
            program: A compiled program, or the file of one; it is proven first.
            min_size: Serve calls of S >= `min_size` bytes ...
            max_size: ... and S < `max_size`; None: no end.

        Raises:
            gc3.UserError: The program does not fit this communicator, or does not do what its collective demands.
        """
        errors.whole(min_size, "min_size", 0, _MOST)
        errors.whole(_MOST if max_size is None else max_size, "max_size", min_size, _MOST)
        loaded = Program.load(program) if isinstance(program, str | os.PathLike) else program
        verify(loaded)
        ready = self._core.prepare(loaded.core)
        self._in_turn(partial(self._core.load, ready))
        self._serving.add(loaded, lambda: ready, (min_size, max_size))
        self._devices.add(loaded, (min_size, max_size))
        return loaded

    def run(
        self,
        program: Program,
        x: Any,
        out: Any = None,
        op: str = "sum",
        *,
        count: int | None = None,
        dtype: Any = None,
    ) -> Array | None:
        """Runs a program, of a custom collective too, on this rank's input; every rank runs it.

        Args:
            program: The program.
            x: This rank's input; None where the collective gives it none. It is not changed, but for a part that `out`
                names.
            out: This rank's output; if None and the rank has one, a new array, of the input's shape where that is as
                large and of one dimension otherwise.
            op: The reduction.
            count: Elements per block; needed where the rank has neither input nor output.
            dtype: The type of the elements where no array of this rank tells it; None: float32.
        """
        return self._in_turn(partial(self._run_program, program, x, out, op, count, dtype))

    def explain(
        self, collective: str, count: int, dtype: Any = "float32", *, in_place: bool = False, root: int = 0
    ) -> Explanation:
        """Says which program serves a call of `count` elements per block, by which row of the table, and why."""
        errors.whole(count, "count", 0, _MOST)
        self._check_root(root)
        found = self._serving.explain(collective, count, datatypes.dtype(dtype), in_place=in_place, root=root)
        return replace(found, devices=self._devices.explain())

    def time(
        self,
        collective: str,
        count: int,
        dtype: Any = "float32",
        op: str = "sum",
        *,
        in_place: bool = False,
        root: int = 0,
        warmup: int = 5,
        iterations: int = 20,
        buffers: tuple[Array | None, Array | None] | None = None,
        program: Program | None = None,
        options: EngineOptions = DEFAULT_OPTIONS,
    ) -> list[float]:
        """Returns the seconds of each of `iterations` calls of `count` elements per block, the slowest rank counting.

        The calls follow each other directly, each after a barrier, and are timed without Python in between. They work
        on `buffers`, this rank's input and output, and run `program`, with the FIFOs of `options`, if given.
        """
        typed = datatypes.dtype(dtype)
        errors.whole(count, "count", 0, _MOST)
        errors.whole(warmup, "warmup")
        errors.whole(iterations, "iterations", 1)
        self._check_root(root)
        if program is None:
            ready = self._serving.program(collective, count, typed, in_place=in_place, root=root)
        else:
            ready = self._core.prepare(program.core, options.slots, options.slot_bytes)
        model = collectives.get(collective).model(self.size, root=root, in_place=in_place)
        if buffers is None:
            given, result = timing.buffers(model, self.rank, count, typed, in_place=in_place)
        else:
            given, result = timing.checked(buffers)
        settings = count, datatypes.name(typed), datatypes.op(op), warmup, iterations
        own = self._in_turn(partial(self._core.time, ready, given, result, *settings))
        return self.all_reduce(np.array(own), op="max").tolist()

    # The communicator itself.

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Returns a communicator of the ranks that give the same color, ordered by key; None for color None."""
        if color is not None:
            color = errors.whole(color, "color")
        key = errors.whole(key, "key", -_MOST, _MOST)
        core = self._in_turn(partial(self._core.split, color, key))
        return None if core is None else Communicator(core, self._table, self._timeout)

    def abort(self) -> None:
        """Makes the calls under way and all later ones fail, on every rank."""
        self._devices.abort()
        self._core.abort()

    def synchronize(self) -> None:
        """Waits for the calls on device arrays, which only put work on streams.

        Raises:
            gc3.CommError: One of them did not go well.
        """
        self._check_usable()
        self._devices.synchronize()

    def close(self) -> None:
        """Finishes the calls that were started, and leaves; after calls on device arrays, all ranks do so together."""
        if self._usable == "yes":
            self._usable = "closed"
            self._progress.stop(self.abort, at_once=False)
            self._devices.close()
            self._finalizer()

    def note_fork(self) -> None:
        """Called in a forked process: what belongs to the parent is not touched again."""
        self._usable = "forked"
        self._finalizer.detach()

    @property
    def usable(self) -> bool:
        """Whether it is open, and this process no fork of the one that made it."""
        return self._usable == "yes"

    def _check_usable(self) -> None:
        if self._usable == "forked":
            raise errors.error("UsedAfterFork", f"it is that of process {os.getppid()}")
        if self._usable == "closed":
            raise errors.error("CommunicatorClosed", repr(self))

    def _start(self, call: Callable[[], T]) -> Handle[T]:
        self._check_usable()
        if arrays.any_on_device(call):
            return self._progress.finished(self._in_turn(call))
        return self._progress.start(call, self.abort)

    def _in_turn(self, call: Callable[[], T]) -> T:
        self._check_usable()
        if self._progress.busy:
            if not arrays.any_on_device(call):
                return self._progress.start(call, self.abort).wait()
            self._progress.settle()  # which stream is the caller's is known on its own thread alone
        return call()

    def _all_reduce(self, x: Any, op: str, out: Any) -> Any:
        given = arrays.source(x)
        result = arrays.target(out, given.shape, given)
        arrays.check_elements(result, given.size, "out")
        self._call("allreduce", given, result, given.size, given, op=op, in_place=arrays.in_place(given, result, 0))
        return arrays.result(result)

    def _all_gather(self, x: Any, out: Any) -> Any:
        given = arrays.source(x)
        result = arrays.target(out, arrays.join_first(given, self.size), given)
        arrays.check_elements(result, self.size * given.size, "out")
        in_place = arrays.in_place(given, result, self.rank * given.nbytes)
        self._call("allgather", given, result, given.size, given, in_place=in_place)
        return arrays.result(result)

    def _reduce_scatter(self, x: Any, op: str, out: Any) -> Any:
        given = arrays.source(x)
        result = arrays.target(out, arrays.split_first(given, self.size, "the input"), given)
        arrays.check_elements(result, given.size // self.size, "out")
        in_place = arrays.in_place(result, given, self.rank * result.nbytes)
        self._call("reducescatter", given, result, result.size, given, op=op, in_place=in_place)
        return arrays.result(result)

    def _all_to_all(self, x: Any, out: Any) -> Any:
        given = arrays.source(x)
        arrays.split_first(given, self.size, "the input")
        result = arrays.target(out, given.shape, given)
        arrays.check_elements(result, given.size, "out")
        in_place = arrays.in_place(given, result, 0)
        self._call("alltoall", given, result, given.size // self.size, given, in_place=in_place)
        return arrays.result(result)

    def _broadcast(self, x: Any, root: int) -> Any:
        self._check_root(root)
        data = arrays.to_write(arrays.source(x)) if self.rank == root else arrays.target(x, None, None)
        given = data if self.rank == root else None
        self._call("broadcast", given, data, data.size, data, root=root, in_place=True)
        return arrays.result(data)

    def _reduce(self, x: Any, op: str, root: int, out: Any) -> Any:
        given, result = self._at_root(x, root, out, joined=False)
        self._call("reduce", given, result, given.size, given, op=op, root=root)
        return None if result is None else arrays.result(result)

    def _gather(self, x: Any, root: int, out: Any) -> Any:
        given, result = self._at_root(x, root, out, joined=True)
        self._call("gather", given, result, given.size, given, root=root)
        return None if result is None else arrays.result(result)

    def _at_root(self, x: Any, root: int, out: Any, *, joined: bool) -> tuple[AnyArray, AnyArray | None]:
        """The buffers of a collective whose output is the root's. Only the root would know that it is in place."""
        self._check_root(root)
        given = arrays.source(x)
        if self.rank != root:
            return given, None
        result = arrays.target(out, arrays.join_first(given, self.size) if joined else given.shape, given)
        arrays.check_elements(result, given.size * (self.size if joined else 1), "out")
        return (given if arrays.offset(given, result) is None else arrays.copied(given)), result

    def _scatter(self, x: Any, root: int, out: Any) -> Any:
        self._check_root(root)
        if self.rank != root:
            result = arrays.target(out, None, None)
            self._call("scatter", None, result, result.size, result, root=root)
            return arrays.result(result)
        given = arrays.source(x)
        result = arrays.target(out, arrays.split_first(given, self.size, "the input"), given)
        arrays.check_elements(result, given.size // self.size, "out")
        if arrays.offset(result, given) is not None:
            given = arrays.copied(given)
        self._call("scatter", given, result, result.size, given, root=root)
        return arrays.result(result)

    def _all_to_next(self, x: Any, out: Any) -> Any:
        given = arrays.source(x)
        result = arrays.target(out, given.shape, given)
        arrays.check_elements(result, given.size, "out")
        self._call("alltonext", given, result, given.size, given, in_place=arrays.in_place(given, result, 0))
        return arrays.result(result) if self.rank > 0 else None

    def _check_root(self, root: Any) -> None:
        if not isinstance(root, int | np.integer) or not 0 <= root < self.size:
            raise errors.error("RankOutOfRange", f"root {root!r} of {self.size} ranks")

    def _call(
        self,
        name: str,
        given: AnyArray | None,
        result: AnyArray | None,
        count: int,
        typed: AnyArray,
        *,
        op: str = "sum",
        root: int = 0,
        in_place: bool = False,
    ) -> None:
        if isinstance(typed, DeviceArray):
            buffers = arrays.on_device(given), arrays.on_device(result)
            self._devices.call(name, buffers, count, typed, op=op, root=root, in_place=in_place)
            return
        program = self._serving.program(name, count, typed.dtype, in_place=in_place, root=root)
        data = arrays.on_host(given), arrays.on_host(result)
        self._core.run(program, *data, count, datatypes.name(typed.dtype), datatypes.op(op))

    def _run_program(self, program: Program, x: Any, out: Any, op: str, count: int | None, dtype: Any) -> Any:
        check_program(program)
        model = program.collective
        if model.ranks != self.size:
            raise errors.error("BadArgument", f"a program of {model.ranks} ranks in a communicator of {self.size}")
        given = None if x is None else arrays.source(x)
        result = None if out is None else arrays.target(out, None, given)
        typed = given if given is not None else result
        if dtype is not None and typed is not None and datatypes.dtype(dtype) != typed.dtype:
            raise errors.error("BadBuffer", f"an array of {typed.dtype} where dtype is {dtype}")
        if count is None:
            sizes = (given, model.input_blocks(self.rank)), (result, model.output_blocks(self.rank))
            count = next((a.size // blocks for a, blocks in sizes if a is not None and blocks), None)
        if count is None:
            raise errors.error("BadBuffer", "this rank has neither an input nor an out to tell the count: pass count=")
        errors.whole(count, "count", 0, 2**48, name="BadBuffer")
        if isinstance(typed, DeviceArray):
            result = self._devices.run(program, arrays.on_device(given), arrays.on_device(result), count, op)
            return None if result is None else arrays.result(result)
        found = datatypes.dtype("float32" if dtype is None else dtype) if typed is None else typed.dtype
        bound = bind_rank(model, self.rank, arrays.on_host(given), arrays.on_host(result), count, found)
        ready = self._core.prepare(program.core)
        self._core.run(ready, bound.inputs[0], bound.outputs[0], count, bound.dtype, datatypes.op(op))
        return bound.finish()[0]

    def _exchange(self, own: bytes) -> list[bytes]:
        """Returns what all ranks, at the same point of their calls, have given; all of one length."""
        everyone = self._all_gather(np.frombuffer(own, np.uint8), None)
        return [part.tobytes() for part in np.split(everyone, self.size)]


def _close_in(core: _core.Communicator, progress: Progress, process: int) -> None:
    if os.getpid() == process:
        try:
            # A program that an exception has ended will not make the calls that its peers' need.
            progress.stop(core.abort, at_once=getattr(sys, "last_value", None) is not None)
        finally:
            core.close()


_communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()


def in_use() -> list[Communicator]:
    """Returns the communicators of this process that are open, in the order in which they were made."""
    return sorted((comm for comm in list(_communicators) if comm.usable), key=lambda comm: comm.number)


def _note_fork() -> None:
    for communicator in list(_communicators):
        communicator.note_fork()


os.register_at_fork(after_in_child=_note_fork)
