"""Reads a custom collective for synthesis: chunks, each with the rank that has it before and those that need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from gc3 import collectives, errors
from gc3.collectives import Collective
from gc3.support import files

_MAX_BYTES = 16 << 20
_MAX_RANKS = 1 << 14


def read(path: str) -> Collective:
    """Returns the collective in a JSON file: its name, number of ranks ("nodes") and chunks.

    A chunk is an object with "pre", the one rank that has it before, and "post", the ranks that must have it after. A
    rank's input consists of the chunks that begin on it, in their order, and its output of the chunks that it needs. An
    example is an all-gather with inputs of different sizes, on three ranks of which the last contributes nothing:

    {"name": "allgatherv", "nodes": 3, "chunks": [
      {"pre": [0], "post": [0, 1, 2]}, {"pre": [0], "post": [0, 1, 2]}, {"pre": [1], "post": [0, 1, 2]}]}

    Raises:
        gc3.UserError: The file cannot be read or has another content.
    """
    parsed = files.read_json(path, "BadCollective", _MAX_BYTES)
    if not isinstance(parsed, dict):
        raise _bad(path, "the file is not an object")
    top = cast("dict[str, Any]", parsed)
    ranks, chunks = top.get("nodes"), top.get("chunks")
    if type(ranks) is not int or not 1 <= ranks <= _MAX_RANKS:
        raise _bad(path, f"nodes is {ranks!r}, not a number of ranks from 1 to {_MAX_RANKS}")
    if not isinstance(chunks, list) or not chunks:
        raise _bad(path, "chunks is not a list of chunks")
    inputs, outputs = [0] * ranks, [0] * ranks
    expect: dict[tuple[int, int], tuple[int, int]] = {}
    for i, chunk in enumerate(cast("list[Any]", chunks)):
        owner, wanted = _ends(path, i, chunk, ranks)
        for rank in wanted:
            expect[rank, outputs[rank]] = (owner, inputs[owner])
            outputs[rank] += 1
        inputs[owner] += 1
    name = top.get("name")
    return collectives.custom(
        name if isinstance(name, str) and name else Path(path).stem, inputs=inputs, outputs=outputs, expect=expect
    )


def _ends(path: str, i: int, chunk: Any, ranks: int) -> tuple[int, list[int]]:
    about = cast("dict[str, Any]", chunk) if isinstance(chunk, dict) else {}
    found: list[list[int]] = []
    for key in ("pre", "post"):
        listed = about.get(key)
        if not isinstance(listed, list):
            raise _bad(path, f"chunks[{i}] has no list '{key}'")
        values = cast("list[Any]", listed)
        if not all(type(r) is int and 0 <= r < ranks for r in values):
            raise _bad(path, f"chunks[{i}].{key} is not ranks from 0 to {ranks - 1}")
        found.append(sorted(set(values)))
    if len(found[0]) != 1:
        raise _bad(path, f"chunks[{i}] begins on {len(found[0])} ranks; it must begin on one, whose input it is")
    return found[0][0], found[1]


def _bad(path: str, why: str) -> errors.Gc3Error:
    return errors.error("BadCollective", f"'{path}': {why}")
