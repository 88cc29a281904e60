"""Programs that a selection table carries: files in a folder beside it, each named by the SHA-256 of its content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gc3 import collectives, errors
from gc3.runtime.classes import of_image
from gc3.support import files

if TYPE_CHECKING:
    import os

    from gc3.runtime.program import Program

_PLACE = re.compile(r"(?!\.\.?/)[^/\0]+/[0-9a-f]{64}\.gc3")
_MOST = 1 << 30  # bytes
_SHOWN = 12  # digits


def is_place(text: str) -> bool:
    """Returns whether a row of a table may name this file: FOLDER/HASH.gc3.

    >>> is_place("../" + 64 * "0" + ".gc3")
    False
    """
    return _PLACE.fullmatch(text) is not None


def is_name(algorithm: str) -> bool:
    """Returns whether the algorithm of a row is the file of a program."""
    return is_place("/".join(Path(algorithm).parts[-2:]))


def place(path: str) -> str:
    """Returns the place of a file beside its table, as a row has it."""
    return "/".join(Path(path).parts[-2:])


def short(path: str) -> str:
    """Returns the first digits of the hash of a file, for people."""
    return Path(path).stem[:_SHOWN]


def folder(table: str | os.PathLike[str]) -> Path:
    """Returns the folder for the programs of a table, which may not exist yet."""
    return Path(table).absolute().with_suffix(".programs")


def write(program: Program, table: str | os.PathLike[str]) -> str:
    """Writes a program beside a table, without its source lines; returns the path of its file.

    Raises:
        gc3.UserError: It cannot be written.
    """
    return _written(program.stored.to_bytes(source=False), folder(table))


def copy(path: str, table: str | os.PathLike[str]) -> None:
    """Copies the file of a program to the same place beside another table.

    Raises:
        gc3.UserError: It cannot be read or written.
    """
    beside = Path(table).absolute().parent / Path(path).parent.name
    if not (beside / Path(path).name).exists():
        _written(_content(path), beside)


def read(path: str, *, ranks: int, root: int, in_place: bool) -> Program:
    """Returns the program in a file, which is not proven yet.

    Raises:
        gc3.UserError: It cannot be read, is not the file that the table was written with, or is for other calls.
    """
    program = of_image(_content(path))
    does = program.collective
    rooted = does.name in collectives.BUILTIN and collectives.get(does.name).rooted
    if (does.ranks, does.in_place) != (ranks, in_place) or (rooted and does.root != root):
        mode = "in place" if does.in_place else "out of place"
        at = f", root {does.root}" if rooted else ""
        raise errors.error("BadTable", f"program {short(path)} is for {does.name} on {does.ranks} ranks, {mode}{at}")
    return program


def _content(path: str) -> bytes:
    data = files.read_bytes(path, _MOST)
    if hashlib.sha256(data).hexdigest() != Path(path).stem:
        raise errors.error("BadTable", f"'{path}' was changed: its content does not have the hash that is its name")
    return data


def _written(data: bytes, beside: Path) -> str:
    file = beside / f"{hashlib.sha256(data).hexdigest()}.gc3"
    files.make_folder(beside)
    files.replace_bytes(str(file), data)
    return str(file)
