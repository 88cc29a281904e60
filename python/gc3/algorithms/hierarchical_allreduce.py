"""Hierarchical AllReduce (002 section 2, figure 3)."""

from __future__ import annotations

from gc3.lang import algorithm, chunk


def reduce_scatter(ranks: list[int], offset: int, count: int) -> None:
    """Ring ReduceScatter among `ranks`: ranks[i] ends with the sum of the i-th group of `count` chunks."""
    R = len(ranks)
    for r in range(R):
        index = offset + r * count
        c = chunk(ranks[(r + 1) % R], "in", index, count)
        for step in range(1, R):
            next = ranks[(step + r + 1) % R]
            c = chunk(next, "in", index, count).reduce(c)


def all_gather(ranks: list[int], offset: int, count: int) -> None:
    """Ring AllGather among `ranks`: everyone gets the i-th group of `count` chunks from ranks[i]."""
    R = len(ranks)
    for r in range(R):
        index = offset + r * count
        c = chunk(ranks[r], "in", index, count)
        for step in range(1, R):
            next = ranks[(step + r) % R]
            c = c.copy(next, "in", index, count)


@algorithm(
    "allreduce",
    chunks=lambda N, G: N * G,
    in_place=True,
    section="002 section 2, figure 3",
    good_for="several nodes: each byte crosses the network about twice whatever G is",
)
def hierarchical_allreduce(N: int, G: int) -> None:
    """Reduces inside the nodes, then across them, and gathers back the same way."""
    # intra-node ReduceScatter
    for n in range(N):
        local_ranks = [i + n * G for i in range(G)]
        reduce_scatter(local_ranks, 0, N)

    # inter-node ReduceScatter + AllGather
    for g in range(G):
        cross_ranks = [i * G + g for i in range(N)]
        reduce_scatter(cross_ranks, g * N, 1)
        all_gather(cross_ranks, g * N, 1)

    # intra-node AllGather
    for n in range(N):
        local_ranks = [i + n * G for i in range(G)]
        all_gather(local_ranks, 0, N)
