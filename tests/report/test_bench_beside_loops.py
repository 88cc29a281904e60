"""`gc3 bench --compare` of programs with themselves, on real runs beside other work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gc3.cli.main import main

pytestmark = [pytest.mark.python_only, pytest.mark.nightly, pytest.mark.timeout(3600)]

_BENCH = ["bench", "ring_allreduce:R=2", "-b", "1KiB", "-e", "1MiB", "-f", "32", "-n", "20", "--no-check", "--json"]
_FURTHER = 34  # runs, each of six comparisons
# Of 200 comparisons with one false alarm in 100, so many or more come by chance in 1 of 10,000 cases.
_TOO_MANY = 9


@pytest.fixture
def loops() -> Iterator[None]:
    """One for each core."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for each in started:
        each.kill()
        each.wait()


def _run(*compared: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, [*_BENCH, *compared])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("loops")
def test_few_comparisons_with_runs_of_the_same_program_tell_a_difference(tmp_path: Path) -> None:
    """Each run is compared with the ten before it."""
    earlier: list[Path] = []
    compared: list[dict[str, Any]] = []
    for number in range(10 + _FURTHER):
        found = _run(*(f"--compare={path}" for path in earlier[-10:] if number >= 10))
        compared += found.pop("compared", [])
        earlier.append(tmp_path / f"{number}.json")
        earlier[-1].write_text(json.dumps(found))
    assert len(compared) == 6 * _FURTHER
    alarms = [each for each in compared if each["outside_noise"]]
    assert len(alarms) < _TOO_MANY, f"{len(alarms)} of {len(compared)}: {alarms}"


@pytest.mark.usefixtures("loops")
def test_few_pairs_of_the_same_program_tell_a_difference() -> None:
    """One run in 200 tells any."""
    alarms = [
        each for _ in range(10) for each in _run("--compare", "ring_allreduce:R=2")["compared"] if each["outside_noise"]
    ]
    assert len(alarms) < 3, alarms
