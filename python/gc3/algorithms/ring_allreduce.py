"""Ring AllReduce (000 figure 8a, 002 section 7.1.1)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "allreduce",
    chunks=lambda R: R,
    in_place=True,
    section="000 section 6.2.1, figure 8a; 002 section 7.1.1",
    good_for="large messages: every rank sends and receives the least data possible, 2(R-1)/R of it",
    cost=Cost(steps="2*(R-1)", sent="2*(R-1)", of="R"),
)
def ring_allreduce(R: int, channels: int = 1) -> None:
    """Each chunk goes round the ring twice: once to be reduced, once to be distributed."""
    for i in range(R):
        ch = i % channels
        # Chunk i starts at rank i
        c = chunk(i, "in", i)

        # First ring: compute fully reduced chunk
        for r in range(1, R):
            c = chunk((i + r) % R, "in", i).reduce(c, sendtb=ch, recvtb=ch, ch=ch)

        # Second ring: broadcast fully reduced chunk
        for r in range(R - 1, 2 * R - 2):
            c = c.copy((i + r + 1) % R, "in", i, sendtb=ch, recvtb=ch, ch=ch)
