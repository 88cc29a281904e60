"""What several programs of ranks need: the rank and the number of ranks, which `ranks.start` sets, and errors."""

import os
from collections.abc import Callable

import gc3

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


def error_of(call: Callable[[], object]) -> str:
    """The text of the error that a call raises."""
    try:
        call()
    except gc3.UserError as problem:
        return str(problem)
    return "no error"
