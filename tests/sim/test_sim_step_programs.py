"""gc3 sim step: what executes its collectives, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gc3.cli.main import main
from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, Node

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def gc3_sim(line: str) -> str:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_calls_of_ranks_that_lie_apart_are_rows_of_their_own(tmp_path: Path) -> None:
    base, groups = str(tmp_path / "t"), str(tmp_path / "groups.json")
    of = {0: "near", 1: "near", 2: "apart", 8: "apart"}
    chakra.write_all(
        base,
        [
            (Node(0, "sum", COLLECTIVE, (), collective="allreduce", size=MIB, group=of[rank]),) if rank in of else ()
            for rank in range(16)
        ],
    )
    chakra.write_groups(groups, {"near": [0, 1], "apart": [2, 8]})
    line = f"step {base} -t ndv4:N=2 --groups {groups} --use allreduce=ring_allreduce:channels=4,instances=8 --json"
    rows = json.loads(gc3_sim(line))["collectives"]
    assert [row["calls"] for row in rows] == [1, 1]
    assert rows[0]["alone_us"] < rows[1]["alone_us"]
    assert all(row["mean_us"] == pytest.approx(row["alone_us"]) for row in rows)


def test_programs_come_from_a_table(tmp_path: Path) -> None:
    table: dict[str, Any] = {
        "format": "gc3-selection-1",
        "rows": [
            {
                "collective": "allreduce",
                "ranks": [8, 8],
                "program": {"algorithm": "allpairs_allreduce", "parameters": {"R": "ranks"}},
            },
        ],
    }
    (tmp_path / "t.json").write_text(json.dumps(table))
    line = f"step {ROOT}/examples/transformer.et -t ndv4 --table {tmp_path}/t.json"
    assert "allpairs_allreduce of the table" in gc3_sim(line)

    def time_us(*rows: dict[str, Any]) -> tuple[float, str]:
        (tmp_path / "t.json").write_text(json.dumps(table | {"rows": list(rows)}))
        found = json.loads(gc3_sim(f"{line} --json"))
        return found["time_us"], found["collectives"][0]["program"]

    (row,) = table["rows"]
    messages = row | {"program": row["program"] | {"algorithm": "ring_allreduce"}}
    direct = row | {"program": row["program"] | {"memory": "direct"}}
    assert time_us(row | {"program": row["program"] | {"slots": 1, "slot_bytes": 4096}})[0] > time_us(row)[0]
    # Rows of one-sided forms serve registered memory alone, and no trace says that it is.
    assert time_us(direct, messages) == time_us(messages)
