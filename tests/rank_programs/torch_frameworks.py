"""What PyTorch builds on process groups, on the backend gc3 and on Gloo; arguments: a file, and what to check."""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from here import RANK, SIZE
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch_net import close, data, gloo_and_gc3, model, trained

Group = dist.ProcessGroup


def bf16_hook(group: Group) -> list[float]:
    """DDP whose gradients are sent as bfloat16."""
    net = DistributedDataParallel(model(), process_group=group)
    net.register_comm_hook(group, default_hooks.bf16_compress_hook)
    return trained(net)


def power_sgd(group: Group) -> list[float]:
    """DDP with a hook whose steps are made by `then`, and communicate themselves."""
    net = DistributedDataParallel(model(), process_group=group)
    net.register_comm_hook(PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    return trained(net)


def static_graph(group: Group) -> list[float]:
    """DDP that expects the same graph in each step."""
    return trained(DistributedDataParallel(model(), process_group=group, static_graph=True))


class Sometimes(nn.Module):
    """A layer that a rank uses in some steps only."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.seldom, self.step = model(), nn.Linear(16, 16), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Uses the layer on one rank at a time."""
        self.step += 1
        y = self.net(x)
        return y + self.seldom(y) if self.step % SIZE == RANK else y


def unused(group: Group) -> list[float]:
    """DDP with parameters without gradients."""
    return trained(DistributedDataParallel(Sometimes(), process_group=group, find_unused_parameters=True))


def join(group: Group) -> list[float]:
    """DDP on ranks with different numbers of batches."""
    net = DistributedDataParallel(model(), process_group=group)
    with Join([net]):
        trained(net, 2 + RANK)
    return [next(net.parameters()).sum().item()]


def no_sync(group: Group) -> list[float]:
    """DDP that adds gradients up before it sends them."""
    net = DistributedDataParallel(model(), process_group=group)
    with net.no_sync():
        net(data(0)).sum().backward()
    net(data(1)).sum().backward()
    return [parameter.grad.sum().item() for parameter in net.parameters()]


def fsdp(group: Group) -> list[float]:
    """FSDP2 with buffers from the process group, where it gives them."""
    net, mesh = model(), DeviceMesh.from_group(group, "cpu")
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    if dist.get_backend_config(group) != "cpu:gloo":
        net.set_allocate_memory_from_process_group_for_comm(True)
    return trained(net)


def tensor_parallel(group: Group) -> list[float]:
    """Layers whose columns and rows are on different ranks."""
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    loss = net(x).square().mean()
    loss.backward()
    return [loss.item(), net[0].weight.grad.full_tensor().sum().item()]


def sequence_parallel(group: Group) -> list[float]:
    """A norm whose input is divided along the sequence."""
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(1)
    net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24), nn.Linear(24, 16))
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "2": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(net, mesh, {"0": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1))})
    parallelize_module(net, mesh, plan)
    x = torch.randn(2, 4 * SIZE, 16, generator=torch.Generator().manual_seed(1))
    loss = net(x).square().sum()
    loss.backward()
    return [loss.item()]


def redistribution(group: Group) -> list[float]:
    """Distributed tensors between all placements, and their full values."""
    mesh = DeviceMesh.from_group(group, "cpu")
    whole = torch.arange(60.0).reshape(10, 6)
    found: list[float] = []
    for first in (Shard(0), Shard(1), Replicate()):
        for then in (Shard(1), Replicate(), Shard(0)):
            moved = distribute_tensor(whole, mesh, [first]).redistribute(mesh, [then])
            assert torch.equal(moved.full_tensor(), whole)
            found.append(moved.to_local().sum().item())
    parts = DTensor.from_local(torch.ones(4, 3) * (RANK + 1), mesh, [Shard(0)])
    return [*found, parts.sum().full_tensor().item()]


def pipeline(group: Group) -> list[float]:
    """A stage on each rank, with two schedules."""
    losses: list[float] = []
    for schedule in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(RANK)
        net = nn.Linear(16, 16)
        stage = PipelineStage(net, RANK, SIZE, torch.device("cpu"), group=group)
        runs = schedule(stage, n_microbatches=4, loss_fn=lambda y, goal: (y - goal).square().mean())
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
        found: list[torch.Tensor] = []
        if RANK == 0:
            runs.step(x)
        elif RANK == SIZE - 1:
            runs.step(target=x, losses=found)
        else:
            runs.step()
        losses += [loss.item() for loss in found] + [net.weight.grad.sum().item()]
    return losses


def checkpoint(group: Group) -> list[float]:
    """A sharded state that is saved and loaded."""
    folder = f"{sys.argv[1]}-{dist.get_backend_config(group).replace(':', '-')}"
    mesh = DeviceMesh.from_group(group, "cpu")
    net = model()
    fully_shard(net, mesh=mesh)
    dcp.save(net.state_dict(), checkpoint_id=folder, process_group=group)
    before = net[0].weight.full_tensor().sum().item()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    state = net.state_dict()
    dcp.load(state, checkpoint_id=folder, process_group=group)
    net.load_state_dict(state)
    assert net[0].weight.full_tensor().sum().item() == before
    return [before]


def compiled(group: Group) -> list[float]:
    """Functional collectives in a compiled graph."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def graph(x: torch.Tensor) -> torch.Tensor:
        y = all_reduce(x * 2, "sum", group)
        z = all_gather_tensor(y + 1, 0, group)
        return reduce_scatter_tensor(z, "sum", 0, group) + x

    return graph(torch.full((4, 2), RANK + 1.0)).flatten().tolist()


CHECKS: dict[str, Callable[[Group], list[float]]] = {
    check.__name__: check
    for check in (bf16_hook, power_sgd, static_graph, unused, join, no_sync, fsdp, tensor_parallel, sequence_parallel)
} | {check.__name__: check for check in (redistribution, pipeline, checkpoint, compiled)}

gloo, ours = gloo_and_gc3(sys.argv[1])
for name in sys.argv[2:] or CHECKS:
    mine, theirs = CHECKS[name](ours), CHECKS[name](gloo)
    assert close(mine, theirs, 1e-5), (name, mine, theirs)
    print(name, "agrees")
dist.destroy_process_group()
