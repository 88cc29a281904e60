"""Groups and calls that differ between ranks; arguments: a file, and in what."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from here import RANK, SIZE

file, what = sys.argv[1:]
dist.init_process_group("gc3", init_method=f"file://{file}", rank=RANK, world_size=SIZE, timeout=timedelta(seconds=100))
call = {
    "all_gather": lambda: dist.all_gather([torch.zeros(3)] * SIZE, torch.ones(3 + RANK)),
    "two tensors": lambda: dist.reduce_scatter(torch.ones(2), [torch.ones(2)] * (SIZE + RANK)),
    "all_to_all_single": lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2 + RANK), [1] * SIZE, None),
    "reduction": lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM if RANK == 0 else dist.ReduceOp.BAND),
}
try:
    if what == "order":
        names = ["tp", "dp"] if RANK == 0 else ["dp", "tp"]
        made = {name: dist.new_group(range(SIZE), group_desc=name) for name in names}
        x = torch.ones(1)
        dist.all_reduce(x, group=made[names[0]])
    else:
        call[what]()
    dist.barrier()
    print("no error")
except dist.DistBackendError as problem:
    print(problem)
dist.destroy_process_group()
