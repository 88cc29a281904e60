"""Lays out the buffers of a run from the caller's arrays: sizes, types, aliasing, and checks against overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

import numpy as np

from gc3 import collectives, datatypes, errors

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3 import _core
    from gc3.datatypes import Array, DType

Call: TypeAlias = "tuple[list[Array | None], list[Array | None], int, str, _core.Operation]"

_INPUT, _OUTPUT = 0, 1


@dataclass(frozen=True, slots=True)
class Bound:
    """The buffers of one run.

    Attributes:
        model: The collective.
        inputs: The arrays that the engine reads, one per rank; in place, a part of the same rank's output or the
            reverse.
        outputs: The arrays that the engine writes, one per rank.
        results: The arrays that the caller gets after `finish`.
        count: Elements per block; bytes, if the runtime does not know the type and only moves it.
        dtype: Name of the data type.
        copies: (destination, source) of the copies that `finish` makes.
    """

    model: _core.Collective
    inputs: list[Array | None]
    outputs: list[Array | None]
    results: list[Array | None]
    count: int
    dtype: str
    copies: tuple[tuple[Array, Array], ...]

    def call(self, op: datatypes.Op) -> Call:
        """Returns what an engine that has all ranks takes."""
        return self.inputs, self.outputs, self.count, self.dtype, operation(op, self.model, self.dtype)

    def timed(self, time: Callable[..., list[float]], op: datatypes.Op, warmup: int, iterations: int) -> list[float]:
        """Returns the seconds of each iteration by the `time` of an engine."""
        errors.whole(warmup, "warmup")
        errors.whole(iterations, "iterations", 1)
        times = time(*self.call(op), warmup, iterations)
        self.finish()
        return times

    def finish(self) -> list[Array | None]:
        """Copies the results to the caller's outputs."""
        for destination, source in self.copies:
            np.copyto(destination, source)
        return self.results


def aliased(model: _core.Collective, rank: int) -> tuple[str, int] | None:
    """Returns which buffer of `rank` lies inside the other, and from which block on; None if they do not alias.

    >>> from gc3.collectives import BUILTIN
    >>> aliased(BUILTIN["allgather"].model(4, in_place=True), 3)
    ('input', 3)
    """
    if not model.in_place:
        return None
    for name, inner, outer in (("input", _INPUT, _OUTPUT), ("output", _OUTPUT, _INPUT)):
        buffer, index = model.canonical(rank, inner, 0)
        if buffer == outer:
            return name, index // model.chunks
    return None


class Given(TypedDict, total=False):
    """The options of a run besides its inputs: see `Program.run`."""

    op: datatypes.Op
    outputs: Sequence[Array | None] | None
    count: int | None
    dtype: npt.DTypeLike | str | None


def operation(
    op: datatypes.Op, model: _core.Collective, dtype: npt.DTypeLike | str, rank: int | None = None
) -> _core.Operation:
    """Returns what the runtime takes for a reduction of a collective: see `datatypes.operation`."""
    if isinstance(op, datatypes.PreMulSum) and not collectives.reduces(model):
        raise errors.error("BadReduceOp", f"{op}: {model.name} reduces nothing")
    return datatypes.operation(op, dtype, model.ranks, rank)


def bind(
    model: _core.Collective,
    inputs: Sequence[npt.ArrayLike | None],
    outputs: Sequence[Array | None] | None,
    count: int | None,
    dtype: npt.DTypeLike | str | None,
) -> Bound:
    """Checks the caller's arrays against the collective and lays out the buffers of a run.

    The caller's inputs are only read. An exception: if the caller's output is a part of its input, in place, that part
    is written.
    """
    _refuse_tensors(model)
    moves = not collectives.reduces(model)
    wanted = None if dtype is None else datatypes.movable(dtype) if moves else datatypes.dtype(dtype)
    given_in = [None if array is None else as_array(array, wanted) for array in _per_rank(model, "inputs", inputs)]
    given_out = _per_rank(model, "outputs", outputs) if outputs is not None else [None] * model.ranks
    found = _common_dtype(given_in, given_out, wanted)
    found = datatypes.movable(found) if moves else datatypes.dtype(found)
    elements = _common_count(model, given_in, given_out, count)
    return _bound(model, [*enumerate(zip(given_in, given_out, strict=True))], elements, found)


