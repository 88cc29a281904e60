"""Training with accelerate on the backend gc3.

accelerate has no option for the backend on CPUs, and takes the default process group if there is one.

torchrun --standalone --nproc-per-node 2 examples/torch_accelerate.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Trains a small network, and says which backend has added up the gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gc3")
    accelerator = Accelerator(cpu=True)
    x = torch.randn(256, 32)
    net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer, batches = accelerator.prepare(net, optimizer, DataLoader(TensorDataset(x), batch_size=32))
    for epoch in range(2):
        for (batch,) in batches:
            loss = (net(batch) - batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print(
            f"epoch {epoch}: loss {mean:.4f} on {accelerator.num_processes} ranks of {dist.get_backend()}"
        )
    accelerator.end_training()


if __name__ == "__main__":
    main()
