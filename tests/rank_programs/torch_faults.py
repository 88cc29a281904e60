"""What a rank sees when another one fails; arguments: a file, and the fault."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from here import RANK, SIZE

file, fault = sys.argv[1:]
limit = timedelta(seconds=2 if fault in ("late", "stopped") else 60)
if fault == "other host":
    import gc3.torch.joining

    if RANK == SIZE - 1:
        gc3.torch.joining.host = lambda: "elsewhere with another boot"
    try:
        dist.init_process_group("gc3", init_method=f"file://{file}", rank=RANK, world_size=SIZE)
    except dist.DistBackendError as problem:
        print(f"refused: {problem}")
    raise SystemExit(0)
dist.init_process_group("gc3", init_method=f"file://{file}", rank=RANK, world_size=SIZE, timeout=limit)
x = torch.ones(1000)
dist.all_reduce(x)
began = time.monotonic()
try:
    if RANK == SIZE - 1:
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "late":
            time.sleep(6)
        elif fault == "other call":
            x = torch.ones(7)
        elif fault == "aborted":
            time.sleep(0.2)
            dist.distributed_c10d._abort_process_group()
            raise SystemExit(0)
    if fault == "aborted":
        dist.all_reduce(x, async_op=True).wait()
    else:
        dist.all_reduce(x)
except dist.DistBackendError as problem:
    print(f"refused: {str(problem).splitlines()[0]}")
    try:
        dist.all_reduce(x)
    except dist.DistBackendError:
        print("refused again")
dist.destroy_process_group()
print("left")
