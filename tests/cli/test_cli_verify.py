"""What `gc3 verify` says beyond the proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3.cli.main import main

pytestmark = pytest.mark.python_only


def gc3_verify(line: str) -> Result:
    result = CliRunner().invoke(main, ["verify", *line.split()])
    assert result.exit_code == 0, result.output
    return result


def data_of(line: str) -> Any:
    return json.loads(gc3_verify(f"{line} --json").stdout)


def test_verify_says_whether_blocks_may_differ_in_length(tmp_path: Path) -> None:
    assert "serves alltoall of blocks of any lengths" in gc3_verify("two_step_alltoall:N=2,G=2").stdout
    assert data_of("bruck_alltoall:R=3")["v_form"] == {"ok": True, "reason": None}
    assert "lengths" not in gc3_verify("ring_allreduce:R=3").stdout
    assert data_of("ring_allreduce:R=3")["v_form"] is None
    source = gc3.SourceProgram("odd", "alltoall", ranks=2)
    with source:
        for r, d in ((0, 0), (0, 1), (1, 0), (1, 1)):
            gc3.chunk(r, "in", d).copy(d, "out", r)
        gc3.chunk(0, "in", 0).copy(0, "sc", 0).reduce(gc3.chunk(0, "in", 1))  # of no use
    path = str(tmp_path / "odd.gc3")
    gc3.compile(source).save(path)
    assert "serves alltoall of equal blocks alone: rank 0 threadblock" in gc3_verify(path).stdout
    found = data_of(path)["v_form"]
    assert not found["ok"]
    assert "adds the block from rank 0 to rank" in found["reason"]