def bind_rank(
    model: _core.Collective, rank: int, source: Array | None, target: Array | None, count: int, dtype: DType
) -> Bound:
    """Does the same for the arrays of one rank, whose count and type are known."""
    _refuse_tensors(model)
    return _bound(model, [(rank, (source, target))], count, dtype)


def _refuse_tensors(model: _core.Collective) -> None:
    if model.tensors:
        raise errors.error("NotWithCompute", f"'{model.name}' has named tensors, not one input and output of each rank")


def _bound(
    model: _core.Collective, given: Sequence[tuple[int, tuple[Array | None, Array | None]]], count: int, dtype: DType
) -> Bound:
    for rank, (source, target) in given:
        _check(model, rank, "input", source, model.input_blocks(rank) * count, needed=True)
        _check(model, rank, "output", target, model.output_blocks(rank) * count, needed=False)
    ranks = [_lay_out(model, rank, count, dtype, source, target) for rank, (source, target) in given]
    check_apart(
        Span(_address(array), array.nbytes, what, written=written)
        for rank in ranks
        for array, what, written in rank.theirs
        if array is not None
    )
    for rank in ranks:
        if rank.before is not None:
            np.copyto(*rank.before)
    return Bound(
        model,
        [r.input for r in ranks],
        [r.output for r in ranks],
        [r.result for r in ranks],
        *datatypes.moved(count, dtype),
        tuple(r.after for r in ranks if r.after is not None),
    )


@dataclass(frozen=True, slots=True)
class _Rank:
    """The buffers of one rank, flat and contiguous, and the copies around the run."""

    input: Array | None
    output: Array | None
    result: Array | None
    before: tuple[Array, Array] | None = None  # destination, source
    after: tuple[Array, Array] | None = None
    theirs: tuple[tuple[Array | None, str, bool], ...] = ()  # the caller's memory: array, its role, is it written


