"""The times of writing, and of reading and verifying, a large MSCCL XML file, compared with the goals of the project.

The file is the two-step AllToAll of 32 nodes of 8 ranks. Each run is a process of its own; the table shows the median.
Times are of one core and include the file system: the file was just written, so it is read from memory.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 7
GOALS_S = {"write": 0.3, "read and verify": 1.0}

CHILD = """
import json, sys, time
from gc3 import _core
from gc3.algorithms import catalogue
path, dialect = sys.argv[1:]
program = _core.compile(catalogue()["two_step_alltoall"].write(N=32, G=8).trace())
start = time.perf_counter()
program.save_xml(path, dialect)
written = time.perf_counter()
again = _core.load_file(path).program
read = time.perf_counter()
report = _core.verify(again)
done = time.perf_counter()
assert report.ok and again == program
print(json.dumps({"write": written - start, "read": read - written, "verify": done - read,
                  "read and verify": done - written}))
"""


def measure(dialect: str) -> dict[str, float]:
    """Returns the size of the file and the medians of the times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alltoall.xml"
        rows: list[dict[str, float]] = []
        for _ in range(RUNS):
            command = [sys.executable, "-c", CHILD, str(path), dialect]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        with path.open(encoding="utf-8") as file:
            steps = sum("<step " in line for line in file)
        size = path.stat().st_size
    return {"bytes": size, "steps": steps, **{key: statistics.median(row[key] for row in rows) for key in rows[0]}}


def main() -> int:
    """Prints the table, or JSON with --json; fails if a goal is missed."""
    as_json = "--json" in sys.argv[1:]
    results = {dialect: measure(dialect) for dialect in ("msccl", "rccl")}
    missed = [key for row in results.values() for key, goal in GOALS_S.items() if row[key] > goal]
    if as_json:
        print(json.dumps({"runs": RUNS, "goals_s": GOALS_S, "results": results}, indent=2))
        return 1 if missed else 0
    columns = ("write", "read", "verify", "read and verify")
    print(f"{'two_step_alltoall N=32 G=8':28}{'MB':>8}{'steps':>9}" + "".join(f"{c + ' (s)':>21}" for c in columns))
    for dialect, row in results.items():
        times = "".join(f"{row[c]:21.3f}" for c in columns)
        print(f"{dialect:28}{row['bytes'] / 1e6:8.1f}{row['steps']:9.0f}{times}")
    print(f"goals: {', '.join(f'{key} {goal} s' for key, goal in GOALS_S.items())}; median of {RUNS} runs")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
