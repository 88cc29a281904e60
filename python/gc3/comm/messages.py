"""The sends and receives that `Communicator.batch` does at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gc3 import errors


@dataclass(frozen=True)
class Send:
    """The array `x` for rank `to`, as `Communicator.send` takes them."""

    x: Any
    to: int
    tag: int = 0


@dataclass(frozen=True)
class Recv:
    """The array `out` for a message of rank `source`, as `Communicator.recv` takes them; None: any."""

    out: Any
    source: int | None = None
    tag: int | None = None


def described(operation: Send | Recv) -> tuple[bool, Any, int | None, int | None]:
    """Returns what the core takes: whether it sends, the array, the rank and the tag."""
    if isinstance(operation, Send):
        return True, operation.x, operation.to, operation.tag
    if not isinstance(operation, Recv):  # pyright: ignore[reportUnnecessaryIsInstance]
        what = type(operation).__name__
        raise errors.error("BadArgument", f"a {what} among the operations of a batch; expected gc3.Send and gc3.Recv")
    return False, operation.out, operation.source, operation.tag
