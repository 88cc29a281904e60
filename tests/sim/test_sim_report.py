"""Pictures and pages of a sweep."""

from __future__ import annotations

import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import gc3
from gc3.cli.main import main
from gc3.report import page, picture
from gc3.report.style import Sweep, size_ticks
from gc3.sim.sweep import Cell, Row, lead
from gc3.sim.trust import Expected

pytestmark = pytest.mark.python_only

LONG = "ring_allreduce:" + ",".join(f"option{i}=1" for i in range(20))
NAMES = ("fast <ring>", LONG)


def sweep(sizes: tuple[int, ...] = (1024, 4096, 16384)) -> Sweep:
    rows = [
        Row(
            s,
            (
                Cell(NAMES[0], s, 10e-6, s / 1e4, s / 1e4, 5e-6, "node0.nic1.out", "launch", 0.5),
                Cell(NAMES[1], s, 15e-6, s / 1.5e4, s / 1.5e4),
                *([Cell("NCCL", s, 20e-6, s / 2e4, s / 2e4)] if s > sizes[0] else []),  # nothing measured there
            ),
            "NCCL",
        )
        for s in sizes
    ]
    return Sweep("A & B", "Estimated.", rows, ["NCCL"])


def texts(path: Path) -> str:
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter() if e.tag.endswith("text"))  # noqa: S314


def test_a_picture_has_a_description(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    picture.draw(sweep(), str(path))
    shown = texts(path)
    for text in ("A & B", "speed-up over NCCL", "time (us)", "busbw (GB/s)", "fast <ring>", "NCCL", "4 KiB", "Estim"):
        assert text in shown
    again = tmp_path / "y.svg"
    picture.draw(sweep(), str(again))
    assert again.read_bytes() == path.read_bytes()
    without = tmp_path / "z.svg"
    picture.draw(Sweep("t", "", sweep().rows), str(without))
    assert "speed-up" not in texts(without)


@pytest.mark.parametrize("sizes", [(4096,), (1, 1 << 40), tuple(1 << k for k in range(4, 31)), (0, 1024)])
def test_pictures_of_any_sizes(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    path = tmp_path / "x.png"
    picture.draw(sweep(sizes), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(size_ticks(sizes)) <= 8


def test_a_picture_shows_expected_errors_as_bands(tmp_path: Path) -> None:
    path, plain = tmp_path / "x.svg", sweep()
    worth = Expected("held out", 0.1, 0.2, "3 calls")
    rows = [replace(row, cells=(replace(row.cells[0], expected=worth), *row.cells[1:])) for row in plain.rows]
    picture.draw(replace(plain, rows=rows), str(path))
    assert "Bands: these errors of predicted times." in texts(path)
    with_bands = path.read_text().count("FillBetween")
    picture.draw(plain, str(path))
    assert "Bands" not in texts(path)
    assert with_bands > path.read_text().count("FillBetween") == 0


def test_times_of_links_only_are_not_compared_with_others() -> None:
    row = sweep().rows[-1]
    links = replace(row.cells[0], expected=Expected("links only", None, None, "links"))
    assert row.speedup_text(row.cells[0]) == "2.00"
    beside = replace(row, cells=(links, *row.cells[1:]))
    assert beside.speedup_text(links) == "~"
    assert not beside.sure
    assert "which cannot be compared" in lead([beside])
    both = replace(row, cells=(links, *(replace(cell, expected=links.expected) for cell in row.cells[1:])))
    assert both.speedup_text(links) == "2.00"
    assert both.sure


class _Page(HTMLParser):
    """Every element is closed in order, and the page loads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [value for name, value in attrs if name in ("src", "href", "xlink:href") and value[:1] != "#"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert (tag, attrs) != ("script", [])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page.write(sweep())
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.cells[:6] == ["1024", "fast <ring>", "10.00", "0.10", "0.10", "5.00"]
    assert "2.00" in parsed.cells  # the speed-up
    assert len(text) < 500_000
    assert all(name in text for name in ("speed-up over NCCL", "time (us)", "busbw (GB/s)", "Estimated."))
    assert "&lt;ring&gt;" in text
    assert "<ring>" not in text


def test_missing_requirements_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(gc3.UserError, match="GC3-L017") as caught:
        picture.draw(sweep(), str(tmp_path / "x.gif"))
    assert ".png, .svg, .pdf" in str(caught.value)
    with pytest.raises(gc3.UserError, match="absent"):
        picture.draw(sweep(), str(tmp_path / "absent" / "x.png"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for work in (lambda: picture.draw(sweep(), str(tmp_path / "x.png")), lambda: page.write(sweep())):
        with pytest.raises(gc3.UserError, match="pip install matplotlib"):
            work()


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "sim ring_allreduce -t ndv4 -b 1MiB -e 16MiB --baseline nccl"
    result = CliRunner().invoke(main, [*line.split(), "--picture", "x.svg", "--picture", "x.html"])
    assert result.exit_code == 0, result.output
    assert "allreduce on ndv4, 8 ranks" in texts(Path("x.svg"))
    assert "<title>allreduce on ndv4, 8 ranks</title>" in Path("x.html").read_text()
    refused = CliRunner().invoke(main, [*line.split(), "--picture", "x.gif"])
    assert refused.exit_code == 2
    assert "the name must end in .png, .svg, .pdf, .html" in refused.output
