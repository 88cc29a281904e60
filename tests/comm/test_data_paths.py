"""How large messages move between processes: read from the sender's memory, or copied through shared memory."""

from __future__ import annotations

import pytest

import ranks

COPIED = "messages are copied through shared memory"


def test_without_single_copies_messages_are_copied() -> None:
    code = "with gc3.init() as comm: assert comm.all_reduce(np.ones(200_000)).sum() == n * 200_000"
    ranks.run(code, 3, {"GC3_SINGLE_COPY": "0"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "; measured, in us by shared memory and by reading: 8 KiB "),
        ({"GC3_PROBE": "0"}, "messages are read from the sender's memory from "),
        ({"GC3_SINGLE_COPY": "0"}, COPIED),
    ],
)
def test_the_way_of_messages_between_processes_is_explained(settings: dict[str, str], said: str) -> None:
    code = 'with gc3.init() as comm: told = comm.explain("allreduce", 10); print(told.processes); print(told)'
    for text in ranks.run(code, 2, settings):
        path, explained = text.split("\n", 1)
        assert path in explained
        assert said in path or path == COPIED  # that is all where the system forbids reading
