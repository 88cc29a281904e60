"""An AllGather of your own: every rank hands what it has to the next, round a ring.

gc3 run examples/my_allgather.py:ring:R=4 --size 1MiB
"""

from gc3 import algorithm, chunk


@algorithm("allgather", good_for="large messages on a ring of equal links")
def ring(R: int) -> None:
    """Each rank's chunk travels round the ring, one rank at a time."""
    for rank in range(R):
        # A rank's own chunk has its place in its own output, too.
        c = chunk(rank, "in", 0).copy(rank, "out", rank)
        for step in range(1, R):
            c = c.copy((rank + step) % R, "out", rank)
