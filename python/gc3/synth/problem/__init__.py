"""What is asked for: a network, the demand of a collective on it, their symmetries, and a time limit.

A search that has no result yet regularly checks whether the deadline has passed. What takes a number of seconds, a
deadline or `hurry` raises `TimeUp` then, unless it says that it returns.

`read` reads a custom collective: chunks, groups of ranks with a collective each, or counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from gc3 import collectives, errors
from gc3.collectives import Collective, InputChunk
from gc3.support import files

FOUND, IMPOSSIBLE, OPEN = "found", "impossible", "open"
ENDLESS = 1e9  # seconds
FIRST_SLICE = 2.0  # seconds for a formula before a smaller group is tried


class TimeUp(Exception):  # noqa: N818 - no error: a search ends without a result
    """The deadline of a session has passed."""


# Raises TimeUp if the deadline has passed.
Hurry: TypeAlias = "Callable[[], None]"


def at_leisure() -> None:
    """Has no time limit."""


def slices(seconds: float) -> Iterator[float]:
    """Yields increasing time limits for attempts, without end."""
    while True:
        yield seconds
        seconds *= 4


_MAX_BYTES = 16 << 20
_MAX_RANKS = 1 << 14
_MAX_PLACES = 1 << 20  # of inputs and outputs together


def read(path: str) -> Collective:
    """Returns the collective in a JSON file.

    The file is an object with a name, the number of ranks ("nodes"), and one or several of these:

    * "chunks": objects with "pre", the ranks that contribute to a chunk, and "post", those that must have the sum
      after. A chunk with one rank in "pre" is just moved.
    * "groups": objects with a "collective", the "ranks" that take part in it, in the order of their numbers there,
      optionally "chunks", the chunks of a block (1 if it is missing), and "root", one of these ranks.
    * "counts": rows of an uneven all-to-all; counts[s][d] chunks go from rank s to rank d.

    A rank's input consists of its chunks in the order in which they are listed, and so does its output. Chunks come
    before groups, and these before counts.

    An all-gather with inputs of different sizes, on three ranks of which the last contributes nothing:

    {"name": "allgatherv", "nodes": 3, "chunks": [
      {"pre": [0], "post": [0, 1, 2]}, {"pre": [0], "post": [0, 1, 2]}, {"pre": [1], "post": [0, 1, 2]}]}

    Two groups that share a machine:

    {"name": "two groups", "nodes": 4, "groups": [
      {"collective": "allreduce", "ranks": [0, 1]}, {"collective": "alltoall", "ranks": [2, 3]}]}

    Raises:
        gc3.UserError: The file cannot be read or has another content.
    """
    parsed = files.read_json(path, "BadCollective", _MAX_BYTES)
    if not isinstance(parsed, dict):
        raise _bad(path, "the file is not an object")
    top = cast("dict[str, Any]", parsed)
    ranks = top.get("nodes")
    if type(ranks) is not int or not 1 <= ranks <= _MAX_RANKS:
        raise _bad(path, f"nodes is {ranks!r}, not a number of ranks from 1 to {_MAX_RANKS}")
    made = _Reader(path, ranks)
    kinds = {"chunks": made.chunk, "groups": made.group, "counts": made.row}
    if not kinds.keys() & top.keys():
        raise _bad(path, "it has none of 'chunks', 'groups' and 'counts'")
    for key, take in kinds.items():
        listed = top.get(key, [None])
        if not isinstance(listed, list) or not listed:
            raise _bad(path, f"{key} is not a list of {'rows' if key == 'counts' else key}")
        if key == "counts" and key in top and len(cast("list[Any]", listed)) != ranks:
            raise _bad(path, f"counts has {len(cast('list[Any]', listed))} rows for {ranks} ranks")
        if key in top:
            for i, each in enumerate(cast("list[Any]", listed)):
                take(f"{key}[{i}]", i, each)
    name = top.get("name")
    return made.collective(name if isinstance(name, str) and name else Path(path).stem)


class _Reader:
    """The collective so far."""

    def __init__(self, path: str, ranks: int) -> None:
        self.path = path
        self.ranks = ranks
        self.inputs, self.outputs = [0] * ranks, [0] * ranks
        self.places = 0
        self.expect: dict[tuple[int, int], list[InputChunk]] = {}

    def collective(self, name: str) -> Collective:
        return collectives.custom(name, inputs=self.inputs, outputs=self.outputs, expect=self.expect)

    def chunk(self, where: str, _: int, given: Any) -> None:
        about = _object(given)
        before, after = (
            self._ranks(f"{where}.{key}", about.get(key), f"{where} has no list '{key}'") for key in ("pre", "post")
        )
        if not before:
            raise self._bad(f"{where} begins on no rank")
        before, after = sorted(set(before)), sorted(set(after))
        self._count(len(before) + len(after))
        self._add(before, after)

    def group(self, where: str, _: int, given: Any) -> None:
        about = _object(given)
        name, chunks = about.get("collective"), about.get("chunks", 1)
        if not isinstance(name, str) or name not in collectives.BUILTIN:
            raise self._bad(f"{where}.collective is {name!r}, not one of {', '.join(collectives.BUILTIN)}")
        members = self._ranks(f"{where}.ranks", about.get("ranks"), f"{where} has no list 'ranks'")
        if not members or len(set(members)) < len(members):
            raise self._bad(f"{where}.ranks {'has a rank twice' if members else 'is empty'}")
        if type(chunks) is not int or not 1 <= chunks <= _MAX_PLACES:
            raise self._bad(f"{where}.chunks is {chunks!r}, not a number of chunks")
        root = about.get("root", members[0])
        if root not in members or ("root" in about and not collectives.get(name).rooted):
            why = "is none of its ranks" if root not in members else f"is for no {name}, which has none"
            raise self._bad(f"{where}.root, {root!r}, {why}")
        model = collectives.get(name).model(len(members), chunks=chunks, root=members.index(root))
        self._count(sum(model.input_chunks(r) + model.output_chunks(r) for r in range(len(members))))
        begin = [self.inputs[rank] for rank in members]
        for place, rank in enumerate(members):
            self.inputs[rank] += model.input_chunks(place)
            for index in range(model.output_chunks(place)):
                terms = model.expected_terms(place, index)
                self.expect[rank, self.outputs[rank]] = [(members[r], begin[r] + i) for r, i in terms]
                self.outputs[rank] += 1

    def row(self, where: str, source: int, given: Any) -> None:
        row = cast("list[Any]", given) if isinstance(given, list) else []
        if len(row) != self.ranks or not all(type(n) is int and 0 <= n <= _MAX_PLACES for n in row):
            raise self._bad(f"{where} is not a row of {self.ranks} numbers of chunks")
        for target, count in enumerate(row):
            self._count(2 * count)
            for _ in range(count):
                self._add([source], [target])

    def _add(self, before: list[int], after: list[int]) -> None:
        terms = [(rank, self.inputs[rank]) for rank in before]
        for rank in before:
            self.inputs[rank] += 1
        for rank in after:
            self.expect[rank, self.outputs[rank]] = terms
            self.outputs[rank] += 1

    def _count(self, places: int) -> None:
        self.places += places
        if self.places > _MAX_PLACES:
            raise self._bad(f"it has more than {_MAX_PLACES} chunks in inputs and outputs")

    def _ranks(self, where: str, listed: Any, missing: str) -> list[int]:
        if not isinstance(listed, list):
            raise self._bad(missing)
        values = cast("list[Any]", listed)
        if not all(type(r) is int and 0 <= r < self.ranks for r in values):
            raise self._bad(f"{where} is not ranks from 0 to {self.ranks - 1}")
        return values

    def _bad(self, why: str) -> errors.Gc3Error:
        return _bad(self.path, why)


def _object(given: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _bad(path: str, why: str) -> errors.Gc3Error:
    return errors.error("BadCollective", f"'{path}': {why}")
