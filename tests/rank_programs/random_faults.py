"""A fault at a random moment of a job of several hosts: `python random_faults.py SEED` in tests/hosts.py.

Every rank draws the same fault from the seed, and prints what has ended its calls, and how long after the fault.
"""

# ruff: noqa: S311 (the same calls on all ranks)

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import gc3

sys.path.insert(0, str(Path(__file__).parents[1]))
import hosts
from random_faults import PER_FAULT, Fault

faulthandler.dump_traceback_later(PER_FAULT - 10)  # what a rank does that hangs
seed = int(sys.argv[1])
comm = gc3.init()
each = int(os.environ["LOCAL_WORLD_SIZE"])
fault = Fault.draw(seed, comm.size // each, each)
draw = random.Random(seed)
count = draw.choice((1, 1000, 100_000, 2_000_000))
data, out = np.ones(count, "float32"), np.zeros(count, "float32")
gathered = np.zeros((comm.size, min(count, 100_000)), "float32")
calls = (
    lambda: comm.all_reduce(data, out=out),
    lambda: comm.broadcast(data, root=comm.size - 1),
    lambda: comm.all_gather(data[: gathered.shape[1]], out=gathered),
    comm.barrier,
)
first = draw.randrange(1, 40)
delay = draw.uniform(0, 0.05)
# The moment is a word that all ranks of the bed see: its clock is one, and its files are shared.
moment = Path(os.environ["FAULT_FILE"])


def strike() -> None:
    if fault.during:
        time.sleep(delay)
    if fault.rank is not None:
        moment.write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL if fault.verb == "kill-rank" else signal.SIGSTOP)
        return
    for host in fault.hosts:
        hosts.do(fault.verb, host)
    moment.write_text(str(time.monotonic()))  # of the last of them, because starting the tools takes time


begun = 0.0
said = ""
try:
    for turn in range(1_000_000):
        if turn == first:
            comm.barrier()  # nobody is late for another reason than the fault
            if comm.rank == fault.culprit:
                striker = threading.Thread(target=strike)
                striker.start()
                if not fault.during:
                    striker.join()
            elif not fault.during:
                time.sleep(0.5)
        begun = time.monotonic()
        draw.choice(calls)()
except gc3.CommError as problem:
    said = " ".join(str(problem).split())
ended = time.monotonic()
before = out.copy()
while not moment.read_text():
    time.sleep(0.01)
time.sleep(0.1)
took = ended - max(begun, float(moment.read_text()))
written = not np.array_equal(before, out)
print(f"\nrank {comm.rank} after {took:.2f} s{', WRITTEN LATER' if written else ''}: {said}", flush=True)
if "stop" in fault.verb and comm.rank == fault.culprit_after:
    time.sleep(1.5)  # the others have printed theirs
    for host in fault.hosts:
        hosts.do("go", host)
comm.close()
