"""Tensors in registered memory: gc3.torch.empty, and rows of a table that are one-sided.

Argument: a file where the ranks meet. The table in GC3_CACHE has one-sided rows for the three collectives.
"""

import os
import sys

import torch
import torch.distributed as dist
from here import RANK, SIZE

import gc3
import gc3.torch
from gc3 import _core

dist.init_process_group("gc3", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
COMM = gc3.torch.communicator()


def said(collective: str) -> str:
    """How the last call was served."""
    return COMM.explain(collective, 1).one_sided


def is_registered(tensor: torch.Tensor) -> bool:
    """Whether all ranks reach it."""
    return _core.Joined.of(COMM).is_registered(tensor.numpy().reshape(-1))


def refusal(*size: object, **options: object) -> str:
    """What gc3.torch.empty says."""
    try:
        gc3.torch.empty(*size, **options)
    except gc3.UserError as problem:
        return str(problem)
    raise AssertionError((size, options))


def shapes() -> None:
    """All shapes and types, zeros, registered."""
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.float8_e4m3fn):
        for shape in ((), (0,), (3,), (2, 3), (4, 0, 2)):
            made = gc3.torch.empty(*shape, dtype=dtype)
            assert (made.shape, made.dtype, made.is_contiguous()) == (shape, dtype, True)
            assert not made.view(torch.uint8).any() if shape else not made
            assert gc3.torch.empty(torch.Size(shape), dtype=dtype).shape == shape
    assert gc3.torch.empty([2, 2]).dtype is torch.get_default_dtype()
    assert gc3.torch.empty(5, requires_grad=True).requires_grad
    assert is_registered(gc3.torch.empty(5))
    for wrong in ((-1,), ("3",), (1.5,), ((2, -1),)):
        assert refusal(*wrong).startswith("GC3-L017 "), refusal(*wrong)
    assert refusal(2**40, 2**40).startswith("GC3-"), refusal(2**40, 2**40)
    assert "dtype" in refusal(3, dtype="float32")


def calls() -> None:
    """Collectives on such tensors are one-sided; a tensor that is elsewhere is served by messages."""
    x = gc3.torch.empty(5000)
    for turn in range(100):
        if turn % 10 == 0:
            x = gc3.torch.empty(5000)
        x.fill_(RANK + turn)
        dist.all_reduce(x)
        assert (x == sum(range(SIZE)) + SIZE * turn).all()
        assert said("allreduce") == "direct_allreduce"
    whole, part = gc3.torch.empty(5000 * SIZE), gc3.torch.empty(5000)
    part.fill_(RANK)
    dist.all_gather_into_tensor(whole, part)
    assert (whole.view(SIZE, -1) == torch.arange(SIZE).view(-1, 1)).all()
    dist.reduce_scatter_tensor(part, whole)
    assert (part == RANK * SIZE).all()
    assert "direct" in said("allgather"), said("allgather")
    assert "direct" in said("reducescatter"), said("reducescatter")
    for _ in range(40):
        y = torch.full((5000,), float(RANK))
        dist.all_reduce(y)
        assert (y == sum(range(SIZE))).all()
    assert "the output of rank 0 is not registered memory" in said("allreduce"), said("allreduce")
    x.fill_(1)  # all ranks change at once, so the ranks agree on it in the next call
    dist.all_reduce(x)
    assert (x == SIZE).all()
    assert said("allreduce") == "direct_allreduce"


def buckets() -> None:
    """DDP's buckets, where PyTorch lets the backend allocate them."""
    found: list[bool] = []

    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        found.append(is_registered(bucket.buffer()))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        dist.all_reduce(bucket.buffer())
        future.set_result(bucket.buffer())
        return future

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 3))
    model.register_comm_hook(None, hook)
    model(torch.ones(2, 8)).sum().backward()
    weight = model.module.weight.grad
    assert weight is not None
    assert (weight == 2 * SIZE).all()
    assert found == [True]
    assert said("allreduce") == "direct_allreduce"


def ended() -> None:
    """A tensor outlives the group; a new one needs it."""
    kept = gc3.torch.empty(3)
    dist.destroy_process_group()
    kept += 1
    assert kept.tolist() == [1, 1, 1]
    assert "init_process_group" in refusal(3)


shapes()
calls()
if os.environ.get("DDP_DISABLE_COMM_MEM") == "0":
    buckets()
ended()
print("ended")
