"""One-sided programs in the simulator: what commands show, what is refused, and public kernels."""

from __future__ import annotations

import json
from pathlib import Path

import one_sided
import pytest
from click.testing import CliRunner

import gc3
from gc3 import _core, algorithms, sim
from gc3.cli.main import main
from gc3.runtime.direct import DirectProgram
from gc3.sim import presets, settings

pytestmark = pytest.mark.python_only

KIB, MIB = 1 << 10, 1 << 20
PLAN = str(Path(__file__).parents[1] / "data" / "two_halves.plan.json")


def direct(name: str = "direct_allreduce", **options: int) -> DirectProgram:
    return gc3.compile(algorithms.load(name), memory="direct", **options)


def told(*line: str) -> str:
    done = CliRunner().invoke(main, line)
    return done.output if done.exit_code == 0 else f"{done.exit_code}: {done.output} {done.exception or ''}"


def test_there_are_no_slots_and_sums_take_one_pass() -> None:
    """Every rank loads its part from 7 others at once, then the other parts; a link carries 2 * 7/8 of the buffer."""
    on = sim.platform("ndv5", "ideal")
    prediction = sim.Simulation(direct(R=8, instances=4), on).run(8 * MIB, explain=True)
    assert prediction.explanation is not None
    assert sum(prediction.explanation.causes.values()) == pytest.approx(prediction.time_s)
    port = 0.824 * 450e9
    assert prediction.bound_s == pytest.approx(2 * 7 / 8 * 8 * MIB / port, rel=1e-3)
    assert prediction.time_s == pytest.approx(prediction.bound_s + 4 * 0.3e-6, rel=0.3)


def test_parameters_change_times() -> None:
    on = sim.platform("ndv5")
    program = direct(R=8)

    def us(*changes: str) -> float:
        changed = settings.apply(on, [settings.parse(text) for text in changes])
        return sim.Simulation(program, changed).run(256 * KIB).time_us

    plain = us()
    assert us("Direct.launch=5us") == pytest.approx(plain - 0.2 + 5, abs=1e-3)
    for change in ("hop=2us", "release=9us", "local=3us", "op=1us", "line_bytes=1KiB", "rate=1GB/s"):
        assert us(f"Direct.{change}") > plain + 0.5, change
    assert us("Direct.link_efficiency=1.2") <= plain  # of the rate of NCCL's kernels
    assert us("Simple.hop=9us", "launch=9us") == plain


def test_commands_take_one_sided_programs(tmp_path: Path) -> None:
    text, trace = tmp_path / "p.txt", tmp_path / "t.json"
    direct(R=4).save(text)
    programs = ["direct_allreduce:memory=direct", str(text)]
    line = [*programs, "-t", "ndv5", "-b", "1KiB", "-e", "64KiB", "-f", "64", "--json"]
    data = json.loads(told("sim", *line))
    rows = data["rows"]
    worth = rows[0]["programs"][0]["expected"]
    assert (worth["scope"], worth["median"]) == ("held out", presets.ONE_SIDED["h100"].held_out)
    times = [[p["time_us"] for p in row["programs"]] for row in rows]
    assert len(times) == 2
    assert all(2 < us < 50 for row in times for us in row)
    assert "node0.nvswitch.port0.out" in told(
        "sim", PLAN, "-t", "ndv5", "-b", "64KiB", "-e", "64KiB", "--mode", "explain"
    )
    assert "critical path: latency" in told("trace", str(text), "-t", "ndv5", "--size", "1KiB", "-o", str(trace))
    names = [event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]]
    assert sum(name.startswith("move ") for name in names) > 4
    assert any(name.endswith(" relaxed") for name in names)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            ["direct_allreduce:memory=direct", "-t", "ndv5:N=2"],
            "rank 0 signals rank 15, and a one-sided program reaches",
        ),
        (["direct_allreduce:R=4,memory=direct", "-t", "cpu:R=4"], "no rates of one-sided programs"),
        (["direct_allreduce:memory=direct", "-t", "ndv5", "--mode", "alphabeta"], "with --mode slot or explain"),
        (["direct_allreduce:memory=direct", "-t", "ndv5", "--sharing", "max-min"], "and --sharing serial"),
        (["direct_allreduce:R=9,memory=direct", "-t", "ndv5"], "'direct_allreduce' has 9 ranks, the machine 8"),
        (["together", "direct_allreduce:memory=direct", "-t", "ndv5"], "makes no program of messages"),
    ],
)
def test_what_is_not_simulated_is_told(line: list[str], says: str) -> None:
    assert says in " ".join(told("sim", *line).split())


def test_a_proof_comes_first(tmp_path: Path) -> None:
    text = tmp_path / "p.txt"
    text.write_text(
        'direct "p" version 1\ncollective allreduce ranks 2 chunks 1 in place\nhalves 1\nrank 0\n  tb 0\n    0 sync\n'
        "rank 1\n  tb 0\n    0 sync\n"
    )
    assert "wrong result" in told("sim", str(text), "-t", "ndv5") or "GC3-V" in told("sim", str(text), "-t", "ndv5")
    assert "bound" in told("sim", f"{text}:prove=no", "-t", "ndv5", "-b", "1KiB", "-e", "1KiB")


# --- public kernels


def test_kernels_are_right_programs() -> None:
    for kernel in one_sided.WAYS:
        for ranks in (3, 4):
            assert _core.verify(one_sided.program(kernel, ranks, 2).core).diagnostics == [], (kernel, ranks)


def test_public_kernels_were_measured() -> None:
    """The errors that docs/simulator.md tells, with the rates of the presets."""
    measured = one_sided.rows()
    assert sum(row.held_out for row in measured) > len(measured) / 3
    found = one_sided.scores(dict(zip(measured, one_sided.misses(measured, one_sided.shipped()), strict=True)))
    for name, fitted, held_out in (("two-shot, multimem", 4.5, 23.5), ("all", 5.5, 23), ("H100", 4.8, 23)):
        assert found[name][False].median < fitted, name
        assert found[name][True].median < held_out, name
    for name, preset in (("H100", "h100"), ("B200, B300", "gb200")):
        evidence = presets.ONE_SIDED[preset]
        assert 100 * (evidence.held_out or 0) == pytest.approx(found[name][True].mean, abs=0.1)
        assert 100 * (evidence.in_sample or 0) == pytest.approx(found[name][False].mean, abs=0.1)
