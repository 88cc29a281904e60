"""The tables kept for this machine: of `gc3 tune` for each engine, and what `gc3.init(adapt=True)` has learned.

They are files of the user's cache folder that hold for this machine and version: see `gc3.runtime.kept_files`. A table
for several hosts is kept on each of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from gc3.comm.selection import Row, Table, parse
from gc3.runtime import kept_files
from gc3.runtime.kept_files import folder

__all__ = ["HOSTS", "Kept", "folder", "for_job", "in_force", "learned_path", "path", "read", "read_learned"]

HOSTS = "hosts"  # in place of an engine: processes on several hosts


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept table.

    Attributes:
        table: Its rows, and the default ones after them.
        digest: A number that is equal for equal files, and never 0.
    """

    table: Table
    digest: int


def path(engine: str = "processes") -> Path | None:
    """Returns the file of this machine's table for an engine, which may not exist yet; None if none is kept."""
    return kept_files.path(f"tuned-{engine}")


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
    return kept_files.path("learned-processes")


def read_learned() -> tuple[Row, ...]:
    """Returns the rows that were learned on this machine while calls ran.

    Raises:
        gc3.UserError: The file is no table, or other users can write to it.
    """
    found = _rows("learned-processes", "gc3.init(adapt=...)")
    return () if found is None else found[0]


def _rows(what: str, maker: str) -> tuple[tuple[Row, ...], int] | None:
    """The rows of a kept table, and its digest."""
    found = kept_files.read(what, maker, "BadTable")
    if found is None:
        return None
    file, text = found
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    rows = parse(text, str(file), file.parent)
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
