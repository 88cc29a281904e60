"""Processor time and memory of programs of which one rank stands for all, compared with the goals of the project.

Each line is a process of its own, with its start: what a user of the command waits for on one core. The first part
traces, compiles and proves; the second runs the commands on 4,096 ranks. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HIERARCHICAL, TWO_STEP = "hierarchical_allreduce:N=8192,G=8", "two_step_alltoall:N=8192,G=8"
SMALL = "hierarchical_allreduce:N=512,G=8"
SMALL_TWO_STEP = "two_step_alltoall:N=512,G=8"


@dataclass(frozen=True)
class Case:
    """A command, with the goals for its processor time and peak memory, and for the size of the file that it writes."""

    command: str
    most_s: float | None = None
    most_gb: float | None = None
    file: str = ""
    most_mb: float | None = None


def machine(nodes: int) -> str:
    """A machine of nodes with eight ranks and NICs, and one size."""
    return f"-t hierarchical:N={nodes},G=8,nics=8 -b 64MiB -e 64MiB"


CASES = (
    Case(f"compile {HIERARCHICAL} -o h.gc3", 5, 1, "h.gc3", 1),
    Case(f"compile {TWO_STEP} -o t.gc3", 30, 4),
    Case(f"compile {SMALL_TWO_STEP} -o s.gc3", 3),
    Case(f"sim h.gc3 {machine(8192)}", 30),
    Case(f"sim t.gc3 {machine(8192)}", 30),
    Case("compile two_step_alltoall:N=128,G=8 -o old.gc3"),
    Case(f"compile {SMALL} -o a.gc3"),
    Case("verify a.gc3"),
    Case("show a.gc3"),
    Case(f"sim a.gc3 {machine(512)}"),
    Case("trace a.gc3 -t hierarchical:N=512,G=8,nics=8 --size 64MiB -o a.trace.json"),
    Case("report a.gc3 -t hierarchical:N=512,G=8,nics=8 --size 64MiB -o a.html"),
    Case(f"tune allreduce {machine(512)} -o table.json"),
    Case(f"synth best allreduce {machine(512)} --time-limit 60 -o best.json"),
)


def run(case: Case, folder: Path) -> tuple[int, float, float]:
    """Returns the exit status, the seconds and the gigabytes of a command."""
    command = [sys.executable, "-m", "gc3", *case.command.split()]
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        out = os.open("out", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execv(command[0], command)  # noqa: S606  wait4 tells what it used
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def main() -> int:
    """Prints a line for each command; of an argument, for each that has it in its text."""
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'processor s':>12}{'goal':>6}{'GB':>7}{'goal':>6}{'file MB':>9}{'goal':>6}  command")
        for case in CASES:
            if not all(word in case.command for word in sys.argv[1:]):
                continue
            status, seconds, memory = run(case, folder)
            size = (folder / case.file).stat().st_size / 1e6 if case.file and status == 0 else None
            values = ((seconds, case.most_s), (memory, case.most_gb), (size, case.most_mb))
            over = [status != 0, *(v is not None and most is not None and v > most for v, most in values)]
            missed += any(over)
            cells = [
                f"{'' if v is None else f'{v:.2f}':>{width}}{'' if most is None else most:>6}"
                for (v, most), width in zip(values, (12, 7, 9), strict=True)
            ]
            print("".join(cells) + f"  gc3 {case.command}{' !' if any(over) else ''}", flush=True)
            if status != 0:
                print("\n".join((folder / "out").read_text().splitlines()[-6:]), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
