"""Drawings as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from gc3.cli.main import main
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


@pytest.mark.parametrize(
    ("line", "head", "told"),
    [
        (
            "trace ring_allreduce:instances=1 -t ndv4 --size 1MiB --picture x.svg",
            "ring_allreduce on ndv4, 1 MiB: 174.7 us",
            ["working", "on the critical path", "waiting: receive", "0 us", "50 us", "100 us", "150 us"],
        ),
        (
            "trace ring_allreduce -t ndv4:N=2 --picture x.svg",
            "ring_allreduce:protocol=LL128,instances=1,rails=8 on ndv4 of 2 nodes, 1 MiB: ",
            ["node0", "node1", "waiting: launch", *(f"{rank} · tb 0" for rank in range(16))],
        ),
        (
            "topo plot ndv4 --load ring_allreduce -o x.svg",
            "ring_allreduce:protocol=LL128,instances=32 on ndv4, 1 MiB: 35.82 us",
            ["from 95%"],
        ),
        ("show ring_allreduce:R=4 --picture x.svg", "ring_allreduce: allreduce of 4 ranks, in place", ["out[0]"]),
        (
            "bench ring_allreduce:R=2 -b 1KiB -e 2KiB -f 2 -n 1 -w 0 --no-check --picture x.svg",
            "ring_allreduce:R=2 as threads on ",
            ["in place", "1 KiB"],
        ),
    ],
)
def test_a_picture_says_what_it_shows(
    line: str, head: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, done.output
    written = ["".join(e.itertext()) for e in ElementTree.parse("x.svg").iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
    assert written[0].startswith(head)
    assert set(told) <= {*written, *(text.removesuffix(" +=") for text in written)}


def test_lanes_of_ranks_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["trace", "ring_allreduce:instances=2", "-t", "ring:R=4", "--picture", "x.svg"])
    assert done.exit_code == 0, done.output
    assert Path("x.svg").read_text().count("stroke-opacity:.5") == 3


def test_a_sweep_has_the_bound_of_its_bus_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On wires without latency a ring takes no longer than its bound: the line is at what large messages reach."""
    monkeypatch.chdir(tmp_path)
    line = "sim ring_allreduce -t ring:R=4 -b 1MiB -e 1GiB -f 32 --picture x.svg --json"
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, done.output
    reached = max(cell["busbw"] for row in json.loads(done.stdout)["rows"] for cell in row["programs"])
    written = ["".join(e.itertext()) for e in ElementTree.parse("x.svg").iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
    (bound,) = (float(text.split()[1]) for text in written if text.startswith("bound "))
    assert reached <= bound < 1.05 * reached


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_bytes_each_time(kind: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        drawing.save(figure(), str(tmp_path / f"{name}.{kind}"), dpi=50)
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
