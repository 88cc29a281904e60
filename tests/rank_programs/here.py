"""What several programs of ranks need: rank and number of ranks, which `ranks.start` sets, errors, calls at once."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import gc3

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


def error_of(call: Callable[[], object]) -> str:
    """The text of the error that a call raises."""
    try:
        call()
    except gc3.errors.Gc3Error as problem:
        return str(problem)
    return "no error"


def at_once(comm: gc3.Communicator, name: str, xs: Sequence[Any], *rest: Any) -> list[Any]:
    """The results of one collective of many arrays, made at once."""
    with comm.coalesce() as calls:
        return [getattr(calls, name)(x, *rest) for x in xs]
