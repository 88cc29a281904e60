"""Files that users name."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NoReturn, cast

from gc3 import _core, errors

MOST_TEXT = 64 << 20
# What JSON allows in a string and no terminal should get, and lone halves of characters.
_HIDDEN = re.compile(r"\\[bfnrtu]|[\x7f-\x9f\xad\u0600-\u206f\ufeff-\uffff\U000110bd-\U0010ffff]")


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns what is in a file of at most `most` bytes, a multiple of 1 MiB. This is the reader of all formats.

    Raises:
        gc3.UserError: The file cannot be read, or is larger.
    """
    try:
        name = os.fsdecode(path)
        name.encode()
    except (TypeError, ValueError):
        raise errors.error("FileUnreadable", f"{path!r}: not a name in UTF-8") from None
    if "\0" in name:
        raise errors.error("FileUnreadable", f"{name!r}: a name without a zero byte is needed")
    return _core.read_file(name, most)


def read_text(path: str | os.PathLike[str], error: str, most: int = MOST_TEXT) -> str:
    """Returns the text of a file of at most `most` bytes.

    Raises:
        gc3.UserError: The file cannot be read, or, as the error called `error`, is not UTF-8.
    """
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise errors.error(error, "it is not UTF-8 text", file=os.fsdecode(path), line=line) from None


def read_json(path: str | os.PathLike[str], error: str, most: int = MOST_TEXT) -> Any:
    """Returns what a JSON file of at most `most` bytes says: see `parse_json`."""
    return parse_json(read_text(path, error, most), error, os.fsdecode(path))


def parse_json(text: str, error: str, file: str = "") -> Any:
    """Returns what a JSON text says, in names as they may be shown: see `gc3.errors.shown`.

    Raises:
        gc3.UserError: The error called `error`: it is not JSON, or is nested too deeply, or says something twice.
    """
    line, why = 1, ""
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
        return _fit_to_show(data) if _HIDDEN.search(text) else data
    except json.JSONDecodeError as problem:
        line, why = problem.lineno, f"{problem.msg} at column {problem.colno}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as problem:
        why = str(problem)
    raise errors.error(error, f"it is not JSON: {why}", file=file, line=line if file else 0)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the member '{twice}' is given twice")
    return members


def _fit_to_show(data: Any) -> Any:
    if isinstance(data, str):
        return errors.shown(data)
    if isinstance(data, list):
        return [_fit_to_show(item) for item in cast("list[Any]", data)]
    if isinstance(data, dict):
        return {errors.shown(key): _fit_to_show(item) for key, item in cast("dict[str, Any]", data).items()}
    return data


def make_folder(path: str | os.PathLike[str]) -> None:
    """Makes a folder, if it is not there, and makes sure that files can be written to it.

    Raises:
        gc3.UserError: They cannot.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def is_device(path: str) -> bool:
    """Returns whether `path` is there and is neither a file nor a folder, as /dev/null and pipes are."""
    try:
        return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    except ValueError:  # a name with a byte 0
        return False


def check_writable(path: str) -> None:
    """Makes sure that a file can be written, and leaves it as it is.

    Raises:
        gc3.UserError: It cannot: it is a folder, its folder is missing, or it is somebody else's.
    """
    try:
        place = Path(os.path.realpath(path))
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not place.exists():
            place.open("xb").close()
            place.unlink()
        elif place.is_file():
            place.open("r+b").close()
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def write_text(path: str, text: str) -> None:
    """Writes a file that the user asked for."""
    write_bytes(path, text.encode())


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that the user asked for."""
    try:
        Path(path).write_bytes(data)
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _unwritable(path: str | os.PathLike[str], problem: OSError | ValueError) -> errors.Gc3Error:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)  # a name with a byte 0 is the latter
    return errors.error("FileUnwritable", f"'{path}': {why}")
