"""What communicators learn while calls run: the programs that they try, and what is kept for the next start.

The core decides (``cpp/gc3/comm/adaptation.h``). This module gives it rows with further programs, and keeps what was
learned as a table in the cache folder, beside that of `gc3 tune`, for the same machine and version of gc3.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gc3 import _core, collectives, errors
from gc3.algorithms import catalogue
from gc3.comm import generating, kept
from gc3.comm.selection import FORMAT, Row, Table
from gc3.comm.spec import Spec
from gc3.support import files

_LAST_LL = 64 << 10  # above it a flag for every few bytes costs more than it saves
FIRST_READ = 8 << 10  # below this size messages are never read from another rank's memory
READS = ("read_moved", "read_combined", "read_halved")
_PATIENCE_S = 10.0  # for other jobs, which take a moment
_MOST_ROWS = 1000  # that are kept
_MOST_SHARE = 1.0
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Learning:
    """What one job learns with."""

    options: _core.AdaptOptions  # for the core
    specs: dict[str, Spec] = field(default_factory=dict[str, Spec])  # the programs by their texts

    def keep(self, joined: _core.Joined) -> None:
        """Adds what a communicator has learned to the file of this machine; warns if that is not possible."""
        try:
            self._keep(joined)
        except errors.UserError as problem:
            warnings.warn(f"what was learned is not kept: {problem}", stacklevel=2)

    def _keep(self, joined: _core.Joined) -> None:
        new = list(self._rows(joined))
        file = kept.learned_path()
        if file is None or not new:
            return
        keys = {_key(row) for row in new}
        files.make_folder(file.parent)
        told = f"another job has not ended writing '{file}'"
        with files.alone(f"{file}.lock", told, "FileUnwritable", patience_s=_PATIENCE_S):
            there = [row for row in kept.read_learned() if _key(row) not in keys]
            rows = [row.data() for row in [*there, *new][-_MOST_ROWS:]]
            files.replace_text(str(file), json.dumps({"format": FORMAT, "rows": rows}, indent=1) + "\n")

    def _rows(self, joined: _core.Joined) -> Iterator[Row]:
        place = kept.folder()
        for collective, size, in_place, root, program, ns, table_ns, calls in joined.learned():
            spec = self.specs.get(program)
            # A program that is a file is found again only beside the table that names it.
            if spec is None or (spec.is_file and Path(spec.algorithm).parent.parent != place):
                continue
            power = size.bit_length()
            sizes = (1 << (power - 1) if power else 0, 1 << power)
            than = f", the table's {table_ns / 1e3:.4g} us" if table_ns and table_ns != ns else ""
            note = f"learned in {calls} calls: {ns / 1e3:.4g} us{than}"
            at = root if collectives.get(collective).rooted else None
            limits = _core.Limits(ranks=(joined.size, joined.size), size=sizes, in_place=in_place, root=at)
            yield Row(collective, limits, spec, note, "")


def prepare(adapt: Any, share: Any, wanted: str, table: Table, *, generate: bool = True) -> Learning:
    """Returns what a job learns with.

    Args:
        adapt: The option of `gc3.init`.
        share: The time that trials may cost, of all.
        wanted: GC3_ADAPT.
        table: The table in force.
        generate: Whether programs are generated while calls run.

    Raises:
        gc3.UserError: An option is invalid, or what was kept is no table.
    """
    if adapt not in (None, True, False, "exact"):
        raise errors.error("BadOption", f"adapt={adapt!r}; expected True, False, 'exact' or None")
    if not isinstance(share, int | float) or not 0 <= share <= _MOST_SHARE:
        raise errors.error("BadOption", f"adapt_share={share!r}; expected a number from 0 to 1")
    mode = wanted if adapt is None or wanted == "0" else "exact" if adapt == "exact" else str(int(adapt))
    _core.AdaptOptions(mode)  # raises the error for an invalid one
    if mode in ("", "rows") and not any(row.adapt for row in table.rows):
        mode = "0"
    if mode == "0":
        return Learning(_core.AdaptOptions("0"))
    kept.learned_path()  # the conditions that it holds for, before this process is restricted to some cores
    rows = kept.read_learned()
    others = candidates(table)
    specs = {str(row.spec): row.spec for row in (*others, *table.rows, *rows)}
    further, allowance = generating.generator(specs), generating.allowance(os.getpid())
    tables = Table(rows).core, Table(others).core
    options = _core.AdaptOptions(mode, int(share * _MILLION), *tables, further if generate else None, allowance)
    return Learning(options, specs)


def candidates(table: Table) -> tuple[Row, ...]:
    """Returns rows with programs to try: those in force without a `table`, other thresholds, the library.

    >>> any(row.spec.protocol == "LL" for row in candidates(Table(())))
    True
    """
    there = set(table.rows)
    found = [row for row in kept.in_force("processes").rows if row not in there]
    for row in table.rows:
        if row.spec.protocol == "Simple" and not row.spec.thresholds and not row.spec.is_file:
            for value in (None, FIRST_READ):
                spec = replace(row.spec, thresholds=tuple((name, value) for name in READS))
                first, last = row.limits.size
                if last is None or last > FIRST_READ:
                    found.append(replace(row.limited(size=(max(first, FIRST_READ), last)), spec=spec))
    for name, algorithm in catalogue().items():
        names = {parameter.name for parameter in algorithm.parameters}
        if "R" in names:
            given: tuple[tuple[str, int | str], ...] = (("R", "ranks"),)
            given += (("root", "root"),) if "root" in names else ()
            for protocol, sizes in (("Simple", (0, None)), ("LL", (0, _LAST_LL))):
                spec = Spec(name, given, protocol=protocol)
                found.append(Row(algorithm.collective_name, _core.Limits(size=sizes), spec, "", "the library"))
    return tuple(found)


def _key(row: Row) -> tuple[object, ...]:
    limits = row.limits
    return row.collective, limits.ranks, limits.size, limits.in_place, limits.root
