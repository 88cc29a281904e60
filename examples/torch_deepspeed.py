"""Training with DeepSpeed on the backend gc3.

torchrun --standalone --nproc-per-node 2 examples/torch_deepspeed.py
"""

from __future__ import annotations

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

SETTINGS = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}


def main() -> None:
    """Trains a small network that learns to return its input."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    deepspeed.init_distributed("gc3")
    net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=SETTINGS)
    data = torch.randn(8, 32, 32, generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(5):
        total = torch.zeros(())
        for batch in data:
            loss = (engine(batch) - batch).square().mean()
            engine.backward(loss)
            engine.step()
            total += loss.detach() / len(data)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss {total.item():.4f} on {dist.get_world_size()} ranks of {dist.get_backend()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
