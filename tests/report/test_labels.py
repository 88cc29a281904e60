"""Labels of pictures lie inside them and apart from each other, measured by their boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from gc3.cli.main import main
from gc3.report import svg, times
from gc3.support import drawing

pytestmark = pytest.mark.python_only

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_SLACK = 1.0  # boxes that only touch


class Box(NamedTuple):
    """The box of a label."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether two labels collide."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        return wide > _SLACK and min(self.bottom, other.bottom) - max(self.top, other.top) > _SLACK


def _labels(element: ET.Element, x: float = 0.0, y: float = 0.0) -> Iterator[Box]:
    moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
    if moved:
        x, y = x + float(moved[1]), y + float(moved[2])
    if element.tag.endswith("}text"):
        px = re.search(r"font-size:([\d.]+)px", element.get("style", ""))
        size = float(px[1]) if px else 12.0
        text = "".join(element.itertext())
        wide = svg.text_width(text) * size / 12
        before = {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", ""), 0.0)
        left = x + float(element.get("x", 0)) - wide * before
        base = y + float(element.get("y", 0))
        yield Box(text, left, base - 0.75 * size, left + wide, base + 0.2 * size)
    for inner in element:
        yield from _labels(inner, x, y)


def _collisions(drawn: str) -> list[tuple[str, str]]:
    root = ET.fromstring(drawn)  # noqa: S314  our own file
    boxes = list(_labels(root))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    outside = [b for b in boxes if b.left < -2 or b.top < -2 or b.right > width + 2 or b.bottom > height + 2]
    return [(a.text, b.text) for a, b in combinations(boxes, 2) if a.meets(b)] + [(b.text, "") for b in outside]


def test_labels_that_collide_are_found() -> None:
    one, two = svg.text(10, 20, "one"), svg.text(14, 22, "two")
    assert _collisions(svg.document(one + two, 90, 40, "")) == [("one", "two")]
    assert _collisions(svg.document(one + f'<g transform="translate(30 0)">{two}</g>', 90, 40, "")) == []
    assert _collisions(svg.document(svg.text(80, 20, "outside"), 90, 40, "")) == [("outside", "")]


@pytest.mark.parametrize("name", sorted(path.name for path in _IMAGES.glob("*.svg") if path.stem != "allreduce_ndv4"))
def test_pictures_of_the_documentation(name: str) -> None:
    assert _collisions((_IMAGES / name).read_text()) == []


@pytest.mark.parametrize("alone", [True, False])
def test_a_chart_of_many_series(alone: bool) -> None:
    names = [f"hierarchical_allreduce:protocol=LL128,instances={k}" for k in range(8)]
    made = times.draw({name: [(1 << 10, 1e-5), (1 << 30, 1e-2)] for name in names}, alone=alone, head="many")
    assert _collisions(made) == []


@pytest.mark.parametrize(
    "command",
    [
        "show ring_allreduce:R=16",
        "show allpairs_allreduce:R=16",
        "show two_step_alltoall:N=2,G=4",
        "trace ring_allreduce:protocol=LL,instances=1,rails=8 -t dgx2 --size 64KiB",
        "trace hierarchical_allreduce:protocol=LL,instances=1 -t hierarchical:N=4,G=4 --size 64KiB",
        "topo plot hierarchical:N=4,G=4,nics=2 --load hierarchical_allreduce:instances=1",
        "topo plot dgx2 --load ring_allreduce:instances=1",
    ],
)
def test_sixteen_ranks(command: str, tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    result = CliRunner().invoke(main, [*command.split(), "-o" if "topo" in command else "--picture", str(path)])
    assert result.exit_code == 0, result.output
    assert _collisions(path.read_text()) == []


@pytest.mark.parametrize(
    "command",
    [
        "sim ring_allreduce:instances=1 allpairs_allreduce:protocol=LL,instances=2 -t dgx2 -f 2 "
        "--baseline nccl --picture",
        "topo plot hierarchical:N=2,G=4,nics=2 -o",
        "topo plot hierarchical:N=4,G=4,nics=4 -o",
        "topo plot dgx2 -o",
    ],
)
def test_pictures_by_matplotlib(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    figures: list[Any] = []

    def keep(figure: Any, *_: Any, **__: Any) -> None:
        figures.append(figure)

    monkeypatch.setattr(drawing, "save", keep)
    result = CliRunner().invoke(main, [*command.split(), str(tmp_path / "p.png")])
    assert result.exit_code == 0, result.output
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  optional
    from matplotlib.text import Text  # noqa: PLC0415  optional

    (figure,) = figures
    FigureCanvasAgg(figure).draw()
    # Ticks outside the limits of an axis have labels, which are not drawn.
    axis = [each for axes in figure.axes for each in (axes.xaxis, axes.yaxis)]
    ticks = [(t, *sorted(each.get_view_interval())) for each in axis for t in each.get_major_ticks()]
    hidden = {tick.label1 for tick, low, high in ticks if not low <= tick.get_loc() <= high}
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in hidden]
    boxes = [Box(t.get_text(), *t.get_window_extent().extents) for t in shown]
    assert len(boxes) > 10
    assert [(a.text, b.text) for a, b in combinations(dict.fromkeys(boxes), 2) if a.meets(b)] == []
