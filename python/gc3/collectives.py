"""The collectives as data: the built-in ones, custom ones, and their sizes and factors as in nccl-tests.

A collective defines the result; an algorithm defines how data moves to produce it. The `count` of a call is the number
of elements of one block, as in NCCL: what each rank contributes to an all-gather, receives from a reduce-scatter, sends
to each peer of an all-to-all, and the whole buffer otherwise.

>>> BUILTIN["allreduce"].factor(4)
1.5
>>> pairs = custom("swap", inputs=[1, 1], outputs=[1, 1], expect={(0, 0): (1, 0), (1, 0): (0, 0)})
>>> pairs.model().expected_terms(0, 0)
[(1, 0)]
"""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from types import MappingProxyType
from typing import SupportsIndex, TypeAlias, cast

from gc3 import _core, computing, errors
from gc3.support.public import misfit, public_names

__all__ = [
    "BUILTIN",
    "WHATEVER_IT_MAKES",
    "Collective",
    "CustomData",
    "condition",
    "count_for",
    "custom",
    "factor",
    "footprint",
    "get",
    "reduces",
    "rooted",
    "size_blocks",
    "size_for",
]

InputChunk: TypeAlias = "tuple[int, int]"  # (rank, index) of a chunk of an input buffer
Expected: TypeAlias = "InputChunk | Sequence[InputChunk] | None"
Expect: TypeAlias = "Mapping[tuple[int, int], Expected] | Callable[[int, int], Expected]"
Place: TypeAlias = "tuple[str, int] | None"  # ("output", k): the input is chunks k, k+1, ... of the output
Made: TypeAlias = "Callable[[int, int], list[InputChunk]]"  # the inputs in output chunk (rank, index), in order
Check: TypeAlias = "Callable[[Made], object]"

WHATEVER_IT_MAKES = "whatever it makes"


@dataclass(frozen=True, slots=True)
class CustomData:
    """The postcondition of a custom collective, in the form that the core takes."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    alias: tuple[int | None, ...]
    begin: tuple[int, ...]
    terms: tuple[InputChunk, ...]
    named: computing.Tensors = computing.NO_TENSORS


def _unit(_ranks: int) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective for any number of ranks, or a custom one for a fixed number.

    Attributes:
        name: As written in algorithms, files and messages.
        summary: What it does, in one line.
        reduces: Whether several inputs are combined into an output.
        rooted: Whether one rank, the root, has a special role.
        factor: Bus bandwidth over algorithm bandwidth for a number of ranks, as nccl-tests defines it.
        data: The postcondition of a custom collective; None for a built-in one.
        open: Whether a program's outputs are required to hold what the program makes.
        check: A function that judges what the program makes.
    """

    name: str
    summary: str
    reduces: bool = False
    rooted: bool = False
    factor: Callable[[int], float] = _unit
    data: CustomData | None = None
    open: bool = False
    check: Check | None = None

    def __repr__(self) -> str:
        """Describes it in one line."""
        return f"<gc3.collectives.Collective {self.name}: {self.summary}>"

    def judge(self, made: _core.Collective, where: tuple[str, int]) -> None:
        """Refuses what a program makes if `check` does.

        Args:
            made: The collective with what the program makes as its postcondition.
            where: The program's file and line, for the error.

        Raises:
            gc3.UserError: It does.
        """
        verdict = True if self.check is None else self.check(made.expected_terms)
        if verdict is True:
            return
        why = verdict if isinstance(verdict, str) else f"check() returned {verdict!r}"
        raise errors.error("PostconditionUnmet", f"'{self.name}': {why}", file=where[0], line=where[1])

    def model(
        self, ranks: int | None = None, *, chunks: int = 1, root: int = 0, in_place: bool = False
    ) -> _core.Collective:
        """Returns the collective for `ranks` ranks with `chunks` chunks per block.

        A custom collective has its own number of ranks, and its chunks are its blocks.

        >>> BUILTIN["allgather"].model(4).output_blocks(0)
        4
        """
        if self.data is None:
            if ranks is None:
                raise errors.error("BadCollective", f"'{self.name}' needs a number of ranks")
            return _core.Collective.builtin(self.name, ranks, chunks, root, in_place)
        known = len(self.data.inputs)
        if ranks not in (None, known):
            raise errors.error("BadCollective", f"'{self.name}' is given for {known} ranks, not {ranks}")
        if chunks != 1:
            raise errors.error(
                "BadCollective", f"'{self.name}' is custom: its chunks are given by its inputs and outputs"
            )
        return _core.Collective.custom(
            self.name,
            list(self.data.inputs),
            list(self.data.outputs),
            list(self.data.alias),
            list(self.data.begin),
            list(self.data.terms),
            1,
            in_place,
            list(self.data.named.tensors),
            [(name, list(properties)) for name, properties in self.data.named.operations],
            list(self.data.named.calls),
        )


