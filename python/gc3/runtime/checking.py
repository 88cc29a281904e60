"""Checks a run element by element against NumPy, for any collective, using only its postcondition.

The data is chosen so that every partial result is exact in the data type, for any order of the reduction. So results
are compared for equality, in float16 as in int64. It is also chosen so that a term that is missing, counted twice or
exchanged changes the result. For sums and products it does so at nearly every element. For minima and maxima only few
terms decide an element, so each term in turn is made the least or largest at some places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np

from gc3 import _core, collectives, datatypes, errors

if TYPE_CHECKING:
    from gc3.datatypes import Array, DType

_WIDE = 2**31 - 1
_LARGEST = 100
_FEWEST_DRAWS = 16  # elements of a chunk, of all runs together
_LARGEST_EXPONENT = 3
_FACTORS = 256  # of wide integers
# Outputs are filled with this byte before a run. No reference result contains it, so an unwritten place is found. As an
# 8-bit float it would equal zero: those types get a NaN.
POISON = 0x80
_POISON_FLOAT8 = 0xFF


# NumPy's function for each reduction; of booleans, too.
FUNCTIONS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first wrong element: its place, the expected and the actual value."""

    rank: int
    index: int
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing the outputs of a run."""

    elements: int = 0  # elements compared, over all ranks; places without a required value are left out
    wrong: int = 0  # elements that differ
    first: Mismatch | None = None  # the first of them
    changed_inputs: tuple[int, ...] = ()  # ranks whose input was changed

    @property
    def ok(self) -> bool:
        """Whether all elements are right and no input was changed."""
        return self.wrong == 0 and not self.changed_inputs

    def __add__(self, other: Comparison) -> Comparison:
        """Returns the result of both."""
        changed = tuple(sorted({*self.changed_inputs, *other.changed_inputs}))
        return Comparison(self.elements + other.elements, self.wrong + other.wrong, self.first or other.first, changed)


@dataclass(frozen=True, slots=True)
class Case:
    """A run to check: a collective, elements per block, a type, a reduction, a seed for the data.

    `shift` moves the places where each term has its turn; see `further`.
    """

    model: _core.Collective
    count: int
    dtype: str = "float32"
    op: str = "sum"
    seed: int = 0
    shift: int = 0

    def inputs(self) -> list[Array | None]:
        """Returns the input of every rank, None for ranks without one.

        Raises:
            gc3.UserError: There is no memory for them and the outputs.
        """
        ranks = self.model.ranks
        blocks = sum(self.model.input_blocks(r) + self.model.output_blocks(r) for r in range(ranks))
        needed, free = blocks * self.count * datatypes.dtype(self.dtype).itemsize, _core.available_memory()
        if needed > free:
            buffers = f"inputs and outputs of {ranks} ranks"
            raise errors.error("OutOfMemory", f"{buffers} take {needed} B, and {free} B are free")
        return [self.input(rank) for rank in range(self.model.ranks)]

    def input(self, rank: int) -> Array | None:
        """Returns the input of one rank; every call gives the same."""
        blocks = self.model.input_blocks(rank)
        if blocks == 0:
            return None
        drawing = _drawing(self.model, datatypes.dtype(self.dtype), self.op)
        random = np.random.default_rng([self.seed, rank])
        values = _draw(random, drawing.usual, blocks * self.count)
        if drawing.period:
            turns = self._turns(rank, drawing.period)
            values[turns] = _draw(random, drawing.special, values[turns].size)
        return values

    def _turns(self, rank: int, period: int) -> slice | Array:
        """The place where a rank's term is the extreme one; each term of a reduction has another place."""
        model = self.model
        if not model.is_custom:
            return slice(-(rank + self.shift) % period, None, period)
        elements = np.arange(model.input_blocks(rank) * self.count)
        length = -(-self.count // model.chunks)
        block, inside = np.divmod(elements, self.count)
        chunk, offset = np.divmod(inside, length)
        before = sum(model.input_chunks(r) for r in range(rank))
        return (before + block * model.chunks + chunk + offset + self.shift) % period == 0

    def poisoned_outputs(self) -> list[Array | None]:
        """Returns the output buffer of every rank, filled so that places that the run does not write are found."""
        dtype = datatypes.dtype(self.dtype)
        blocks = [self.model.output_blocks(rank) for rank in range(self.model.ranks)]
        sizes = [n * self.count * dtype.itemsize for n in blocks]
        poison = _POISON_FLOAT8 if self.dtype.startswith("float8") else POISON
        return [
            datatypes.reinterpret(np.full(size, poison, np.uint8), dtype) if n else None
            for n, size in zip(blocks, sizes, strict=True)
        ]

    def expected(self, inputs: Sequence[Array | None]) -> Iterator[tuple[int, int, Array]]:
        """Yields (rank, first element, values) for each part of the outputs that has a required value."""
        model = self.model
        length = -(-self.count // model.chunks)
        # All chunks of a block follow the same rule, so whole blocks are compared, unless a custom collective
        # distinguishes the chunks of a block.
        step = 1 if model.is_custom and model.chunks != model.split else model.chunks

        def span(index: int) -> slice:
            block, first = divmod(index, model.chunks)
            low, high = (min((first + chunks) * length, self.count) for chunks in (0, step))
            return slice(block * self.count + low, block * self.count + high)

        reduced: dict[tuple[tuple[int, int], ...], Array] = {}
        for rank in range(model.ranks):
            for index in range(0, model.output_chunks(rank), step):
                terms = sorted(model.expected_terms(rank, index))
                if len(terms) == 1:
                    (source, chunk) = terms[0]
                    yield rank, span(index).start, _part(inputs, source, span(chunk))
                elif terms:
                    key = tuple(terms)
                    if key not in reduced:
                        parts = [_part(inputs, source, span(chunk)) for source, chunk in terms]
                        reduced[key] = _reduce(parts, self.op)
                    yield rank, span(index).start, reduced[key]

    def compare(self, inputs: Sequence[Array | None], outputs: Sequence[Array | None]) -> Comparison:
        """Compares the outputs of a run on `inputs`, which `inputs()` made, with the reference."""
        changed = tuple(
            rank
            for rank, given in enumerate(inputs)
            if given is not None
            and not np.array_equal(datatypes.as_bytes(given), datatypes.as_bytes(self._pristine(rank)))
        )
        # A reference computed from changed inputs would hide the damage.
        sources = [self.input(rank) if rank in changed else given for rank, given in enumerate(inputs)]
        result = Comparison(changed_inputs=changed)
        for rank, start, values in self.expected(sources):
            output = outputs[rank]
            if output is None:
                raise errors.error("BadBuffer", f"rank {rank} has no output to compare")
            result = _compare_part(result, rank, start, values, np.ravel(output)[start : start + values.size])
        return result

    def further(
        self, compared: Comparison, run: Callable[[list[Array | None], list[Array | None]], object]
    ) -> Comparison:
        """Adds to a comparison those of more runs, each with other data, where chunks are too short for one run.

        In a chunk with fewer elements than terms, not every term has its turn to be the extreme one; and of very few
        drawn numbers two may be equal, so that one in the other's place goes unseen.

        Args:
            compared: The result of the first run. After one that is not right there are no more.
            run: Runs the program from inputs to outputs.
        """
        length = max(self.count // self.model.chunks, 1)
        wanted = max(_drawing(self.model, datatypes.dtype(self.dtype), self.op).period, _FEWEST_DRAWS)
        for shift in range(length, wanted, length) if self.count else ():
            if not compared.ok:
                break
            case = replace(self, seed=self.seed + shift, shift=shift)
            inputs, outputs = case.inputs(), case.poisoned_outputs()
            run(inputs, outputs)
            compared += case.compare(inputs, outputs)
        return compared

    def _pristine(self, rank: int) -> Array:
        again = self.input(rank)
        return np.empty(0, np.uint8) if again is None else again


def _compare_part(so_far: Comparison, rank: int, start: int, values: Array, got: Array) -> Comparison:
    result = replace(so_far, elements=so_far.elements + values.size)
    if np.array_equal(
        datatypes.as_bytes(values), datatypes.as_bytes(got)
    ):  # much faster than comparing bfloat16 values
        return result
    if values.dtype == np.bool_:  # NumPy compares these by value, not by byte
        values, got = datatypes.as_bytes(values), datatypes.as_bytes(got)
    wrong = np.flatnonzero(got != values)
    if wrong.size == 0:
        return result
    first = so_far.first or Mismatch(rank, start + int(wrong[0]), values[wrong[0]].item(), got[wrong[0]].item())
    return replace(result, wrong=so_far.wrong + int(wrong.size), first=first)


def _part(inputs: Sequence[Array | None], rank: int, where: slice) -> Array:
    source = inputs[rank]
    if source is None:
        raise errors.error("BadBuffer", f"rank {rank} has no input to compare with")
    return np.ravel(source)[where]


def _reduce(parts: Sequence[Array], op: str) -> Array:
    dtype = parts[0].dtype
    # NumPy is slow in the small floats; the values are exact in float32, too.
    narrow = datatypes.kind(dtype) == "float" and dtype.itemsize < np.dtype(np.float32).itemsize
    wide = np.dtype(np.float32) if narrow else dtype
    total = reduce(FUNCTIONS[op], (part.astype(wide, copy=False) for part in parts))
    if op == "avg":
        total = _divide(total, len(parts))
    return total.astype(dtype, copy=False)


def _divide(total: Array, terms: int) -> Array:
    if total.dtype.kind in "fc":
        return total / total.dtype.type(terms)
    # Towards zero, like the hardware's division; NumPy's // rounds down.
    magnitude = np.abs(total) // total.dtype.type(terms)
    return np.asarray(np.where(total < 0, -magnitude, magnitude), total.dtype)


def _most_terms(model: _core.Collective) -> int:
    if not model.is_custom:
        return model.ranks if collectives.reduces(model) else 1
    counts = (
        len(model.expected_terms(rank, index))
        for rank in range(model.ranks)
        for index in range(0, model.output_chunks(rank), model.split)
    )
    return max(counts, default=1)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The values that inputs are drawn from. Of `period` places in a row, a term uses the special values at one."""

    usual: Array
    special: Array
    period: int = 0


def _draw(random: np.random.Generator, choices: Array, count: int) -> Array:
    # One byte per draw is much faster than drawing the final type.
    return choices[random.integers(0, len(choices), count, dtype=np.uint8)]


def _drawing(model: _core.Collective, dtype: DType, op: str) -> _Drawing:
    """At most 256 values of either kind, whose reductions `dtype` holds exactly."""
    terms = _most_terms(model)
    if op == "prod" and terms > 1:
        return _factors(model, terms, dtype)
    choices = _summands(terms, dtype, op)
    if op in ("min", "max") and terms > 1:
        middle = len(choices) // 2
        low, high = choices[:middle], choices[middle:]
        return _Drawing(low, high, terms) if op == "max" else _Drawing(high, low, terms)
    if op == "band" and terms > 1:
        return _Drawing(choices[-1:], choices[:-1], terms)  # all bits are set but at a term's turn
    if op == "bor" and terms > 1:
        return _Drawing(choices[:1], choices[1:], terms)
    return _Drawing(choices, choices)


def _limits(dtype: DType) -> Any:
    return cast("Any", ml_dtypes.finfo)(dtype)


def _factors(model: _core.Collective, terms: int, dtype: DType) -> _Drawing:
    kind = datatypes.kind(dtype)
    if kind == "boolean":
        return _Drawing(np.array([True]), np.array([False, True]), terms)
    if kind not in ("float", "complex"):
        # Products of odd numbers lose no information when they wrap around. Numbers that are their own inverse are left
        # out.
        if dtype.itemsize == 1:
            odd = np.array([n for n in range(1, 256, 2) if n * n % 256 != 1], np.uint8)
            factors = datatypes.reinterpret(odd, dtype)
        else:
            factors = np.arange(3, 3 + 2 * _FACTORS, 2).astype(dtype)
        return _Drawing(factors, factors)
    # Powers of two, as large as the type can hold in the product of all terms; else of some of the terms at a time.
    # Exponents of either sign are exact down to that of the least normal number; bfloat16 avoids POISON, -2**-126.
    exponent = -int(_limits(dtype).minexp) - (datatypes.name(dtype) == "bfloat16")
    most = min(exponent // terms, _LARGEST_EXPONENT)
    powers = [sign * 2.0**e for sign in (-1, 1) for n in range(1, max(most, 1) + 1) for e in (-n, n)]
    large = np.array(powers).astype(dtype)
    if most:
        return _Drawing(large, large)
    together = model.ranks if not model.is_custom else sum(model.input_chunks(r) for r in range(model.ranks))
    return _Drawing(np.array([-1, 1]).astype(dtype), large, -(-together // exponent))


def _summands(terms: int, dtype: DType, op: str) -> Array:
    """Whole numbers in ascending order."""
    name = datatypes.name(dtype)
    kind = datatypes.kind(dtype)
    if kind == "boolean":
        return np.array([False, True])
    if kind == "complex":
        parts = np.arange(-7, 8) * (terms if op == "avg" else 1)
        return (parts[:, None] + 1j * parts[None, :]).ravel().astype(dtype)
    if not datatypes.takes(op, "float32") and terms > 1:  # bits
        return np.arange(0, 128).astype(dtype)
    floating = kind == "float"
    signed = kind != "unsigned"
    # All whole numbers up to here are exact. uint8 stays below POISON.
    exact = 2 << int(_limits(dtype).nmant) if floating else min(2 ** (8 * dtype.itemsize - 1) - 1, _WIDE)
    adds = op in ("sum", "avg") and terms > 1
    unit = 1
    if adds:
        if floating and terms > exact:
            raise errors.error(
                "BadArgument",
                f"{name} holds whole numbers up to {exact} exactly, too few to check a sum of {terms}: "
                "use a larger type",
            )
        if op == "avg" and terms * terms <= exact:
            unit = terms  # averages are whole numbers, too
        exact = max(exact // (terms * unit), 1)
    largest = min(exact, _LARGEST)
    return (np.arange(-largest if signed else 0, largest + 1) * unit).astype(dtype)
