"""A selection table as files in a folder: programs for C++ (see cpp/gc3/gc3.h), or MSCCL XML for other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gc3 import _core, collectives, errors
from gc3.comm.selection import PLACES, Row, Table
from gc3.comm.spec import Spec
from gc3.support import files

_ANY = 1 << 63  # the end of a row's sizes without an end


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of call: a row of the table for a number of ranks, a mode and a root."""

    row: Row
    ranks: int
    in_place: bool
    root: int

    @property
    def file(self) -> str:
        """The name of the file of its program, the same for rows with the same program, and no others."""
        spec = self.row.spec
        if spec.is_file:
            return Path(spec.algorithm).name
        parameters = "".join(f"-{name}{value}" for name, value in spec.parameters if value not in ("ranks", "root"))
        mode = "-in-place" if self.in_place else ""
        root = f"-root{self.root}" if collectives.get(self.row.collective).rooted else ""
        how = f"{spec.protocol}-x{spec.instances}" + (f"-tb{spec.threadblocks}" if spec.threadblocks else "")
        if spec.order:  # of a node with many ranks it is longer than a name of a file may be
            how += f"-order{sha256(str(spec.order).encode()).hexdigest()[:16]}"
        return f"{spec.algorithm}{parameters}-{self.ranks}ranks{root}-{how}{mode}.gc3"


def entries(rows: Sequence[Row], ranks: Sequence[int]) -> list[Entry]:
    """Returns the entries of rows for these numbers of ranks on one host, in the order in which the rows are tried.

    Rows of custom collectives have none.
    """
    found: list[Entry] = []
    for count in ranks:
        # No call is on registered memory, where rows with one-sided moves come first.
        for row in sorted(rows, key=lambda row: row.spec.memory == "direct"):
            limits = (row.limits.ranks, row.limits.ranks_per_node or (1, None))
            if (
                row.condition
                or row.limits.nodes[0] > 1
                or not all(low <= count <= (count if last is None else last) for low, last in limits)
            ):
                continue
            if any(value in PLACES for _, value in row.spec.parameters):
                row = row.limited(nodes=(1, 1))  # noqa: PLW2901  compiled for one host
            root, in_place = row.limits.root, row.limits.in_place
            roots = range(count) if root is None and collectives.get(row.collective).rooted else (root or 0,)
            modes = (False, True) if in_place is None else (in_place,)
            found += [Entry(row, count, mode, root) for mode in modes for root in roots]
    return found


def export(
    table: Table, ranks: Sequence[int], folder: Path, begin: Callable[[str], None] = lambda _: None
) -> tuple[int, int, list[str]]:
    """Writes the programs of a table and their index; calls `begin` before each kind of call.

    Returns:
        The number of kinds of calls, the number of program files that serve them, and the sources of the rows for
        several hosts or of custom collectives, which are left out.

    Raises:
        gc3.UserError: A row cannot be compiled, or the folder cannot be written.
    """
    found = entries(table.rows, ranks)
    known: set[str] = set()
    proven: set[tuple[str, Spec]] = set()  # a row may allow fewer slots than another one with the same program
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in found:
            begin(f"{entry.row.collective}, {entry.ranks} ranks")
            if (entry.file, entry.row.spec) in proven:
                continue
            program = entry.row.spec.compile(entry.ranks, root=entry.root, in_place=entry.in_place)
            proven.add((entry.file, entry.row.spec))
            if entry.file not in known:
                known.add(entry.file)
                program.save(folder / entry.file)
        lines = [(e.row.core(), e.ranks, e.in_place, e.root, e.file) for e in found]
        files.write_text(str(folder / "index"), _core.program_folder_index(lines))
    except OSError as problem:
        raise errors.error("FileUnwritable", f"'{folder}': {problem.strerror}") from problem
    return len(found), len(known), [row.source for row in table.rows if row.limits.nodes[0] > 1 or row.condition]


def export_xml(
    rows: Sequence[Row], ranks: Sequence[int], target: str, folder: Path, begin: Callable[[str], None] = lambda _: None
) -> tuple[list[Path], list[str]]:
    """Writes MSCCL XML for each kind of call, with the range of sizes that it is for.

    Args:
        rows: The rows. These runtimes have an order of their own, so of rows that overlap a later one gets the sizes
            that no earlier one has.
        ranks: The numbers of ranks.
        target: The runtime: "msccl", "azure" or "rccl".
        folder: The folder.
        begin: Called before each file.

    Returns:
        The files, and the reason for each row that the runtime cannot choose by, and for each program that it cannot
        execute, or would execute wrongly.

    Raises:
        gc3.UserError: A row cannot be compiled, or the folder cannot be written.
    """
    written: list[Path] = []
    refused = [f"{row.source} is for blocks of different lengths" for row in rows if row.limits.skew[0] > 1]
    refused += [f"{row.source} is for a collective of one's own" for row in rows if row.condition]
    served: dict[tuple[str, int, int, bool], list[tuple[int, int]]] = {}
    files.make_folder(folder)
    for entry in entries([row for row in rows if row.limits.skew[0] == 1], ranks):
        begin(f"{entry.row.collective}, {entry.ranks} ranks")
        key = (entry.row.collective, entry.ranks, entry.root, entry.in_place)
        rest = _without(entry.row.limits.size, served.get(key, []))
        program = entry.row.spec.compile(entry.ranks, root=entry.root, in_place=entry.in_place)
        root = f"-root{entry.root}" if collectives.get(entry.row.collective).rooted else ""
        mode = "-in-place" if entry.in_place else ""
        for first, end in rest:
            path = folder / f"{entry.row.collective}-{entry.ranks}ranks{root}-{first}B{mode}.xml"
            try:
                program.save(path, target=target, min_bytes=first, max_bytes=0 if end == _ANY else end - 1)
            except errors.UserError as problem:
                if problem.diagnostics[0].name == "FileUnwritable":
                    raise
                refused.append(f"{entry.row.source}, {path.name}: {problem.message}")
                break
            written.append(path)
            served.setdefault(key, []).append((first, end))
    return written, refused


def _without(size: tuple[int, int | None], served: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of a row's sizes that are not served."""
    rest = [(size[0], _ANY if size[1] is None else size[1])]
    for begin, end in served:
        parts = [part for a, b in rest for part in ((a, min(b, begin)), (max(a, end), b))]
        rest = [(a, b) for a, b in parts if a < b]
    return rest
