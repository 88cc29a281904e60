"""Decoding with a small transformer whose matrices are divided among the ranks: tensor parallelism.

    torchrun --standalone --nproc-per-node 2 examples/torch_decoding.py
    python examples/torch_decoding.py --ranks 4 --vs --algorithm allpairs_allreduce --dtype bfloat16

Of each layer a rank has some heads (columns of the matrix that makes queries, keys and values, rows of the one that
follows) and a part of the perceptron (columns of the first matrix, rows of the second). After each of the two halves
the ranks' results are added up, so a token costs two AllReduces of a few KiB for each layer. Nothing can be computed
meanwhile. The logits are compared with those of one process that has the whole matrices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import beside

if TYPE_CHECKING:
    import torch

WORDS, HEADS, BATCH = 1024, 8, 4
CLOSE = {"float32": 1e-4, "bfloat16": 5e-2}  # of the largest logit


@dataclass(frozen=True)
class Layer:
    """A part of the matrices of a layer, or all of them: heads `h` of `d` numbers, and `m` of the perceptron.

    Attributes:
        attend: (width, 3, h, d)
        join: (h, d, width)
        up: (width, m)
        down: (m, width)
    """

    attend: torch.Tensor
    join: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    def part(self, rank: int, ranks: int) -> Layer:
        """What a rank has."""
        cut = ((self.attend, 2), (self.join, 0), (self.up, 1), (self.down, 0))
        return Layer(*(matrix.chunk(ranks, axis)[rank].contiguous() for matrix, axis in cut))

    def half(self, x: torch.Tensor, past: torch.Tensor, position: int) -> torch.Tensor:
        """Attention of the new token, (batch, width), to itself and the past, (2, positions, batch, h, d)."""
        made = (normal(x) @ self.attend.flatten(1)).unflatten(1, self.attend.shape[1:])
        query, past[0, position], past[1, position] = made.unbind(1)
        keys, values = past[:, : position + 1]
        weights = ((keys * query).sum(-1, keepdim=True) / query.shape[-1] ** 0.5).softmax(0)
        return (weights * values).sum(0).flatten(1) @ self.join.flatten(0, 1)

    def perceptron(self, x: torch.Tensor) -> torch.Tensor:
        """The other half."""
        return (normal(x) @ self.up).relu() @ self.down


def normal(x: torch.Tensor) -> torch.Tensor:
    """Brings each vector to a variance of 1."""
    return x * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt().to(x.dtype)


@dataclass
class Decoder:
    """Layers, and how the halves of all ranks are added up, in place."""

    name: str
    words: torch.Tensor  # (words, width)
    layers: list[Layer]
    add: Callable[[torch.Tensor], object]
    seconds: float = 0.0

    def decode(self, tokens: int, given: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the logits of so many steps, (tokens, batch, words).

        Each decodes what is `given`, (tokens, batch), or else the likeliest word after the one before.
        """
        import torch  # noqa: PLC0415

        heads, size = self.layers[0].join.shape[:2]
        past = [self.words.new_empty(2, tokens, BATCH, heads, size) for _ in self.layers]
        word, logits = torch.arange(BATCH), []
        for position in range(tokens):
            x = self.words[word if given is None else given[position]]
            for layer, own in zip(self.layers, past, strict=True):
                x = x + self.added(layer.half(x, own, position))
                x = x + self.added(layer.perceptron(x))
            logits.append(normal(x) @ self.words.T)
            word = logits[-1].argmax(1)
        return torch.stack(logits)

    def added(self, x: torch.Tensor) -> torch.Tensor:
        """Adds up the halves of all ranks."""
        began = time.perf_counter()
        self.add(x)
        self.seconds += time.perf_counter() - began
        return x


def main(given: argparse.Namespace) -> None:
    """Decodes, compares, and times."""
    comm = beside.start_torch(given)
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    import gc3.torch  # noqa: PLC0415

    if HEADS % comm.size or given.width % (2 * HEADS):
        raise SystemExit(f"{HEADS} heads: expected as many ranks as divide them, and --width a multiple of {2 * HEADS}")
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    width, each = given.width, given.width // HEADS
    shapes = ((width, 3, HEADS, each), (HEADS, each, width), (width, 4 * width), (4 * width, width))

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(shape) / width**0.5).to(getattr(torch, given.dtype))

    words = random(WORDS, width)
    whole = [Layer(*(random(*shape) for shape in shapes)) for _ in range(given.layers)]
    own = [layer.part(comm.rank, comm.size) for layer in whole]

    def decoder(name: str, group: dist.ProcessGroup | None) -> Decoder:
        return Decoder(name, words, own, lambda x: dist.all_reduce(x, group=group))

    variants = [decoder(name, group) for name, group in beside.torch_groups(comm, given, [("gc3", None)])]
    # Words are given, because of two that are almost equally likely rounding decides which comes.
    text = torch.randint(WORDS, (given.tokens, BATCH))
    expected = Decoder("alone", words, whole, lambda x: x).decode(given.tokens, text)
    for one in variants:
        difference = ((one.decode(given.tokens, text) - expected).abs().max() / expected.abs().max()).item()
        if not beside.agreed(comm, difference < CLOSE[given.dtype]):
            raise SystemExit(f"{one.name}: NOT the logits of one process")
    count = BATCH * width
    if comm.rank == 0:
        print(f"{given.layers} layers, {comm.size} ranks: {2 * given.layers} AllReduces of "
              f"{count * words.element_size()} bytes for a token")  # fmt: skip
        print("the logits are those of one process")
        print(beside.first_line(gc3.torch.explain("allreduce", count, given.dtype)))
    about = {"name": "torch_decoding", "of": given.tokens * BATCH, "unit": "tokens", "dtype": given.dtype,
             "bytes": count * words.element_size()}  # fmt: skip
    beside.compare(comm, variants, lambda one: one.decode(given.tokens), given, **about)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = beside.parser(__doc__)
    parser.add_argument("--layers", type=beside.positive, default=8, help="(default: 8)")
    parser.add_argument("--width", type=beside.positive, default=512, help="of a token (default: 512)")
    parser.add_argument("--tokens", type=beside.positive, default=16, help="of a step, for each of a batch of 4")
    parser.add_argument("--dtype", choices=sorted(CLOSE), default="float32")
    main(parser.parse_args())
