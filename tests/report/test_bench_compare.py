"""`gc3 bench --compare` and `--plot`."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from gc3.cli.bench_compare import Earlier
from gc3.cli.main import main
from gc3.runtime.measure import Measurement, Row

pytestmark = pytest.mark.python_only

_BENCH = ["bench", "ring_allreduce", "-D", "R=2", "-b", "1KiB", "-e", "4KiB", "-f", "4", "-n", "4", "--no-check"]


def _gc3(*command: str) -> Result:
    return CliRunner().invoke(main, list(command))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a small benchmark."""
    path = tmp_path_factory.mktemp("bench") / "old.json"
    result = _gc3(*_BENCH, "--json")
    assert result.exit_code == 0, result.output
    path.write_text(result.stdout)
    return path


def _changed(old: Path, to: Path, change: Any) -> Path:
    data = json.loads(old.read_text())
    change(data)
    to.write_text(json.dumps(data))
    return to


def _now(median: float, scatter: float) -> list[Row]:
    measured = Measurement(median, median, median, median, 1.0, 1.0, 0, median - scatter / 2, median + scatter / 2)
    return [Row(1024, 256, "float32", "sum", -1, measured, None)]


@pytest.mark.parametrize(
    ("before", "now", "scatter", "told"),
    [
        (100.0, 103.0, 1.0, "3.0% slower at 1 KiB out of place, outside the noise (103 us, was 100 us)"),
        (100.0, 97.0, 1.0, "3.0% faster at 1 KiB out of place, outside the noise (97 us, was 100 us)"),
        (100.0, 103.0, 8.0, "+3.0% at 1 KiB out of place, within the noise (103 us, was 100 us)"),
        (100.0, 100.0, 0.0, "+0.0% at 1 KiB out of place, within the noise (100 us, was 100 us)"),
    ],
)
def test_differences(before: float, now: float, scatter: float, told: str, old: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        data["settings"]["iterations"] = 16
        row = data["rows"][0]["out_of_place"]
        row |= {"median_us": before, "quarter_us": before - scatter / 2, "three_quarters_us": before + scatter / 2}

    earlier = Earlier(str(_changed(old, tmp_path / "then.json", change)))
    # The medians of samples of 16 differ beyond the noise by more than 2 * 1.57 / 4 of their middle halves.
    (found,) = earlier.differences(_now(now, scatter), 16)
    assert str(found) == told


def test_the_command_compares_and_draws(old: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "times.svg"
    result = _gc3(*_BENCH, "--compare", str(old), "--plot", str(drawing))
    assert result.exit_code == 0, result.output
    rows = [row for row in result.output.splitlines() if " the noise (" in row]
    assert len(rows) == 4
    titles = [t.text or "" for t in ET.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}title")]  # noqa: S314
    assert len([t for t in titles if t.startswith(("in place", "out of place"))]) == 8
    data = json.loads(_gc3(*_BENCH, "--compare", str(old), "--json").stdout)
    assert {(d["size"], d["mode"]) for d in data["compared"]} == {
        (size, mode) for size in (1024, 4096) for mode in ("out_of_place", "in_place")
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["settings"].update(engine="processes"), "it has engine processes, not threads"),
        (lambda d: d["settings"].update(dtype="int8"), "it has dtype int8, not float32"),
        (lambda d: d["programs"]["out_of_place"].update(ranks=3), "it has ranks 3, not 2"),
        (lambda d: d.pop("rows"), "it is not what"),
        (lambda d: d["rows"][0].update(size="large"), "it is not what"),
        (lambda d: d["rows"][0].update(out_of_place=[]), "it is not what"),
        (lambda d: d["rows"][0]["in_place"].pop("quarter_us"), "it is not what"),
        (lambda d: d.update(programs=[]), "it is not what"),
        (lambda d: d.update(programs={"a": 1}), "it is not what"),
    ],
)
def test_files_that_cannot_be_compared(change: Any, told: str, old: Path, tmp_path: Path) -> None:
    path = _changed(old, tmp_path / "other.json", change)
    result = _gc3(*_BENCH, "--compare", str(path))
    assert result.exit_code == (1 if "it is not" in told else 2), result.output
    assert told in result.output


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "text.json").write_text("hello")
    for name in ("list.json", "text.json", "none.json"):
        result = _gc3(*_BENCH, "--compare", str(tmp_path / name))
        assert result.exit_code == 1
        assert "Traceback" not in result.output
