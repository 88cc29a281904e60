"""gc3 tune measures blocks of different lengths, and its rows say for which skew they are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from few_simulations import Few
from gc3 import collectives, sim
from gc3.cli.main import main
from gc3.comm.selection import Table, parse
from gc3.comm.spec import Spec
from gc3.comm.uneven import elements_of, uneven
from gc3.tune import Goal, Measured, Record, Tuner, on_ranks, ranges
from gc3.tune import table as as_table
from gc3.tune.guided_search import Search
from gc3.tune.space import candidates, serves_v
from gc3.tune.timers import RankTimer

pytestmark = pytest.mark.python_only

PAIRS, TWO_STEP = Spec("direct_alltoall", (("R", "ranks"),)), Spec("two_step_alltoall", (("N", 2), ("G", 2)))


@pytest.mark.parametrize("blocks", [1, 2, 9, 64])
def test_lengths_have_their_sum_and_their_skew(blocks: int) -> None:
    for part in (0.0, 0.1, 0.5, 0.9, 1.0):
        skew = 1 + part * (blocks - 1)
        for total in (0, 1, blocks, 10**6):
            lengths = uneven(blocks, total, skew)
            assert (len(lengths), sum(lengths)) == (blocks, total)
            assert min(lengths) >= 0
        assert max(lengths) * blocks / sum(lengths) == pytest.approx(skew, rel=1e-3)
        assert lengths == uneven(blocks, total, skew)  # on every rank


def point(skew: float, pairs: float, two_step: float) -> Measured:
    return Measured("alltoall", 4, 1024, False, ((PAIRS, pairs), (TWO_STEP, two_step)), PAIRS, 2, skew=skew)


def test_rows_lie_between_the_skews_that_were_measured(tmp_path: Path) -> None:
    points = [point(1.0, 1, 2), point(4.0, 3, 2), point(9.0, 5, 6)]
    found = ranges(points, [1024])
    assert [(each.spec, each.skew) for each in found] == [
        (PAIRS, (1.0, 2.0)),
        (TWO_STEP, (2.0, 6.0)),
        (PAIRS, (6.0, None)),
    ]
    table = Table(parse(json.dumps(as_table(each.row() for each in found)), "t.json") + Table.default().rows)
    chosen = [table.choose("alltoall", ranks=4, size=1024, in_place=False, skew=s) for s in (1, 1.9, 2, 6.1)]
    assert [choice.row.spec for choice in chosen] == [PAIRS, PAIRS, TWO_STEP, PAIRS]
    assert chosen[2].passed_over == (("t.json row 1", "for a skew of less than 2"),)
    # Without other skews a row is for all.
    (only,) = ranges(points[:1], [1024])
    assert "skew" not in only.row()
    record = Record(str(tmp_path / "t.json"), fresh=False)
    record.write(points)
    assert Record(str(tmp_path / "t.json"), fresh=False).points == tuple(points)


def test_ranks_measure_blocks_of_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real ranks, for every collective that has a v-form; none has more skew than blocks."""
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(RankTimer, "renew", lambda _: None)  # to start them once
    monkeypatch.setattr(on_ranks, "candidates", lambda *which, **how: candidates(*which, **how)[:2])
    names = ("alltoall", "allgather", "reducescatter", "gather", "scatter", "allreduce")
    tuner = Tuner(Goal(names, (2,), (4096,), seconds=0.001, skews=(1.0, 1.5, 3.0)))
    points = list(tuner.points())
    assert tuner.found.finished
    assert not tuner.failed
    found = {name: [p.skew for p in points if p.collective == name] for name in names}
    assert found == {
        "alltoall": [1.0, 1.5, 3.0],
        "allgather": [1.0, 1.5],
        "reducescatter": [1.0, 1.5],
        "gather": [1.0, 1.5],
        "scatter": [1.0, 1.5],
        "allreduce": [1.0],
    }


def test_a_call_of_a_v_form_has_the_size_of_one_of_equal_blocks() -> None:
    for name in ("alltoall", "allgather", "reducescatter", "gather", "scatter"):
        for ranks in (2, 5):
            model = collectives.get(name).model(ranks)
            assert elements_of(model, 4000) * 4 // (ranks if name == "alltoall" else 1) == 4000


def test_programs_that_serve_no_such_call_are_not_tried() -> None:
    assert serves_v(PAIRS, 4, in_place=False)
    assert not serves_v(Spec("ring_allreduce", (("R", "ranks"),)), 4, in_place=False)


def test_the_simulator_predicts_them_too() -> None:
    on = sim.platform("fully_connected:R=4", "v100")

    def took(spec: Spec, collective: str, skew: float) -> float:
        return Search(collective, on, 4, in_place=False, skew=skew).seconds(spec, 8 << 20)

    assert took(PAIRS, "alltoall", 8.0) > took(PAIRS, "alltoall", 2.0) > took(PAIRS, "alltoall", 1.0)
    no_v_form = Spec("ring_allreduce", (("R", "ranks"),))
    assert took(no_v_form, "allreduce", 1.0) < took(no_v_form, "allreduce", 2.0) == math.inf


def tune(*line: str) -> Any:
    return CliRunner().invoke(main, ["tune", "alltoall", *line])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.cli.tune.SimulatedTuner", Few)
    file = tmp_path / "t.json"
    line = ["--topology", "fully_connected:R=4,preset=v100", "-b", "1MiB", "-e", "1MiB"]
    line += ["--skew", "8,2", "-o", str(file)]
    done = tune(*line, "--json")
    assert done.exit_code == 0, done.output
    assert [each["skew"] for each in json.loads(done.stdout)["points"]] == [1, 2, 8]
    assert {row.limits.skew for row in parse(file.read_text(), "t.json")} == {(1.0, 1.414), (1.414, 4.0), (4.0, None)}
    assert "skew 8: " in tune(*line).output


@pytest.mark.parametrize("wrong", ["1", "0.5,2", "nan", "x", "", "inf"])
def test_mistakes(wrong: str) -> None:
    done = tune("--skew", wrong)
    assert done.exit_code == 2
    assert "is not a list of numbers above 1" in done.output


def test_threads_have_equal_blocks() -> None:
    assert tune("--engine", "threads", "--skew", "2").exit_code == 2
