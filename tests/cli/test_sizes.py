"""Sizes on the command line."""

from __future__ import annotations

import pytest

from gc3.cli.sizes import fit, format_size, parse_size
from gc3.collectives import BUILTIN

pytestmark = pytest.mark.python_only

KIB = 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("7", 7),
        ("7B", 7),
        ("1000003B", 1_000_003),
        ("1K", KIB),
        ("1k", KIB),
        ("1KiB", KIB),
        ("1kib", KIB),
        ("1KB", 1000),
        ("64MiB", 64 * KIB**2),
        ("64M", 64 * KIB**2),
        ("64 MB", 64_000_000),
        ("1GB", 10**9),
        ("2GiB", 2 * KIB**3),
        ("1TiB", KIB**4),
        ("1.5KiB", 1536),
        ("0.5KB", 500),
    ],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 fortnight", "1e6", "0x10", "1.3B", "1KiBB", "nan"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|whole number"):
        parse_size(text)


@pytest.mark.parametrize("size", [0, 1, 1000, KIB, 3 * KIB, KIB**2, 5 * KIB**3, 1_000_003])
def test_shown_values_are_exact(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_sizes_are_rounded_down_to_whole_elements_of_every_block() -> None:
    allgather = BUILTIN["allgather"].model(4)
    assert fit(allgather, 4096, "float32") == (256, None)
    count, note = fit(allgather, 1_000_003, "uint8")
    assert count == 250_000
    assert note == "1000003 B is rounded down to 1000000 B: 4 blocks of 250000 uint8 elements"
    count, note = fit(BUILTIN["allreduce"].model(4), 3, "float32")
    assert count == 0
    assert note == "3 B is rounded down to 0 B: 0 float32 elements"
