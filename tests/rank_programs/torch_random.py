"""Random calls on the backend gc3 and on Gloo, with the same tensors; arguments: a file, and how many programs."""

import random
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from here import RANK, SIZE

TYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
KINDS = ["reduce_all", "broadcast", "gather_all", "gather_list", "scatter", "reduce", "parts", "exchange"]
Group = dist.ProcessGroup


def fresh(chance: random.Random, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor of small numbers, in some memory order; the same on all ranks, apart from this rank's number."""
    values = torch.tensor([chance.randrange(4) for _ in range(torch.Size(shape).numel())]).to(dtype).reshape(shape)
    values += RANK
    return values.t().contiguous().t() if values.dim() == 2 and chance.random() < 0.3 else values


def call(chance: random.Random) -> Callable[[Group], list[torch.Tensor]]:
    """A call, to be made on either group, which returns what it has written."""
    dtype, n, later = chance.choice(TYPES), chance.choice([0, 1, 5, 1000, 20_001]), chance.random() < 0.4
    op, root, seed = chance.choice(OPS), chance.randrange(SIZE), chance.random()
    table = [[chance.randrange(5) for _ in range(SIZE)] for _ in range(SIZE)]
    kind = chance.choice(KINDS)

    def made(group: Group) -> list[torch.Tensor]:
        own = random.Random(seed)  # noqa: S311 - tests
        if kind in ("reduce_all", "broadcast", "reduce"):
            x = fresh(own, dtype, n, 2)
            if kind == "reduce_all":
                work = dist.all_reduce(x, op, group, async_op=later)
            elif kind == "broadcast":
                work = dist.broadcast(x, root, group, async_op=later)
            else:
                work = dist.reduce(x, root, op, group, async_op=later)
            written = [x] if kind != "reduce" or root == RANK else []
        elif kind == "gather_all":
            x = fresh(own, dtype, n)
            y = torch.empty(SIZE * n, dtype=dtype)
            work, written = dist.all_gather_into_tensor(y, x, group, async_op=later), [y]
        elif kind == "gather_list":
            written = [torch.empty(n, dtype=dtype) for _ in range(SIZE)]
            work = dist.all_gather(written, fresh(own, dtype, n), group, async_op=later)
        elif kind == "scatter":
            y = torch.empty(n, dtype=dtype)
            given = [fresh(own, dtype, n) for _ in range(SIZE)] if root == RANK else None
            work, written = dist.scatter(y, given, root, group, async_op=later), [y]
        elif kind == "parts":
            y = torch.empty(n, dtype=dtype)
            work = dist.reduce_scatter_tensor(y, fresh(own, dtype, SIZE * n), op, group, async_op=later)
            written = [y]
        else:
            sent, received = table[RANK], [table[other][RANK] for other in range(SIZE)]
            y = torch.empty(sum(received), 3, dtype=dtype)
            x = fresh(own, dtype, sum(sent), 3).contiguous()
            work, written = dist.all_to_all_single(y, x, received, sent, group, async_op=later), [y]
        if work is not None:
            work.wait()
        return written

    return made


dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
ours = dist.new_group(backend="gc3")
for program in range(int(sys.argv[2])):
    chance = random.Random(program)  # noqa: S311 - tests
    for step in range(chance.randrange(1, 6)):
        make = call(chance)
        for mine, theirs in zip(make(ours), make(dist.group.WORLD), strict=True):
            assert torch.equal(mine, theirs), (program, step, mine, theirs)
print("the same")
dist.destroy_process_group()
