"""Every operation of torch.distributed on the backend gc3, against results that are known.

Arguments: a file, and "mixed" or nothing.

With GC3_TORCH_BUILD=0 the backend is the one in Python; mixed, it is so on every other rank.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from here import RANK, SIZE
from torch.multiprocessing.reductions import StorageWeakRef

import gc3
import gc3.torch
from gc3.datatypes import DTYPES
from gc3.torch.tensors import as_nccl

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16]
TYPES += [torch.int32, torch.int64, torch.complex64, torch.complex128]
MOVED = [*TYPES, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.complex32]
ORDERED = [dtype for dtype in TYPES if not dtype.is_complex]
MIXED = "mixed" in sys.argv
if MIXED and RANK % 2 == 1:
    os.environ["GC3_TORCH_BUILD"] = "0"
IN_PYTHON = os.environ.get("GC3_TORCH_BUILD") == "0"
TOTAL = SIZE * (SIZE + 1) // 2


def own(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor of this rank, filled with its number plus one."""
    return torch.full(shape, RANK + 1).to(dtype)


def of(rank: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """What `own` is on a rank."""
    return torch.full(shape, rank + 1).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    """Asserts that two tensors have equal bytes."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    one, other = (t.contiguous().reshape(-1, 1).view(torch.uint8) for t in (a, b))
    assert torch.equal(one, other), (a, b)


def reductions() -> None:
    """Every type and operation."""
    for dtype in TYPES:
        x = own(dtype, 5)
        dist.all_reduce(x)
        same(x, torch.full((5,), TOTAL).to(dtype))
    for dtype in ORDERED:
        low, high = own(dtype, 3), own(dtype, 3)
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        same(low, of(0, dtype, 3))
        same(high, of(SIZE - 1, dtype, 3))
    bits = own(torch.int32, 4)
    dist.all_reduce(bits, dist.ReduceOp.BXOR)
    expected = 0
    for rank in range(SIZE):
        expected ^= rank + 1
    same(bits, torch.full((4,), expected, dtype=torch.int32))
    average = own(torch.float32, 4)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    same(average, torch.full((4,), TOTAL / SIZE))
    scaled = own(torch.float32, 4)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    same(scaled, torch.full((4,), 2.0 * TOTAL))
    anyone = torch.tensor([RANK == 0, False])
    dist.all_reduce(anyone, dist.ReduceOp.MAX)
    same(anyone, torch.tensor([True, False]))
    x = own(torch.float32, 3)
    dist.reduce(x, SIZE - 1)
    same(x, torch.full((3,), float(TOTAL)) if RANK == SIZE - 1 else own(torch.float32, 3))
    scalar = torch.tensor(RANK + 1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == TOTAL
    weights = torch.nn.Parameter(own(torch.float32, 3))
    dist.all_reduce(weights)
    assert weights[0].item() == TOTAL
    dist.all_reduce(torch.empty(0))


def parts() -> None:
    """Parts of equal and of different lengths, as one tensor and as lists."""
    y = torch.empty(3)
    dist.reduce_scatter_tensor(y, torch.arange(3.0 * SIZE))
    same(y, torch.arange(3.0 * RANK, 3.0 * RANK + 3) * SIZE)
    dist.reduce_scatter(y, [torch.full((3,), float(r)) for r in range(SIZE)])
    same(y, torch.full((3,), float(RANK * SIZE)))
    dist.reduce_scatter(y, [torch.ones(3)] * SIZE, dist._make_nccl_premul_sum(0.5))
    same(y, torch.full((3,), SIZE / 2))
    for dtype in MOVED:
        everyone = torch.empty(2 * SIZE, dtype=dtype)
        dist.all_gather_into_tensor(everyone, own(dtype, 2))
        same(everyone, torch.cat([of(r, dtype, 2) for r in range(SIZE)]))
        listed = [torch.empty(r + 1, dtype=dtype) for r in range(SIZE)]
        dist.all_gather(listed, own(dtype, RANK + 1))
        for r in range(SIZE):
            same(listed[r], of(r, dtype, r + 1))
        x = own(dtype, 4)
        dist.broadcast(x, 1)
        same(x, of(1, dtype, 4))
    found = [torch.empty(3) for _ in range(SIZE)]
    dist.gather(own(torch.float32, 3), found if RANK == 0 else None, dst=0)
    if RANK == 0:
        for r in range(SIZE):
            same(found[r], of(r, torch.float32, 3))
    dist.scatter(y, [of(r, torch.float32, 3) for r in range(SIZE)] if RANK == 1 else None, src=1)
    same(y, own(torch.float32, 3))


def exchanges() -> None:
    """All-to-all with equal and with given splits, of rows, and of lists."""
    y = torch.empty(SIZE, 2)
    dist.all_to_all_single(y, own(torch.float32, SIZE, 2))
    same(y, torch.stack([of(r, torch.float32, 2) for r in range(SIZE)]))
    sent = torch.cat([torch.full((r + 1, 2), float(10 * RANK + r)) for r in range(SIZE)])
    y = torch.empty(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(y, sent, [RANK + 1] * SIZE, [r + 1 for r in range(SIZE)])
    same(y, torch.cat([torch.full((RANK + 1, 2), float(10 * r + RANK)) for r in range(SIZE)]))
    # With the splits of one side the other one is divided equally.
    y = torch.empty(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(y, sent, None, [r + 1 for r in range(SIZE)])
    same(y, torch.cat([torch.full((RANK + 1, 2), float(10 * r + RANK)) for r in range(SIZE)]))
    y = torch.empty(sum(range(1, SIZE + 1)), 2)
    dist.all_to_all_single(y, own(torch.float32, SIZE * (RANK + 1), 2), [r + 1 for r in range(SIZE)], None)
    same(y, torch.cat([of(r, torch.float32, r + 1, 2) for r in range(SIZE)]))
    received = [torch.empty(r + RANK) for r in range(SIZE)]
    dist.all_to_all(received, [torch.full((RANK + r,), float(RANK)) for r in range(SIZE)])
    for r in range(SIZE):
        same(received[r], torch.full((r + RANK,), float(r)))


def memory() -> None:
    """Tensors that are not contiguous, or sparse."""
    x = torch.full((3, 4), RANK + 1.0).t()
    dist.all_reduce(x)
    same(x, torch.full((4, 3), float(TOTAL)))
    column = torch.zeros(3, 2)
    column[:, 1] = RANK + 1
    dist.broadcast(column[:, 1], 0)
    same(column, torch.tensor([[0.0, 1.0]] * 3))
    everyone = [torch.zeros(2, 3).t() for _ in range(SIZE)]
    dist.all_gather(everyone, own(torch.float32, 2, 3).t())
    for r in range(SIZE):
        same(everyone[r], of(r, torch.float32, 3, 2))
    places = torch.tensor([[RANK, SIZE]])
    sparse = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0]), (SIZE + 1,), check_invariants=True)
    dist.all_reduce(sparse)
    same(sparse.to_dense(), torch.tensor([1.0] * SIZE + [2.0 * SIZE]))
    woven = torch.full((8,), RANK + 1.0).as_strided((3, 2), (2, 3))  # of places 0, 3, 2, 5, 4 and 7
    torch.set_default_device("meta")
    dist.all_reduce(woven)
    torch.set_default_device(None)
    same(woven, torch.full((3, 2), float(TOTAL)))
    shares = (
        torch.ones(1, 3).expand(4, 3),
        torch.ones(1).expand(2**40),
        torch.ones(6).as_strided((3, 2), (1, 1)),
        torch.ones(13).as_strided((4, 2), (2, 6)),  # fewer elements than places
    )
    for shared in shares:
        calls = [partial(dist.all_reduce, shared), partial(dist.broadcast, shared, 0), partial(dist.irecv, shared, 0)]
        for call in calls:
            try:
                call()
            except dist.DistBackendError as problem:
                assert "a tensor whose elements share memory" in str(problem)
            else:
                raise AssertionError
        if shared.numel() < 100:
            dist.all_gather([torch.empty(shared.shape) for _ in range(SIZE)], shared)  # which is only read
    negated = torch.tensor([1 + 2j]).conj().imag
    try:
        gc3.torch.communicator().all_reduce(negated)
    except gc3.UserError as problem:
        assert "a Tensor that is a negated view of another" in str(problem)
    else:
        raise AssertionError


def messages() -> None:
    """Sends and receives around a ring, with tags, of a negated view, and in a batch."""
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    a, b = torch.zeros(4), torch.zeros(2, 3).t()
    works = [dist.irecv(b, before, tag=7), dist.irecv(a, before, tag=5)]
    works += [dist.isend(own(torch.float32, 4), after, tag=5), dist.isend(2 * own(torch.float32, 3, 2), after, tag=7)]
    for work in works:
        work.wait()
    same(a, of(before, torch.float32, 4))
    same(b, 2 * of(before, torch.float32, 3, 2))
    z = torch.zeros(1)
    work = dist.isend(torch.tensor([1 + 2j]).conj().imag, after)  # a view that is negated when it is read
    dist.recv(z, before)
    work.wait()
    same(z, torch.tensor([-2.0]))
    x = torch.zeros(2)
    both = [dist.P2POp(dist.isend, own(torch.float32, 2), after), dist.P2POp(dist.irecv, x, before)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    same(x, of(before, torch.float32, 2))
    if IN_PYTHON:
        try:
            dist.recv(x)
        except dist.DistBackendError as problem:
            assert "name the source" in str(problem)
        else:
            raise AssertionError
    if IN_PYTHON or MIXED:
        return
    work = dist.isend(own(torch.float32, 2), after)
    assert dist.recv(x) == before
    assert work.wait()
    assert work.is_completed()
    same(x, of(before, torch.float32, 2))
    work = dist.irecv(x)
    dist.send(3 * own(torch.float32, 2), after)
    while not work.is_completed():
        pass
    assert work.source_rank() == before if hasattr(work, "source_rank") else work._source_rank() == before
    same(x, 3 * of(before, torch.float32, 2))


def refused(receive: Callable[[], object]) -> None:
    """Asserts that a receive of 4 elements fails, where rank 0 sends 3."""
    try:
        receive()
    except RuntimeError as problem:
        assert "rank 0 has sent 3 elements with tag 0 where rank 1 receives 4" in str(problem)
    else:
        raise AssertionError


def messages_of_other_sizes() -> None:
    """A message of another size than its tensor is an error, also if two threads see its end at once."""
    if RANK == 0:
        dist.send(torch.ones(3), 1)
    elif RANK == 1:
        refused(lambda: dist.recv(torch.ones(4), 0))
        work = dist.irecv(torch.ones(4), 0)
        future = work.get_future()
    dist.barrier()
    if RANK == 0:
        dist.send(torch.ones(3), 1)
    elif RANK == 1:
        while not (work.is_completed() or future.done()):
            pass
        refused(future.wait)


def messages_of_other_types() -> None:
    """A message of another type than its tensor is an error of both ranks; as bytes it is received."""
    own = torch.float8_e4m3fnuz
    for sent, received in ((torch.int64, torch.float64), (own, torch.uint8), (own, torch.float8_e5m2fnuz)):
        pair = dist.new_group([0, 1])
        x, out = torch.ones(3).to(sent), torch.empty(3).to(received)
        if RANK > 1:
            continue
        if RANK == 0:
            dist.send(x, 1, pair)
            dist.send(x.view(torch.uint8), 1, pair)
        else:
            same_type = torch.empty(3).to(sent)
            dist.recv(same_type, 0, pair)
            dist.recv(out.view(torch.uint8), 0, pair)
            assert out.view(torch.uint8).tolist() == same_type.view(torch.uint8).tolist()
        for _ in range(2):
            try:
                if RANK == 0:
                    dist.send(x, 1, pair)
                    dist.recv(out, 1, pair)
                else:
                    dist.recv(out, 0, pair)
            except RuntimeError as problem:
                assert "GC3-R010" in str(problem)
                assert ("GC3 does not have" if sent is own else "int64") in str(problem)
            else:
                raise AssertionError
        dist.destroy_process_group(pair)


def messages_that_nobody_waits_for() -> None:
    """Their tensors are released once they have left."""
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    dropped = torch.ones(1 << 20)
    memory = StorageWeakRef(dropped.untyped_storage())
    dist.isend(dropped, after)
    del dropped
    dist.recv(torch.empty(1 << 20), before)
    dist.barrier()
    for _ in range(20):  # now and then, what is done is released
        work = dist.isend(torch.ones(1 << 20), after)
        dist.recv(torch.empty(1 << 20), before)
        work.wait()
    assert memory.expired()


def coalesced() -> None:
    """Several calls as one, of tensors that are not contiguous on rank 0."""

    def empty() -> torch.Tensor:
        return torch.empty(6, 2 * SIZE)[:, ::2].t() if RANK == 0 else torch.empty(SIZE, 6)

    gathered, reduced = [empty(), empty()], [torch.empty(3), torch.empty(5)]
    with dist._coalescing_manager():
        for i, y in enumerate(gathered):
            dist.all_gather_into_tensor(y, (i + 1) * own(torch.float32, 1, 6))
    for i, y in enumerate(gathered):
        same(y, (i + 1) * torch.cat([of(r, torch.float32, 1, 6) for r in range(SIZE)]))
    with dist._coalescing_manager():
        for y in reduced:
            given = own(torch.float32, SIZE * y.numel(), 2)[:, 0]
            dist.reduce_scatter_tensor(y, given if RANK == 0 else given.contiguous())
    for y in reduced:
        same(y, torch.full_like(y, TOTAL))


def add_up(x: torch.Tensor, _: object) -> None:
    """Makes a call at the end of another one, late on rank 0."""
    if RANK == 0:
        time.sleep(0.01)
    dist.all_reduce(x)


def later() -> None:
    """Asynchronous calls, in order, with futures, and beside each other in several groups."""
    works, tensors = [], [own(torch.float32, 100 * i + 1) for i in range(10)]
    for x in tensors:
        works.append(dist.all_reduce(x, async_op=True))
    last = torch.ones(1)
    dist.all_reduce(last)  # after those that were started
    for work, x in zip(works, tensors, strict=True):
        assert work.wait()
        same(x, torch.full((x.numel(),), float(TOTAL)))
    assert last.item() == SIZE
    x = own(torch.float32, 3)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((3,), 2.0 * TOTAL))
    works = [dist.all_reduce(own(torch.float32, 3), async_op=True) for _ in range(2)]
    works[0].get_future().then(lambda _: works[1].wait()).wait()
    for _ in range(5):  # a call of the end of another one comes before those that are made after it
        a, b, c = own(torch.float32, 3), own(torch.float32, 4), own(torch.float32, 5)
        work = dist.all_reduce(a, async_op=True)
        chained = work.get_future().then(partial(add_up, b))
        work.wait()
        dist.all_reduce(c)
        chained.wait()
        same(b, torch.full((4,), float(TOTAL)))
        same(c, torch.full((5,), float(TOTAL)))
    group = dist.new_group()
    programs = [gc3.compile(gc3.algorithms.load(name), R=SIZE) for name in ("ring_allreduce", "allpairs_allreduce")]
    for program in 3 * programs:  # comes after the calls that were started, on every rank
        works = [dist.all_reduce(own(torch.float32, 5000), group=group, async_op=True) for _ in range(5)]
        gc3.torch.load(program, group)
        works.append(dist.all_reduce(own(torch.float32, 5000), group=group, async_op=True))
        for work in works:
            work.wait()
    dist.destroy_process_group(group)
    with dist._coalescing_manager():
        a, b, c = own(torch.float32, 3), own(torch.int32, 2), own(torch.float32, 2)
        for y in (a, b, c):
            dist.all_reduce(y)
    same(a, torch.full((3,), float(TOTAL)))
    same(b, torch.full((2,), TOTAL, dtype=torch.int32))
    same(c, torch.full((2,), float(TOTAL)))


def split() -> None:
    """Groups split from the world; a rank may be in none."""
    halves = [[0], list(range(1, SIZE))]
    part = dist.split_group(split_ranks=halves)
    x = own(torch.float32, 2)
    dist.all_reduce(x, group=part)
    same(x, torch.full((2,), 1.0 if RANK == 0 else TOTAL - 1.0))
    try:
        alone = dist.split_group(split_ranks=[[0]])
    except dist.DistBackendError as problem:
        assert IN_PYTHON
        assert f"rank {RANK} is in none of split_ranks" in str(problem)
    else:
        assert RANK == 0 or (not IN_PYTHON and alone in (None, dist.GroupMember.NON_GROUP_MEMBER))


def groups() -> None:
    """Groups of some ranks, overlapping."""
    pair = dist.new_group([0, 1])
    turned = dist.new_group([SIZE - 1, 0], use_local_synchronization=False)
    if RANK < 2:
        x = own(torch.float32, 2)
        dist.all_reduce(x, group=pair)
        same(x, torch.full((2,), 3.0))
    if RANK in (0, SIZE - 1):
        x = own(torch.float32, 2)
        dist.all_reduce(x, group=turned)
        same(x, torch.full((2,), SIZE + 1.0))
    if torch.__version__ >= "2.15":  # before it, PyTorch splits groups of GPUs alone
        split()
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": r} for r in range(SIZE)]
    dist.barrier()
    dist.monitored_barrier()
    if RANK == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.2), wait_all_ranks=True)
        except dist.DistBackendError as problem:
            late = ", ".join(str(r) for r in range(1, SIZE))
            assert f"Ranks {late} failed to pass monitoredBarrier in 200 ms" in str(problem)
        else:
            raise AssertionError
    dist.barrier()
    if RANK > 0:
        try:
            dist.monitored_barrier()  # which rank 0 has given up
        except dist.DistBackendError as problem:
            assert "given up" in str(problem)
        else:
            raise AssertionError
    dist.barrier()


def average_of_mixed_types() -> None:
    """An average into another type is refused, and not computed of parts of numbers; it ends its group."""
    for given, out in (torch.float32, torch.float64), (torch.complex64, torch.float32):
        group = dist.new_group()
        result, x = torch.zeros(2, dtype=out), torch.ones(2 * SIZE, dtype=given)
        try:
            dist.reduce_scatter_tensor(result, x, dist.ReduceOp.AVG, group)
        except dist.DistBackendError as problem:
            assert "GC3-R001" in str(problem)
        else:
            raise AssertionError
    assert as_nccl("avg", 2, np.ones(2, "f4"), np.ones(2, "c8"))[0] == "avg"
    assert as_nccl("avg", 1024, np.ones(2, DTYPES["float8_e4m3fn"]))[0] == "avg"  # 1 / 1024 would be 0
    assert as_nccl("avg", 512, np.ones(2, DTYPES["float8_e4m3fn"]))[0] != "avg"


dist.init_process_group("gc3", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
assert dist.get_backend() == "gc3"
MESSAGES = (messages, messages_of_other_sizes, messages_of_other_types, messages_that_nobody_waits_for)
for check in (reductions, parts, exchanges, memory, *MESSAGES, coalesced, later, average_of_mixed_types, groups):
    check()
    print(check.__name__)
dist.destroy_process_group()
