"""Files that users name."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from gc3 import _core, errors

MOST_TEXT = 64 << 20
_LOOK_S = 0.01
# Characters that JSON allows in a string but no terminal should get, and unpaired surrogates.
_HIDDEN = re.compile(r"\\[bfnrtu]|[\x7f-\x9f\xad\u0600-\u206f\ufeff-\uffff\U000110bd-\U0010ffff]")


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the content of a file of at most `most` bytes, a multiple of 1 MiB. All formats are read through it.

    Raises:
        gc3.UserError: The file cannot be read, or is larger.
    """
    try:
        name = os.fsdecode(path)
        name.encode()
    except (TypeError, ValueError):
        raise errors.error("FileUnreadable", f"{path!r}: not a name in UTF-8") from None
    if "\0" in name:
        raise errors.error("FileUnreadable", f"{name!r}: a file name must not contain a zero byte")
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
    """Returns the content of a JSON file of at most `most` bytes: see `parse_json`."""
    return parse_json(read_text(path, error, most), error, os.fsdecode(path))


def parse_json(text: str, error: str, file: str = "") -> Any:
    """Returns the content of a JSON text, with names made printable: see `gc3.errors.shown`.

    Raises:
        gc3.UserError: The error called `error`: it is not JSON, or is nested too deeply, or has a duplicate member.
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
    """Creates a folder if it does not exist, and checks that files can be written to it.

    Raises:
        gc3.UserError: The folder cannot be created, or files cannot be written to it.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def check_own(about: os.stat_result, told: str, error: str) -> None:
    """Checks that only this user and root can write a file or folder.

    Raises:
        gc3.UserError: The error called `error` with the text `told`: others can.
    """
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.error(error, told)


def is_device(path: str) -> bool:
    """Returns whether `path` exists and is neither a file nor a folder, such as /dev/null or a pipe."""
    try:
        return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    except ValueError:  # a name with a byte 0
        return False


def check_writable(path: str) -> None:
    """Checks that a file can be written, without changing it.

    Raises:
        gc3.UserError: It is a folder, its folder does not exist, or the user has no permission.
    """
    try:
        place = Path(os.path.realpath(path))
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not place.exists():
            with tempfile.TemporaryFile(dir=place.parent):
                pass  # not at the place itself, where another command may write meanwhile
        elif place.is_file():
            place.open("r+b").close()
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def write_text(path: str, text: str) -> None:
    """Writes a text as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that the user asked for.

    Readers never see a part of it, and of two writers the last one's stays, unless it cannot be replaced: a device, a
    file of another user, one in a folder that is read-only, or one that is mounted.

    Raises:
        gc3.UserError: The file cannot be written.
    """
    try:
        place = os.path.realpath(path)
        if _is_replaceable(place):
            try:
                _replace(place, data, private=False)
            except OSError as problem:
                if problem.errno not in (errno.EBUSY, errno.EPERM, errno.EXDEV):
                    raise
            else:
                return
        Path(place).write_bytes(data)
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def _is_replaceable(place: str) -> bool:
    if is_device(place) or not os.access(os.path.dirname(place), os.W_OK):
        return False
    return not os.path.exists(place) or (os.access(place, os.W_OK) and os.stat(place).st_uid == os.geteuid())


def replace_text(path: str, text: str) -> None:
    """Writes a text as `replace_bytes` does."""
    replace_bytes(path, text.encode())


def replace_bytes(path: str, data: bytes) -> None:
    """Writes a file that only this user can read and write. Readers see the old contents or the new, never a part.

    Raises:
        gc3.UserError: The file cannot be written.
    """
    try:
        _replace(path, data, private=True)
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _replace(path: str, data: bytes, *, private: bool) -> None:
    """If it is not `private`, the mode of the file stays, or is that of any new file."""
    file, new = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(file, "wb") as written:
            written.write(data)
        if not private:
            os.chmod(new, _mode_of(path))
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


@contextmanager
def alone(
    path: str | os.PathLike[str], told: str, error: str, *, patience_s: float = 0.0
) -> Generator[None, None, None]:
    """Is entered by one process at a time, of those that change what they have read.

    Args:
        path: A folder, or a file for this purpose, which exists as long as a process is within.
        told: What is wrong, for another process that enters it.
        error: The name of the error.
        patience_s: How long to wait for the other process.

    Raises:
        gc3.UserError: Another process has entered it, or there is no such place.
    """
    until = time.monotonic() + patience_s
    folder = os.path.isdir(path)
    while (opened := _locked(path, folder=folder)) is None:
        if time.monotonic() >= until:
            raise errors.error(error, told)
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        if not folder:
            with suppress(OSError):
                os.unlink(path)  # before the lock ends: whoever gets it then sees that the file is another one
        os.close(opened)


def _locked(path: str | os.PathLike[str], *, folder: bool) -> int | None:
    """Returns an open file that has the lock, which the system releases when the process ends; None: another has it."""
    how = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT
    try:
        opened = os.open(path, how | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise _unwritable(path, problem) from None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(opened), os.stat(path)):
            return opened
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        return opened  # a file system without locks
    os.close(opened)
    return None


def _mode_of(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _unwritable(path: str | os.PathLike[str], problem: OSError | ValueError) -> errors.Gc3Error:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)  # ValueError: a name with a zero byte
    return errors.error("FileUnwritable", f"'{path}': {why}")
