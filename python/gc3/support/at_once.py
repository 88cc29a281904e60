"""Work on several items at once, one on each core.

The threads take turns in Python. The core compiles and simulates without Python's lock, and these are most of the work
for which this is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gc3 import _core
from gc3.support.starting import starting

Item = TypeVar("Item")
Found = TypeVar("Found")


def at_once(work: Callable[[Item], Found], items: Iterable[Item]) -> Generator[Found, None, None]:
    """Yields what `work` returns for each item, in their order.

    If the caller ends early, as by Ctrl-C, no further item begins, and what the core does for others ends.

    >>> list(at_once(str, (1, 2, 3)))
    ['1', '2', '3']
    """
    items = list(items)
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, len(items))
    if workers <= 1:
        yield from map(work, items)
        return
    stop = _core.Stop()

    def work_until_stopped(item: Item) -> Found:
        with stop:
            return work(item)

    with ThreadPoolExecutor(workers) as pool:
        under_way: list[Future[Found]] = []
        try:
            with starting("a thread for work on several cores"):
                under_way += (pool.submit(work_until_stopped, item) for item in items)
            while under_way:
                found = under_way[0].result()
                del under_way[0]
                yield found
        finally:
            if under_way:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
