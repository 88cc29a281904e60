"""What a rank sees when another one fails; arguments: a file, and the fault."""

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from here import RANK, SIZE
from torch import nn

file, fault = sys.argv[1:]
limit = timedelta(seconds=2 if fault in ("late", "stopped") else 60)
dist.init_process_group("gc3", init_method=f"file://{file}", rank=RANK, world_size=SIZE, timeout=limit)
x = torch.ones(1000)
dist.all_reduce(x)
if fault.endswith("DDP"):
    net = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 5))
    trained = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    trained(torch.ones(8, 30)).sum().backward()
began = time.monotonic()
store = dist.distributed_c10d._get_default_store()


def call() -> None:
    if "reduce" in fault:
        dist.reduce(x, 0)
    elif "DDP" in fault:
        trained(torch.ones(8, 30)).sum().backward()
    elif "not contiguous" in fault:
        dist.all_reduce(torch.ones(30, 40).t())
    else:
        dist.all_reduce(x)


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def interrupted() -> None:
    """Waits for a call that no other rank makes, until Ctrl-C."""
    if "reduce" in fault:
        work = dist.reduce(x, 0, async_op=True)
    else:
        work = dist.all_reduce(x, async_op=True)
        time.sleep(0.2)  # so that the thread of the group makes it
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        work.wait()
    except KeyboardInterrupt:
        store.set("interrupted", "")
        raise


if fault == "patience":
    others = [f"tried {rank}" for rank in range(SIZE - 1)]
    if RANK == SIZE - 1:
        store.wait(others)
        dist.all_reduce(x)
    else:
        work = dist.all_reduce(x, async_op=True)
        try:
            work.wait(timedelta(seconds=0.1))
        except dist.DistBackendError as problem:
            print(f"refused: {problem}")
        store.set(others[RANK], "")
        work.wait()
    group, later = dist.group.WORLD, dist.AllreduceOptions()
    dist.destroy_process_group()
    later.asyncOp = True
    try:
        group.allreduce([x], later).wait()
    except dist.DistBackendError as problem:
        print(f"refused: {problem}")
    raise SystemExit(0)
if fault == "none waits":
    for _ in range(20):
        dist.reduce(x, 0, async_op=True)
        dist.all_reduce(x, async_op=True).get_future().then(lambda _: None)
    work = dist.irecv(x, (RANK + 1) % SIZE)
    work.get_future().then(str)
    raise SystemExit(0)
if fault == "forked":
    dist.all_reduce(x, async_op=True).wait()
    work = dist.all_reduce(x, async_op=True) if RANK else None
    time.sleep(0.1 if RANK else 0)  # the thread makes the call, for which rank 0 is late
    child = os.fork()
    if child == 0:
        waits = [work.wait] if work else []
        for refused in (lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, async_op=True).wait(), *waits):
            try:
                refused()
            except dist.DistBackendError as problem:
                print(f"refused: {str(problem).splitlines()[0]}", flush=True)
        raise SystemExit(0)  # without waiting for a thread that is not there
    assert os.waitpid(child, 0)[1] == 0
    if work is None:
        dist.all_reduce(x)
    else:
        work.wait()
    dist.destroy_process_group()
    raise SystemExit(0)
try:
    if RANK == SIZE - 1:
        if fault.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "late":
            time.sleep(6)
        elif fault == "stopped":
            store.set("process", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "other call":
            x = torch.ones(7)
        elif fault.startswith("aborted"):
            time.sleep(0.2)
            dist.distributed_c10d._abort_process_group()
            raise SystemExit(0)
        elif fault.startswith("interrupted"):
            interrupted()
        elif fault == "raised":
            store.set("process", str(os.getpid()))
            dist.all_reduce(x, async_op=True)
            time.sleep(0.2)  # so that the thread of the group makes it
            raise ValueError
    elif fault.startswith("interrupted"):
        store.wait(["interrupted"])
    elif fault == "raised":
        last = int(store.get("process"))
        while state(last) != "Z" and time.monotonic() < began + 30:
            time.sleep(0.01)
    if fault == "aborted":
        dist.all_reduce(x, async_op=True).wait()
    else:
        call()
except RuntimeError as problem:
    # DDP raises the error of a backend in Python as another one, with words of its own before the text.
    assert isinstance(problem, dist.DistBackendError) or "DDP" in fault
    text = str(problem).splitlines()[0]
    print("refused:", text[text.index("GC3-") :])
    try:
        dist.all_reduce(x) if "DDP" in fault else call()  # DDP itself refuses to go on after an error
    except dist.DistBackendError:
        print("refused again")
    if fault == "stopped" and RANK == 0:
        os.kill(int(store.get("process")), signal.SIGCONT)
dist.destroy_process_group()
print("left")