def _all_but_one(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_all_but_one(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


BUILTIN: Mapping[str, Collective] = MappingProxyType(
    {
        c.name: c
        for c in (
            Collective(
                "allreduce",
                "every rank gets the reduction of all inputs",
                reduces=True,
                factor=_twice_all_but_one,
            ),
            Collective("allgather", "every rank gets the inputs of all ranks", factor=_all_but_one),
            Collective(
                "reducescatter",
                "rank r gets block r of the reduction of all inputs",
                reduces=True,
                factor=_all_but_one,
            ),
            Collective("alltoall", "block s of rank r's output is block r of rank s's input", factor=_all_but_one),
            Collective("broadcast", "every rank gets the root's input", rooted=True),
            Collective("reduce", "the root gets the reduction of all inputs", reduces=True, rooted=True),
            Collective("gather", "the root gets the inputs of all ranks", rooted=True, factor=_all_but_one),
            Collective("scatter", "rank r gets block r of the root's input", rooted=True, factor=_all_but_one),
            Collective("alltonext", "rank r gets the input of rank r-1; the output of rank 0 is undefined"),
        )
    }
)


def get(name: str) -> Collective:
    """Returns the built-in collective called `name`.

    >>> get("broadcast").rooted
    True
    """
    try:
        return BUILTIN[name]
    except KeyError:
        close = difflib.get_close_matches(name, BUILTIN, 1)
        meant = f"did you mean {close[0]}? They are" if close else "expected one of"
        told = f"there is no collective '{name}'; {meant} {', '.join(BUILTIN)}"
        raise errors.error("BadCollective", told) from None


def condition(collective: Collective) -> str:
    """Returns the digest by which a table knows a custom collective, beside its name: of its buffers and condition.

    Raises:
        gc3.UserError: It has the name of a built-in one, or no table can have it.
    """
    why = ""
    if collective.data is None or collective.name in BUILTIN:
        why = "the name of a built-in collective: call the method of that name, or name yours otherwise"
    elif collective.open:
        why = "defined by what a program makes: a table needs expect= as data or a function"
    elif collective.data.named.tensors:
        why = "of named tensors: bind its program, and call run_rank"
    if why:
        raise errors.error("BadCollective", f"'{collective.name}' is {why}")
    return collective.model().condition


def factor(model: _core.Collective) -> float:
    """Returns bus bandwidth over algorithm bandwidth; 1 for custom collectives."""
    return 1.0 if model.is_custom else BUILTIN[model.name].factor(model.ranks)


def reduces(model: _core.Collective) -> bool:
    """Returns whether the result depends on the reduction."""
    if not model.is_custom:
        return BUILTIN[model.name].reduces
    return any(
        len(model.expected_terms(rank, index)) > 1
        for rank in range(model.ranks)
        for index in range(model.output_chunks(rank))
    )


def rooted(model: _core.Collective) -> bool:
    """Returns whether one rank, the root, has a special role."""
    return not model.is_custom and BUILTIN[model.name].rooted


def size_blocks(model: _core.Collective) -> int:
    """Returns S in blocks: the largest buffer of any rank, which is the size in nccl-tests.

    >>> size_blocks(BUILTIN["allgather"].model(4)), size_blocks(BUILTIN["allreduce"].model(4))
    (4, 1)
    """
    return max(max(model.input_blocks(rank), model.output_blocks(rank)) for rank in range(model.ranks))


def count_for(model: _core.Collective, size: int, itemsize: int) -> int:
    """Returns the elements per block for which the largest buffer has at most `size` bytes.

    >>> count_for(BUILTIN["allgather"].model(4), 1003, 4)
    62
    """
    return size // (itemsize * max(size_blocks(model), 1))


def footprint(model: _core.Collective, size: int) -> int:
    """Returns the bytes of the buffers of all ranks together for S = `size`; in place, shared memory counts once.

    >>> footprint(get("allgather").model(2, in_place=True), 1024)
    2048
    """
    blocks = 0
    for rank in range(model.ranks):
        given, result = model.input_blocks(rank), model.output_blocks(rank)
        blocks += max(given, result) if model.in_place else given + result
    return blocks * size // size_blocks(model)


def size_for(model: _core.Collective, count: int, itemsize: int) -> int:
    """Returns S in bytes for `count` elements per block."""
    return count * itemsize * size_blocks(model)


def custom(
    name: str,
    *,
    inputs: Sequence[int] | Mapping[str, computing.Sizes],
    outputs: Sequence[int] | Mapping[str, computing.Sizes],
    expect: Expect | computing.Expectation | computing.Sequential | str | None = None,
    check: Check | None = None,
    alias: Callable[[int], Place] | Sequence[Place] | None = None,
    ranks: int | None = None,
    summary: str = "",
) -> Collective:
    """Returns a custom collective, given as data.

    Args:
        name: Its name in messages.
        inputs: Number of input chunks of each rank. For programs that compute, the chunks of named tensors: a number
            for all ranks, one for each, or a function of the rank.
        outputs: Number of output chunks of each rank, likewise.
        expect: What each output chunk must hold, by ``(rank, index)``: an input chunk ``(rank, index)``,
            a list of input chunks to be reduced, or None for any value. A mapping (missing entries: any value),
            or a function of rank and index. Of named tensors, what `gc3.sequential` makes, or a function of value,
            rank, output and index that returns a sum of values: ``value(rank, tensor, index)`` is an input chunk,
            ``operation(value, ...)`` what a `gc3.op` makes of others. "whatever it makes": what the program makes is
            proven of its schedule.
        check: Instead of `expect`, a function that judges what the program makes. Its argument is a function of rank
            and index that returns the inputs reduced into that output chunk, sorted. It returns True, or a text that
            says what is wrong.
        alias: How the buffers overlap in place, one per rank or a function of the rank:
            ``("output", k)`` if the input is the output from chunk k on, ``("input", k)`` if the output is
            the input from chunk k on, None if they never overlap. Named tensors never do.
        ranks: Number of ranks, of a collective of named tensors.
        summary: What it does, in one line.

    A right shift by one rank, without wrapping around:

    >>> shift = custom("shift", inputs=[1, 1, 0], outputs=[0, 1, 1], expect=lambda rank, _: (rank - 1, 0))
    >>> [shift.model().expected_terms(rank, 0) for rank in (1, 2)]
    [[(0, 0)], [(1, 0)]]
    """
    try:
        if isinstance(inputs, Mapping) or isinstance(outputs, Mapping) or ranks is not None:
            return _of_tensors(name, ranks, inputs, outputs, None if check or alias else expect, summary)
        return _custom(name, inputs, outputs, cast("Expect | str | None", expect), check, alias, summary)
    except errors.UserError as problem:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is None or str(caller.f_globals.get("__package__")).partition(".")[0] == __package__:
            raise
        raise errors.placed(problem, caller.f_code.co_filename, caller.f_lineno) from None


def _of_tensors(name: str, ranks: object, inputs: object, outputs: object, expect: object, summary: str) -> Collective:
    try:
        given, results, wanted, named = computing.as_data(ranks, inputs, outputs, expect)
    except ValueError as problem:
        raise _bad(name, str(problem)) from None
    begin = [0, *accumulate(map(len, wanted))]
    terms = tuple(chain.from_iterable(wanted))
    data = CustomData(tuple(given), tuple(results), (None,) * len(given), tuple(begin), terms, named)
    reducing = _reduces_somewhere(begin) or any(len(part) > 1 for call in named.calls for part in call[2])
    result = Collective(name, summary or f"custom, {len(given)} ranks", reducing, data=data)
    result.model()
    return result


def _custom(
    name: str,
    inputs: Sequence[int],
    outputs: Sequence[int],
    expect: Expect | str | None,
    check: Check | None,
    alias: Callable[[int], Place] | Sequence[Place] | None,
    summary: str,
) -> Collective:
    if len(inputs) != len(outputs):
        raise _bad(name, f"inputs names {len(inputs)} ranks and outputs {len(outputs)}")
    for which, sizes in (("inputs", inputs), ("outputs", outputs)):
        for rank, size in enumerate(sizes):
            if not _is_number(size):
                raise _bad(name, f"{which} gives rank {rank} {size!r} chunks")
    is_open = (expect is None and callable(check)) or expect == WHATEVER_IT_MAKES
    if (is_open and check is not None and expect is not None) or (not is_open and (check or expect is None)):
        raise _bad(name, f'give one of expect= (data, a function or "{WHATEVER_IT_MAKES}") and check= (a function)')
    if check is not None:
        _check_takes(name, "check", check, "made")
    wanted_at = _wanted(name, outputs, {} if is_open or expect is None else expect)
    begin, terms = [0], list[InputChunk]()
    for rank, size in enumerate(outputs):
        for index in range(size):
            wanted = wanted_at(rank, index)
            terms.extend(_terms(name, rank, index, wanted))
            begin.append(len(terms))
    for term_rank, term_index in terms:
        if not 0 <= term_rank < len(inputs) or not 0 <= term_index < inputs[term_rank]:
            raise _bad(name, f"expect names input chunk {term_index} of rank {term_rank}, which does not exist")
    data = CustomData(tuple(inputs), tuple(outputs), _aliases(name, alias, len(inputs)), tuple(begin), tuple(terms))
    reducing = is_open or _reduces_somewhere(begin)
    result = Collective(name, summary or f"custom, {len(inputs)} ranks", reducing, data=data, open=is_open, check=check)
    result.model(in_place=True)  # the core checks the rest, such as invalid aliases
    return result


def cut(collective: Collective, parts: int) -> Collective:
    """Returns a custom collective with every chunk cut into `parts` chunks.

    >>> swap = custom("swap", inputs=[1, 1], outputs=[1, 1], expect={(0, 0): (1, 0), (1, 0): (0, 0)})
    >>> cut(swap, 2).model().expected_terms(0, 1)
    [(1, 1)]
    """
    data = collective.data
    if data is None or parts == 1:
        return collective
    begin, terms = [0], list[InputChunk]()
    for first, last in pairwise(data.begin):
        for k in range(parts):
            terms += [(rank, index * parts + k) for rank, index in data.terms[first:last]]
            begin.append(len(terms))
    larger = CustomData(
        tuple(n * parts for n in data.inputs),
        tuple(n * parts for n in data.outputs),
        tuple(_cut_alias(at, parts) for at in data.alias),
        tuple(begin),
        tuple(terms),
    )
    return replace(collective, data=larger)


def _wanted(name: str, outputs: Sequence[int], expect: Expect | str) -> Callable[[int, int], Expected]:
    """Returns the function of rank and index that `expect` stands for."""
    if callable(expect):
        _check_takes(name, "expect", expect, "rank", "index")
        return expect
    if not isinstance(expect, Mapping):
        raise _bad(name, f"expect is a mapping, a function or {WHATEVER_IT_MAKES!r}, not {expect!r}")
    _check_places(name, outputs, expect)
    return lambda rank, index: expect.get((rank, index))


def _check_takes(name: str, what: str, function: object, *given: str) -> None:
    if why := misfit(function, *given):
        raise _bad(name, f"{what} is a function of {' and '.join(given)}: {why}")


def _check_places(name: str, outputs: Sequence[int], expect: Mapping[tuple[int, int], Expected]) -> None:
    for place in expect:
        if not _is_chunk(place):
            raise _bad(name, f"expect is by (rank, index), not by {place!r}")
        rank, index = place
        if not 0 <= rank < len(outputs) or not 0 <= index < outputs[rank]:
            raise _bad(name, f"expect names output chunk {index} of rank {rank}, which does not exist")


def _reduces_somewhere(begin: Sequence[int]) -> bool:
    return any(last - first > 1 for first, last in pairwise(begin))


def _bad(name: str, why: str) -> errors.Gc3Error:
    return errors.error("BadCollective", f"custom collective '{name}': {why}")


def _is_number(value: object) -> bool:
    return _is_whole(value) and 0 <= operator.index(cast("SupportsIndex", value)) < 1 << 32


def _is_whole(value: object) -> bool:
    try:
        operator.index(cast("SupportsIndex", value))
    except TypeError:  # also of an array, which has __index__
        return False
    return True


def _is_place(value: object) -> bool:
    if not isinstance(value, Sequence):
        return False
    parts = cast("Sequence[object]", value)
    return len(parts) == 2 and parts[0] in ("input", "output") and _is_number(parts[1])  # noqa: PLR2004


def _is_chunk(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    parts = cast("Sequence[object]", value)
    return len(parts) == 2 and all(_is_whole(part) for part in parts)  # noqa: PLR2004


def _terms(name: str, rank: int, index: int, wanted: Expected) -> list[InputChunk]:
    if wanted is None:
        return []
    several = isinstance(cast("object", wanted), Iterable) and not _is_chunk(wanted)
    listed = list(cast("Iterable[InputChunk]", wanted if several else [wanted]))
    for term in listed:
        if not _is_chunk(term):
            raise _bad(name, f"expect of rank {rank}, chunk {index} holds {term!r}, not a (rank, index)")
    return [(term[0], term[1]) for term in listed]


def _cut_alias(at: int | None, parts: int) -> int | None:
    if at is None:
        return None
    return at * parts if at >= 0 else (at + 1) * parts - 1


def _aliases(name: str, alias: Callable[[int], Place] | Sequence[Place] | None, ranks: int) -> tuple[int | None, ...]:
    if alias is None:
        return (None,) * ranks
    if callable(alias):
        _check_takes(name, "alias", alias, "rank")
    places = [alias(rank) for rank in range(ranks)] if callable(alias) else list(alias)
    if len(places) != ranks:
        raise _bad(name, f"alias names {len(places)} ranks of {ranks}")
    encoded: list[int | None] = []
    for rank, place in enumerate(places):
        if place is None:
            encoded.append(None)
        elif _is_place(place):
            # The core's form: k if the output is part of the input, -k-1 if the input is part of the output.
            encoded.append(place[1] if place[0] == "input" else -place[1] - 1)
        else:
            raise _bad(name, f"alias of rank {rank} is {place!r}; use ('input', k), ('output', k) or None")
    return tuple(encoded)


public_names(__name__)
