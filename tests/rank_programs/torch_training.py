"""Training steps on the backend gc3 and on Gloo, whose losses must agree; arguments: a file, and a way to train."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch_net import close, gloo_and_gc3, model, trained


def losses(way: str, group: dist.ProcessGroup) -> list[float]:
    """Those of some steps."""
    net = model(hidden=1)
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
    return trained(net, optimizer=optimizer)


gloo, ours = gloo_and_gc3(sys.argv[1])
for way in sys.argv[2:]:
    assert close(losses(way, ours), losses(way, gloo), 1e-6)
    print(way, "agrees")
dist.destroy_process_group()
