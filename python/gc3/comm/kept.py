"""The tables kept for this machine: of `gc3 tune` for each engine, and what `gc3.init(adapt=True)` has learned.

They are files of the user's cache folder that hold for this machine and version: see `gc3.runtime.kept_files`. A table
for several hosts is kept on each of them.
"""

from __future__ import annotations

from pathlib import Path

from gc3.comm.selection import Row, Table, parse
from gc3.runtime import kept_files
from gc3.runtime.kept_files import folder

__all__ = ["HOSTS", "folder", "for_job", "in_force", "learned_path", "path", "read", "read_learned"]

HOSTS = "hosts"  # in place of an engine: processes on several hosts


def path(engine: str = "processes") -> Path | None:
    """Returns the file of this machine's table for an engine, which may not exist yet; None if none is kept."""
    return kept_files.path(f"tuned-{engine}")


def read(engine: str = "processes") -> Table | None:
    """Returns the table that was kept for this machine and an engine, if there is one, with the default rows after it.

    Raises:
        gc3.UserError: The file is no table, or other users can write to it.
    """
    found = _rows(f"tuned-{engine}", "gc3 tune")
    return None if found is None else Table(found + Table.default().rows)


def for_job(*, several: bool) -> Table | None:
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
    return _rows("learned-processes", "gc3.init(adapt=...)") or ()


def _rows(what: str, maker: str) -> tuple[Row, ...] | None:
    """The rows of a kept table."""
    found = kept_files.read(what, maker, "BadTable")
    if found is None:
        return None
    file, text = found
    rows = parse(text, str(file), file.parent)
    if what != f"tuned-{HOSTS}":  # measured on one host
        rows = tuple(row.limited(nodes=(1, 1)) for row in rows)
    return rows


def in_force(engine: str) -> Table:
    """Returns the table by which programs are chosen on an engine: the kept one, or else the default one.

    Raises:
        gc3.UserError: The kept table is no table, or other users can write to it.
    """
    return read(engine) or Table.default()
