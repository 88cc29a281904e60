"""Training steps on the backend gc3 and on Gloo, whose losses must agree; arguments: a file, and a way to train."""

import os
import sys

import torch
import torch.distributed as dist
from here import RANK, SIZE
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS = 4


def data(step: int) -> torch.Tensor:
    """This rank's part of a batch."""
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + RANK))


def model() -> nn.Sequential:
    """The same layers on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))


def trained(way: str, group: dist.ProcessGroup) -> list[float]:
    """The losses of some steps."""
    net = model()
    if way == "ddp":
        net = nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.01)
    elif way == "fsdp":
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
    if way == "zero":
        net = nn.parallel.DistributedDataParallel(net, process_group=group)
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses: list[float] = []
    for step in range(STEPS):
        loss = (net(data(step)) - data(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
dist.init_process_group("cpu:gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
ours = dist.new_group(backend="cpu:gc3")
for way in sys.argv[2:]:
    mine, theirs = trained(way, ours), trained(way, dist.group.WORLD)
    # With two ranks a sum has one order; with more, the backends add in different orders.
    assert mine == theirs if SIZE == 2 else torch.allclose(torch.tensor(mine), torch.tensor(theirs), 1e-6, 1e-6)
    print(way, "agrees")
dist.destroy_process_group()
