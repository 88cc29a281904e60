"""Every type of PyTorch in every reduction and operation: the right result, or one clear error. Argument: a file."""

import functools
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from here import RANK, SIZE

from gc3 import datatypes
from gc3.runtime.checking import FUNCTIONS
from gc3.torch import tensors

Op = dist.ReduceOp
TYPES = sorted({t for t in vars(torch).values() if isinstance(t, torch.dtype)}, key=str)
REDUCED = {getattr(torch, name): name for name in datatypes.DTYPES}
FACTOR, COUNT = 3.0, 4
OPS = {name: op for op, name in tensors.OPS.items()} | {"premulsum": dist._make_nccl_premul_sum(FACTOR)}


def value(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of a rank; of a type without conversions, any bytes."""
    numbers = [(rank + i) % 2 + 1 for i in range(COUNT * SIZE)]
    if str(dtype).startswith("torch.q"):
        return torch._empty_affine_quantized([len(numbers)], scale=1.0, zero_point=0, dtype=dtype)
    try:
        return torch.tensor(numbers).to(dtype)
    except (RuntimeError, TypeError):
        return torch.tensor(numbers * dtype.itemsize, dtype=torch.uint8).view(dtype)


def expected(dtype: torch.dtype, op: str) -> torch.Tensor:
    """The reduction, of numbers of a type that has all results exactly, converted once."""
    integer = not (dtype.is_floating_point or dtype.is_complex)
    wide = torch.complex128 if dtype.is_complex else torch.int64 if integer else torch.float64
    each = [value(rank, dtype).to(dtype if dtype == torch.bool else wide).numpy() for rank in range(SIZE)]
    found = torch.from_numpy(functools.reduce(FUNCTIONS["sum" if op == "premulsum" else op], each))
    if op == "avg":
        found = found // SIZE if integer else found / SIZE
    return (found * FACTOR if op == "premulsum" else found).to(dtype)


def takes(dtype: torch.dtype, op: str) -> bool:
    """Whether the table of types says so."""
    return dtype in REDUCED and datatypes.takes(op, REDUCED[dtype])


def all_reduce(x: torch.Tensor, op: Op) -> torch.Tensor:
    """In place."""
    dist.all_reduce(x, op)
    return x


def all_reduce_of_several(x: torch.Tensor, op: Op) -> torch.Tensor:
    """As one call."""
    dist.all_reduce_coalesced([x.clone(), x], op)
    return x


def all_reduce_of_a_column(x: torch.Tensor, op: Op) -> torch.Tensor:
    """Of memory that is not contiguous."""
    wide = torch.stack([x, x], 1)
    dist.all_reduce(wide[:, 1], op)
    return wide[:, 1]


def reduce(x: torch.Tensor, op: Op) -> torch.Tensor | None:
    """To one rank."""
    dist.reduce(x, 0, op)
    return x if RANK == 0 else None


def reduce_scatter(x: torch.Tensor, op: Op) -> torch.Tensor:
    """Of lists."""
    y = torch.empty_like(x[:COUNT])
    dist.reduce_scatter(y, list(x.split(COUNT)), op)
    return y


def reduce_scatter_tensor(x: torch.Tensor, op: Op) -> torch.Tensor:
    """Of one tensor."""
    y = torch.empty_like(x[:COUNT])
    dist.reduce_scatter_tensor(y, x, op)
    return y


def reduce_scatter_of_several(x: torch.Tensor, op: Op) -> torch.Tensor:
    """As one call."""
    y, z = torch.empty_like(x[:COUNT]), torch.empty_like(x[:COUNT])
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(y, x, op)
        dist.reduce_scatter_tensor(z, x, op)
    return z


def check(call: Callable[[torch.Tensor, Op], torch.Tensor | None], dtype: torch.dtype, op: str) -> None:
    """A type that the table has not is right as parts that it has, which PyTorch makes of complex32, or refused."""
    what = (str(dtype), op, call.__name__)
    try:
        got = call(value(RANK, dtype), OPS[op])
    except dist.DistBackendError as problem:
        assert not takes(dtype, op), (what, str(problem))
        named = f"{op} of {REDUCED[dtype]}" if dtype in REDUCED else str(dtype)
        assert str(problem).startswith("GC3-M00"), (what, str(problem))
        assert named in str(problem), (what, str(problem))
    except (NotImplementedError, ValueError) as problem:  # PyTorch itself has no such operation
        assert dtype not in REDUCED or (dtype.is_complex and "does not support" in str(problem)), (what, str(problem))
    else:
        if got is None:
            return
        wanted = expected(dtype, op)
        part = wanted[RANK * COUNT : (RANK + 1) * COUNT] if got.numel() < wanted.numel() else wanted
        assert torch.equal(got.contiguous().view(torch.uint8), part.contiguous().view(torch.uint8)), (what, got, part)


def check_large(call: Callable[[torch.Tensor, Op], torch.Tensor | None], dtype: torch.dtype) -> None:
    """The average of the largest numbers, whose sum overflows, is what all ranks give; the parts of complex ones."""
    most = torch.finfo(dtype).max
    number = complex(most, float("inf")) if dtype.is_complex else most
    x = torch.full((COUNT * SIZE,), number, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    got = call(x.clone(), Op.AVG)
    if got is not None:
        bits = got.contiguous().view(torch.uint8)
        assert torch.equal(bits, x[: got.numel()].view(torch.uint8)), (dtype, call.__name__, got)


CALLS = (all_reduce, all_reduce_of_several, all_reduce_of_a_column, reduce, reduce_scatter, reduce_scatter_tensor)
dist.init_process_group("gc3", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
for dtype in TYPES:
    for op in OPS:
        for call in (*CALLS, reduce_scatter_of_several):
            check(call, dtype, op)
for dtype in (t for t in REDUCED if t.is_floating_point or t.is_complex):
    for call in (*CALLS, reduce_scatter_of_several):
        check_large(call, dtype)
print("walked")
dist.destroy_process_group()
