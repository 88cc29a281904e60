"""SVG drawings are small, and show the same as matplotlib's."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gc3.support import drawing, svg

pytestmark = pytest.mark.python_only

_SVG = "{http://www.w3.org/2000/svg}"


def figure() -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    made: Any = Figure()
    axes = made.subplots()
    axes.plot([1, 10, 1000], [3.14159, 2.71828, 1], marker="o", label="a < b & 'c'")
    axes.set_xscale("log")
    axes.set_title('d="1.23456"')
    axes.legend()
    return made


def shown(text: str) -> tuple[list[str], dict[str, int]]:
    """The texts of a drawing, and how many of each shape there are."""
    root = ElementTree.fromstring(text)  # noqa: S314  our own
    texts = ["".join(e.itertext()).strip() for e in root.iter(f"{_SVG}text")]
    return texts, {name: sum(1 for _ in root.iter(_SVG + name)) for name in ("path", "use", "text", "clipPath")}


def test_the_same_picture_in_fewer_bytes(tmp_path: Path) -> None:
    whole = io.StringIO()
    mpl: Any = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.hashsalt": "gc3", "svg.fonttype": "none"}):
        figure().savefig(whole, format="svg", metadata={"Date": None})
    drawing.save(figure(), str(tmp_path / "x.svg"), dpi=100)
    small = (tmp_path / "x.svg").read_text()
    assert shown(small) == shown(whole.getvalue())
    assert "a < b & 'c'" in shown(small)[0]
    assert 'd="1.23456"' in shown(small)[0]
    assert len(small) < len(whole.getvalue()) / 2
    referred = [e.get("{http://www.w3.org/1999/xlink}href", "")[1:] for e in ElementTree.fromstring(small).iter()]  # noqa: S314
    ids = {e.get("id") for e in ElementTree.fromstring(small).iter()}  # noqa: S314
    assert {r for r in referred if r} <= ids


def test_what_is_not_of_matplotlib_stays() -> None:
    assert svg.compact("<svg>\n <g/></svg>") == "<svg>\n <g/></svg>"


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_bytes_each_time(kind: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        drawing.save(figure(), str(tmp_path / f"{name}.{kind}"), dpi=50)
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
