"""What is trained: small models whose steps communicate as large ones do. None as the group: without communication."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Group = dist.ProcessGroup | None
WORDS, WIDTH, LAYERS, HEADS, LENGTH = 8192, 512, 8, 8, 32
TOKEN_WIDTH, TOKEN_LAYERS, TOKEN_BATCH = 1024, 100, 8
EXPERT_WIDTH, EXPERT_TOKENS = 512, 1024


@dataclass
class Step:
    """A step of training, and the losses so far."""

    once: Callable[[], float]
    net: nn.Module = field(default_factory=nn.Identity)
    losses: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Makes one."""
        self.losses.append(self.once())


class Transformer(nn.Module):
    """30 million parameters."""

    def __init__(self) -> None:
        """Makes the same parameters on all ranks."""
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer
        self.layers = nn.ModuleList(
            layer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(LAYERS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the next words."""
        y = self.words(x)
        for layer in self.layers:
            y = layer(y)
        return y @ self.words.weight.t()


class Residual(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        """Makes the layers."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(given, made, 3, stride, 1, bias=False),
            nn.BatchNorm2d(made),
            nn.ReLU(),
            nn.Conv2d(made, made, 3, 1, 1, bias=False),
            nn.BatchNorm2d(made),
        )
        same = given == made and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(given, made, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds both."""
        return torch.relu(self.body(x) + self.past(x))


def resnet() -> nn.Module:
    """ResNet-18 for small pictures, 11 million parameters."""
    torch.manual_seed(1)
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [Residual(*width) for width in [*widths, (512, 512, 1)]]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), *blocks, *ends)


def own() -> torch.Generator:
    """The random numbers of this rank's data."""
    return torch.Generator().manual_seed(RANK + 1)


def trained(net: nn.Module, x: torch.Tensor, goal: torch.Tensor) -> Step:
    """Steps of one optimizer on one batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def once() -> float:
        loss = nn.functional.cross_entropy(net(x).flatten(0, -2), goal.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return Step(once, net)


def words() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of two texts, and the words that follow."""
    x = torch.randint(WORDS, (2, LENGTH + 1), generator=own())
    return x[:, :-1], x[:, 1:].contiguous()


def ddp(group: Group) -> Step:
    """The transformer under DDP."""
    net: nn.Module = Transformer()
    if group is not None:
        net = nn.parallel.DistributedDataParallel(net, process_group=group)
    return trained(net, *words())


def fsdp(group: Group) -> Step:
    """The transformer under FSDP2."""
    net = Transformer()
    if group is not None:
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
    return trained(net, *words())


def pictures(group: Group) -> Step:
    """ResNet-18 under DDP."""
    net = resnet()
    if group is not None:
        net = nn.parallel.DistributedDataParallel(net, process_group=group)
    return trained(net, torch.randn(4, 3, 32, 32, generator=own()), torch.randint(10, (4,), generator=own()))


def tokens(group: Group) -> Step:
    """One token of a batch by tensor parallelism: 100 layers, each with two sums of 16 KiB of bfloat16."""
    torch.manual_seed(2)
    inner = 256 // SIZE
    down = torch.randn(TOKEN_WIDTH, inner).to(torch.bfloat16) / TOKEN_WIDTH
    up = torch.randn(inner, TOKEN_WIDTH).to(torch.bfloat16) / TOKEN_WIDTH
    start = torch.randn(TOKEN_BATCH, TOKEN_WIDTH).to(torch.bfloat16)

    @torch.no_grad()
    def once() -> float:
        x = start
        for _ in range(2 * TOKEN_LAYERS):
            y = (x @ down) @ up
            if group is not None:
                dist.all_reduce(y, group=group)
            x = x + y
        return x.float().sum().item()

    return Step(once)


def experts(group: Group) -> Step:
    """A layer of experts, one on each rank, to which the tokens go unevenly, forward and backward."""
    torch.manual_seed(3 + RANK)
    expert = nn.Sequential(nn.Linear(EXPERT_WIDTH, EXPERT_WIDTH), nn.GELU(), nn.Linear(EXPERT_WIDTH, EXPERT_WIDTH))
    chances = torch.tensor([1.0 / (expert_rank + 1) for expert_rank in range(SIZE)])
    to = torch.multinomial(chances, EXPERT_TOKENS, replacement=True, generator=own()).sort().values
    x = torch.randn(EXPERT_TOKENS, EXPERT_WIDTH, generator=own(), requires_grad=True)
    sent = torch.bincount(to, minlength=SIZE)
    optimizer = torch.optim.SGD(expert.parameters(), lr=0.01)

    def once() -> float:
        if group is None:
            y = expert(x)
        else:
            expected = torch.empty_like(sent)
            dist.all_to_all_single(expected, sent, group=group)
            there, here = sent.tolist(), expected.tolist()
            exchange = torch.distributed.nn.functional.all_to_all_single
            arrived = exchange(torch.empty(sum(here), EXPERT_WIDTH), x, here, there, group=group)
            y = exchange(torch.empty(EXPERT_TOKENS, EXPERT_WIDTH), expert(arrived), there, here, group=group)
        loss = (y - x.detach()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None
        return loss.item()

    return Step(once)


STEPS: dict[str, Callable[[Group], Step]] = {
    "transformer, DDP": ddp,
    "transformer, FSDP2": fsdp,
    "ResNet-18, DDP": pictures,
    "tensor parallel token": tokens,
    "experts": experts,
}
