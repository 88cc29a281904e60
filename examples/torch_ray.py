"""Training with Ray Train on the backend gc3: Ray starts the ranks.

python examples/torch_ray.py
"""

from __future__ import annotations

import ray
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn


def train() -> None:
    """What a worker does: trains a small network that learns to return its input."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = prepare_model(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(8, 32, 32, generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(5):
        total = torch.zeros(())
        for batch in data:
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(data)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss {total.item():.4f} on {dist.get_world_size()} ranks of {dist.get_backend()}")


def main() -> None:
    """Trains it on two ranks; the first says which backend has added up the gradients."""
    ray.init(num_cpus=3, include_dashboard=False)
    TorchTrainer(train, torch_config=TorchConfig(backend="gc3"), scaling_config=ScalingConfig(num_workers=2)).fit()


if __name__ == "__main__":
    main()
