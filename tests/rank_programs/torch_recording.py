"""Records a step of DDP or FSDP2, with other groups, messages and every collective: STORE NAME BACKEND KIND."""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import gc3
import gc3.torch

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store, name, backend, kind = sys.argv[1:]
torch.set_num_threads(1)


def failed(step: Any) -> str:
    try:
        gc3.torch.record(step, name)
    except gc3.UserError as problem:
        return problem.message
    return "nothing"


if rank == 0:
    print("early:", failed(lambda: None))
dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=n)
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
model: Any = net
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.004)
elif kind == "fsdp":
    from torch.distributed.fsdp import fully_shard

    for layer in (net[0], net[2]):
        fully_shard(layer)
    fully_shard(net)
groups = [dist.new_group([each]) for each in range(n)]
pair = dist.new_group([0, 1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(8, 16)


def others() -> None:
    """Calls beside those of the model."""
    t = torch.ones(8)
    dist.all_reduce(t)
    dist.all_reduce(t, group=groups[rank])
    dist.barrier()
    if rank < 2:
        work = dist.all_reduce(t, group=pair, async_op=True)
        t2 = torch.ones(4) * 3
        work.wait()
        t += t2.sum()
    if rank == 0:
        dist.send(t, n - 1)
    elif rank == n - 1:
        dist.recv(t, 0)
    parts = [torch.empty(8) for _ in range(n)]
    dist.all_gather(parts, t)
    dist.all_gather_into_tensor(torch.empty(8 * n), t)
    dist.all_to_all_single(torch.empty(8 * n), torch.ones(8 * n))
    dist.broadcast(t, 0)
    dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * n))
    dist.reduce(t, 0)
    dist.gather(t, parts if rank == 0 else None)
    dist.scatter(t, parts if rank == 0 else None)


def step() -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    others()


for _ in range(3):
    step()
gc3.torch.record(step, name)
step()  # as before
count = [0]


def changing() -> None:
    count[0] += 1
    torch.ones(2)
    if rank == 1 and count[0] % 2 == 0:
        torch.relu(torch.ones(3))


print("changing:", failed(changing))
dist.destroy_process_group()
if backend == "gloo":  # a thread of Gloo may still need the interpreter, which then ends the process with SIGABRT
    sys.stdout.flush()
    os._exit(0)
