"""All Pairs AllReduce (002 section 7.1.2)."""

from __future__ import annotations

from gc3.lang import algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R, chunks: R * chunks,
    in_place=True,
    section="002 section 7.1.2",
    good_for="small messages: two communication steps whatever R is",
)
def allpairs_allreduce(R: int, chunks: int = 1) -> None:
    """Each rank gathers and sums its share of the chunks from everyone, then sends the sums to everyone."""
    for r in range(R):
        for index in range(r * chunks, (r + 1) * chunks):
            # Every other rank's chunk arrives in scratch of its own, so that no arrival waits for another.
            arrived = [
                chunk(peer, "in", index).copy(r, "sc", (index - r * chunks) * R + peer) for peer in range(R) if peer != r
            ]
            c = chunk(r, "in", index)
            for other in arrived:
                c = c.reduce(other)
            for peer in range(R):
                if peer != r:
                    c.copy(peer, "in", index)
