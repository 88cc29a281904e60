"""Training that torchrun starts again after a rank was killed; argument: a folder, where steps are kept."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

folder, again = Path(sys.argv[1]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gc3")
rank, size = dist.get_rank(), dist.get_world_size()
kept = folder / "step"
first = int(kept.read_text()) if kept.exists() else 0
for step in range(first, 6):
    x = torch.tensor([step + rank])
    dist.all_reduce(x)
    assert x.item() == size * step + size * (size - 1) // 2
    if step == 3 and again == 0 and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    if rank == 0:
        kept.write_text(str(step + 1))
dist.barrier()
told = f"rank {rank} began at step {first} in generation {again} and has ended\n"
os.write(1, told.encode())  # in one piece, beside the other ranks
dist.destroy_process_group()
