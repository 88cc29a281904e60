"""What the switches of a node of G GPUs do in several algorithms: add up all its GPUs' data, or copy that of one."""

from __future__ import annotations

from gc3.lang import chunk


def others(n: int, g: int, G: int) -> list[tuple[int, int]]:
    """Returns the other GPUs of node n, the one after GPU g first.

    >>> others(2, 1, 4)
    [(2, 2), (2, 3), (2, 0)]
    """
    return [(n, (g + distance) % G) for distance in range(1, G)]


def sums(n: int, g: int, G: int, index: int) -> None:
    """The switches of node n add up its GPUs' chunk at `index` of the input, for GPU g."""
    if G > 1:
        chunk((n, g), "in", index).multireduce([chunk(other, "in", index) for other in others(n, g, G)], ch=0)


def copies(n: int, g: int, G: int, index: int, *, buffer: str = "in") -> None:
    """The switches of node n multicast GPU g's chunk at `index` to its other GPUs."""
    if G > 1:
        chunk((n, g), buffer, index).multicast(others(n, g, G), ch=1)
