"""Drawings as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gc3.support import drawing

pytestmark = pytest.mark.python_only


def figure() -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    made: Any = Figure()
    axes = made.subplots()
    axes.plot([1, 10, 1000], [3.14159, 2.71828, 1], marker="o", label="a < b & 'c'")
    axes.set_xscale("log")
    axes.set_title('d="1.23456"')
    axes.legend()
    return made


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_bytes_each_time(kind: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        drawing.save(figure(), str(tmp_path / f"{name}.{kind}"), dpi=50)
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
