"""Gathers what a rank reduces into a chunk, for the program of a schedule.

All contributions to a chunk are reduced into one place, so their instructions wait for each other in the order in which
they are written. If senders follow each other in one order for one chunk and in another order for the next, as steps
with room for some of them make it, a threadblock waits for another one at each chunk. In the same order for all chunks,
threadblocks work on different chunks at the same time.

So contributions are moved to the step of the last one. Small sums come before large ones, which have been on the way
longer, and equal ones in the order of their senders. This has more sends in a step than its rounds carry: programs do
not wait for the ends of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gc3.synth.problem import Item
from gc3.synth.schedule import Schedule, Send

_Sum = tuple[int, int, Send]  # its terms, its step, and the send


def gathered(contents: Sequence[Item], schedule: Schedule) -> tuple[tuple[Send, ...], ...]:
    """Returns the sends of each step, with contributions to the same chunk moved to the last of them.

    Args:
        contents: The ranks that contribute to each chunk.
        schedule: A schedule that is correct.
    """
    held = {(rank, chunk): 1 << rank for chunk, item in enumerate(contents) for rank in item.before}
    changed: dict[tuple[int, int], list[int]] = {}  # steps in which a chunk of a rank changes, ascending
    sums: dict[tuple[int, int], list[_Sum]] = {}
    made: list[list[Send]] = [[] for _ in schedule.steps]

    def close(place: tuple[int, int]) -> None:
        for step, send in _moved(sorted(sums.pop(place, ())), changed):
            made[step].append(send)

    for step, sends in enumerate(schedule.steps):
        given = {(chunk, src): held[src, chunk] for chunk, src, _ in sends}
        for chunk, src, _ in sends:
            close((src, chunk))
        for send in sends:
            chunk, src, dst = send
            mine, theirs = held.get((dst, chunk), 0), given[chunk, src]
            if mine and not theirs & mine:
                sums.setdefault((dst, chunk), []).append((theirs.bit_count(), step, send))
            else:
                close((dst, chunk))
                made[step].append(send)
            held[dst, chunk] = mine | theirs
            changed.setdefault((dst, chunk), []).append(step)
    for place in list(sums):
        close(place)
    return tuple(map(tuple, made))


def _moved(found: list[_Sum], changed: dict[tuple[int, int], list[int]]) -> Iterator[tuple[int, Send]]:
    """The new steps of contributions to one place; those of equally many terms are in one step."""
    at = 0
    last: dict[int, int] = {}
    for terms, step, _ in found:
        at = max(at, step)
        last[terms] = at
    for terms, step, send in found:
        chunk, src, _ = send
        # A sender whose data change meanwhile has to send before.
        until = min((change for change in changed.get((src, chunk), ()) if change >= step), default=at)
        yield min(last[terms], until), send
