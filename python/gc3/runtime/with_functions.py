"""A program whose compute operations have functions: its tensors as arrays, and views of their chunks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from gc3 import _core, computing, datatypes, errors
from gc3.properties import beyond, describe
from gc3.runtime.buffers import as_array
from gc3.runtime.guarded import guarded
from gc3.runtime.options import EngineOptions
from gc3.support.public import of_all_ranks, public

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.datatypes import Array

Shape: TypeAlias = "tuple[int, ...]"

# An application, as `_core` calls it: its function, the shapes and the type of its operands, what takes the seconds of
# each call, and the arrays of the call before.
_Applied: TypeAlias = (
    "tuple[Callable[..., object], list[Shape], np.dtype[Any], Callable[[float], None] | None, list[None]]"
)

_LINE = 128  # bytes: slots are whole cache lines
_KNOWN = 64  # sets of arrays that are not looked at again
_NOTHING = np.empty(0, np.uint8)
_KEPT = 1000  # times of an operation on operands of one size


class Measured:
    """The measured seconds of an operation, as a cost; those of other sizes are in proportion to the declared cost."""

    def __init__(self, name: str, declared: computing.Cost | None) -> None:
        """Takes the operation's name, and its declared cost."""
        self._name = name
        self._declared = declared
        self._times: dict[tuple[int, ...], deque[float]] = {}

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return any(self._times.values())

    def of(self, elements: tuple[int, ...]) -> deque[float]:
        """Returns where the times of applications on so many elements are kept."""
        return self._times.setdefault(elements, deque(maxlen=_KEPT))

    def __call__(self, *elements: int) -> float:
        """Returns the seconds of an application: the median of those of the nearest size."""
        weight = self._weight(elements)
        known = [elements for elements, times in list(self._times.items()) if times]
        nearest = min(known, key=lambda known: abs(math.log((self._weight(known) or 1) / (weight or 1))))
        median = float(np.median(self._times[nearest]))
        return median if nearest == elements else median * weight / (self._weight(nearest) or 1)

    def _weight(self, elements: tuple[int, ...]) -> float:
        if self._declared is None:
            return sum(elements)
        work = computing.work(self._name, self._declared, *elements)
        return work if not isinstance(work, tuple) else work[0] or work[1]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A program made ready for chunks of some shapes, and what its calls of them need."""

    program: _core.ProcessProgram
    outputs: list[tuple[str, Shape]]
    counts: list[int]
    dtype: np.dtype[Any]
    name: str
    operation: _core.Operation
    applied: list[_Applied]
    shapes: dict[str, Shape]


# A call that is kept: see `_core.Joined.kept_call`.
_Kept: TypeAlias = "tuple[_Ready, str, tuple[tuple[Shape, np.dtype[Any]] | None, ...], tuple[tuple[str, Shape], ...]]"


class Bound:
    """A program with a function for each of its compute operations. Made by `gc3.Program.bind`."""

    def __init__(
        self,
        program: _core.Program,
        functions: Mapping[str, Callable[..., None]],
        engine: Callable[[EngineOptions], _core.ThreadsEngine],
        declared: Mapping[str, computing.Operation],
        *,
        check: bool = False,
    ) -> None:
        """Takes the functions by the names of the operations.

        Raises:
            gc3.UserError: The operations of the program are others.
        """
        self._core = program
        self._engine = engine
        # By communicator, which they do not keep open.
        self._prepared: WeakKeyDictionary[_core.Communicator, dict[int, _core.ProcessProgram]] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[_core.Communicator, list[_Kept]] = WeakKeyDictionary()
        self._collective = program.collective
        self._lengths = program.lengths
        self._applications = program.applications()
        self._inputs = [name for name, is_output, _, _ in self._collective.tensors if not is_output]
        self._outputs = [
            (name, chunks, length) for name, is_output, chunks, length in self._collective.tensors if is_output
        ]
        wanted = {name for name, _, _ in self._applications}
        for name in sorted(wanted ^ functions.keys()):
            known = ", ".join(sorted(wanted)) or "none"
            what = "has no function" if name in wanted else "is no operation of it"
            raise errors.error("BadArgument", f"'{errors.shown(name)}' {what}: the program applies {known}")
        for name, function in functions.items():
            if not callable(function):
                raise errors.error("BadArgument", f"'{name}' is bound to {function!r}, which is no function")
        self._checks = check
        properties = {name: tuple(own) for name, own in self._collective.operations}
        for name, reads, _ in self._applications:
            if beyond(properties[name], reads):
                raise errors.error(
                    "BadArgument",
                    f"'{errors.shown(name)}' is declared {describe(properties[name])}, and applied to {reads} operands",
                )
        made = {name: guarded(functions[name], properties[name]) for name in wanted} if check else functions
        self._functions = [made[name] for name, _, _ in self._applications]
        self._shapes_of_latest: dict[str, Shape] = {}
        self._measured = {
            name: Measured(name, declared[name].cost if name in declared else None) for name in sorted(wanted)
        }

    @property
    def costs(self) -> dict[str, computing.Cost]:
        """What applications have cost in the runs so far, by operation, for `gc3.sim.simulate`."""
        return {name: measured for name, measured in self._measured.items() if measured}

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of chunks in the latest run, by name, for `gc3.sim.simulate`; empty before it."""
        return dict(self._shapes_of_latest)

    def run(
        self,
        tensors: Mapping[str, Sequence[npt.ArrayLike | None]],
        *,
        op: str = "sum",
        shapes: Mapping[str, Shape] | None = None,
        slots: int = 0,
        workers: int = 0,
        timeout: float | None = None,
        seed: int | None = None,
    ) -> dict[str, list[Array]]:
        """Runs the program on this machine's CPU, with ranks as threads, and returns the outputs by name and rank.

        Args:
            tensors: For each input its array on each rank, whose first dimension is cut into its chunks; None where a
                rank has none. All have one data type.
            op: The reduction.
            shapes: The shape of a chunk of each length that no input has, by the name of an output or scratch buffer.
            slots: FIFO slots per connection.
            workers: OS threads.
            timeout: Seconds without progress after which the run fails. A function that computes makes progress.
            seed: Deterministic mode.

        Raises:
            gc3.UserError: The arrays are not those of the program, or a function has raised an exception.
        """
        ranks = range(self._collective.ranks)
        arrays, dtype = self._arrays(tensors, ranks)
        found = self._shapes(arrays, shapes or {}, ranks)
        self._shapes_of_latest = self._named(found)
        inputs = [
            [arrays[name][rank] for name, is_output, _, _ in self._collective.tensors if not is_output]
            for rank in ranks
        ]
        outputs = {
            name: [np.empty(_whole(found[length], chunks[rank]), dtype) for rank in ranks]
            for name, chunks, length in self._outputs
        }
        self._engine(EngineOptions(slots, 0, workers, timeout, seed)).compute(
            inputs,
            [[outputs[name][rank] for name in outputs] for rank in ranks],
            [math.prod(shape) for shape in found],
            datatypes.name(dtype),
            _core.Operation(datatypes.op(op)),
            self._applied(found, dtype),
        )
        return outputs

    @of_all_ranks
    def run_rank(
        self,
        comm: _core.Communicator,
        tensors: Mapping[str, npt.ArrayLike | None],
        *,
        op: str = "sum",
        shapes: Mapping[str, Shape] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Runs the program on this rank of a communicator, and returns its outputs. All ranks must run it.

        Functions run in the thread that makes the call. What one raises is the error of the call on all ranks, and
        gives up the communicator. While one computes, no rank takes its call for one without progress.

        Args:
            comm: The `gc3.Communicator`.
            tensors: The inputs of this rank, as for `run`.
            op: The reduction.
            shapes: As for `run`, also of inputs of which this rank has no chunk.
            timeout: Seconds without progress; None: those of the communicator.

        Raises:
            gc3.UserError: The arrays are not those of the program, or a function has raised an exception.
        """
        joined = _core.Joined.of(comm)
        try:
            return self._run_rank(joined, comm, tensors, op, shapes, timeout)
        except errors.UserError as problem:
            joined.refuse(problem.diagnostics[0])  # the others, who wait
            raise

    def _run_rank(
        self,
        joined: _core.Joined,
        comm: _core.Communicator,
        tensors: Mapping[str, npt.ArrayLike | None],
        op: str,
        shapes: Mapping[str, Shape] | None,
        timeout: float | None,
    ) -> dict[str, Array]:
        kept = self._known.get(comm) or self._known.setdefault(comm, [])
        known = joined.kept_call(kept, self._inputs, op, tensors, shapes)
        if known is not None:
            ready, given = known
            inputs = [_NOTHING if array is None else array for array in given]
        else:
            ready, inputs = self._first_time(joined, comm, tensors, op, shapes)
            looks = tuple(
                None if tensors[name] is None else (array.shape, array.dtype)
                for name, array in zip(self._inputs, inputs, strict=True)
            )
            named = tuple((name, tuple(map(int, shape))) for name, shape in (shapes or {}).items())
            # Only what is found again: neither lists, nor arrays that had to be copied.
            if joined.kept_call([(ready, op, looks, named)], self._inputs, op, tensors, shapes) is not None:
                kept.append((ready, op, looks, named))
                del kept[:-_KNOWN]
        self._shapes_of_latest = ready.shapes
        outputs = {name: np.empty(shape, ready.dtype) for name, shape in ready.outputs}
        joined.compute(
            ready.program,
            inputs,
            list(outputs.values()),
            ready.counts,
            ready.name,
            ready.operation,
            ready.applied,
            timeout,
        )
        return outputs

    def _first_time(
        self,
        joined: _core.Joined,
        comm: _core.Communicator,
        tensors: Mapping[str, npt.ArrayLike | None],
        op: str,
        shapes: Mapping[str, Shape] | None,
    ) -> tuple[_Ready, list[Array]]:
        """Checks what is given, and makes the program ready for it."""
        if joined.size != self._collective.ranks:
            raise errors.error(
                "BadArgument", f"the program is for {self._collective.ranks} ranks, the communicator has {joined.size}"
            )
        rank = comm.rank
        given = {
            name: [array if other == rank else None for other in range(joined.size)]
            for name, array in _mapping("tensors", tensors).items()
        }
        arrays, dtype = self._arrays(given, (rank,))
        found = self._shapes(arrays, shapes or {}, (rank,))
        # Slots as long as the longest message that may be: all ranks know the same lengths. Powers of two, because the
        # memory of each length stays as long as the communicator.
        longest = max((math.prod(shape) for shape in found), default=0)
        slot = 1 << (longest * dtype.itemsize * self._core.max_count + _LINE - 1).bit_length()
        prepared = self._prepared.setdefault(comm, {})
        program = prepared.get(slot)
        if program is None:
            program = prepared[slot] = joined.prepare(self._core, 0, slot)
        outputs = [(name, _whole(found[length], chunks[rank])) for name, chunks, length in self._outputs]
        counts = [math.prod(shape) for shape in found]
        operation = _core.Operation(datatypes.op(op))
        applied = self._applied(found, dtype)
        ready = _Ready(program, outputs, counts, dtype, datatypes.name(dtype), operation, applied, self._named(found))
        return ready, [own[rank] for own in arrays.values()]

    def _applied(self, shapes: Sequence[Shape], dtype: np.dtype[Any]) -> list[_Applied]:
        """The applications, on chunks of these shapes."""
        found: list[_Applied] = []
        for function, (name, _, lengths) in zip(self._functions, self._applications, strict=True):
            own = [shapes[length] for length in lengths]
            times = self._measured[name].of(tuple(math.prod(shape) for shape in own))
            # A check takes copies, and calls a function twice.
            found.append((function, own, dtype, None if self._checks else times.append, [None] * len(own)))
        return found

    def _named(self, shapes: Sequence[Shape]) -> dict[str, Shape]:
        """The shapes by name: of each tensor, and of other lengths that applications need."""
        used = {number for _, _, lengths in self._applications for number in lengths}
        named = {name: shapes[number] for name, _, _, number in self._collective.tensors}
        tensors = {number for _, _, _, number in self._collective.tensors}
        return named | {self._lengths[number]: shapes[number] for number in sorted(used - tensors)}

    def _arrays(
        self, given: Mapping[str, Sequence[npt.ArrayLike | None]], ranks: Collection[int]
    ) -> tuple[dict[str, list[Array]], np.dtype[Any]]:
        """The inputs of some ranks as contiguous arrays of one type."""
        wanted = {name: chunks for name, is_output, chunks, _ in self._collective.tensors if not is_output}
        for name in sorted(wanted.keys() ^ _mapping("tensors", given).keys(), key=str):
            what = "is missing" if name in wanted else "is no input of the program"
            raise errors.error("BadBuffer", f"'{errors.shown(str(name))}' {what}; its inputs are {', '.join(wanted)}")
        arrays: dict[str, list[Array]] = {}
        dtype: np.dtype[Any] | None = None
        for name, chunks in wanted.items():
            some = given[name]
            found = len(some) if isinstance(some, Collection) else "no list of"  # pyright: ignore[reportUnnecessaryIsInstance]
            if found != len(chunks):
                raise errors.error("BadBuffer", f"'{name}' has arrays for {found} ranks, not {len(chunks)}")
            arrays[name] = []
            for rank, array in enumerate(given[name]):
                if array is None:
                    if chunks[rank] != 0 and rank in ranks:
                        raise errors.error("BadBuffer", f"rank {rank} has no '{name}'")
                    arrays[name].append(np.empty(0, np.uint8))
                    continue
                made = np.ascontiguousarray(as_array(array, None))
                if dtype is None:
                    dtype = datatypes.dtype(made.dtype)
                if made.dtype != dtype:
                    raise errors.error(
                        "BadBuffer",
                        f"'{name}' of rank {rank} has type {made.dtype}; the program runs on one type, {dtype}",
                    )
                arrays[name].append(made)
        if dtype is None:
            raise errors.error("BadBuffer", "no input, which tells the data type, is given")
        return arrays, dtype

    def _shapes(
        self, arrays: Mapping[str, Sequence[Array]], given: Mapping[str, Shape], ranks: Collection[int]
    ) -> list[Shape]:
        """The shape of a chunk of each length, from the arrays of some ranks."""
        numbers = {name: number for number, name in enumerate(self._lengths)}
        numbers |= {name: length for name, _, _, length in self._collective.tensors}
        found: dict[int, tuple[Shape, str]] = {}

        def learn(number: int, shape: Shape, whose: str) -> None:
            known, first = found.setdefault(number, (shape, whose))
            if known != shape:
                raise errors.error(
                    "BadBuffer",
                    f"a chunk of {whose} has shape {shape}, and one of {first} {known}: the program moves chunks from "
                    "one to the other",
                )

        for name, is_output, chunks, length in self._collective.tensors:
            for rank, array in enumerate(() if is_output else arrays[name]):
                if chunks[rank] == 0 or rank not in ranks:
                    continue
                if array.ndim == 0 or array.shape[0] % chunks[rank]:
                    raise errors.error(
                        "BadBuffer",
                        f"'{name}' of rank {rank} has shape {array.shape}: its first dimension is cut into "
                        f"{chunks[rank]} chunks",
                    )
                learn(length, (array.shape[0] // chunks[rank], *array.shape[1:]), f"'{name}' of rank {rank}")
        for name, shape in _mapping("shapes", given).items():
            if name not in numbers:
                raise errors.error(
                    "BadBuffer", f"shapes: there is no '{errors.shown(str(name))}', but {', '.join(numbers)}"
                )
            axes: object = shape
            if not isinstance(axes, Sequence):
                raise errors.error("BadBuffer", f"shapes[{name!r}] is {shape!r}; expected the sizes of a chunk's axes")
            sizes = tuple(errors.whole(size, f"shapes[{name!r}]", name="BadBuffer") for size in shape)
            learn(numbers[name], sizes, f"'{name}'")
        used = {length for _, _, _, length in self._collective.tensors}
        used |= {length for _, _, lengths in self._applications for length in lengths}
        for number in sorted(used - found.keys()):
            raise errors.error(
                "BadBuffer",
                f"no input has chunks as long as those of '{self._lengths[number]}': give its shape in shapes=",
            )
        return [found[number][0] if number in found else (0,) for number in range(len(self._lengths))]


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise errors.error("BadBuffer", f"{what} is of type {type(given).__name__}; expected what each name has")
    return given  # pyright: ignore[reportUnknownVariableType]


def _whole(shape: Shape, chunks: int) -> Shape:
    """The shape of an output of so many chunks, one after the other in the first dimension."""
    return (shape[0] * chunks, *shape[1:]) if shape else (chunks,)


public(Bound)
