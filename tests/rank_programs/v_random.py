"""Random programs of every collective with a v-form: chunks wander, several at a time, before they arrive."""

import random

import numpy as np
from here import RANK, SIZE

import gc3
from gc3 import chunk

SEEDS = 24
SCRATCH = 5
KINDS = ("alltoall", "allgather", "reducescatter", "gather", "scatter")
Label = tuple[int, int]  # the number of a count, and the chunk of its block


def block_of(kind: str, rank: int, buffer: str, block: int) -> int:
    """The number of the count that is the length of a block."""
    if kind == "alltoall":
        return rank * SIZE + block if buffer == "in" else block * SIZE + rank
    gathers = kind in {"allgather", "gather"}
    return rank if (buffer == "in") == gathers else block


def sizes(kind: str, rank: int, chunks: int) -> dict[str, int]:
    """The chunks of a rank's buffers; of gather and scatter the root is rank 0."""
    whole, one = SIZE * chunks, chunks
    root = whole if rank == 0 else 0
    inputs = {"alltoall": whole, "allgather": one, "reducescatter": whole, "gather": one, "scatter": root}[kind]
    outputs = {"alltoall": whole, "allgather": whole, "reducescatter": one, "gather": root, "scatter": one}[kind]
    return {"in": inputs, "out": outputs, "sc": SCRATCH}


def written(kind: str, seed: int) -> gc3.Program:
    """A program that moves chunks at random, then each to its place."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    chunks = rng.choice([1, 1, 2, 3])
    protocol = rng.choice(["Simple", "Simple", "LL", "LL128"])
    source = gc3.SourceProgram(f"random_{kind}_{seed}", kind, ranks=SIZE, chunks=chunks, protocol=protocol)
    every = {rank: sizes(kind, rank, chunks) for rank in range(SIZE)}
    held = {
        (rank, "in", i): (block_of(kind, rank, "in", i // chunks), i % chunks)
        for rank in range(SIZE)
        for i in range(every[rank]["in"])
    }
    with source:
        for _ in range(40):
            count = rng.choice([1, 1, 2, 3])
            (a, b), (from_, to) = (
                rng.choices(range(SIZE), k=2),
                (rng.choice(["in", "out", "sc"]), rng.choice(["out", "sc"])),
            )
            if count > min(every[a][from_], every[b][to]):
                continue
            i, j = rng.randint(0, every[a][from_] - count), rng.randint(0, every[b][to] - count)
            places = [(a, from_, i + k) for k in range(count)]
            targets = [(b, to, j + k) for k in range(count)]
            if set(places) & set(targets) or any(place not in held for place in places):
                continue
            chunk(a, from_, i, count).copy(b, to, j, ch=rng.choice([None, None, 0, 1]))
            held.update(zip(targets, [held[place] for place in places], strict=True))
        for rank in range(SIZE):
            for i in range(every[rank]["out"]):
                wanted = (block_of(kind, rank, "out", i // chunks), i % chunks)
                if kind == "reducescatter":
                    order = rng.sample(range(SIZE), SIZE)
                    at = chunk(order[0], "in", rank * chunks + i).copy(order[0], "sc", SCRATCH + rank * chunks + i)
                    for other in order[1:]:
                        at = at.copy(other, "sc", SCRATCH + SIZE * chunks)
                        at = at.reduce(chunk(other, "in", rank * chunks + i))
                    at.copy(rank, "out", i)
                    continue
                holders = [place for place, label in held.items() if label == wanted and place != (rank, "out", i)]
                if held.get((rank, "out", i)) != wanted:
                    chunk(*rng.choice(holders)).copy(rank, "out", i)
                    held[rank, "out", i] = wanted
    return gc3.compile(source, instances=rng.choice([1, 1, 2]))


def given(kind: str, rank: int, counts: np.ndarray, dtype: str) -> np.ndarray:
    """The input of a rank."""
    blocks = sizes(kind, rank, 1)["in"]
    size = sum(int(counts[block_of(kind, rank, "in", block)]) for block in range(blocks))
    return ((np.arange(size) * 5 + rank * 17) % 29).astype(dtype)


def block(kind: str, rank: int, number: int, counts: np.ndarray, dtype: str) -> np.ndarray:
    """A block of a rank's input."""
    first = sum(int(counts[block_of(kind, rank, "in", b)]) for b in range(number))
    return given(kind, rank, counts, dtype)[first:][: counts[block_of(kind, rank, "in", number)]]


def expected(kind: str, counts: np.ndarray, dtype: str) -> np.ndarray:
    """What this rank gets."""
    parts = {
        "alltoall": lambda: [block(kind, s, RANK, counts, dtype) for s in range(SIZE)],
        "allgather": lambda: [block(kind, s, 0, counts, dtype) for s in range(SIZE)],
        "gather": lambda: [block(kind, s, 0, counts, dtype) for s in range(SIZE)] if RANK == 0 else [],
        "scatter": lambda: [block(kind, 0, RANK, counts, dtype)],
        "reducescatter": lambda: [np.sum([block(kind, s, RANK, counts, dtype) for s in range(SIZE)], 0).astype(dtype)],
    }[kind]()
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def called(comm: gc3.Communicator, kind: str, counts: np.ndarray, dtype: str) -> np.ndarray:
    """The same by the communicator."""
    x = given(kind, RANK, counts, dtype)
    if kind == "alltoall":
        return comm.all_to_all_v(x, counts.reshape(SIZE, SIZE))
    if kind == "allgather":
        return comm.all_gather_v(x, counts)
    if kind == "reducescatter":
        return comm.reduce_scatter_v(x, counts)
    if kind == "gather":
        found = comm.gather_v(x)
        return np.empty(0, dtype) if found is None else found
    return comm.scatter_v(x, counts, out=np.empty(counts[RANK], dtype))


with gc3.init() as comm:
    for seed in range(SEEDS):
        kind = KINDS[seed % len(KINDS)]
        program = written(kind, seed)
        comm.load(program)
        rng = np.random.default_rng(seed)
        n = SIZE * SIZE if kind == "alltoall" else SIZE
        for most in (1, 9, 900, 40_000):
            counts = rng.integers(0, most + 1, n) * rng.integers(0, 2, n)
            dtype = ("int32", "uint8", "int64", "float32")[seed % 4]
            result, wanted = called(comm, kind, counts, dtype), expected(kind, counts, dtype)
            assert np.array_equal(result, wanted), (seed, kind, program.protocol, counts.tolist())