def _lay_out(
    model: _core.Collective, rank: int, count: int, dtype: DType, source: Array | None, target: Array | None
) -> _Rank:
    in_size, out_size = model.input_blocks(rank) * count, model.output_blocks(rank) * count
    flat_in = np.ravel(source) if model.input_blocks(rank) and source is not None else None
    flat_out = np.ravel(target) if model.output_blocks(rank) and target is not None else None
    reads = (flat_in, f"the input of rank {rank}", False)
    writes = (flat_out, f"the output of rank {rank}", True)

    def shaped(array: Array | None) -> Array | None:
        """The caller's own array, or a new one with the input's shape if the sizes agree."""
        if target is not None or array is None:
            return target
        return np.reshape(array, source.shape) if source is not None and source.size == array.size else array

    place = aliased(model, rank)
    if place is None or flat_in is None or not model.output_blocks(rank):
        output = np.empty(out_size, dtype) if model.output_blocks(rank) and flat_out is None else flat_out
        return _Rank(flat_in, output, shaped(output), theirs=(reads, writes))
    inner, block = place
    if inner == "input":
        output = np.empty(out_size, dtype) if flat_out is None else flat_out
        own = output[block * count :][:in_size]
        if _address(own) == _address(flat_in):
            return _Rank(own, output, shaped(output), theirs=(writes,))
        return _Rank(own, output, shaped(output), before=(own, flat_in), theirs=(reads, writes))
    if flat_out is not None and _address(flat_out) == _address(flat_in[block * count :][:out_size]):
        return _Rank(flat_in, flat_out, target, theirs=((flat_in, f"the buffer of rank {rank}", True),))
    outer = np.copy(flat_in)
    output = outer[block * count :][:out_size]
    after = None if flat_out is None else (flat_out, output)
    return _Rank(outer, output, shaped(output), after=after, theirs=(reads, writes))


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Memory of the caller, in bytes: where it begins, what it is, and whether it is written."""

    start: int
    bytes: int
    what: str
    written: bool = field(kw_only=True)


def check_apart(spans: Iterable[Span]) -> None:
    """Refuses memory of the caller that is written and also has another role.

    Raises:
        gc3.UserError: Two spans overlap, one of which is written.
    """
    last: tuple[int, str] = (0, "")  # the furthest end of the spans so far, and of the written ones
    last_written: tuple[int, str] = (0, "")
    for span in sorted(span for span in spans if span.bytes):
        reach, other = last if span.written else last_written
        if span.start < reach:
            raise errors.error("BadBuffer", f"{span.what} overlaps {other}")
        last = max(last, (span.start + span.bytes, span.what))
        if span.written:
            last_written = max(last_written, (span.start + span.bytes, span.what))


def _per_rank(model: _core.Collective, what: str, arrays: Sequence[Any]) -> list[Any]:
    listed = list(arrays)
    if len(listed) != model.ranks:
        raise errors.error("BadBuffer", f"{len(listed)} {what} for {model.ranks} ranks; pass one per rank")
    return listed


def as_array(array: npt.ArrayLike, dtype: DType | None) -> Array:
    """Returns what the caller gives as an input as an array, of `dtype` if its elements have no type yet.

    Raises:
        gc3.UserError: It is none, or has a mask.
    """
    datatypes.refuse_mask(cast("Any", array))
    given = None if isinstance(array, np.ndarray) else dtype
    try:
        return np.asarray(array, given)
    except (TypeError, ValueError) as problem:  # a TypeError from arrays on devices
        raise errors.error("BadBuffer", f"an input is not an array: {problem}") from None


def _common_dtype(inputs: Sequence[Any], outputs: Sequence[Any], wanted: DType | None) -> DType:
    for what, arrays in (("input", inputs), ("output", outputs)):
        for rank, array in enumerate(arrays):
            if array is None:
                continue
            if what == "output" and not isinstance(array, np.ndarray):
                raise errors.error("BadBuffer", f"the output of rank {rank} is not a NumPy array")
            found = cast("Array", array).dtype
            if wanted is not None and found != wanted:
                raise errors.error(
                    "BadBuffer",
                    f"the {what} of rank {rank} is {found}; expected {wanted}",
                )
            wanted = found
    if wanted is None:
        raise errors.error("BadBuffer", "the data type is unknown because no rank has an array: pass dtype=")
    return wanted


def _common_count(
    model: _core.Collective,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
    count: int | None,
) -> int:
    if count is not None:
        return errors.whole(count, "count", 0, 2**48, name="BadBuffer")
    for arrays, blocks in ((inputs, model.input_blocks), (outputs, model.output_blocks)):
        for rank, array in enumerate(arrays):
            if array is not None and blocks(rank):
                return array.size // blocks(rank)
    raise errors.error("BadBuffer", "the number of elements is unknown because no rank has an array: pass count=")


def _check(model: _core.Collective, rank: int, what: str, array: Array | None, size: int, *, needed: bool) -> None:
    if array is None:
        if needed and size:
            raise errors.error("BadBuffer", f"rank {rank} needs an {what} of {size} elements and has none")
        return
    if array.size != size:
        blocks = model.input_blocks(rank) if what == "input" else model.output_blocks(rank)
        parts = f" ({blocks} blocks of {size // blocks})" if blocks > 1 else ""
        raise errors.error(
            "BadBuffer", f"the {what} of rank {rank} has {array.size} elements where {size}{parts} are needed"
        )
    if what == "input":
        return
    datatypes.refuse_mask(array)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise errors.error("BadBuffer", f"the output of rank {rank} must be contiguous and writeable")
