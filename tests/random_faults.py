#!/usr/bin/env python3
"""Random faults of jobs of several hosts: every surviving rank names who is lost, in time, and nothing hangs.

    tests/random_faults.py --count 300 --jobs 4

A fault is drawn from its number: which, where, and when. A number that fails does so again with `--first NUMBER
--count 1`. Exit status 77: this machine cannot simulate hosts.
"""

# ruff: noqa: S311, T201 (a command that prints, and draws faults by their numbers)

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import hosts

LAYOUTS = ((2, 2), (4, 1), (3, 2))
_PROGRAM = Path(__file__).parent / "rank_programs" / "random_faults.py"
STOPPED = 6  # seconds that a call waits for a stopped rank; longer than it takes to know that it is
PER_FAULT = 240  # seconds, in which a machine under heavy load starts the ranks, too, and makes their first calls


@dataclass(frozen=True)
class Fault:
    """What happens.

    Attributes:
        verb: A verb of tests/hosts.py, or kill-rank or stop-rank.
        hosts: Where.
        rank: The rank that is killed or stopped; None: whole hosts.
        during: While calls run; else between two of them.
        culprit: The rank that causes it, on another host unless it is the rank itself.
        culprit_after: A rank that survives, and lets stopped ones go on.
    """

    verb: str
    hosts: tuple[int, ...]
    rank: int | None
    during: bool
    culprit: int
    culprit_after: int

    @staticmethod
    def draw(seed: int, count: int, each: int) -> Fault:
        """Draws the fault of a seed, for so many hosts of so many ranks."""
        random_ = random.Random(f"fault {seed}")
        verb = random_.choice(("kill-rank", "stop-rank", "kill", "crash", "cut", "mute", "stop", "part"))
        during = random_.random() < 0.7
        host = random_.randrange(count)
        places = {host}
        if verb == "part":  # any two parts, each of one host at least
            places = set(random_.sample(range(count), random_.randrange(1, count)))
        far = random_.choice([h for h in range(count) if h not in places])
        other = far * each + random_.randrange(each)
        rank = host * each + random_.randrange(each) if verb.endswith("-rank") else None
        return Fault(verb, tuple(sorted(places)), rank, during, other if rank is None else rank, other)

    def survives(self, rank: int, each: int) -> bool:
        """Whether a rank is to report. One that goes on after a stop reports too, but not in time."""
        if self.rank is not None:
            return rank != self.rank
        return self.verb in ("cut", "mute", "part") or rank // each not in self.hosts

    def names(self, rank: int, each: int) -> str:
        """A pattern of what a surviving rank may say."""
        own = rank // each
        lost = [f"host node{h} " for h in self.hosts if h != own]
        if self.verb == "stop":
            return "|".join(rf"rank {h * each} \(process \d+ on node{h}\), which has been stopped" for h in self.hosts)
        if own in self.hosts or self.verb == "part":  # the other side is as lost
            lost.append(rf"host node(?!{own} )\d+ ")
        if self.rank is not None:
            lost.append(rf"rank {self.rank} \(process")
        return "|".join(lost)


def run(number: int, limit: float) -> str:
    """Runs one fault; returns what is wrong, or an empty text."""
    count, each = LAYOUTS[number % len(LAYOUTS)]
    fault = Fault.draw(number, count, each)
    with tempfile.NamedTemporaryFile(prefix="gc3-fault-") as moment:
        set_up = [f"FAULT_FILE={moment.name}", f"GC3_COMM_TIMEOUT={STOPPED if 'stop' in fault.verb else 300}"]
        words = ["env", *set_up, sys.executable, str(_PROGRAM), str(number)]
        line = hosts.command(count, each, words, "--apart", "--timeout", str(PER_FAULT))
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wrong: list[str] = []
    found = {int(rank): (float(took), said) for rank, took, said in _reports(done.stdout)}
    for rank in range(count * each):
        if not fault.survives(rank, each):
            continue
        if rank not in found:
            wrong.append(f"rank {rank} has not reported")
            continue
        took, said = found[rank]
        stops = "stop" in fault.verb  # who is stopped is late, and named when the time of the call is over
        if took > limit + (STOPPED if stops else 0):
            wrong.append(f"rank {rank} after {took:.1f} s")
        if ("GC3-R003" if stops else "GC3-R009") not in said or not re.search(fault.names(rank, each), said):
            wrong.append(f"rank {rank} names nobody who is lost")
    if "WRITTEN LATER" in done.stdout:
        wrong.append("a buffer was written after the error")
    if done.returncode == 124:
        wrong.append("it hangs")
    if not wrong:
        return ""
    return f"fault {number}, {count}x{each}: {fault}: {'; '.join(wrong)}\n{done.stdout}"


def _reports(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^rank (\d+) after (-?[\d.]+) s(.*)$", text, re.MULTILINE)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the number of the first fault")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds until every rank has its error")
    args = parser.parse_args()
    if problem := hosts.why_not():
        print(f"hosts: {problem}", file=sys.stderr)
        return 77
    failed = 0
    numbers = range(args.first, args.first + args.count)
    with ThreadPoolExecutor(args.jobs) as pool:
        for wrong in pool.map(run, numbers, [args.limit] * args.count):
            if wrong:
                print(wrong, flush=True)
                failed += 1
    print(f"{args.count} faults, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
