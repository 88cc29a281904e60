"""gc3 trace: timelines of simulated runs."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main
from gc3.sim import run_timeline

pytestmark = pytest.mark.python_only


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trace(line: str, *, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["trace", *line.split()])
    assert result.exit_code == code, result.output
    return result.output


def events(path: str) -> list[dict[str, Any]]:
    data = Path(path).read_bytes()
    return json.loads(gzip.decompress(data) if path.endswith(".gz") else data)["traceEvents"]


def test_a_trace_shows_every_step_and_message() -> None:
    found = json.loads(trace("ring_allreduce:instances=1 --topology ndv4 --size 256KiB -o t.json --json"))
    p = gc3.compile(algorithms.load("ring_allreduce"), R=8)
    rows = events("t.json")
    kinds = Counter(e["ph"] for e in rows)
    assert kinds["X"] == p.core.instruction_count == found["spans"]
    assert kinds["s"] == kinds["f"] == p.verify().transfers == found["messages"]
    spans = [e for e in rows if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(found["time_us"])
    assert {e["pid"] for e in spans} == set(range(8))
    assert all(e["args"]["bytes"] == 32768 for e in spans)
    # Steps of a threadblock follow each other, and a message is received after it was sent.
    for rank in range(8):
        own = sorted((e["ts"], e["dur"]) for e in spans if (e["pid"], e["tid"]) == (rank, 0))
        assert all(a[0] + a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(own))
    tails = {e["id"]: e["ts"] for e in rows if e["ph"] == "s"}
    assert all(tails[e["id"]] < e["ts"] for e in rows if e["ph"] == "f")
    # The counters show the data sent: 14 messages of 32 KiB leave every GPU.
    leaving = [e for e in rows if e["ph"] == "C" and e["name"] == "node0.nvswitch.port0.out (GB/s)"]
    assert sum(e["args"]["GB/s"] for e in leaving) * found["time_us"] * 1e3 / 200 == pytest.approx(14 * 32768)


def test_parts_of_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = "ring_allreduce:instances=1 --topology ndv4 --size 1MiB"
    assert "left out" in trace(f"{plain} --most 10 -o t.json")
    assert sum(e["ph"] == "X" for e in events("t.json")) == 10
    trace(f"{plain} --only 0,1 -o t.json.gz")
    rows = events("t.json.gz")
    assert {e["pid"] for e in rows if e["ph"] == "X"} == {0, 1}
    assert {e["pid"] for e in rows if e["ph"] in "sf"} == {0, 1}
    trace(f"{plain} --only 0,1 --picture t.svg")
    assert set(re.findall(r">(\d+) · tb", Path("t.svg").read_text())) == {"0", "1"}
    monkeypatch.delattr("gc3.cli.trials.choose")  # a mistake is told before settings are searched
    for wrong in ("0,x", "8", "-1"):
        trace(f"ring_allreduce --topology ndv4 --only={wrong} -o t.json", code=2)
    assert "GC3-I002" in trace("ring_allreduce --topology ndv4 -o no/such/folder.json", code=1)


def test_a_timeline_needs_records() -> None:
    s = sim.Simulation(gc3.compile(algorithms.load("ring_allreduce"), R=8), sim.platform("ndv4"))
    with pytest.raises(gc3.UserError, match="GC3-S001"):
        run_timeline.simulated(s, s.run(1024))
    assert run_timeline.timeline(run_timeline.simulated(s, s.run(0, explain=True))).spans == []
