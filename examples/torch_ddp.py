"""An AllReduce of your own, written by hand, under DistributedDataParallel of PyTorch.

torchrun --standalone --nproc-per-node 2 examples/torch_ddp.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn

import gc3
import gc3.torch


@gc3.algorithm("allreduce", chunks=lambda R: R, in_place=True)
def meet_at_owners(R: int) -> None:
    """Rank r adds up part r of everyone's data, and sends the sum to everyone."""
    for owner in range(R):
        total = gc3.chunk(owner, "in", owner)
        for rank in range(R):
            if rank != owner:
                total = total.reduce(gc3.chunk(rank, "in", owner))
        for rank in range(R):
            if rank != owner:
                total.copy(rank, "in", owner)


def main() -> None:
    """Trains a small network, and says which program added up the gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["RANK"]))
    dist.init_process_group("gc3")
    ranks = dist.get_world_size()
    gc3.torch.load(gc3.compile(meet_at_owners, R=ranks))  # proven before it is used

    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(64, 32)
        loss = (net(x) - x).square().mean()
        loss.backward()  # DDP calls all_reduce for each bucket of gradients
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        print(gc3.torch.explain("allreduce", 16_672))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
