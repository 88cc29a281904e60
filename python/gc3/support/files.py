"""Files that users name."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any, NoReturn, cast

from gc3 import _core, errors

MOST_TEXT = 64 << 20
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
            place.open("xb").close()
            place.unlink()
        elif place.is_file():
            place.open("r+b").close()
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem) from None


def write_text(path: str, text: str) -> None:
    """Writes a file that the user asked for."""
    write_bytes(path, text.encode())


def write_whole(path: str, text: str) -> None:
    """Writes a file that the user asked for, of which readers never see a part, unless its folder is read-only."""
    place = os.path.realpath(path)
    if is_device(place) or not os.access(os.path.dirname(place), os.W_OK):
        write_text(path, text)
    else:
        replace_bytes(place, text.encode(), private=False)


def replace_text(path: str, text: str) -> None:
    """Writes a text as `replace_bytes` does."""
    replace_bytes(path, text.encode())


def replace_bytes(path: str, data: bytes, *, private: bool = True) -> None:
    """Writes a file. Readers see the old contents or the new ones, never a part.

    If it is `private`, only this user can read and write it; else its mode stays, or is that of any new file.

    Raises:
        gc3.UserError: The file cannot be written.
    """
    try:
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
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _mode_of(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that the user asked for."""
    try:
        Path(path).write_bytes(data)
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _unwritable(path: str | os.PathLike[str], problem: OSError | ValueError) -> errors.Gc3Error:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)  # ValueError: a name with a zero byte
    return errors.error("FileUnwritable", f"'{path}': {why}")
