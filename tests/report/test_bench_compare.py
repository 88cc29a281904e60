"""`gc3 bench --compare` and `--picture`."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3.cli.bench_compare import Earlier, difference
from gc3.cli.main import main
from gc3.runtime.measure import Measurement, Row

pytestmark = pytest.mark.python_only

_BENCH = ["bench", "ring_allreduce:R=2", "-b", "1KiB", "-e", "4KiB", "-f", "4", "-n", "4", "--no-check"]


_STEADY = [100, 101, 99, 100, 100] * 2


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


def _timed(median: float) -> Any:
    return lambda data: data["rows"][0]["out_of_place"].update(median_us=median)


def _now(median: float) -> list[Row]:
    measured = Measurement(median, median, median, median, 1.0, 1.0, 0)
    return [Row(1024, 256, "float32", "sum", -1, measured, None)]


@pytest.mark.parametrize(
    ("before", "times", "told"),
    [
        (
            _STEADY,
            [105, 105, 106, 105],
            "slower at 1 KiB out of place, outside the noise (105 us, was 100 us)",
        ),
        (
            _STEADY,
            [95, 95, 94, 95],
            "faster at 1 KiB out of place, outside the noise (95 us, was 100 us)",
        ),
        (_STEADY, [102], "+2.0% at 1 KiB out of place, within the noise (102 us, was 100 us)"),
        ([100, 104, 96, 100, 100] * 2, [105], "at 1 KiB out of place, within the noise (105 us, was 99.97 us)"),
        # What was slow only once, or faster at another time, is noise.
        (_STEADY, [105, 105, 105, 100], "0.0% at 1 KiB out of place, within the noise (100 us"),
        (_STEADY, [200, 50], "-50.0% at 1 KiB out of place, noise unknown (50 us"),
        ([100] * 9, [200], "+100.0% at 1 KiB out of place, noise unknown (200 us, was 100 us)"),
        ([100] * 10, [100], "0.0% at 1 KiB out of place, within the noise (100 us, was 100 us)"),
    ],
)
def test_differences(before: list[float], times: list[float], told: str, old: Path, tmp_path: Path) -> None:
    def run(i: int) -> Any:  # of which no two are the same to the last digit
        return lambda data: (_timed(before[i])(data), data["rows"][0]["in_place"].update(median_us=i + 1))

    paths = [str(_changed(old, tmp_path / f"{i}.json", run(i))) for i in range(len(before))]
    earlier = Earlier(paths)
    left = iter(times)
    (found,) = earlier.differences(_now(next(left)), lambda *_: next(left))
    assert told in str(found)
    assert list(left) == []
    assert bool(earlier.advice()) == (len(before) < 10)


def test_one_run_given_twice_is_refused(old: Path, tmp_path: Path) -> None:
    copy = _changed(old, tmp_path / "copy.json", lambda _: None)
    for again in old, copy:
        with pytest.raises(gc3.UserError, match="it has the same run as"):
            Earlier([str(old), str(again)])


def test_few_of_many_equal_runs_differ() -> None:
    """Runs of one program under load, which differ by a few percent, and now and then by half."""
    chance = random.Random(1)  # noqa: S311

    def run(*_: object) -> float:
        return chance.gauss(100, 4) * (1.5 if chance.random() < 0.3 else 1)

    alarms = 0
    for _ in range(300):
        before = [run() for _ in range(10)]
        outside = [difference(1024, "in_place", before, run()).outside_noise for _ in range(4)]
        alarms += all(outside)
    assert alarms <= 3


def test_the_command_compares_and_draws(old: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "times.svg"
    result = _gc3(*_BENCH, "--compare", str(old), "--picture", str(drawing))
    assert result.exit_code == 0, result.output
    rows = [row for row in result.output.splitlines() if " noise unknown (" in row]
    assert len(rows) == 4
    assert "to tell differences from noise, compare with 9 or more further runs" in result.output
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
        (lambda d: d["rows"][0]["in_place"].pop("median_us"), "it is not what"),
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
