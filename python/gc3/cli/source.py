"""gc3 show --source: a program beside the lines that made it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gc3 import errors
from gc3.sim import by_line
from gc3.support import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gc3.runtime.program import Program
    from gc3.sim.predict import Prediction

_AROUND = 2  # lines shown before and after those that count
_MOST_BYTES = 4 << 20


def rows(program: Program, prediction: Prediction | None) -> list[dict[str, Any]]:
    """Returns the lines that made the program, by file and number, as data; times in microseconds."""
    why = None if prediction is None else prediction.explanation
    simulated = program.described if why is None or why.program is None else why.program
    found = by_line.shares(simulated, why, program.ranks // simulated.rank_count)
    known: list[dict[str, Any]] = []
    for (file, number), share in sorted(found.items()):
        row: dict[str, Any] = {"file": file, "line": number, "steps": share.steps}
        if why is not None:
            row |= {
                "path_us": 1e6 * share.path_s,
                "path_share": share.path_s / why.time_s if why.time_s else 0.0,
                "busy_us": 1e6 * share.busy_s,
                "waited_us": 1e6 * share.waited_s,
            }
        known.append(row)
    return known


def read(file: str) -> list[str]:
    """Returns the lines of a Python file; none if it cannot be read.

    The file of a program may be hostile, so it cannot make this read, and a report pass on, other files than Python's.
    """
    if not file.endswith(".py"):
        return []
    try:
        return files.read_text(file, "FileUnreadable", most=_MOST_BYTES).splitlines()
    except errors.Gc3Error:
        return []


def around(marked: Iterable[int], count: int) -> set[int]:
    """Returns the lines that are shown of a file of `count` lines: those marked, and those around them."""
    return {n for line in marked for n in range(line - _AROUND, line + _AROUND + 1) if 1 <= n <= count}


def text(known: Sequence[dict[str, Any]], prediction: Prediction | None) -> Iterator[str]:
    """Yields the lines of the listing."""
    if not known:
        yield "Nothing is known about the lines of this program: only compiled programs and .gc3 files have them."
        return
    timed = prediction is not None
    by_file: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in known:
        by_file[row["file"]][row["line"]] = row
    blank = "" if not timed else " " * 14
    for file, marked in by_file.items():
        yield ""
        yield errors.shown(file)
        yield (f"{'time':>6} {'waits':>7} " if timed else "") + f"{'steps':>7}"
        code = read(file)
        numbers = around(marked, len(code))
        last = 0
        for n in sorted(numbers | marked.keys()):
            if last and n > last + 1:
                yield f"{blank}{'':7}     :"
            last = n
            row = marked.get(n)
            shown = errors.shown(code[n - 1]) if n <= len(code) else "(the file cannot be read)"
            yield f"{_numbers(row, timed=timed) if row else blank + ' ' * 7} {n:5}  {shown}".rstrip()


def _numbers(row: dict[str, Any], *, timed: bool) -> str:
    steps = f"{row['steps']:7}"
    if not timed:
        return steps
    total = row["busy_us"] + row["waited_us"]
    waits = row["waited_us"] / total if total else 0.0
    return f"{row['path_share']:6.1%} {waits:7.0%} {steps}"
