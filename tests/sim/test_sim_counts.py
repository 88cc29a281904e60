"""Predictions of calls whose blocks differ in length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main

pytestmark = pytest.mark.python_only

MOE = Path(__file__).parents[2] / "examples" / "moe.json"


def gc3_sim(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("sharing", sim.predict.SHARING)
@pytest.mark.parametrize("name", ["two_step_alltoall", "hierarchical_alltoall"])
def test_equal_counts_are_a_call_of_equal_blocks(name: str, sharing: str) -> None:
    on = sim.platform("ndv4:N=2")
    program = gc3.compile(algorithms.load(name), N=2, G=8)
    for count in (1, 300, 40_000):  # of several tiles
        size = 16 * count * 4
        plain = sim.Simulation(program, on).run(size, sharing=sharing)
        counted = sim.Simulation(program, on, [count] * 256).run(size, sharing=sharing)
        assert counted == plain


def test_uneven_blocks_take_longer_and_empty_ones_cost_no_bandwidth() -> None:
    on = sim.platform("ndv4")
    program = gc3.compile(algorithms.load("direct_alltoall"), R=8)
    size = 8 * 8 * 4096
    even = sim.Simulation(program, on, [1] * 64).run(size)
    skewed = sim.Simulation(program, on, [15 if i % 8 == 0 else 0 for i in range(64)]).run(size)
    one = sim.Simulation(program, on, [1 if i == 1 else 0 for i in range(64)]).run(4096 // 8)
    assert skewed.time_s > even.time_s
    assert one.time_s < even.time_s
    assert one.bound_by


def test_counts_from_a_file() -> None:
    line = f"two_step_alltoall direct_alltoall --topology ndv4:N=2 --counts {MOE}"
    (row,) = json.loads(gc3_sim(f"{line} --json").stdout)["rows"]
    counts = json.loads(MOE.read_text())
    assert row["size"] == sum(map(sum, counts)) // 16 * 4
    assert all(p["time_us"] > 0 for p in row["programs"])
    rows = json.loads(gc3_sim(f"{line} -b 1MiB -e 4MiB -f 4 --json").stdout)["rows"]
    assert [r["size"] for r in rows] == pytest.approx([1 << 20, 1 << 22], rel=1e-3)
    assert "critical path" in gc3_sim(f"direct_alltoall --topology ndv4:N=2 --counts {MOE} --mode explain").stdout


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[1, 2]", "ring_allgather --topology ndv4", "2 counts; allgather of 8 ranks has 8"),
        ("[1, 2]", "ring_allreduce --topology ndv4", "GC3-V012"),
        ("[0, 0, 0, 0, 0, 0, 0, 0]", "ring_allgather --topology ndv4", "all counts are 0"),
        ('["a"]', "ring_allgather --topology ndv4", "$[0]: 'a' is not of type 'integer', 'array'"),
        (
            '{"a": 1}',
            "ring_allgather --topology ndv4",
            "not a list of counts, or a list of such lists: $: {'a': 1}",
        ),
        ("[[-1]]", "ring_allgather --topology ndv4", "$[0][0]: -1 is less than the minimum of 0"),
    ],
)
def test_counts_that_do_not_fit(text: str, line: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    assert problem in gc3_sim(f"{line} --counts {tmp_path / 'c.json'}", code=1).stderr


def test_counts_exclude_what_has_no_lengths() -> None:
    line = f"direct_alltoall --topology ndv4:N=2 --counts {MOE}"
    for more in ("--mode alphabeta", "--sensitivity", "--baseline nccl"):
        assert "--counts goes with neither" in gc3_sim(f"{line} {more}", code=2).stderr
