"""Ranks that are killed at random moments of mixed calls: every other rank is told which, and none hangs.

mixed_faults.py KILLS SEED          Collectives, blocks of different lengths, messages, groups, many arrays in one call,
                                    one-sided programs on registered memory and programs that compute, on 3 ranks.
mixed_faults.py KILLS SEED torch    The same through PyTorch.
"""

import contextlib
import os
import random
import select
import signal
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path

import numpy as np

import gc3

if "torch" in sys.argv[3:]:  # before the ranks are forked
    import torch
    import torch.distributed as dist
else:
    import computing_programs

KILLS, SEED = int(sys.argv[1]), int(sys.argv[2])
TORCH = "torch" in sys.modules
SIZE = 3
LONGEST = 60.0  # seconds until every rank must have been told
SIZES = (1, 30, 2_000, 60_000, 400_000)
if not TORCH:
    ONE_SIDED = gc3.compile(gc3.algorithms.load("allpairs_allreduce"), R=SIZE, memory="direct")
    COMPUTING = [computing_programs.Case(algorithm, SIZE) for algorithm in computing_programs.ALGORITHMS]


def collectives(comm: gc3.Communicator, rng: random.Random) -> None:
    """Equal blocks, now or later."""
    size, kind = rng.choice(SIZES), rng.randrange(6)
    x = np.full(size * SIZE, comm.rank, np.int32)
    if kind == 0:
        assert comm.all_gather(x[:size]).sum() == size * sum(range(SIZE))
    elif kind == 1:
        assert (comm.reduce_scatter(x) == sum(range(SIZE))).all()
    elif kind == 2:
        assert comm.all_to_all(x).sum() == size * sum(range(SIZE))
    elif kind == 3:
        comm.broadcast(x, root=rng.randrange(SIZE))
    elif kind == 4:
        assert (comm.all_reduce_async(x).wait() == sum(range(SIZE))).all()
    else:
        comm.barrier()


def blocks(comm: gc3.Communicator, rng: random.Random) -> None:
    """Blocks of different lengths."""
    counts = np.array([[rng.choice(SIZES[:4]) for _ in range(SIZE)] for _ in range(SIZE)])
    x = np.full(counts[comm.rank].sum(), comm.rank, np.int32)
    got = comm.all_to_all_v(x, counts if rng.random() < 0.5 else counts[comm.rank])
    assert got.sum() == sum(s * counts[s][comm.rank] for s in range(SIZE))


def messages(comm: gc3.Communicator, rng: random.Random) -> None:
    """A ring, blocking or started."""
    size = rng.choice(SIZES)
    x, out = np.full(size, comm.rank, np.int32), np.empty(size, np.int32)
    after, before = (comm.rank + 1) % SIZE, (comm.rank - 1) % SIZE
    if rng.random() < 0.5:
        comm.sendrecv(x, after, out, before, tag=5)
    else:
        got, sent = comm.irecv(out, before, 5), comm.isend(x, after, 5)
        got.wait()
        sent.wait()
    assert (out == before).all()


def grouped(comm: gc3.Communicator, rng: random.Random) -> None:
    """A group of two, with a name or without one, and its calls."""
    members, named = rng.sample(range(SIZE), 2), rng.random() < 0.5
    if comm.rank in members:
        with comm.group(members, name="pair" if named else "") as pair:
            assert (pair.all_reduce(np.ones(100)) == len(members)).all()
            pair.sendrecv(np.ones(9), 1 - pair.rank, np.ones(9), 1 - pair.rank)
    comm.barrier()


def coalesced(comm: gc3.Communicator, rng: random.Random) -> None:
    """Many arrays, also later."""
    xs = [np.ones(rng.choice(SIZES), np.float32) for _ in range(rng.randrange(1, 9))]
    calls, later = comm.coalesce(), rng.random() < 0.5
    with contextlib.nullcontext() if later else calls:
        results = [calls.all_reduce(x) for x in xs]
    if later:
        calls.start().wait()
    assert all((x == SIZE).all() for x in results)


def registered(comm: gc3.Communicator, rng: random.Random) -> None:
    """A one-sided program, sometimes on memory that others cannot reach."""
    size = rng.choice(SIZES)
    x = comm.empty(size, np.int32) if rng.random() < 0.8 else np.empty(size, np.int32)
    x[:] = comm.rank
    assert (comm.run(ONE_SIDED, x) == sum(range(SIZE))).all()


def computing(comm: gc3.Communicator, rng: random.Random) -> None:
    """A program that computes between its messages."""
    case = rng.choice(COMPUTING)
    mine = {name: arrays[comm.rank] for name, arrays in case.inputs.items()}
    case.check_rank(case.program.bind(case.functions).run_rank(comm, mine, shapes=case.shapes), comm.rank)


