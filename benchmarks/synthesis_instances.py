"""The instances for measurements of synthesis: tables 4 and 5 of 001, impossible ones, and larger ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache

from gc3 import topologies
from gc3.synth import Network

Row = tuple[str, int, int, int]  # collective, C, S, R

ROOTED = ("broadcast", "reduce", "gather", "scatter")
COMPOSED = ("allreduce",)
# The root of the paper: rank 0 of the rings in its section 2.2 is rank 1 in its figure 1, and so in `dgx1`.
ROOT = 1


@cache
def preset(spec: str) -> Network:
    """Returns the network of a topology."""
    return Network.of(topologies.load(spec))


def _rows(name: str, *numbers: tuple[int, int, int]) -> list[Row]:
    return [(name, *n) for n in numbers]


def tables() -> Iterator[tuple[Network, Row]]:
    """Yields the rows of tables 4 and 5; those of Gather and Broadcast stand for their inverses."""
    single = [(c, c + 1, c + 1) for c in range(1, 7)]
    dgx1 = [
        *_rows("allgather", *single, (6, 3, 7), (2, 2, 3)),
        *_rows("allreduce", *((8 * c, 2 * s, 2 * r) for c, s, r in single), (48, 6, 14), (16, 4, 6)),
        *_rows("broadcast", (2, 2, 2), (6, 3, 3), (12, 4, 4), (18, 5, 5), (6, 3, 5)),
        *_rows("gather", *single, (6, 3, 7), (2, 2, 3)),
        *_rows("alltoall", (8, 3, 3), (8, 2, 3), (24, 8, 8), (24, 2, 8)),
    ]
    z52 = [
        *_rows("allgather", (1, 4, 4), (2, 7, 7), (2, 4, 7)),
        *_rows("allreduce", (8, 8, 8), (16, 14, 14), (16, 8, 14)),
        *_rows("broadcast", *((2 * m, 3 + m, 3 + m) for m in range(1, 6))),
        *_rows("gather", (1, 4, 4), (2, 4, 7)),
        *_rows("alltoall", (8, 4, 8)),
    ]
    yield from ((preset("dgx1"), row) for row in dgx1)
    yield from ((preset("z52"), row) for row in z52)


def impossible() -> Iterator[tuple[Network, Row]]:
    """Yields instances without a schedule: those that the paper implies, and others close to the frontier."""
    rows = [
        *_rows("allgather", (3, 2, 4), (4, 2, 5), (5, 3, 5), (6, 3, 6), (7, 3, 8), (7, 4, 8)),
        *_rows("broadcast", (3, 2, 2), (7, 3, 3), (13, 4, 4), (19, 5, 5)),
        *_rows("alltoall", (8, 2, 2), (32, 2, 10), (32, 3, 10)),
        *_rows("gather", (3, 2, 4), (5, 3, 5)),
    ]
    yield from ((preset("dgx1"), row) for row in rows)


def frontiers() -> Iterator[tuple[Network, str, int, int, int]]:
    """Yields frontiers: network, collective, root, k, most steps."""
    dgx1 = preset("dgx1")
    yield dgx1, "allgather", 0, 4, 16
    yield dgx1, "alltoall", 0, 6, 16
    yield dgx1, "broadcast", ROOT, 4, 8
    yield dgx1, "broadcast", 0, 4, 8


def boxes(count: int) -> Network:
    """Returns DGX-1s. Four GPUs of each have a NIC of half an NVLink's bandwidth to their counterparts in others."""
    box = preset("dgx1")
    relation: list[tuple[Sequence[tuple[int, int]], int]] = []
    for b in range(count):
        relation += [([(8 * b + u, 8 * b + v)], 2 * c) for (u, v), c in zip(box.edges, box.capacity, strict=True)]
    for nic in (0, 3, 5, 6):
        members = [8 * b + nic for b in range(count)]
        for r in members:
            others = [o for o in members if o != r]
            relation += [([(r, o) for o in others], 1), ([(o, r) for o in others], 1)]
    return Network.of_relation(f"{count}xDGX-1", 8 * count, relation, [r // 8 for r in range(8 * count)])


def rails(count: int) -> Network:
    """Returns boxes of 8 GPUs on a switch with 12 chunks a round; across boxes each GPU has a rail of one chunk."""
    relation: list[tuple[Sequence[tuple[int, int]], int]] = []
    ranks = 8 * count
    for r in range(ranks):
        near = [r - r % 8 + g for g in range(8) if g != r % 8]
        far = [o for o in range(r % 8, ranks, 8) if o != r]
        relation += [([(r, o) for o in near], 12), ([(o, r) for o in near], 12)]
        relation += [([(r, o) for o in far], 1), ([(o, r) for o in far], 1)]
    return Network.of_relation(f"{count}x8 rails", ranks, relation)


def switch(ranks: int) -> Network:
    """Returns ranks on a switch; each sends and receives one chunk per round."""
    everyone = range(ranks)
    out = [([(r, d) for d in everyone if d != r], 1) for r in everyone]
    into = [([(s, r) for s in everyone if s != r], 1) for r in everyone]
    return Network.of_relation(f"switch {ranks}", ranks, [*out, *into])


def regular(ranks: int, seed: int = 1) -> Network:
    """Returns a random graph in which each rank has four neighbours, with links in both directions.

    With 64 ranks, seeds 2, 4 and 8 give a diameter of 5, and the other seeds up to 8 a diameter of 6.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    while True:
        ends = [r for r in range(ranks) for _ in range(4)]
        chance.shuffle(ends)
        pairs = {(min(p), max(p)) for p in zip(ends[::2], ends[1::2], strict=True) if p[0] != p[1]}
        if len(pairs) == 2 * ranks:
            break
    both = sorted([*pairs, *((b, a) for a, b in pairs)])
    return Network.of_relation(f"random {ranks} #{seed}", ranks, [([p], 1) for p in both])


def large() -> Iterator[tuple[str, float | None, str, int, int]]:
    """Yields the largest instances: topology, unit in GB/s, collective, C, and S in bytes for the simulation."""
    yield "torus:X=16,Y=16", None, "allgather", 4, 1 << 34
    yield "torus:X=16,Y=16", None, "allreduce", 1024, 1 << 34
    yield "torus:X=16,Y=16", None, "alltoall", 256, 1 << 34
    yield "ndv4:N=8", 25.0, "allgather", 26, 1 << 34
    yield "ndv4:N=8", 25.0, "allreduce", 1664, 1 << 34


def scale() -> Iterator[tuple[Network, Row]]:
    """Yields larger instances."""
    yield from (
        (switch(16), ("allgather", 1, 4, 15)),
        (preset("torus:X=4,Y=4"), ("allgather", 4, 4, 15)),
        (boxes(2), ("allgather", 5, 4, 12)),
        (boxes(4), ("allgather", 2, 5, 14)),
        (preset("torus:X=8,Y=8"), ("allgather", 4, 8, 63)),
        (preset("hypercube:D=6"), ("allgather", 2, 6, 21)),
        *((regular(64, seed), ("allgather", 1, 5, 16)) for seed in (2, 4, 8)),
        (rails(2), ("allgather", 2, 3, 3)),
        (rails(4), ("allgather", 1, 3, 4)),
        (switch(16), ("alltoall", 16, 1, 15)),
        (preset("torus:X=4,Y=4"), ("alltoall", 16, 4, 8)),
        (boxes(2), ("alltoall", 16, 3, 16)),
        (boxes(4), ("alltoall", 32, 4, 48)),
        (preset("torus:X=8,Y=8"), ("alltoall", 64, 8, 64)),
        (preset("hypercube:D=6"), ("alltoall", 64, 6, 32)),
        *((regular(64, seed), ("alltoall", 64, 5, rounds)) for seed, rounds in ((2, 52), (4, 53), (8, 54))),
        (switch(16), ("broadcast", 1, 4, 4)),
        (boxes(2), ("broadcast", 4, 3, 5)),
        (boxes(4), ("broadcast", 1, 3, 3)),
        (regular(64, 4), ("broadcast", 2, 5, 5)),
        (preset("torus:X=4,Y=4"), ("broadcast", 3, 4, 4)),
        (preset("hypercube:D=6"), ("broadcast", 1, 6, 6)),
        (preset("torus:X=8,Y=8"), ("broadcast", 1, 8, 8)),
    )
