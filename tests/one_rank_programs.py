"""Programs written from the view of one rank, for the tests."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gc3.lang import Algorithm, algorithm, chunk, me, parallelize


def _reduce_scatter(at: Callable[[int], Any], place: Callable[[int], Any], R: int, count: int = 1, **how: Any) -> None:
    """A ring of R ranks, in which at(1) is the next; place(s) is where the data of the rank s further on ends."""
    for s in range(1, R):
        mine = chunk(at(0), "in", place(-s), count)
        chunk(at(1), "in", place(-s), count).reduce(mine, **how)


def _all_gather(
    at: Callable[[int], Any],
    place: Callable[[int], Any],
    R: int,
    count: int = 1,
    *,
    buffer: str = "in",
    **how: Any,
) -> None:
    for s in range(R - 1):
        chunk(at(0), buffer, place(-s), count).copy(at(1), **how)


@algorithm("allreduce", chunks=lambda R: R, in_place=True)
def ring_allreduce(R: int) -> None:
    (rank,) = me(R)
    tb: dict[str, Any] = {"ch": 0, "sendtb": 0, "recvtb": 0}
    _reduce_scatter(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **tb)
    _all_gather(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **tb)


@algorithm("allgather", in_place=True)
def ring_allgather(R: int) -> None:
    (rank,) = me(R)
    _all_gather(lambda d: (rank + d,), lambda d: rank + d, R, buffer="out", ch=0)


@algorithm("reducescatter", in_place=True)
def ring_reducescatter(R: int) -> None:
    (rank,) = me(R)
    _reduce_scatter(lambda d: (rank + d,), lambda d: rank + d, R, ch=0)


@algorithm("allreduce", chunks=lambda N, G: N * G, in_place=True)
def hierarchical_allreduce(N: int, G: int, parallel: int = 0) -> None:
    node, gpu = me(N, G)
    channels: list[dict[str, Any]] = [{"ch": k} if parallel else {} for k in range(3)]
    first, across, last = channels
    with parallelize(max(parallel, 1)):
        _reduce_scatter(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **first)
    _reduce_scatter(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    _all_gather(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    with parallelize(max(parallel, 1)):
        _all_gather(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **last)


@algorithm("reducescatter", in_place=True)
def hierarchical_reducescatter(N: int, G: int) -> None:
    node, gpu = me(N, G)
    for a in range(N):
        _reduce_scatter(lambda d: (node, gpu + d), lambda d, a=a: (node + a) * G + (gpu + d), G)
    _reduce_scatter(lambda d: (node + d, gpu), lambda d: (node + d) * G + gpu, N)


@algorithm("alltoall")
def two_step_alltoall(N: int, G: int) -> None:
    node, gpu = me(N, G)
    for a in range(N):
        for b in range(G):
            c = chunk((node, gpu), "in", (node + a, gpu + b))
            if a == 0:
                c.copy((node, gpu + b), "out", (node, gpu))
            else:
                c.copy((node, gpu + b), "sc", (node + a, gpu))
        if a:
            chunk((node, gpu), "sc", (node + a) * G, sz=G).copy((node + a, gpu), "out", node * G)


@algorithm("allreduce", chunks=lambda R, chunks: R * chunks, in_place=True)
def allpairs_allreduce(R: int, chunks: int = 1) -> None:
    (rank,) = me(R)
    for d in range(1, R):
        chunk(rank + d, "in", rank * chunks, chunks).copy(rank, "sc", (rank + d) * chunks)
    for index in range(chunks):
        c = chunk(rank, "in", rank * chunks + index)
        for d in range(1, R):
            c = c.reduce(chunk(rank, "sc", (rank + d) * chunks + index))
    for d in range(1, R):
        chunk(rank, "in", rank * chunks, chunks).copy(rank + d)


@algorithm("allreduce", chunks=lambda R: R, in_place=True)
def recursive_halving_doubling_allreduce(R: int) -> None:
    bits = me(*[2] * (R.bit_length() - 1))  # the highest first
    weights = [R >> (k + 1) for k in range(len(bits))]

    def beside(k: int) -> Any:
        return (*bits[:k], bits[k] + 1, *bits[k + 1 :])

    def kept(k: int) -> Any:
        out = bits[0] * weights[0]
        for bit, weight in zip(bits[1 : k + 1], weights[1 : k + 1], strict=True):
            out = out + bit * weight
        return out

    for k in range(len(bits)):
        theirs = chunk(beside(k), "in", kept(k), weights[k])
        chunk(bits, "in", kept(k), weights[k]).reduce(theirs)
    for k in reversed(range(len(bits))):
        chunk(bits, "in", kept(k), weights[k]).copy(beside(k))


FORMS: list[tuple[Algorithm, dict[str, Any]]] = [
    (ring_allreduce, {"R": 5}),
    (ring_allreduce, {"R": 2}),
    (ring_allgather, {"R": 4}),
    (ring_reducescatter, {"R": 6}),
    (hierarchical_allreduce, {"N": 4, "G": 2}),
    (hierarchical_allreduce, {"N": 3, "G": 3}),
    (hierarchical_allreduce, {"N": 1, "G": 4}),
    (hierarchical_allreduce, {"N": 4, "G": 1}),
    (hierarchical_allreduce, {"N": 3, "G": 2, "parallel": 3}),
    (hierarchical_reducescatter, {"N": 3, "G": 2}),
    (two_step_alltoall, {"N": 3, "G": 2}),
    (two_step_alltoall, {"N": 2, "G": 4}),
    (allpairs_allreduce, {"R": 4}),
    (allpairs_allreduce, {"R": 3, "chunks": 2}),
    (recursive_halving_doubling_allreduce, {"R": 8}),
]
