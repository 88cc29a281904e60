"""Many calls of all kinds: the use of memory, descriptors and threads does not grow."""

from __future__ import annotations

import os

import pytest

import ranks

pytestmark = pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what was freed")


def test_ten_thousand_mixed_calls_leak_nothing() -> None:
    ranks.run(ranks.program("many_calls"), 3, arguments=[10_000, "nothing"])


@pytest.mark.parametrize("leak", ["memory", "descriptors", "shared memory"])
def test_leaks_are_detected(leak: str) -> None:
    results = ranks.start(ranks.program("many_calls"), 3, arguments=[2_000, leak]).finish()
    assert all(status == 1 and f"AssertionError: ('{leak}" in text for status, text in results), results
