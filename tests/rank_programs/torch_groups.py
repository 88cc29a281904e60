"""Groups and calls that differ between ranks; arguments: a file, and in what."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from here import RANK, SIZE

import gc3.torch

file, what = sys.argv[1:]
LIMIT = timedelta(seconds=100)
world = "gloo" if what == "descriptions" else "gc3"
dist.init_process_group(world, init_method=f"file://{file}", rank=RANK, world_size=SIZE, timeout=LIMIT)


def order() -> None:
    """Groups of the same ranks that are made in another order on each rank, and have descriptions."""
    names = ["tp", "dp", "dp"] if RANK == 0 else ["dp", "tp", "dp"]
    made = [(name, dist.new_group(range(SIZE), group_desc=name, timeout=LIMIT)) for name in names]
    (_, tp), (_, first), (_, second) = sorted(made, key=lambda one: one[0], reverse=True)
    if RANK == 0:
        sent = [dist.isend(torch.full((1,), float(i)), 1, group) for i, group in enumerate((tp, first, second))]
        dist.send_object_list(["tp"], 1, tp)
        dist.send_object_list(["dp"], 1, first)
        for work in sent:
            work.wait()
    else:
        for i, group in ((1, first), (0, tp), (2, second)):
            got = torch.zeros(1)
            dist.recv(got, 0, group)
            assert got.item() == i, (got.item(), i)
        for name, group in (("dp", first), ("tp", tp)):
            objects = [""]
            dist.recv_object_list(objects, 0, group)
            assert objects == [name], objects
    for group in (tp, first, second):
        dist.monitored_barrier(group)
        assert gc3.torch.communicator(group).all_reduce([1.0 + RANK]).tolist() == [3.0]
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == SIZE


def descriptions() -> None:
    """A group whose description differs, and whose ranks meet when they make it."""
    dist.new_group(range(SIZE), backend="gc3", group_desc=f"of {RANK}")


own = torch.float8_e5m2fnuz if RANK else torch.float8_e4m3fnuz  # types that GC3 moves as bytes
call = {
    "order": order,
    "descriptions": descriptions,
    "types": lambda: dist.all_gather([torch.zeros(3).to(own)] * SIZE, torch.ones(3).to(own)),
    "all_gather": lambda: dist.all_gather([torch.zeros(3)] * SIZE, torch.ones(3 + RANK)),
    "two tensors": lambda: dist.reduce_scatter(torch.ones(2), [torch.ones(2)] * (SIZE + RANK)),
    "all_to_all_single": lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2 + RANK), [1] * SIZE, None),
    "reduction": lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM if RANK == 0 else dist.ReduceOp.BAND),
}
try:
    call[what]()
    dist.barrier()
    print("no error")
except dist.DistBackendError as problem:
    print(problem)
dist.destroy_process_group()
