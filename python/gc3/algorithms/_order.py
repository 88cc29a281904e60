"""Orders that several algorithms share: partners in a step, and ranges that wrap around."""

from __future__ import annotations

from collections.abc import Iterator


def is_pow2(size: int) -> bool:
    """Whether `size` is a power of two.

    >>> [size for size in range(1, 9) if is_pow2(size)]
    [1, 2, 4, 8]
    """
    return size & (size - 1) == 0


def partner(me: int, step: int, size: int) -> int:
    """The rank that `me` sends to in step 0 <= `step` < `size` of a pairwise exchange among `size`.

    For a power of two, partners exchange with each other (MPI's choice, and 004's). Otherwise each rank sends to the
    one `step` places further. In both cases every step is a permutation, and step 0 is the rank itself.

    >>> [partner(1, step, 4) for step in range(4)], [partner(1, step, 3) for step in range(3)]
    ([1, 0, 3, 2], [1, 2, 0])
    """
    return me ^ step if is_pow2(size) else (me + step) % size


def wrapped(first: int, count: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Cuts `count` <= `size` places from `first` on, modulo `size`, into parts (offset, index, count) without a wrap.

    >>> list(wrapped(2, 3, 4)), list(wrapped(5, 3, 4))
    ([(0, 2, 2), (2, 0, 1)], [(0, 1, 3)])
    """
    index = first % size
    head = min(count, size - index)
    if head:
        yield 0, index, head
    if count > head:
        yield head, 0, count - head
