"""Python objects among ranks: pickled, and moved by the collectives.

Unpickling runs code that the sender has chosen. The ranks of a job belonged to one user when they joined; an object is
read only while all of them still do.
"""

from __future__ import annotations

import io
import pickle
import types
from typing import TYPE_CHECKING, Any

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from gc3 import _core, datatypes, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gc3.datatypes import Array, DType

# A type of its own, so that a rank that moves plain numbers instead is told, as with messages.
_LENGTH: DType = np.dtype([("length of a gc3 object", "i8")])
_FAILED = -1  # instead of a length: there is no object
_MOST_PADDING = 1 << 16  # bytes of padding that cost less than another call


def pickled(obj: Any) -> bytes:
    """Returns the pickle of `obj`: functions and classes of a script or a notebook are in it by value."""
    file = io.BytesIO()
    _Pickler(file).dump(obj)  # pyright: ignore[reportUnknownMemberType]
    return file.getvalue()


def unpickled(data: Any) -> Any:
    """Returns the object. `data` must come from a process that may run code here, because unpickling can do so."""
    return pickle.loads(data)  # noqa: S301


def _code(file: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]) -> types.CodeType:
    return make(*arguments).replace(co_filename=file)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    return _code, (code.co_filename, *_reduce_code_without_file(code))


_reduce_code_without_file: Any = cloudpickle.Pickler.dispatch_table[types.CodeType]  # pyright: ignore[reportUnknownMemberType]


class _Pickler(cloudpickle.Pickler):
    """Keeps the files of functions, which tracebacks name. From 3.1.3 on cloudpickle leaves them out."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({types.CodeType: _reduce_code})  # pyright: ignore


class _Pickled:
    """An object as bytes, or the reason why it cannot be pickled."""

    def __init__(self, obj: Any) -> None:
        self.bytes = np.empty(0, np.uint8)
        self.problem = ""
        try:
            self.bytes = np.frombuffer(pickled(obj), np.uint8)
        except Exception as problem:
            self.problem = f"{type(obj).__name__}: {problem}"

    @property
    def length(self) -> int:
        return _FAILED if self.problem else self.bytes.size


def broadcast(comm: _core.Communicator, obj: Any, root: int) -> Any:
    """Implements `Communicator.broadcast_object`."""
    own = [_Pickled(obj)] if comm.rank == root else []
    [length] = _agreed(comm.broadcast(_lengths(own, 1), root), own, [root])
    part = comm.broadcast(own[0].bytes if own else np.empty(length, np.uint8), root)
    _leave(comm, reads=not own)
    return obj if own else _read(part, root)


def all_gather(comm: _core.Communicator, obj: Any, root: int | None = None) -> list[Any] | None:
    """Implements `Communicator.all_gather_object`, or `Communicator.gather_object` with a root."""
    own = _Pickled(obj)
    ranks = range(comm.size)
    lengths = _agreed(comm.all_gather(_lengths([own], 1)), [own], ranks)
    parts: list[Array] | None
    if _is_balanced(lengths):
        given = _padded([own], max(lengths))
        together = comm.all_gather(given) if root is None else comm.gather(given, root)
        parts = None if together is None else np.split(together, comm.size)
    else:
        parts = [comm.broadcast(own.bytes if r == comm.rank else np.empty(lengths[r], np.uint8), r) for r in ranks]
    reads = parts is not None and root in (None, comm.rank)
    _leave(comm, reads=reads)
    if parts is None or not reads:
        return None
    return [obj if r == comm.rank else _read(parts[r][: lengths[r]], r) for r in ranks]


def scatter(comm: _core.Communicator, objects: Sequence[Any] | None, root: int) -> Any:
    """Implements `Communicator.scatter_object`."""
    given = [] if objects is None else list(objects)
    own = [_Pickled(obj) for obj in given] if comm.rank == root else []
    if comm.rank == root and len(given) != comm.size:
        own = [_Pickled(None)] * comm.size
        own[0].problem = f"{len(given)} objects for {comm.size} ranks"
    lengths = _agreed(comm.broadcast(_lengths(own, comm.size), root), own, [root] * comm.size)
    length = lengths[comm.rank]
    if _is_balanced(lengths):
        part = comm.scatter(_padded(own, max(lengths)), root, np.empty(max(lengths), np.uint8))[:length]
    else:
        start = sum(lengths[: comm.rank])
        together = np.concatenate([o.bytes for o in own]) if own else np.empty(sum(lengths), np.uint8)
        part = comm.broadcast(together, root)[start : start + length]
    _leave(comm, reads=not own)
    return given[root] if own else _read(part, root)


def send(comm: _core.Communicator, obj: Any, to: int, tag: int, timeout: float | None) -> None:
    """Implements `Communicator.send_object`. It is one message, so that threads may take each other's whole objects."""
    own = _Pickled(obj)
    _agreed(_lengths([own], 1), [own], [comm.rank])
    comm.send(np.frombuffer(own.bytes, datatypes.OBJECT), to, tag, timeout)


def recv(comm: _core.Communicator, source: int | None, tag: int | None, timeout: float | None) -> Any:
    """Implements `Communicator.recv_object`."""
    got, part = _core.Joined.of(comm).recv_whole(source, tag, timeout)
    _core.Joined.of(comm).check_users()
    return _read(part, got.source)


def _lengths(own: Sequence[_Pickled], number: int) -> Array:
    return np.array([(o.length,) for o in own] or [(0,)] * number, _LENGTH)


def _agreed(lengths: Array, own: Sequence[_Pickled], owners: Sequence[int]) -> list[int]:
    """The lengths, if every object could be pickled; else an error on all ranks, which can continue."""
    for one in own:
        if one.problem:
            raise errors.error("BadObject", one.problem)
    found: list[int] = [length for (length,) in lengths.tolist()]
    for length, owner in zip(found, owners, strict=True):
        if length == _FAILED:
            raise errors.error("RankFailed", f"rank {owner} has no object to send; its own error says why")
    return found


def _is_balanced(lengths: Sequence[int]) -> bool:
    """Whether objects that are padded to the longest are at most about twice as much data."""
    return max(lengths) * len(lengths) <= 2 * sum(lengths) + _MOST_PADDING


def _padded(own: Sequence[_Pickled], length: int) -> Array:
    padded = np.zeros(len(own) * length, np.uint8)
    for i, one in enumerate(own):
        padded[i * length : i * length + one.bytes.size] = one.bytes
    return padded


def _leave(comm: _core.Communicator, *, reads: bool) -> None:
    """Ends a call of all ranks, once those that read objects have seen of what user the others are.

    That is seen after the data has come: a rank whose user has changed since could have written it. A rank that has its
    own objects could end, and its user is unknown then, so none leaves before all have looked.
    """
    try:
        if reads:
            _core.Joined.of(comm).check_users()
    finally:
        comm.barrier()


def _read(part: Array, owner: int) -> Any:
    try:
        return unpickled(part.data)
    except Exception as problem:
        what = f"of rank {owner}, when it is read: {type(problem).__name__}: {problem}"
        raise errors.error("BadObject", what) from problem
