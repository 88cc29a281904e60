"""Checks that no room has more lines than its budget: the folders of cpp/gc3 and python/gc3, and what stands beside.

Prints the lines of each room beside its budget, which tools/line_budget.txt sets. Tests and generated files do not
count. Exits with 1 if a room is above its budget, or in no list. A room that became smaller may have a smaller budget:
`--lower` writes it.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools" / "line_budget.txt"
CODE = {".cc", ".cu", ".cuh", ".def", ".h", ".py", ".sh"}
GENERATED = {"python/gc3/_core.pyi"}
# Folders whose folders are rooms of their own.
SPLIT = ("cpp/gc3", "cpp/gc3/runtime", "python/gc3")
STEP = 100  # of budgets, in lines
ROOMS = ("bindings", "benchmarks", "cpp", "python", "tools")


def room(path: Path) -> str:
    """Returns the room of a file.

    >>> room(Path("cpp/gc3/runtime/cpu/lending.h")), room(Path("python/gc3/errors.py"))
    ('cpp/gc3/runtime/cpu', 'python/gc3')
    """
    found = path.parts[0]
    for part in path.parts[1:-1]:
        if found not in SPLIT and found not in ("cpp", "python"):
            break
        found += f"/{part}"
    return found


def counted() -> Counter[str]:
    """Returns the lines of each room, of the files that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *ROOMS], cwd=ROOT, check=True, stdout=-1
    )
    lines: Counter[str] = Counter()
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = Path(name)
        is_test = path.stem.endswith("_test") or (path.name.startswith("test_") and path.parts[0] == "cpp")
        if path.suffix in CODE and name not in GENERATED and not is_test and (ROOT / path).is_file():
            lines[room(path)] += len((ROOT / path).read_bytes().splitlines())
    return lines


def main(*, lower: bool) -> int:
    """Prints the rooms; returns the exit status."""
    lines = counted()
    budgets = {name: int(most) for name, most in map(str.split, BUDGETS.read_text().splitlines())}
    if lower:
        rounded = {name: -(-n // STEP) * STEP for name, n in lines.items()}
        kept = {name: min(budgets.get(name, most), most) for name, most in rounded.items()}
        BUDGETS.write_text("".join(f"{name} {most}\n" for name, most in sorted(kept.items())))
        return 0
    above = [name for name, n in lines.items() if n > budgets.get(name, 0)]
    for name in sorted({*lines, *budgets}):
        sign = "  above its budget: make it smaller, or another room that gives it lines" if name in above else ""
        print(f"{lines[name]:>7} of {budgets.get(name, 0):>6}  {name}{sign}")
    print(f"{sum(lines.values()):>7} of {sum(budgets.values()):>6}  lines in all")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main(lower="--lower" in sys.argv[1:]))
