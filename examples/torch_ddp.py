"""An AllReduce of your own, written by hand, under DistributedDataParallel of PyTorch.

    torchrun --standalone --nproc-per-node 2 examples/torch_ddp.py
    python examples/torch_ddp.py --ranks 4 --vs --width 512

Every rank has a batch, and DDP adds up the gradients of all ranks with the program `meet_at_owners`, in buckets, while
the backward pass still computes others. The weights are compared with those of one process that has all batches.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import beside

import gc3

STEPS, BATCH, INPUTS = 5, 64, 32


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


def main(given: argparse.Namespace) -> None:
    """Trains a small network, and says which program added up the gradients."""
    comm = beside.start_torch(given)
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    import gc3.torch  # noqa: PLC0415

    @dataclass
    class Trained:
        """A network, its optimizer, and the calls that its name says."""

        name: str
        net: nn.Module
        seconds: float = 0.0

        def __post_init__(self) -> None:
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def step(self, *batches: torch.Tensor) -> float:
            """Learns to give back what comes in; returns the loss."""
            loss = sum((self.net(x) - x).square().mean() for x in batches) / len(batches)
            loss.backward()  # DDP calls all_reduce for each bucket of gradients
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.item()

    def network() -> nn.Module:
        torch.manual_seed(1)
        width = given.width
        return nn.Sequential(nn.Linear(INPUTS, width), nn.ReLU(),
                             nn.Linear(width, width), nn.ReLU(), nn.Linear(width, INPUTS))  # fmt: skip

    def distributed(name: str, group: dist.ProcessGroup | None) -> Trained:
        return Trained(name, nn.parallel.DistributedDataParallel(network(), process_group=group))

    own = dist.new_group(backend="gc3")
    gc3.torch.load(gc3.compile(meet_at_owners, R=comm.size), own)  # proven before it is used
    groups = beside.torch_groups(comm, given, [("gc3 meet_at_owners", own), ("gc3", None)])
    variants = [distributed(name, group) for name, group in groups]
    numbers = torch.Generator().manual_seed(1)
    batches = torch.randn(STEPS, comm.size, BATCH, INPUTS, generator=numbers)
    serial = Trained("alone", network())
    for number in range(STEPS):
        losses = {each.name: each.step(batches[number, comm.rank]) for each in variants}
        serial.step(*batches[number])
        if comm.rank == 0:
            print(f"step {number}: loss {losses['gc3 meet_at_owners']:.4f}")
    for each in variants:
        pairs = zip(each.net.parameters(), serial.net.parameters(), strict=True)
        if not beside.agreed(comm, all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs)):
            raise SystemExit(f"{each.name}: NOT equal to one process with all batches")
    size = sum(p.numel() for p in serial.net.parameters())
    if comm.rank == 0:
        print(f"equal to one process with all batches; {4 * size} bytes of gradients")
        print(gc3.torch.explain("allreduce", size, group=own))
    if given.vs or given.algorithm:
        about = {"name": "torch_ddp", "of": 1, "unit": "steps", "width": given.width, "bytes": 4 * size}
        x = batches[0, comm.rank]
        beside.compare(comm, [*variants, serial], lambda each: each.step(x), given, **about)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = beside.parser(__doc__)
    parser.add_argument("--width", type=beside.positive, default=256, help="of the network (default: 256)")
    main(parser.parse_args())
