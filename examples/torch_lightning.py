"""Training with Lightning on the backend gc3.

torchrun --standalone --nproc-per-node 2 examples/torch_lightning.py
"""

from __future__ import annotations

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    """A small network that learns to return its input."""

    def __init__(self) -> None:
        """The same layers on every rank."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Returns the loss."""
        loss = (self.layers(batch[0]) - batch[0]).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    """Trains it, and says which backend has added up the gradients."""
    torch.set_num_threads(1)
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gc3"),
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(256, 32)), batch_size=32))
    if trainer.is_global_zero:
        loss = trainer.callback_metrics["loss"].item()
        print(f"loss {loss:.4f} on {trainer.world_size} ranks of {dist.get_backend()}")


if __name__ == "__main__":
    main()
