"""Hierarchical AllReduce (002 section 2, figure 3; its schedule: section 5.1)."""

from __future__ import annotations

from typing import Any

from gc3.algorithms import _one_rank
from gc3.algorithms._ring import all_gather, reduce_scatter
from gc3.lang import Cost, algorithm, me, parallelize


def one_rank(N: int, G: int, parallel: int = 0) -> None:
    """The same."""
    node, gpu = me(N, G)
    channels: list[dict[str, Any]] = [{"ch": k} if parallel else {} for k in range(3)]
    first, across, last = channels
    with parallelize(max(parallel, 1)):
        _one_rank.reduce_scatter(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **first)
    _one_rank.reduce_scatter(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    _one_rank.all_gather(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    with parallelize(max(parallel, 1)):
        _one_rank.all_gather(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **last)


@algorithm(
    "allreduce",
    chunks=lambda N, G: N * G,
    in_place=True,
    section="002 section 2, figure 3; section 5.1",
    good_for="several nodes: each byte crosses the network about twice whatever G is",
    cost=Cost(steps="2*(G-1) + 2*(N-1)", sent="2*N*(G-1) + 2*(N-1)", of="N*G"),
)
def hierarchical_allreduce(N: int, G: int, parallel: int = 0) -> None:
    """Reduces inside the nodes, then across them, and gathers back the same way.

    With `parallel` > 0 the schedule is that of 002 section 5.1: a channel for each phase, with the phases inside the
    nodes cut into `parallel` parts each (the paper uses N).
    """
    if N * G > _one_rank.LOOPED:
        one_rank(N, G, parallel)
        return
    first, across, last = (0, 1, 2) if parallel else (None, None, None)
    # intra-node ReduceScatter
    for n in range(N):
        local_ranks = [i + n * G for i in range(G)]
        with parallelize(max(parallel, 1)):
            reduce_scatter(local_ranks, range(0, N * G, N), N, ch=first)

    # inter-node ReduceScatter + AllGather
    for g in range(G):
        cross_ranks = [i * G + g for i in range(N)]
        reduce_scatter(cross_ranks, range(g * N, (g + 1) * N), ch=across)
        all_gather(cross_ranks, range(g * N, (g + 1) * N), ch=across)

    # intra-node AllGather
    for n in range(N):
        local_ranks = [i + n * G for i in range(G)]
        with parallelize(max(parallel, 1)):
            all_gather(local_ranks, range(0, N * G, N), N, ch=last)
