"""All Pairs AllReduce (002 section 7.1.2)."""

from __future__ import annotations

from gc3.algorithms import _one_rank
from gc3.lang import Cost, algorithm, chunk, me


def one_rank(R: int, chunks: int = 1) -> None:
    """The same."""
    (rank,) = me(R)
    for d in range(1, R):
        chunk(rank + d, "in", rank * chunks, chunks).copy(rank, "sc", (rank + d) * chunks)
    for index in range(chunks):
        c = chunk(rank, "in", rank * chunks + index)
        for d in range(1, R):
            c = c.reduce(chunk(rank, "sc", (rank + d) * chunks + index))
    for d in range(1, R):
        chunk(rank, "in", rank * chunks, chunks).copy(rank + d)


@algorithm(
    "allreduce",
    chunks=lambda R, chunks: R * chunks,
    in_place=True,
    section="002 section 7.1.2",
    good_for="small messages: two communication steps whatever R is",
    cost=Cost(steps="2 * min(R-1, 1)", sent="2*(R-1) * chunks", of="R * chunks"),
)
def allpairs_allreduce(R: int, chunks: int = 1) -> None:
    """Each rank gathers and sums its share of the data from everyone, then sends the sums to everyone."""
    if R > _one_rank.LOOPED:
        one_rank(R, chunks)
        return
    for r in range(R):
        share = r * chunks  # rank r reduces the chunks from here on
        for peer in range(R):
            if peer != r:
                chunk(peer, "in", share, chunks).copy(r, "sc", peer * chunks)
        for index in range(chunks):
            c = chunk(r, "in", share + index)
            for peer in range(R):
                if peer != r:
                    c = c.reduce(chunk(r, "sc", peer * chunks + index))
        c = chunk(r, "in", share, chunks)
        for peer in range(R):
            if peer != r:
                c.copy(peer, "in", share)
