"""The tables kept for this machine: of `gc3 tune` for each engine, and what `gc3.init(adapt=True)` has learned.

They are files in the user's cache folder. The name of a file contains the conditions of the measurement: engine,
processor, cores, memory, kernel and version of gc3. If one of these changes, the name changes and the table is not
found. A table for several hosts is kept on each of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from gc3 import _core, errors
from gc3.comm.selection import Row, Table, parse
from gc3.runtime.measure import machine
from gc3.support import files, knobs

HOSTS = "hosts"  # in place of an engine: processes on several hosts
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept table.

    Attributes:
        table: Its rows, and the default ones after them.
        digest: A number that is equal for equal files, and never 0.
    """

    table: Table
    digest: int


def folder() -> Path | None:
    """Returns the folder for what is kept, which may not exist yet; None if GC3_CACHE says that nothing is."""
    found = _core.cache_folder(knobs.read(tell=False).cache)
    return Path(found) if found else None


def path(engine: str = "processes") -> Path | None:
    """Returns the file of this machine's table for an engine, which may not exist yet; None if none is kept."""
    place = folder()
    return None if place is None else place / _name(f"tuned-{engine}")


def read(engine: str = "processes") -> Kept | None:
    """Returns the table that was kept for this machine and an engine, if there is one.

    Raises:
        gc3.UserError: The file is no table, or other users can write to it.
    """
    found = _rows(f"tuned-{engine}", "gc3 tune")
    return None if found is None else Kept(Table(found[0] + Table.default().rows), found[1])


def for_job(*, several: bool) -> Kept | None:
    """Returns the table that a job on one host or on several offers to use; None if there is none.

    Only ranks of hosts that were tuned together have the same table for several hosts.

    Raises:
        gc3.UserError: The file is no table, or other users can write to it.
    """
    return (read(HOSTS) if several else None) or read()


def learned_path() -> Path | None:
    """Returns the file of what was learned while calls ran, which may not exist yet; None if nothing is kept."""
    place = folder()
    return None if place is None else place / _name("learned-processes")


def read_learned() -> tuple[Row, ...]:
    """Returns the rows that were learned on this machine while calls ran.

    Raises:
        gc3.UserError: The file is no table, or other users can write to it.
    """
    found = _rows("learned-processes", "gc3.init(adapt=...)")
    return () if found is None else found[0]


def _rows(what: str, maker: str) -> tuple[tuple[Row, ...], int] | None:
    """The rows of a kept table, and its digest."""
    place = folder()
    if place is None or not os.path.isdir(place):
        return None  # before the properties of the machine are read, which takes time
    file = place / _name(what)
    try:
        about = file.stat()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{file}': {problem.strerror}") from problem
    told = f"other users can write to '{file}', which {maker} has kept: remove it, or set GC3_CACHE=off"
    files.check_own(about, told, "BadTable")
    text = files.read_text(file, "BadTable")
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    rows = parse(text, str(file), place)
    if what != f"tuned-{HOSTS}":  # measured on one host
        rows = tuple(replace(row, nodes=(1, 1)) for row in rows)
    return rows, digest or 1


def in_force(engine: str) -> Table:
    """Returns the table by which programs are chosen on an engine: the kept one, or else the default one.

    Raises:
        gc3.UserError: The kept table is no table, or other users can write to it.
    """
    tuned = read(engine)
    return Table.default() if tuned is None else tuned.table


def _name(what: str) -> str:
    return f"{what}-{_conditions()}.json"


@lru_cache(maxsize=1)
def _conditions() -> str:
    """What a table holds for, made once, before this process is restricted to some cores."""
    holds_for = json.dumps({"gc3": metadata.version("gc3"), **machine()}, sort_keys=True)
    return hashlib.sha256(holds_for.encode()).hexdigest()[:_DIGITS]
