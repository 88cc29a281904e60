"""Files that are kept for this machine in the user's cache folder.

The name of a file contains the conditions of the measurements in it: processor, cores, memory, kernel and version of
gc3. If one of these changes, the name changes and the file is not found.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from gc3 import _core, errors
from gc3.runtime.measure import machine
from gc3.support import files, knobs

# Of `alone`, where times are measured.
BUSY = (
    "another calibration or tuner is measuring this machine, and each would disturb the other: wait until it has ended"
)
_DIGITS = 16


def folder() -> Path | None:
    """Returns the folder for what is kept, which may not exist yet; None if GC3_CACHE says that nothing is."""
    found = _core.cache_folder(knobs.read(tell=False).cache)
    return Path(found) if found else None


def path(what: str) -> Path | None:
    """Returns the file of this machine called `what`, which may not exist yet; None if none is kept."""
    place = folder()
    return None if place is None else place / f"{what}-{_conditions()}.json"


def read(what: str, maker: str, error: str) -> tuple[Path, str] | None:
    """Returns the file of this machine called `what` and its text; None: there is none.

    Args:
        what: Its name.
        maker: What has written it, for messages.
        error: The name of the error for a file that cannot be used.

    Raises:
        gc3.UserError: It cannot be read, or other users can write to it.
    """
    place = folder()
    if place is None or not os.path.isdir(place):
        return None  # before the properties of the machine are read, which takes time
    file = place / f"{what}-{_conditions()}.json"
    try:
        about = file.stat()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{file}': {problem.strerror}") from problem
    told = f"other users can write to '{file}', which {maker} has kept: remove it, or set GC3_CACHE=off"
    files.check_own(about, told, error)
    return file, files.read_text(file, error)


def write(file: Path, text: str) -> None:
    """Writes a file of the cache folder, which is made if there is none.

    Raises:
        gc3.UserError: It cannot be written.
    """
    _make(file.parent)
    files.replace_text(str(file), text)


@contextmanager
def alone(told: str, error: str) -> Generator[None, None, None]:
    """Is entered by one process at a time of those with the same cache folder; without a folder, by all.

    Args:
        told: What is wrong, for another process that enters it.
        error: The name of the error.

    Raises:
        gc3.UserError: Another process has entered it.
    """
    place = folder()
    if place is None:
        yield
        return
    _make(place)
    with files.alone(place, told, error):
        yield


def _make(place: Path) -> None:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise errors.error(
            "FileUnwritable", f"'{place}': {problem.strerror}; GC3_CACHE names another folder, or off"
        ) from problem


@lru_cache(maxsize=1)
def _conditions() -> str:
    """What a file holds for, made once, before this process is restricted to some cores."""
    holds_for = json.dumps({"gc3": _core.VERSION, **machine()}, sort_keys=True)
    return hashlib.sha256(holds_for.encode()).hexdigest()[:_DIGITS]
