"""The times of tracing, compiling and verifying, and of MSCCL XML files, compared with the goals of the project.

Each case runs several times, each time in a new process; the table shows the median and the peak memory. One core: all
stages are single-threaded. The reference is the field's existing Python tool, which does not verify its output. A file
that is read was just written, so it is read from memory.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """An algorithm at a size, with the goal for trace + compile + verify and the existing tool's time."""

    algorithm: str
    parameters: dict[str, int] = field(default_factory=dict)
    goal_s: float | None = None
    reference: str = ""


CASES = (
    Case("two_step_alltoall", {"N": 8, "G": 8}, None, "0.97 s"),
    Case("two_step_alltoall", {"N": 16, "G": 8}, None, "2.3-4.7 s"),
    Case("two_step_alltoall", {"N": 32, "G": 8}, 0.3, "12.6-14.7 s"),
    Case("two_step_alltoall", {"N": 128, "G": 8}, 5.0, ""),
    Case("hierarchical_allreduce", {"N": 8, "G": 8}, None, "2.5 s"),
    Case("hierarchical_allreduce", {"N": 16, "G": 8}, None, "14 s"),
    Case("hierarchical_allreduce", {"N": 32, "G": 8}, 0.5, "113 s"),
    Case("ring_allreduce", {"R": 64}, None, "2.0 s"),
    Case("ring_allreduce", {"R": 128}, None, "28-37 s"),
    Case("ring_allreduce", {"R": 512}, 2.0, ""),
    Case("allpairs_allreduce", {"R": 16, "chunks": 16}, None, "6.9 s"),
    Case("allpairs_allreduce", {"R": 32, "chunks": 32}, 0.2, "250 s"),
    Case("allpairs_allreduce", {"R": 128, "chunks": 128}, 10.0, ""),
)

DIALECTS = ("msccl", "rccl")
XML = Case("two_step_alltoall", {"N": 32, "G": 8})
XML_GOALS_S = {"write": 0.3, "read and verify": 1.0}

CHILD = """
import json, resource, sys, time
from gc3 import _core
from gc3.algorithms import catalogue
name, parameters, dialect = json.loads(sys.argv[1])
algorithm = catalogue()[name]
start = time.perf_counter()
trace = algorithm.write(**parameters).trace()
traced = time.perf_counter()
program = _core.compile(trace)
compiled = time.perf_counter()
report = _core.verify(program)
done = time.perf_counter()
assert report.ok
xml = {}
if dialect:
    start_xml = time.perf_counter()
    program.save_xml("it.xml", dialect)
    written = time.perf_counter()
    again = _core.load_file("it.xml").program
    read = time.perf_counter()
    assert _core.verify(again).ok
    verified = time.perf_counter()
    assert again == program
    xml = {"write": written - start_xml, "read": read - written, "verify": verified - read,
           "read and verify": verified - written}
print(json.dumps(xml or {
    "operations": trace.operations, "instructions": program.instruction_count,
    "trace_s": traced - start, "compile_s": compiled - traced, "verify_s": done - compiled, "total_s": done - start,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def measure(case: Case, runs: int, dialect: str = "") -> dict[str, float]:
    """Medians over `runs` processes, of an XML file if there is a `dialect`; memory is the largest."""
    rows: list[dict[str, float]] = []
    command = [sys.executable, "-c", CHILD, json.dumps([case.algorithm, case.parameters, dialect])]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
            rows.append(json.loads(done.stdout))
    return {key: (max if key == "peak_bytes" else statistics.median)([row[key] for row in rows]) for key in rows[0]}


def main() -> int:
    """Prints the table, or JSON with --json; fails if a goal is missed."""
    as_json = "--json" in sys.argv[1:]
    results = []
    missed = 0
    if not as_json:
        columns = ("ops", "trace", "compile", "verify", "total", "goal", "ns/op", "MB")
        print(f"{'algorithm (times in seconds)':40}" + "".join(f"{c:>9}" for c in columns) + "  existing tool")
    for case in CASES:
        row = measure(case, 3)
        late = case.goal_s is not None and row["total_s"] > case.goal_s
        missed += late
        results.append({"algorithm": case.algorithm, "parameters": case.parameters, "goal_s": case.goal_s, **row})
        if as_json:
            continue
        name = case.algorithm + " " + " ".join(f"{k}={v}" for k, v in case.parameters.items())
        times = "".join(f"{row[key]:9.3f}" for key in ("trace_s", "compile_s", "verify_s", "total_s"))
        goal = f"{case.goal_s:.1f}{'!' if late else ''}" if case.goal_s else ""
        per_op = row["total_s"] / row["operations"] * 1e9
        print(
            f"{name:40}{row['operations']:9.0f}{times}{goal:>9}{per_op:9.0f}{row['peak_bytes'] / 1e6:9.0f}"
            f"  {case.reference}",
            flush=True,
        )
    files = {dialect: measure(XML, 7, dialect) for dialect in DIALECTS}
    missed += sum(row[key] > goal for row in files.values() for key, goal in XML_GOALS_S.items())
    if as_json:
        print(json.dumps({"programs": results, "xml": files}, indent=2))
        return 1 if missed else 0
    print(f"{'MSCCL XML of two_step_alltoall N=32 G=8':40}" + "".join(f"{key:>17}" for key in files[DIALECTS[0]]))
    for dialect, row in files.items():
        print(f"{dialect:40}" + "".join(f"{seconds:17.3f}" for seconds in row.values()))
    print(f"goals: {', '.join(f'{key} {goal} s' for key, goal in XML_GOALS_S.items())}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
