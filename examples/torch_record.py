"""Records a training step of a small transformer under DistributedDataParallel, for `gc3 sim step`.

    torchrun --standalone --nproc-per-node 2 examples/torch_record.py examples/torch
    gc3 sim step examples/torch -t ethernet_hosts:N=2,G=1 --use allreduce=ring_allreduce

Each rank writes a Chakra execution trace, here torch.0.et and torch.1.et. `--backend gloo` records the same step
with Gloo. The step's mean time is printed, for comparison with what the simulator predicts.
"""

from __future__ import annotations

import argparse
import time


def main(given: argparse.Namespace) -> None:
    """Trains for some steps, and records one."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    import gc3.torch  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(given.backend)
    words, width = 2000, 256
    layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True)
    net = nn.Sequential(
        nn.Embedding(words, width),
        nn.TransformerEncoder(layer, num_layers=given.layers, enable_nested_tensor=False),
        nn.Linear(width, words),
    )
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    text = torch.randint(words, (given.batch, 128), generator=torch.Generator().manual_seed(dist.get_rank()))

    def step() -> None:
        """Learns to repeat the text."""
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten()).backward()
        optimizer.step()

    for _ in range(3):  # DDP decides on its buckets in the first steps
        step()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(given.steps):
        step()
    dist.barrier()
    took = (time.perf_counter() - began) / given.steps
    gc3.torch.record(step, given.path)
    if dist.get_rank() == 0:
        print(f"a step takes {1e3 * took:.1f} ms; {given.path}.RANK.et has one")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record a training step of PyTorch for gc3 sim step.")
    parser.add_argument("path", metavar="NAME", help="of the traces: NAME.RANK.et")
    parser.add_argument("--backend", default="gc3", help="of torch.distributed (default: gc3)")
    for name, default in (("layers", 4), ("batch", 4), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")
    main(parser.parse_args())
