"""What the order of a program's instructions, and parts of transfers inside nodes, do to its predicted time.

benchmarks/ways.py ndv4:N=4 allreduce 64,256,512 --overlapped
benchmarks/ways.py dgx1 allgather 48
"""

from __future__ import annotations

import argparse
import time

from gc3 import sim, synth
from gc3.tune import Search
from gc3.tune.bound import link_bound

SIZES = (64 << 20, 256 << 20, 1 << 30)
DIVIDED = ((1, 1), (1, 2), (1, 4), (2, 2), (4, 1))  # lanes and instances, of which the fastest counts


def main() -> None:
    """Prints the time over the bound of the links at each size, for each order and number of parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine")
    parser.add_argument("collective")
    parser.add_argument("chunks", help="C, separated by commas")
    parser.add_argument("--overlapped", action="store_true", help="hierarchical schedules, overlapped; else pipelined")
    given = parser.parse_args()
    on = sim.platform(given.machine)
    several = len({rank.node for rank in on.topology.ranks}) > 1
    with synth.Solvers() as solvers:
        bound = link_bound(on, given.collective, 0, solvers, time.monotonic() + 60).seconds_per_byte
        task = synth.Task(synth.Session(synth.Network.of(on.topology), solvers, moving=False), given.collective)
        for chunks in map(int, given.chunks.split(",")):
            found = task.hierarchical(chunks, overlapped=True) if given.overlapped else task.pipelined(chunks)
            if found.result is None:
                raise SystemExit(found.how)
            print("C={}, S={}, R={}; times the bound at {} MiB".format(*found.result.cost, [s >> 20 for s in SIZES]))
            one = {"it": found.result}
            search = Search(given.collective, on, on.topology.rank_count, in_place=False, schedules=one)
            for order in ("depth", "steps", "gathered"):
                for parts in (1, 2) if several else (1,):
                    ways = [search.ways("it", order, lanes=a, parts=parts, instances=b)[0] for a, b in DIVIDED]
                    least = [min(search.seconds(way, size) for way in ways) / (bound * size) for size in SIZES]
                    print(f"  {order:8} {parts} parts ", *(f"{ratio:8.3f}" for ratio in least), flush=True)


if __name__ == "__main__":
    main()
