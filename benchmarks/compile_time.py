"""The times of tracing, compiling and verifying, compared with the goals of the project.

Each case runs several times, each time in a new process; the table shows the median and the peak memory. One core: all
three stages are single-threaded. The reference is the field's existing Python tool, which does not verify its output.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
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

CHILD = """
import json, resource, sys, time
from gc3 import _core
from gc3.algorithms import catalogue
name, parameters = json.loads(sys.argv[1])
algorithm = catalogue()[name]
start = time.perf_counter()
trace = algorithm.write(**parameters).trace()
traced = time.perf_counter()
program = _core.compile(trace)
compiled = time.perf_counter()
report = _core.verify(program)
done = time.perf_counter()
assert report.ok
print(json.dumps({
    "operations": trace.operations, "instructions": program.instruction_count,
    "trace_s": traced - start, "compile_s": compiled - traced, "verify_s": done - compiled, "total_s": done - start,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def measure(case: Case, runs: int) -> dict[str, float]:
    """Medians over `runs` processes; memory is the largest."""
    rows: list[dict[str, float]] = []
    for _ in range(runs):
        argument = json.dumps([case.algorithm, case.parameters])
        done = subprocess.run([sys.executable, "-c", CHILD, argument], check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    medians["peak_bytes"] = max(row["peak_bytes"] for row in rows)
    return medians


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
    if as_json:
        print(json.dumps(results, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
