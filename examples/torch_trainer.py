"""Training with the Trainer of transformers on the backend gc3.

Its option ddp_backend does not know gc3; it takes the default process group if there is one.

torchrun --standalone --nproc-per-node 2 examples/torch_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    """A small network that learns to give back its input."""

    def __init__(self) -> None:
        """Makes the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the loss of a batch, of the shape (batch, 32)."""
        return {"loss": (self.layers(x) - x).square().mean()}


def main() -> None:
    """Trains a small network, and says which backend has added up the gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gc3")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=16,
            num_train_epochs=2,
            learning_rate=0.01,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(Net(), arguments, train_dataset=[{"x": x} for x in torch.randn(256, 32)])
        loss = trainer.train().training_loss
    if dist.get_rank() == 0:
        print(f"mean loss {loss:.4f} on {arguments.world_size} ranks of {dist.get_backend()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
