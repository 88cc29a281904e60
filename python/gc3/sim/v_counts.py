"""Counts of calls whose blocks differ in length, for the simulator.

In a file they are a JSON list: for an all-to-all of R ranks, R lists of what each rank sends to each; of a program of
named tensors, the length of a chunk for each of `Program.lengths`; otherwise the length of each rank's block.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from gc3 import _core, collectives, errors
from gc3.sim import computed
from gc3.support import files, schema

_COUNT = {**schema.COUNT, "maximum": 2**40}
_COUNTS = schema.array({**_COUNT, "type": ["integer", "array"], "items": _COUNT})


def read(path: str | os.PathLike[str]) -> list[int]:
    """Returns the counts of a file.

    Raises:
        gc3.UserError: It cannot be read, or holds something else.
    """
    data = files.read_json(path, "BadSimulation")
    schema.check(data, _COUNTS, "BadSimulation", file=os.fspath(path), what="a list of counts, or a list of such lists")
    rows = [cast("list[int]", row if isinstance(row, list) else [row]) for row in data]
    return [int(count) for row in rows for count in row]


def checked(program: _core.Program, counts: Sequence[int]) -> list[int]:
    """Returns the counts if the program serves them.

    Raises:
        gc3.UserError: It serves equal blocks only, or there are too many counts or too few, or only ones of 0.
    """
    model = program.collective
    wanted, of = model.v_counts, f"{model.name} of {model.ranks} ranks"
    if model.tensors:
        wanted, of = len(program.lengths), f"{errors.shown(program.name)} ({', '.join(program.lengths)})"
    else:
        _core.check_v_form(program)
    if len(counts) != wanted:
        raise errors.error("BadSimulation", f"{len(counts)} counts; {of} has {wanted}")
    if sum(counts) == 0:
        raise errors.error("BadSimulation", "all counts are 0: there is nothing to simulate")
    if size_of(model, counts, 1) == 0:
        raise errors.error("BadSimulation", "the chunks of all inputs and outputs have 0 elements: they have no size")
    return list(counts)


def size_of(model: _core.Collective, counts: Sequence[int], itemsize: int) -> int:
    """Returns S in bytes: what the largest buffer of a rank would have if all blocks had the mean length.

    >>> from gc3.collectives import get
    >>> size_of(get("alltoall").model(2), [1, 2, 3, 4], 4)
    20
    """
    if model.tensors:
        return computed.size_of(model, counts) * itemsize
    blocks = collectives.size_blocks(model)
    copies = len(counts) // blocks
    return -(-sum(counts) // copies) * itemsize


def scaled(model: _core.Collective, counts: Sequence[int], size: int, itemsize: int) -> list[int]:
    """Returns counts in the same proportions for S = `size`.

    >>> from gc3.collectives import get
    >>> scaled(get("allgather").model(3), [1, 2, 0], 120, 4)
    [10, 20, 0]
    """
    own = size_of(model, counts, itemsize)
    return [count * size // own for count in counts]
