"""Programs that compute as operators of PyTorch: results and gradients beside PyTorch alone, also compiled."""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from here import RANK, SIZE, error_of

import gc3.torch
from gc3.algorithms import load
from gc3.torch import programs

print(error_of(gc3.torch.column_linear))
dist.init_process_group("gc3", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
ROWS, WIDTH, OUT = 3, 8, 5


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The same on all ranks."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def compared(name: str, call: Any, mine: Callable[[int], list[Any]], takes_all: Callable[[Any], list[Any]], *,
             fullgraph: bool = True) -> None:  # fmt: skip
    """Runs `call` on this rank's tensors; `takes_all` computes every rank's results from those of all ranks."""
    for compiled in (False, True):
        own = [tensor.clone().requires_grad_() for tensor in mine(RANK)]
        function = torch.compile(call, fullgraph=fullgraph, backend="aot_eager") if compiled else call
        y = function(*own)
        (y * drawn(*y.shape, seed=70 + RANK)).sum().abs().backward()
        every = [[tensor.clone().requires_grad_() for tensor in mine(rank)] for rank in range(SIZE)]
        results = takes_all(every)
        sum((r * drawn(*r.shape, seed=70 + rank)).sum().abs() for rank, r in enumerate(results)).backward()
        torch.testing.assert_close(y, results[RANK])
        for got, wanted in zip(own, every[RANK], strict=True):
            torch.testing.assert_close(got.grad, wanted.grad)
    print("right:", name)


column, row = gc3.torch.column_linear(), gc3.torch.row_linear()
for kind in (torch.float64, torch.complex128):
    compared(
        "column_linear", column,
        lambda r, kind=kind: [drawn(ROWS, WIDTH, seed=r, dtype=kind), drawn(WIDTH, OUT, seed=20 + r, dtype=kind)],
        lambda every: [torch.cat([x for x, _ in every]) @ w for _, w in every],
    )  # fmt: skip
    compared(
        "row_linear", row,
        lambda r, kind=kind: [drawn(SIZE * ROWS, WIDTH, seed=r, dtype=kind),
                              drawn(WIDTH, OUT, seed=20 + r, dtype=kind)],
        lambda every: list(sum(x @ w for x, w in every).chunk(SIZE)),
    )  # fmt: skip
norm = gc3.torch.add_norm(eps=1e-5)


