"""gc3 tune --topology on the command line, and what its times are compared with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from few_simulations import Few
from gc3 import sim
from gc3.cli.main import main
from gc3.sim.nccl import Nccl
from gc3.tune import Goal, SimulatedTuner

pytestmark = pytest.mark.python_only


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.cli.tune.SimulatedTuner", Few)


@pytest.mark.usefixtures("few_simulations")
def test_tuning_by_simulation(tmp_path: Path) -> None:
    file = tmp_path / "ndv4.json"
    line = ["tune", "-t", "ndv4", "allgather", "-b", "4KiB", "-e", "64MiB"]
    line.append("--all-sizes")
    done = CliRunner().invoke(main, [*line, "-f", "16384", "-o", str(file), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["finished"]
    assert [(p["ranks"], p["size"]) for p in data["points"]] == [(8, 4096), (8, 64 << 20)]
    small, large = (row["program"] for row in data["rows"])
    assert small["protocol"] == "LL"
    assert large["protocol"] != "LL"
    first = file.read_text()
    assert CliRunner().invoke(main, [*line, "-f", "16384", "-o", str(file)]).exit_code == 0
    assert file.read_text() == first  # nothing in it depends on time


def test_what_tuning_by_simulation_needs(tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    for line, said in (
        (["--all-sizes"], "are for --topology"),
        (["--engine", "threads", "-t", "dgx1"], "give one of them"),
        (["-t", "dgx1", "--ranks", "9"], "9 ranks on dgx1, which has 8"),
    ):
        done = CliRunner().invoke(main, ["tune", *line, "-o", file])
        assert done.exit_code != 0
        assert said in " ".join(done.output.split()), done.output


@pytest.mark.usefixtures("few_simulations")
def test_a_simulation_is_compared_with_nccl_and_not_with_a_table_of_cpus(tmp_path: Path) -> None:
    line = ["tune", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB", "-o", str(tmp_path / "t.json")]
    said = json.loads(CliRunner().invoke(main, [*line, "allreduce", "--json"]).stdout)
    (point,) = said["points"]
    name, us = point["reference"]
    assert point["default_us"] is None
    assert name.startswith("NCCL 2")
    assert us == pytest.approx(1e6 * Nccl(sim.platform("ndv4"), "allreduce")(1 << 20).time_s)
    assert f"({name} {us:.4g}) at 1048576 B" in said["rows"][0]["note"]
    shown = CliRunner().invoke(main, [*line, "allreduce"]).stdout
    assert f"times the speed of {name} as simulated" in shown
    assert "default" not in shown.partition("\n")[0]
    # NCCL has no gather, and what it does on a part of the machine is not known.
    for more in (["gather"], ["allreduce", "--ranks", "4"]):
        (point,) = json.loads(CliRunner().invoke(main, [*line, *more, "--json"]).stdout)["points"]
        assert (point["reference"], point["default_us"]) == (None, None)


def test_a_machine_without_a_path_leaves_programs_out() -> None:
    tuner = SimulatedTuner(Goal(("alltoall",), (8,), (4096,)), sim.platform("dgx1"))
    (point,) = tuner.points()
    assert point.tried > 1
