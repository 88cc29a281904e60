"""Many calls of all kinds: the use of memory, descriptors and threads does not grow."""

from __future__ import annotations

import pytest

import ranks

pytestmark = [
    pytest.mark.waits,
    pytest.mark.skipif(ranks.SANITIZED, reason="the sanitizer keeps what was freed"),
]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [5_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_thousands_of_mixed_calls_leak_nothing(calls: int) -> None:
    ranks.run(ranks.program("many_calls"), 3, arguments=[calls, "nothing"])


@pytest.mark.slow
@pytest.mark.parametrize("leak", ["memory", "descriptors", "shared memory"])
def test_leaks_are_detected(leak: str) -> None:
    results = ranks.start(ranks.program("many_calls"), 3, arguments=[300, leak]).finish()
    assert all(status == 1 and f"AssertionError: ('{leak}" in text for status, text in results), results
