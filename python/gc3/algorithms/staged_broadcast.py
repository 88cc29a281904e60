"""Staged Broadcast: the root copies its data to scratch once, and all ranks read it there."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


@algorithm(
    "broadcast",
    in_place=True,
    section="textbook, through a copy in shared memory",
    good_for="several ranks on one host: all of them can read scratch directly, unlike the root's own arrays",
    cost=Cost(steps="min(R-1, 1)", sent="R-1", of="1"),
)
def staged_broadcast(R: int, root: int = 0) -> None:
    """Copies the root's data to its scratch, and sends it to every rank from there."""
    if R == 1:
        return
    staged = chunk(root, "out", 0).copy(root, "scratch", 0)
    for v in range(1, R):
        staged.copy((root + v) % R, "out", 0)
