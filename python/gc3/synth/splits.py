"""Ways to split R rounds over S steps."""

from __future__ import annotations

from collections.abc import Iterator

_GROWTH = (1.5, 2.0, 0.8)  # growth of the rounds from step to step


def growing(steps: int, rounds: int, growth: float) -> list[int]:
    """Returns rounds that grow by a factor from step to step, each step at least one.

    >>> growing(3, 7, 2.0)
    [1, 2, 4]
    """
    weights = [growth**s for s in range(steps)]
    exact = [rounds * w / sum(weights) for w in weights]
    fixed = [max(int(r), 1) for r in exact]
    for s in sorted(range(steps), key=lambda s: int(exact[s]) - exact[s])[: max(rounds - sum(fixed), 0)]:
        fixed[s] += 1
    largest = max(range(steps), key=lambda s: fixed[s])
    fixed[largest] = max(fixed[largest] + rounds - sum(fixed), 0)
    return fixed


def plain_splits(steps: int, rounds: int) -> list[list[int]]:
    """Returns rounds that grow, or shrink, from step to step.

    >>> plain_splits(5, 16)
    [[1, 2, 3, 4, 6], [1, 1, 2, 4, 8], [5, 4, 3, 2, 2]]
    """
    return [growing(steps, rounds, growth) for growth in _GROWTH]


def moved_splits(steps: int, rounds: int) -> list[list[int]]:
    """Returns the first of the plain splits with one round moved, since some splits are easier than others.

    >>> moved_splits(5, 16)[:2]
    [[1, 2, 3, 5, 5], [1, 2, 3, 3, 7]]
    """
    plain = growing(steps, rounds, _GROWTH[0])
    found: list[list[int]] = []
    for giver, taker in [(s, s + d) for s in range(steps - 1, max(steps - 4, -1), -1) for d in (1, -1)]:
        if 0 <= taker < steps and plain[giver] > 1:
            moved = list(plain)
            moved[giver] -= 1
            moved[taker] += 1
            found.append(moved)
    return found


def every_split(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a number as a sum of this many numbers.

    >>> list(every_split(4, 2))
    [(1, 3), (2, 2), (3, 1)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for others in every_split(total - first, parts - 1):
            yield (first, *others)
