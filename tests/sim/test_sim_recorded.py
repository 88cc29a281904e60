"""gc3 trace of real runs, and the causes of their durations."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import algorithms
from gc3.cli.main import main
from gc3.runtime import recording
from gc3.sim import run_timeline
from gc3.sim.read import recorded
from gc3.support.words import split_values


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trace(line: str, *, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["trace", *line.split()])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def events() -> list[dict[str, Any]]:
    return json.loads(Path("t.json").read_text())["traceEvents"]


def program(name: str, *, protocol: str = "Simple", instances: int = 1, **parameters: int) -> gc3.Program:
    return gc3.compile(algorithms.load(name), protocol=protocol, instances=instances, **parameters)


@pytest.mark.parametrize(
    ("line", "tiles"),
    [
        ("ring_allreduce:R=3 --engine threads:slot_bytes=8KiB --size 96KiB", 4),
        ("ring_allreduce:R=3,protocol=LL --engine threads:slot_bytes=16KiB --size 96KiB", 4),
        ("allpairs_allreduce:R=4,protocol=LL128 --engine threads:workers=2 --size 64KiB", 1),
        ("hierarchical_allreduce:N=2,G=2 --engine threads:seed=3 --size 64KiB", 1),
        ("ring_allreduce:R=3 --engine processes:slot_bytes=8KiB --size 96KiB", 4),
        # Ranks that are processes record as those above, and LL as on threads.
        pytest.param("direct_alltoall:R=3,protocol=LL --engine processes --size 48KiB", 1, marks=pytest.mark.nightly),
    ],
)
def test_a_real_run_shows_every_step_and_message(line: str, tiles: int) -> None:
    found = json.loads(trace(f"{line} -o t.json --json"))
    name, given = split_values(line.partition(" ")[0])
    protocol = given.pop("protocol", "Simple")
    p = program(name, protocol=protocol, **{key: int(value) for key, value in given.items()})
    rows = events()
    kinds = Counter(e["ph"] for e in rows)
    assert kinds["X"] == tiles * p.core.instruction_count == found["spans"]
    assert kinds["s"] == kinds["f"] == tiles * p.verify().transfers == found["messages"]
    assert found["dropped"] == 0
    spans = [e for e in rows if e["ph"] == "X"]
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and e["ts"] + e["dur"] <= found["time_us"] * (1 + 1e-9) for e in spans)
    # A threadblock does one thing at a time, in program order.
    for _, group in itertools.groupby(
        sorted(spans, key=lambda e: (e["pid"], e["tid"])), lambda e: (e["pid"], e["tid"])
    ):
        own = sorted(group, key=lambda e: (e["args"]["tile"], e["args"]["step"]))
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in itertools.pairwise(own))
    # Clocks agree: no message is received before it was sent.
    tails = {e["id"]: e["ts"] for e in rows if e["ph"] == "s"}
    assert all(tails[e["id"]] <= e["ts"] for e in rows if e["ph"] == "f")
    # The causes of the critical path add up to the time, and the counters to the data sent.
    assert sum(found["critical_path_us"].values()) == pytest.approx(found["time_us"], rel=1e-6)
    sent = sum(e["args"]["bytes"] for e in spans if " to rank " in e["name"])
    drawn = sum(e["args"]["GB/s"] for e in rows if e["ph"] == "C") * found["time_us"] * 1e3 / 200
    assert drawn == pytest.approx(sent, rel=1e-6)


def test_a_recording_is_bounded_and_says_so() -> None:
    line = "trace ring_allreduce:R=4 --engine threads:workers=1 --most 10 -o t.json"
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0
    assert "46 later steps were not recorded" in result.output
    assert sum(e["ph"] == "X" for e in events()) == 10


def test_what_a_trace_needs() -> None:
    for line in (
        "ring_allreduce -o t.json",
        "ring_allreduce -t ndv4 --engine threads -o t.json",
        "ring_allreduce -t ndv4 --engine threads:workers=2 -o t.json",
        "ring_allreduce:R=2 --engine gpu -o t.json",
        "ring_allreduce:R=2 --engine processes:seed=1 -o t.json",
        "ring_allreduce:R=2 --engine processes --most 0 -o t.json",
    ):
        trace(line, code=2)
    with pytest.raises(gc3.UserError, match="most"):
        program("ring_allreduce", R=2).record([np.ones(4), np.ones(4)], most=0)


def test_recording_does_not_change_results() -> None:
    p = program("ring_allreduce", R=2)
    outputs = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    found = p.record([np.ones(64, np.float32), np.full(64, 2, np.float32)], outputs=outputs, most=100, warmup=0)
    assert all((out == 3).all() for out in outputs)
    assert len(found.steps) == p.core.instruction_count
    assert found.begin_ns < found.steps["end"].max() <= found.end_ns


def step(rank: int, tb: int, number: int, times: tuple[int, int, int], **fields: int) -> tuple[int, ...]:
    ready, start, end = times
    row = {"tile": 0, "worker": rank, "waiting": 0, "paused": 0} | fields
    return ready, start, end, 8, rank, tb, number, row["tile"], row["worker"], row["waiting"], row["paused"], 0


def explained(of: gc3.Program, rows: list[tuple[int, ...]], *, slots: int = 8, end: int = 0) -> run_timeline.Run:
    last = end or max(row[2] for row in rows)
    steps = np.array(rows, recording.STEP)
    return recorded.run(recording.Recording(of.core, "threads", slots, 0, last, steps, 0))


def nanoseconds(causes: dict[str, float]) -> dict[str, int]:
    return {cause: round(1e9 * s) for cause, s in causes.items()}


def test_causes_of_a_message() -> None:
    p = program("chain_broadcast", R=2)
    run = explained(p, [step(0, 0, 0, (0, 100, 300)), step(1, 0, 0, (0, 350, 500))], end=520)
    assert nanoseconds(run.why.causes) == {"threadblock": 350, "launch": 120, "latency": 50}
    assert nanoseconds(run.why.stalls) == {"receive": 350, "launch": 100}
    # A worker that was busy when the message came: its threadblock waited for the processor.
    three = program("flat_broadcast", R=3)
    rows = [
        step(0, 0, 0, (0, 100, 300)),
        step(0, 1, 0, (0, 300, 400)),  # the other threadblock of rank 0 runs
        step(1, 0, 0, (0, 410, 500), worker=1),
        step(2, 0, 0, (0, 510, 600), worker=1),
    ]
    run = explained(three, rows)
    assert nanoseconds(run.why.stalls) == {"core": 810, "receive": 410, "launch": 100}


def test_causes_of_slots_and_semaphores() -> None:
    p = program("chain_broadcast", R=2, chunks=3)
    rows = [
        step(0, 0, 0, (0, 0, 10)),
        step(0, 0, 1, (10, 60, 70)),  # one slot: only after the receiver has taken the message before
        step(1, 0, 0, (0, 20, 50)),
        step(1, 0, 1, (50, 80, 90)),
    ]
    run = explained(p, rows, slots=1)
    assert nanoseconds(run.why.stalls) == {"credit": 50, "receive": 50}
    assert nanoseconds(run.why.causes) == {"threadblock": 60, "latency": 20, "credit": 10}
    # A step that depends on another threadblock of its rank.
    tree = program("allpairs_allreduce", R=2)
    tbs = tree.core.as_dict()["ranks"][0]["threadblocks"]
    waiting = [
        (t, s, *step["deps"][0]) for t, tb in enumerate(tbs) for s, step in enumerate(tb["steps"]) if step["deps"]
    ]
    assert waiting
    t, s, other, at = waiting[0]
    rows = [step(0, other, at, (0, 0, 100)), step(0, t, s, (0, 130, 200), worker=1)]
    run = explained(tree, rows)
    assert nanoseconds(run.why.stalls) == {"semaphore": 130}


def test_causes_of_cut_through_and_of_early_clocks() -> None:
    p = program("chain_broadcast", protocol="LL", R=2)
    # The receiver starts while the sender is sending, and cannot end before it.
    run = explained(p, [step(0, 0, 0, (0, 100, 300)), step(1, 0, 0, (0, 150, 320), paused=1)])
    assert nanoseconds(run.why.causes) == {"threadblock": 200, "launch": 100, "latency": 20}
    # A clock that was read before the message was sent is corrected.
    run = explained(p, [step(0, 0, 0, (0, 100, 300)), step(1, 0, 0, (0, 90, 320))])
    (arrow,) = run_timeline.timeline(run).arrows
    assert arrow.tail[2] == pytest.approx(100e-9)
    assert arrow.head[2] == pytest.approx(100e-9)


def test_a_step_shorter_than_the_tick_of_the_clock() -> None:
    """The bytes of a message that begins and ends at one reading of the clock are counted."""
    rows = [step(0, 0, 0, (0, 100, 100)), step(1, 0, 0, (0, 100, 320))]
    made = run_timeline.timeline(explained(program("chain_broadcast", R=2), rows))
    (counter,) = made.counters
    assert sum(rate for _, rate in counter.points) * 320 / 200 == pytest.approx(8)


def test_an_empty_run() -> None:
    run = explained(program("chain_broadcast", R=2), [], end=5)
    assert nanoseconds(run.why.causes) == {"launch": 5}
    assert run_timeline.timeline(run).spans == []
