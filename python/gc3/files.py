"""Files that users name."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from gc3 import errors


def read_bytes(path: str, most: int, limit: str = "it may have") -> bytes:
    """Returns what is in a file of at most `most` bytes, a multiple of 1 MiB; `limit` is for the message.

    Raises:
        gc3.UserError: The file cannot be read, or is larger.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{path}': {problem.strerror}") from problem
    if len(data) > most:
        raise errors.error("FileUnreadable", f"'{path}': larger than the {most >> 20} MiB that {limit}")
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
