"""Ranks lose one of their number in the middle of their work, and go on with a program for what is left of the machine.

The ranks call an AllReduce that was synthesized for the whole machine, again and again. One rank is killed. The others
notice it by the error of their call, shrink to a communicator without it, repair the schedule, load the new program,
and repeat the call. Every rank prints how long this took, from the kill to the right result.

python examples/repair.py --machine dgx1 --lose 3
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import uuid

import numpy as np

import gc3
from gc3 import synth, topologies

CHUNKS = 8  # of a rank's block
COUNT = 100_000  # elements
SOON = 0.3  # seconds after which the rank ends


def whole(machine: topologies.Topology) -> synth.Result:
    """Returns a schedule for the whole machine."""
    with synth.Solvers() as solvers:
        task = synth.Task(synth.Session(synth.Network.of(machine), solvers), "allreduce")
        found = task.pipelined(CHUNKS * task.unit).result
    if found is None:
        raise SystemExit("no schedule was found")
    return found


def work(machine: topologies.Topology, lose: int) -> None:
    """One rank's work."""
    with gc3.init() as comm:
        rank, data = comm.rank, np.arange(COUNT) + comm.rank
        # Everybody keeps the schedule, because anybody may be lost.
        schedule = comm.broadcast_object(whole(machine) if rank == 0 else None)
        comm.load(schedule.program(in_place=False))
        killed = float(comm.broadcast_object(time.monotonic() + SOON if rank == lose else None, lose))
        try:
            while True:
                comm.all_reduce(data)
                if rank == lose and time.monotonic() > killed:
                    os.kill(os.getpid(), signal.SIGKILL)
        except gc3.CommError:
            noticed = time.monotonic()
        with comm.shrink() as left:
            shrunk = time.monotonic()
            ranks = left.all_gather_object(rank)
            network = synth.Network.of(topologies.without(machine, ranks=set(range(comm.size)) - set(ranks)))
            program = None
            if left.rank == 0:
                program = synth.repaired(schedule, network, ranks).program(in_place=False)
            program = left.broadcast_object(program)
            repaired = time.monotonic()
            left.load(program)
            total = left.all_reduce(data)
            done = time.monotonic()
            right = np.array_equal(total, len(ranks) * np.arange(COUNT) + sum(ranks))
            served = program.name in left.explain("allreduce", COUNT, "int64").program
            verdict = "right" if right and served else "WRONG"
            print(
                f"rank {rank}: {verdict} {1e3 * (done - killed):.0f} ms after the kill: "
                f"noticed {1e3 * (noticed - killed):.0f}, shrunk {1e3 * (shrunk - noticed):.0f}, "
                f"repaired {1e3 * (repaired - shrunk):.0f}, loaded and run {1e3 * (done - repaired):.0f}",
                flush=True,
            )
            if not (right and served):
                sys.exit(1)


def connected(machine: topologies.Topology, lose: int) -> bool:
    """Whether two ranks or more are left that reach each other."""
    left = topologies.without(machine, ranks={lose}) if machine.rank_count > 1 else machine
    return left.rank_count > 1 and max(map(max, synth.Network.of(left).distance)) < left.rank_count


def main() -> None:
    """Starts a process for each rank of the machine, unless this process is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", default="dgx1", help="a machine of `gc3 topo list` (dgx1)")
    parser.add_argument("--lose", type=int, default=3, metavar="RANK", help="the rank to kill (3)")
    given = parser.parse_args()
    try:
        machine = topologies.load(given.machine)
    except gc3.UserError as problem:
        parser.error(str(problem))
    if not 0 <= given.lose < machine.rank_count:
        parser.error(f"--lose {given.lose}: {given.machine} has ranks 0 to {machine.rank_count - 1}")
    if not connected(machine, given.lose):
        parser.error(f"--lose {given.lose}: {given.machine} without it is not two ranks or more that reach each other")
    if "RANK" in os.environ:
        work(machine, given.lose)
        return
    job = {"WORLD_SIZE": str(machine.rank_count), "MASTER_ADDR": str(uuid.uuid4()), "MASTER_PORT": "1"}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | job | {"RANK": str(rank)})  # noqa: S603
        for rank in range(machine.rank_count)
    ]
    ended = [process.wait() for process in ranks]
    expected = [-signal.SIGKILL if rank == given.lose else 0 for rank in range(machine.rank_count)]
    sys.exit(int(ended != expected))


if __name__ == "__main__":
    main()