def normed(every: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    """All ranks get the same rows; those of block r with the gain of rank r."""
    total = sum(x for x, _, _ in every) + torch.cat([residual for _, residual, _ in every])
    blocks = [torch.nn.functional.rms_norm(b, [WIDTH], eps=1e-5) * every[r][2]
              for r, b in enumerate(total.chunk(SIZE))]  # fmt: skip
    return [torch.cat(blocks)] * SIZE


for gain in ([WIDTH], [1, WIDTH], [ROWS, WIDTH]):
    compared(
        "add_norm", norm,
        lambda r, gain=gain: [drawn(SIZE * ROWS, WIDTH, seed=r), drawn(ROWS, WIDTH, seed=20 + r),
                              drawn(*gain, seed=40 + r)],
        normed,
    )  # fmt: skip
one = [drawn(SIZE * ROWS, WIDTH, seed=7) * (RANK == 0), drawn(ROWS, WIDTH, seed=8) * 0, drawn(WIDTH, seed=9)]
for short in (torch.float16, torch.bfloat16):
    got = [(tensor * 300).to(short).requires_grad_() for tensor in one]  # squares overflow float16
    y = norm(*got)
    y.backward(torch.ones_like(y) / SIZE)
    wide = [(drawn(SIZE * ROWS, WIDTH, seed=7) * 300).to(short).float(), got[2].detach().float()]
    wide = [tensor.requires_grad_() for tensor in wide]
    wanted = torch.nn.functional.rms_norm(wide[0], [WIDTH], eps=1e-5) * wide[1]
    wanted.sum().backward()
    torch.testing.assert_close(y, wanted.to(short))
    torch.testing.assert_close(got[0].grad, wide[0].grad.to(short), rtol=0.05, atol=0.01)
small = torch.ones(SIZE * ROWS, WIDTH, dtype=torch.bfloat16), torch.ones(WIDTH, OUT, dtype=torch.bfloat16)
assert torch.equal(row(*small), torch.full((ROWS, OUT), SIZE * WIDTH, dtype=torch.bfloat16))


def two_layers(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """An expert."""
    return torch.tanh(x @ up) @ down


def answered(every: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    """Block r of the tokens is that of the expert of rank r."""
    return [torch.cat([two_layers(block, *every[r][1:]) for r, block in enumerate(tokens.chunk(SIZE))])
            for tokens, *_ in every]  # fmt: skip


torch.compiler.reset()  # it keeps at most eight variants of a call
compared(
    "moe", gc3.torch.moe(two_layers, 2, tiles=2),
    lambda r: [drawn(SIZE * 4, WIDTH, seed=r), drawn(WIDTH, OUT, seed=20 + r), drawn(OUT, WIDTH, seed=40 + r)],
    answered,
)  # fmt: skip


def rows_of(rank: int) -> list[int]:
    """The rows for each expert: none for some, and not as many as tiles."""
    return [(rank + 2 * expert) % 4 for expert in range(SIZE)]


def answered_by_rows(every: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    """The rows of each expert follow each other."""
    return [torch.cat([two_layers(part, *every[e][1:]) for e, part in enumerate(own[0].split(rows_of(rank)))])
            for rank, own in enumerate(every)]  # fmt: skip


uneven = gc3.torch.moe(two_layers, 2, tiles=2)
for count_type in (list, torch.tensor):
    compared(
        "moe with counts",
        lambda *own, count_type=count_type: uneven(*own, counts=count_type(rows_of(RANK))),
        lambda r: [drawn(sum(rows_of(r)), WIDTH, seed=r), drawn(WIDTH, OUT, seed=20 + r),
                   drawn(OUT, WIDTH, seed=40 + r)],
        answered_by_rows,
        fullgraph=False,
    )  # fmt: skip
one_each = [drawn(SIZE, WIDTH, seed=1), drawn(WIDTH, OUT, seed=2), drawn(OUT, WIDTH, seed=3).requires_grad_()]
y = uneven(*one_each, counts=[1] * SIZE)
print(error_of(lambda: torch.autograd.grad(y.sum(), one_each[2], create_graph=True)))
scaled = [drawn(SIZE, WIDTH, seed=RANK).requires_grad_(), drawn(WIDTH, seed=20 + RANK).requires_grad_()]
y = gc3.torch.moe(torch.mul, 1)(*scaled)
y.sum().backward()
torch.testing.assert_close(y, scaled[0] * torch.stack([drawn(WIDTH, seed=20 + r) for r in range(SIZE)]))
torch.testing.assert_close(scaled[1].grad, sum(drawn(SIZE, WIDTH, seed=r)[RANK] for r in range(SIZE)))
calls: list[str] = []
runs = column.run
column.run = lambda tensors: calls.append("column") or runs(tensors)


def needless(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A call without use, and two equal ones."""
    column(x, w * 2)
    return column(x, w) + column(x, w)


for grad in (False, True):
    x = drawn(ROWS, WIDTH, seed=1).requires_grad_(grad)
    torch.compile(needless, fullgraph=True, backend="aot_eager")(x, drawn(WIDTH, OUT, seed=2))
assert len(calls) == 6, calls


def copied(read: str, to: str) -> gc3.Program:
    """A program that copies its input."""

    @gc3.algorithm(
        lambda R: gc3.collectives.custom(
            "copied", ranks=R, inputs={read: 1}, outputs={to: 1}, expect=lambda v, rank, *_: v(rank, read, 0)
        )
    )
    def copy(R: int) -> None:
        for q in range(R):
            gc3.chunk(q, read, 0).copy(q, to, 0)

    return gc3.compile(copy, R=SIZE)


for own, back in ((("x", "y"), ("d_y", "gradient")), (("d_y", "y"), ("d_y", "d_d_y"))):
    backward = gc3.torch.program(copied(*back), {})
    print(error_of(lambda own=own, backward=backward: gc3.torch.program(copied(*own), {}, backward=backward)))
print("key:", column.key)
assert gc3.torch.column_linear() is column
group = dist.new_group()
assert column.key != gc3.torch.column_linear(group).key == gc3.torch.column_linear(group).key
assert gc3.torch.moe(two_layers, 2) is gc3.torch.moe(two_layers, 2) is not gc3.torch.moe(two_layers, 2, tiles=2)


class Layer(torch.nn.Module):
    """One of many that are compiled one by one."""

    def __init__(self, seed: int) -> None:
        """Has weights and a program."""
        super().__init__()
        self.w = torch.nn.Parameter(drawn(WIDTH, OUT, seed=seed))
        self.up = gc3.torch.column_linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiplies."""
        return self.up(x, self.w)


torch.compiler.reset()
for seed in range(10):
    layer = Layer(seed)
    y = torch.compile(layer, fullgraph=True, backend="aot_eager")(drawn(ROWS, WIDTH, seed=1))
    torch.testing.assert_close(y, drawn(ROWS, WIDTH, seed=1).repeat(SIZE, 1) @ layer.w)
assert gc3.torch.add_norm(eps=1e-4).key[:-2] != norm.key[:-2]
print(error_of(lambda: torch.ops.gc3.program([small[0]], "other.0")))
right = drawn(SIZE * ROWS, WIDTH, seed=1), drawn(WIDTH, OUT, seed=2)
for wrong in (
    [right[0]], [], [right[0][0], right[1]], [right[0], right[1].T], [right[0], right[1].to_sparse()], [1, right[1]],
):  # fmt: skip
    product = gc3.torch.row_linear(dist.new_group())
    dist.barrier()  # all have the group before one refuses its call
    began = time.monotonic()
    print(error_of(lambda wrong=wrong, product=product: product(*(right if RANK else wrong))))
    assert time.monotonic() - began < 20
checked = gc3.torch.program(
    gc3.compile(programs._multiply_scatter, R=SIZE),
    {"multiply": lambda x, w, out: out.add_(x @ w)},
    shapes=row.shapes, group=dist.new_group(), check=True,
)  # fmt: skip
dist.barrier()
print(error_of(lambda: checked(*right)))
print(error_of(lambda: norm(right[0], right[0][:ROWS], torch.ones(2, dtype=torch.float64))))
print(error_of(lambda: gc3.torch.program(gc3.compile(load("ring_allreduce"), R=SIZE), {})))
for bad in ((None, 1), (two_layers, 0)):
    print(error_of(lambda bad=bad: gc3.torch.moe(*bad)))
for bad, rows, tiles in ((lambda x, w: x[:1] * w, 3 * SIZE, 1), (torch.mul, 2 * SIZE + 1, 2)):
    layer = gc3.torch.moe(bad, 1, tiles=tiles, group=dist.new_group())
    dist.barrier()
    print(error_of(lambda layer=layer, rows=rows: layer(drawn(rows, WIDTH, seed=1), drawn(WIDTH, seed=2))))
for wrong in ([1] * SIZE + [0], [-1] + [3] * (SIZE - 1), ["1"] * SIZE, 2, [SIZE]):
    layer = gc3.torch.moe(torch.mul, 1, group=dist.new_group())
    dist.barrier()
    own, rows = (wrong, SIZE + 1) if RANK == 0 else ([1] * SIZE, SIZE)
    tokens = drawn(rows, WIDTH, seed=1), drawn(WIDTH, seed=2)
    print(error_of(lambda layer=layer, own=own, tokens=tokens: layer(*tokens, counts=own)))
dist.destroy_process_group()