def torch_calls(rank: int, rng: random.Random, told: int, file: Path) -> None:
    """The calls of a rank through PyTorch."""
    limit = timedelta(seconds=LONGEST)
    dist.init_process_group("gc3", init_method=f"file://{file}", rank=rank, world_size=SIZE, timeout=limit)
    pair = dist.new_group([0, 1])
    os.write(told, b"ready\n")
    while True:
        size, kind = rng.choice(SIZES), rng.randrange(6)
        x = torch.full((size * SIZE,), rank)
        counts = [[rng.choice(SIZES[:4]) for _ in range(SIZE)] for _ in range(SIZE)]
        if kind == 0:
            dist.all_reduce(x)
            assert (x == sum(range(SIZE))).all()
        elif kind == 1:
            dist.all_gather_into_tensor(torch.empty(size * SIZE * SIZE, dtype=x.dtype), x)
        elif kind == 2:
            received = [counts[source][rank] for source in range(SIZE)]
            out, sent = torch.empty(sum(received), dtype=x.dtype), torch.full((sum(counts[rank]),), rank)
            dist.all_to_all_single(out, sent, received, counts[rank])
        elif kind == 3:
            works = [dist.irecv(torch.empty_like(x), (rank - 1) % SIZE), dist.isend(x, (rank + 1) % SIZE)]
            for work in works:
                work.wait()
        elif kind == 4:
            if rank < 2:
                dist.broadcast(x, 0, group=pair)
            dist.barrier()
        else:
            works = [dist.all_reduce(torch.ones(rng.choice(SIZES)), async_op=True) for _ in range(rng.randrange(1, 9))]
            for work in works:
                work.wait()


def _file_of(job: str) -> Path:
    return Path(tempfile.gettempdir(), job)


def run(rank: int, job: str, seed: int, told: int) -> None:
    """A rank: calls until it is told that another has ended, which it passes on."""
    if TORCH:
        try:
            torch_calls(rank, random.Random(seed), told, _file_of(job))  # noqa: S311
        except RuntimeError as problem:
            os.write(told, f"{problem}".encode())
        return
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(SIZE), MASTER_ADDR=job, MASTER_PORT="1")
    rng = random.Random(seed)  # noqa: S311
    try:
        comm = gc3.init(timeout=LONGEST)
        os.write(told, b"ready\n")
        while True:
            rng.choice((collectives, blocks, messages, grouped, coalesced, registered, computing))(comm, rng)
    except gc3.CommError as problem:
        os.write(told, f"{problem}".encode())


def kill_one(number: int) -> str | None:
    """One round; what was wrong."""
    rng = random.Random(SEED + number)  # noqa: S311
    job, victim, seed = str(uuid.uuid4()), rng.randrange(SIZE), rng.randrange(1 << 30)
    pipes = [os.pipe() for _ in range(SIZE)]
    ranks: list[int] = []
    for rank in range(SIZE):
        process = os.fork()
        if process == 0:
            run(rank, job, seed, pipes[rank][1])
            os._exit(0)
        ranks.append(process)
    for _, write in pipes:
        os.close(write)
    deadline = time.monotonic() + LONGEST
    texts = [b""] * SIZE
    open_ends = {read: rank for rank, (read, _) in enumerate(pipes)}
    kill_at = None
    while open_ends and time.monotonic() < deadline:
        if kill_at is None and all(text.startswith(b"ready\n") for text in texts):
            kill_at = time.monotonic() + rng.random() * 0.05
        if kill_at is not None and kill_at > 0 and time.monotonic() >= kill_at:
            os.kill(ranks[victim], signal.SIGKILL)
            kill_at = -1.0
        for read in select.select(list(open_ends), [], [], 0.001)[0]:
            more = os.read(read, 65536)
            texts[open_ends[read]] += more
            if not more:
                del open_ends[read]
    for process in ranks:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    for read, _ in pipes:
        os.close(read)
    _file_of(job).unlink(missing_ok=True)
    if open_ends:
        return f"rank {victim} was killed; ranks {sorted(open_ends.values())} hang: {texts}"
    return judged(victim, ranks, texts)


def judged(victim: int, ranks: list[int], texts: list[bytes]) -> str | None:
    """What was wrong with what the ranks were told."""

    def names(rank: int, other: int) -> bool:
        return b"GC3-R009" in texts[rank] and f"(process {ranks[other]})".encode() in texts[rank]

    for rank in {*range(SIZE)} - {victim}:
        # A rank that was told in a group ends; who waits for it in a call of all ranks may be told of that first.
        third = SIZE - rank - victim
        if not names(rank, victim) and not (names(rank, third) and names(third, victim)):
            return f"rank {victim} (process {ranks[victim]}) was killed; rank {rank} was told {texts[rank]!r}"
    return None


wrong = [text for text in map(kill_one, range(KILLS)) if text is not None]
for text in wrong[:20]:
    print(text)
print(f"{KILLS} kills, {len(wrong)} wrong")
sys.exit(bool(wrong))
