"""A small network and how it is trained, for programs of ranks that compare backends of PyTorch."""

import os

import torch
import torch.distributed as dist
from here import RANK, SIZE
from torch import nn


def data(step: int) -> torch.Tensor:
    """This rank's part of a batch."""
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + RANK))


def model(hidden: int = 0) -> nn.Sequential:
    """The same layers on every rank, with more hidden ones on request."""
    torch.manual_seed(1)
    more = [layer for _ in range(hidden) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), *more, nn.Linear(64, 16))


def trained(net: nn.Module, steps: int = 4, optimizer: torch.optim.Optimizer | None = None) -> list[float]:
    """The losses of some steps."""
    if optimizer is None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses: list[float] = []
    for step in range(steps):
        loss = (net(data(step)) - data(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def gloo_and_gc3(file: str) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The default group, of Gloo, and one of gc3, on ranks that meet in a file and have a thread each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo", init_method=f"file://{file}", rank=RANK, world_size=SIZE)
    world = dist.group.WORLD
    assert world is not None
    return world, dist.new_group(backend="cpu:gc3")


def close(mine: list[float], theirs: list[float], relative: float) -> bool:
    """Whether results agree: with two ranks a sum has one order; with more, the backends add in different orders."""
    return mine == theirs if SIZE == 2 else torch.allclose(torch.tensor(mine), torch.tensor(theirs), relative, 1e-6)
