"""What a training step would gain from calls and computations as one program: bounds that can be computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3 import sim
from gc3.cli.main import main
from gc3.sim import fusion, step
from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, COMPUTE, Node, Trace
from gc3.sim.step import Chosen

pytestmark = pytest.mark.python_only

US, MIB = 1e-6, 1 << 20
R = 8
ON = sim.platform("ndv4")


def work(number: int, us: float, *after: int, name: str = "mm") -> Node:
    return Node(number, name, COMPUTE, after, duration_s=us * US)


def call(number: int, what: str, *after: int) -> Node:
    return Node(number, what, COLLECTIVE, after, collective=what, size=MIB)


def pairs(*trace: Node, launch_us: float = 0.0, us: float = 100) -> list[fusion.Pair]:
    """Of a step of which each rank has the same trace, and each call takes `us`."""

    def fixed(_what: str, _ranks: tuple[int, ...], _size: int) -> Chosen:
        return Chosen("fixed", None, us * US)

    found = step.simulate(ON, [trace] * R, fixed)
    return fusion.pairs(found, launch_us * US)


def gain(us: float) -> object:
    return pytest.approx(us * US, rel=1e-6)


def test_what_waits_for_a_call_hides_all_but_a_tile() -> None:
    (pair,) = pairs(call(0, "allgather"), work(1, 150, 0))
    assert pair == fusion.Pair("allgather", R, R * MIB, False, "mm", 1, pair.form, pair.gain_s)
    assert pair.gain_s == gain(100 * 15 / 16)
    assert pair.form.startswith("gc3.torch.column_linear")
    # Of 2, 4, 8 and 16 tiles 8 are best, if each costs a microsecond.
    (pair,) = pairs(call(0, "allgather"), work(1, 150, 0), launch_us=1)
    assert pair.gain_s == gain(100 * 7 / 8 - 8)
    assert pairs(call(0, "allgather"), work(1, 150, 0), launch_us=30) == []


def test_what_a_call_waits_for_counts_too() -> None:
    both = pairs(work(0, 40), call(1, "reducescatter", 0), work(2, 80, 1))
    assert [(pair.before, pair.gain_s) for pair in both] == [(False, gain(75)), (True, gain(37.5))]
    assert both[1].form.startswith("gc3.torch.row_linear")
    assert both[0].form == "", "there is none that computes with what was scattered"


def test_the_nearest_operations_count_until_the_call_is_covered() -> None:
    trace = (
        work(0, 500, name="far"),
        work(1, 30, 0, name="near"),
        call(2, "alltoall", 1),
        work(3, 25, 2),
        work(4, 60, 3),
    )
    before, after = sorted(pairs(*trace), key=lambda pair: not pair.before)
    assert (before.computation, before.gain_s) == ("far", gain(100 * 15 / 16))
    assert after.gain_s == gain(85 * 15 / 16)
    assert (before.form, after.form) == ("gc3.torch.moe", "gc3.torch.moe")
    # Not what is behind another call, nor what the host does.
    host = replace(work(2, 90, 1), on_cpu=True)
    for trace in ((work(0, 90), call(1, "alltoall", 0), call(2, "alltoall", 1)), (call(1, "alltoall"), host)):
        assert [pair for pair in pairs(*trace) if pair.computation != "mm"] == []
        assert sum(pair.calls for pair in pairs(*trace)) == len(trace) - 2


def test_a_call_gains_only_what_is_exposed() -> None:
    (pair,) = pairs(call(0, "alltoall"), work(1, 70), work(2, 200, 0, 1))
    assert pair.gain_s == gain(30 * 15 / 16)
    assert pairs(call(0, "alltoall"), work(1, 100), work(2, 200, 0, 1)) == []


def test_a_norm_after_an_allreduce_is_computed_once() -> None:
    trace = call(0, "allreduce"), work(1, 20, 0, name="aten::add"), work(2, 60, 1, name="aten::rms_norm")
    (pair,) = pairs(*trace, launch_us=20)
    assert (pair.computation, pair.form) == ("aten::rms_norm", "gc3.torch.add_norm")
    assert pair.gain_s == gain(80 * (1 - 1 / R))
    other = replace(trace[2], name="aten::mul")
    assert [pair.form for pair in pairs(*trace[:2], other)] == ["examples/fused_mlp.py"]


def test_calls_alike_are_one_pair_and_the_best_come_first() -> None:
    first = call(0, "allgather"), work(1, 10, 0), call(2, "allgather", 1), work(3, 10, 2)
    found = pairs(*first, call(4, "alltoall", 3), work(5, 90, 4))
    kinds = [(pair.collective, pair.before, pair.calls) for pair in found]
    assert kinds == [("alltoall", False, 1), ("allgather", False, 2), ("allgather", True, 1), ("alltoall", True, 1)]
    assert found[1].gain_s == gain(2 * 10 * 15 / 16)


@pytest.mark.parametrize("trace", [(work(0, 5),), (call(0, "allgather"),), ()])
def test_steps_without_pairs(trace: Trace) -> None:
    assert pairs(*trace) == []


def test_the_command_tells_what_fusion_gains(tmp_path: Path) -> None:
    path = str(tmp_path / "t.et")
    chakra.write(path, (call(0, "allgather"), work(1, 10_000, 0, name="layer"), call(2, "broadcast", 1)))
    uses = ["--use", "allgather=ring_allgather", "--use", "broadcast=chain_broadcast"]

    def said(*more: str) -> str:
        found = CliRunner().invoke(main, ["sim", "step", path, "-t", "ndv4", *uses, *more])
        assert found.exit_code == 0, found.output
        return found.stdout

    text = said()
    assert "allgather, then layer: gc3.torch.column_linear" in text
    assert "layer, then broadcast: a program of your own" in text
    data = json.loads(said("--json"))
    first = data["fusion"][0]
    assert (first["collective"], first["computation"], first["side"], first["calls"]) == (
        "allgather",
        "layer",
        "after",
        1,
    )
    assert 0 < first["gain_us"] < data["collectives"][0]["exposed_us"]
    assert first["of_step"] == pytest.approx(first["gain_us"] / data["time_us"])
    chakra.write(path, (work(0, 10),))
    assert "gains at most" not in said()
    chakra.write(
        path, [node for k in range(12) for node in (call(2 * k, "allgather"), work(2 * k + 1, 99, 2 * k, name=f"{k}"))]
    )
    assert (
        "2 further pairs gain less" in CliRunner().invoke(main, ["sim", "step", path, "-t", "ndv4", *uses[:2]]).output
    )
