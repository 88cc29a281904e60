"""Calls whose blocks differ in length: from what the caller passes to the counts and addresses that the core takes.

A count is a number of rows: of entries along the first axis. Rows have the same shape and type on all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gc3 import _core, datatypes, errors
from gc3.comm import arrays
from gc3.cuda.arrays import DeviceArray

if TYPE_CHECKING:
    from gc3.datatypes import Array

_INPUT, _OUTPUT = 0, 1
_MOST = 2**62
_DIVIDED = {"alltoall", "reducescatter", "scatter"}  # the input has a block for each rank


@dataclass(frozen=True, slots=True)
class Known:
    """Counts that the caller gives.

    Attributes:
        all: Of all blocks of all ranks: then no rank has to ask another.
        input: Of the blocks of this rank's input.
        output: Of the blocks of this rank's output.
    """

    all: list[int] | None = None
    input: list[int] | None = None
    output: list[int] | None = None


def call(
    comm: _core.Communicator,
    collective: str,
    x: Any,
    known: Known,
    *,
    op: datatypes.Op = "sum",
    root: int = 0,
    out: Any = None,
    later: bool = False,
    done: Callable[[], object] | None = None,
    timeout: float | None = None,
) -> Any:
    """Makes a call, and returns this rank's output; None for a rank that has none.

    `later`: returns a handle of it, and `done` is called when it has ended.
    """
    if not 0 <= errors.whole(root, "root", name="RankOutOfRange") < comm.size:
        raise errors.error("RankOutOfRange", f"root {root} of {comm.size} ranks")
    model = _core.Collective.builtin(collective, comm.size, 1, root)
    inputs, outputs = model.input_blocks(comm.rank), model.output_blocks(comm.rank)
    given = _given(x, inputs, divided=collective in _DIVIDED) if inputs else None
    result = _target(out, outputs) if outputs and out is not None else None
    typed = given or result
    if typed is None:
        raise errors.error("BadBuffer", "this rank has no input to make an output from: give out=")
    if given is not None and result is not None:
        given.check_like(result)
    name, units, _ = datatypes.element(typed.dtype)
    reduction = datatypes.operation(op, typed.dtype, comm.size, comm.rank)
    counts = known.all or _agreed(
        comm, collective, known, given, result, (name, reduction, root, typed.row * units), timeout
    )
    own = [
        [counts[model.v_count(comm.rank, buffer, block)] for block in range(blocks)]
        for buffer, blocks in ((_INPUT, inputs), (_OUTPUT, outputs))
    ]
    if given is not None:
        given.check_rows(own[_INPUT])
    if outputs and result is None:
        listed = collective == "alltoall" and typed.counts is not None
        result = typed.made(own[_OUTPUT], apart=listed)
    if result is not None:
        result.check_rows(own[_OUTPUT])
    if given is not None and result is not None and collective in {"gather", "scatter"}:
        given = given.apart_from(result)
    scale = typed.row * units
    given_at = [] if given is None else given.addresses(own[_INPUT])
    result_at = [] if result is None else result.addresses(own[_OUTPUT])
    if collective == "allgather" and _is_nothing_in(given, result):
        given_at = [result_at[comm.rank]]
    if collective == "reducescatter" and _is_nothing_in(result, given):
        result_at = [given_at[comm.rank]]
    made = (
        collective,
        [count * scale for count in counts],
        given_at,
        result_at,
        name,
        reduction,
        root,
    )
    value = None if result is None else result.value(own[_OUTPUT])
    joined = _core.Joined.of(comm)
    if later:
        return joined.start_v(comm, *made, (given, result), value, done, timeout)
    joined.run_v(*made, timeout)
    return value


def _agreed(
    comm: _core.Communicator,
    collective: str,
    known: Known,
    given: _Blocks | None,
    result: _Blocks | None,
    typed: tuple[str, _core.Operation, int, int],
    timeout: float | None,
) -> list[int]:
    """All counts, from what every rank knows."""
    inputs = known.input
    if given is not None:
        inputs = given.counts or (inputs if collective in _DIVIDED else [given.rows])
    if given is not None and inputs is not None:
        given.check_rows(inputs)
    outputs = known.output if result is None else result.counts or known.output
    room = None if result is None or result.counts is not None else result.rows
    name, reduction, root, row = typed
    return _core.Joined.of(comm).agree_counts(collective, name, reduction, root, row, inputs, outputs, room, timeout)[0]


def _is_nothing_in(inner: _Blocks | None, outer: _Blocks | None) -> bool:
    """Whether a buffer is an empty part of another one: its address then does not say which part."""
    if inner is None or outer is None or len(inner.parts) != 1 or outer.counts is not None:
        return False
    mine, whole = inner.parts[0], outer.parts[0]
    return mine.nbytes == 0 and 0 <= mine.ctypes.data - whole.ctypes.data < max(whole.nbytes, 1)


def lengths(x: Any) -> list[int] | None:
    """Returns the rows of each array of a list; None for anything else."""
    if not isinstance(x, (list, tuple)):
        return None
    return [len(_rows(arrays.source(part))) for part in cast("Sequence[Any]", x)]


def counts_of(values: Any, size: int, what: str) -> list[int]:
    """Returns one count per rank."""
    try:
        made = [errors.whole(value, what, 0, _MOST, name="BadBuffer") for value in cast("Sequence[Any]", values)]
    except TypeError:
        raise errors.error("BadBuffer", f"{what} is {values!r}, not a number for each rank") from None
    if len(made) != size:
        raise errors.error("BadBuffer", f"{what} has {len(made)} numbers for {size} ranks")
    return made


def matrix_or_row(values: Any, size: int, rank: int) -> Known:
    """What `send_counts` tells: what this rank sends to each, or, with two axes, what each sends to each."""
    if values is None:
        return Known()
    try:
        axes = np.ndim(values)
    except ValueError:
        raise errors.error("BadBuffer", f"send_counts is {values!r}, not rows of equal length") from None
    if axes == 2:  # noqa: PLR2004
        rows = [counts_of(row, size, "a row of send_counts") for row in values]
        if len(rows) != size:
            raise errors.error("BadBuffer", f"send_counts has {len(rows)} rows for {size} ranks")
        return Known(all=[count for row in rows for count in row], input=rows[rank])
    return Known(input=counts_of(values, size, "send_counts"))


def of_all_ranks(collective: str, counts: Any, size: int) -> list[int]:
    """The counts of a v-form: the matrix of an all-to-all, else a number for each rank."""
    if collective != "alltoall":
        return counts_of(counts, size, "counts")
    known = matrix_or_row(counts, size, 0).all
    if known is None:
        raise errors.error("BadBuffer", f"counts of an all-to-all: expected a list of {size} for each of {size} ranks")
    return known


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of a buffer: one after the other in one array, or an array each."""

    parts: tuple[Array, ...]
    counts: list[int] | None  # where each is an array of its own
    split: bool = False  # whether the caller gets a list

    @property
    def dtype(self) -> datatypes.DType:
        return self.parts[0].dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.parts[0].shape[1:]

    @property
    def row(self) -> int:
        """Elements of a row."""
        return math.prod(self.row_shape)

    @property
    def rows(self) -> int:
        return sum(len(part) for part in self.parts)

    def check_like(self, other: _Blocks) -> None:
        if self.dtype != other.dtype:
            raise errors.error("BadBuffer", f"out is of {other.dtype}, the input of {self.dtype}")
        if self.row_shape != other.row_shape:
            raise errors.error("BadBuffer", f"out has rows of shape {other.row_shape}, the input of {self.row_shape}")

    def check_rows(self, counts: list[int]) -> None:
        if self.counts is None and self.rows != sum(counts):
            raise errors.error("BadBuffer", f"an array of {self.rows} rows for counts of {sum(counts)} together")
        if self.counts is not None and self.counts != counts:
            raise errors.error("BadBuffer", f"arrays of {self.counts} rows for counts of {counts}")

    def addresses(self, counts: list[int]) -> list[int]:
        if self.counts is not None:
            return [part.ctypes.data for part in self.parts]
        row_bytes = self.row * self.dtype.itemsize
        at, found = self.parts[0].ctypes.data, list[int]()
        for count in counts:
            found.append(at)
            at += count * row_bytes
        return found

    def made(self, counts: list[int], *, apart: bool) -> _Blocks:
        """A new buffer of such rows."""
        array = cast("Array", arrays.like(self.parts[0], (sum(counts), *self.row_shape)))
        return _Blocks((array,), None, apart)

    def apart_from(self, other: _Blocks) -> _Blocks:
        if not any(np.may_share_memory(a, b) for a in self.parts for b in other.parts):
            return self
        return _Blocks(tuple(np.array(part) for part in self.parts), self.counts)

    def value(self, counts: list[int]) -> Any:
        if self.counts is not None:
            return list(self.parts)
        array = self.parts[0]
        if not self.split:
            return array
        ends = np.cumsum(counts)
        return [array[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _given(x: Any, blocks: int, *, divided: bool) -> _Blocks:
    if divided and isinstance(x, (list, tuple)):
        return _listed([arrays.source(part) for part in cast("Sequence[Any]", x)], blocks, "the input")
    return _Blocks((_rows(arrays.source(x)),), None)


def _target(out: Any, blocks: int) -> _Blocks:
    if isinstance(out, (list, tuple)):
        return _listed([arrays.target(part) for part in cast("Sequence[Any]", out)], blocks, "out")
    return _Blocks((_rows(arrays.target(out)),), None)


def _listed(parts: list[arrays.AnyArray], blocks: int, what: str) -> _Blocks:
    if len(parts) != blocks:
        raise errors.error("BadBuffer", f"{what} is a list of {len(parts)} arrays, not {blocks}")
    made = tuple(_rows(part) for part in parts)
    for part in made[1:]:
        if part.dtype != made[0].dtype or part.shape[1:] != made[0].shape[1:]:
            raise errors.error("BadBuffer", f"{what} is a list of arrays whose rows differ in type or shape")
    return _Blocks(made, [len(part) for part in made])


def _rows(array: arrays.AnyArray) -> Array:
    if isinstance(array, DeviceArray):
        raise errors.error("BadBuffer", "an array on a device: blocks of lengths of their own are moved on the host")
    return np.atleast_1d(array)
