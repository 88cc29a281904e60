"""Bandwidth and sizes as nccl-tests defines them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import UserError
from gc3.algorithms import catalogue
from gc3.cli.main import main
from gc3.collectives import BUILTIN
from gc3.runtime import measure


def test_sizes_go_up_as_in_nccl_tests() -> None:
    assert list(measure.sizes(1024, 5000, factor=2)) == [1024, 2048, 4096]
    assert list(measure.sizes(10, 31, step=10)) == [10, 20, 30]
    assert list(measure.sizes(7, 7)) == [7]
    assert list(measure.sizes(0, 0, factor=2)) == [0]
    assert list(measure.sizes(8, 7, factor=2)) == []


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("bench nothing -i 1 -b 1 -e 10000", None),
        ("bench nothing -i 1 -b 1 -e 10001", "more than 10000 rows"),
        (f"report nothing -t ring:R=2 -o x.html -f 2 -b 1 -e {2**59}", None),
        (f"report nothing -t ring:R=2 -o x.html -f 2 -b 1 -e {2**60}", "more than 60 sizes"),
    ],
)
def test_a_table_has_so_many_rows_and_no_more(line: str, refused: str | None) -> None:
    told = CliRunner().invoke(main, line.split()).stderr
    assert (refused or "there is no algorithm 'nothing'") in told


@pytest.mark.parametrize(("first", "factor", "step"), [(1, 1, 0), (0, 2, 0)])
def test_sizes_that_never_end_are_refused(first: int, factor: int, step: int) -> None:
    with pytest.raises(UserError, match="sizes"):
        list(measure.sizes(first, 10, factor=factor, step=step))


def test_a_measurement_summarizes_its_iterations() -> None:
    found = measure.summarize(BUILTIN["allgather"].model(4), 10**6, [1e-3, 3e-3, 2e-3, 2e-3], 0)
    assert (found.time_us, found.min_us, found.median_us, found.max_us) == pytest.approx((2000, 1000, 2000, 3000))
    assert (found.algbw, found.busbw) == pytest.approx((0.5, 0.375))
    assert measure.bandwidth(BUILTIN["allreduce"].model(2), 0, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_measured_run_is_timed_and_right(in_place: bool) -> None:
    program = gc3.compile(catalogue()["ring_allreduce"], R=3, in_place=in_place)
    found = measure.measure(program, 1000, dtype="float16", op="max", warmup=1, iterations=3)
    assert 0 < found.min_us <= found.median_us <= found.max_us
    assert found.min_us <= found.time_us <= found.max_us
    assert found.wrong == 0
    assert found.algbw == pytest.approx(2000 / found.time_us / 1e3)
    assert found.busbw == pytest.approx(found.algbw * 4 / 3)
    assert measure.measure(program, 10, warmup=0, iterations=1, check=False).wrong is None


@pytest.mark.parametrize(
    ("us", "printed"),
    [(0.004, "0.00"), (0.126, "0.13"), (99.994, "99.99"), (100.04, "100.0"), (9999.94, "9999.9"), (10000.4, "10000")],
)
def test_a_row_has_the_digits_of_nccl_tests(us: float, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure.Measurement(us, 1.0, 2.0, 3.0, 12.346, 18.518, 7)
    monkeypatch.setattr(measure, "measure", lambda *_, **__: found)
    line = "bench ring_allreduce:R=2,in_place=no -b 1200 -n 1 -w 0"
    result = CliRunner().invoke(main, line.split())
    row = next(row for row in result.stdout.splitlines() if not row.startswith("#"))
    assert row.split() == ["1200", "300", "float32", "sum", "-1", printed, "12.35", "18.52", "7", *["N/A"] * 4]
    assert "# Out of bounds values : 7 FAILED" in result.stdout
    assert "# Avg bus bandwidth    : 18.518" in result.stdout
    assert result.exit_code == 1


def test_settings_that_are_not_named_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "cores", lambda: 2)  # the choice is simulated for as many

    def bench(line: str) -> dict[str, Any]:
        quick = [*line.split(), "-n", "1", "-w", "0", "--no-check"]
        return json.loads(CliRunner().invoke(main, ["bench", *quick, "--json"]).stdout) | {
            "text": CliRunner().invoke(main, ["bench", *quick]).stdout
        }

    tree = "binomial_broadcast:R=4"
    found = bench(f"{tree} -b 64KiB")
    chosen = found["chosen"]
    settings = chosen.removeprefix(f"{tree},")
    assert settings.startswith("protocol=Simple,instances=4")
    assert found["programs"]["in_place"]["instances"] == 4
    told = f"settings chosen for 64 KiB by simulation: {settings}; the plain form is {tree},inst"
    assert told in found["text"]
    assert bench(f"{chosen} -b 64KiB")["programs"] == found["programs"]
    small = bench(f"{tree} -b 8")
    assert (small["chosen"], small["programs"]["in_place"]["instances"]) == (None, 1)
    assert "settings chosen for 8 B by simulation: the plain ones" in small["text"]
    named = bench(f"{tree},instances=1 -b 64KiB")
    assert (named["chosen"], "settings" in named["text"]) == (None, False)
