"""Multicasts and in-switch sums: the language, the forms of a program, the proof, and what the simulator charges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import UserError, _core, algorithm, algorithms, chunk, sim, topologies
from gc3.cli.main import main
from gc3.runtime.program import Program
from gc3.sim import settings
from gc3.sim.nccl import Nccl

pytestmark = pytest.mark.python_only

MIB, GIB = 1 << 20, 1 << 30
US = 1e-6


@algorithm("broadcast", chunks=1)
def at_once(R: int) -> None:
    mine = chunk(0, "in", 0)
    mine.copy(0, "out", 0)
    mine.multicast(range(1, R), "out", 0)


@algorithm("broadcast", chunks=1)
def one_by_one(R: int) -> None:
    for r in range(R):
        chunk(0, "in", 0).copy(r, "out", 0)


def compiled(name: str, R: int, instances: int = 1) -> Program:
    return gc3.compile(algorithms.load(name), instances=instances, R=R)


def machine(efficiency: float, name: str = "ndv5") -> sim.Platform:
    """Ranks at a switch whose ports reach their line rate."""
    shape = topologies.load(name)
    classes = [replace(c, multicast_efficiency=efficiency, kernel_efficiency=1.0) for c in shape.classes]
    return sim.platform(replace(shape, classes=tuple(classes)), "ideal")


RATE = 450e9  # of a port of ndv5


# --- the language


def test_results_are_those_of_plain_messages() -> None:
    program = compiled("nvls_allreduce", R=4, instances=2)
    assert program.verify().ok
    data = [np.arange(4096, dtype=np.int32) * (r + 1) for r in range(4)]
    for result in program.run(data):
        np.testing.assert_array_equal(result, data[0] * 10)
    one, other = (gc3.compile(a, R=5) for a in (at_once, one_by_one))
    assert one.core.to_text().count(" multicast ") == 4
    assert "multicast" not in other.core.to_text()


@pytest.mark.parametrize(
    ("ranks", "message"),
    [([1, 1], "names rank 1 twice"), ([0, 1], "names rank 0, which is itself"), ([], "names no other rank")],
)
def test_groups_are_of_different_ranks(ranks: list[int], message: str) -> None:
    @algorithm("broadcast", chunks=1)
    def wrong(R: int) -> None:
        chunk(0, "in", 0).multicast(ranks, "out", 0)

    with pytest.raises(UserError, match=rf"(?s)test_in_switch\.py:\d+: .*a multicast .*{message}"):
        gc3.compile(wrong, R=3)

    @algorithm("allreduce", chunks=1, in_place=True)
    def too(R: int) -> None:
        chunk(0, "in", 0).multireduce([chunk(r, "in", 0) for r in ranks])

    with pytest.raises(UserError, match=rf"(?s)test_in_switch\.py:\d+: .*a multireduce .*{message}"):
        gc3.compile(too, R=3)


# --- the forms of a program


def test_every_form_but_xml_keeps_groups() -> None:
    core = compiled("nvls_allreduce", R=3).core
    text = core.to_text()
    assert text.count(" multicast ") == text.count(" reduction ") == 6
    assert _core.Program.from_text(text) == core
    for source in (True, False):
        assert _core.Program.from_bytes(core.to_bytes(source=source)) == core
    steps = [s for rank in core.as_dict()["ranks"] for tb in rank["threadblocks"] for s in tb["steps"]]
    assert sorted({s["multicast"] for s in steps if "multicast" in s}) == [1, 3, 5]
    assert sorted({s["reduction"] for s in steps if "reduction" in s}) == [0, 2, 4]
    plain = _core.Program.from_xml(core.to_xml(), collective=core.collective)
    assert plain != core
    assert plain.to_text().replace(" signals", "") == _without_groups(text).replace(" signals", "")


def _without_groups(text: str) -> str:
    return "\n".join(line.split(" multicast ")[0].split(" reduction ")[0] for line in text.split("\n"))


def test_a_window_keeps_groups() -> None:
    program = gc3.compile(algorithms.load("nvls_allreduce"), R=4, window=2)
    assert program.verify().ok
    assert program.core.to_text().count(" multicast ") == 12


def test_renamed_ranks_keep_multicasts() -> None:
    program = gc3.compile(algorithms.load("nvls_allreduce"), R=4, order=[2, 0, 3, 1])
    assert program.verify().ok
    assert program.core.to_text().count(" multicast ") == 12


# --- the proof

BROADCAST = """program "b" version 1
collective broadcast ranks 3 chunks 2
protocol Simple instances 1 slots 2

rank 0
  tb 0 channel 0 send 1
    0 send in[0] multicast 0
    1 send in[1]
    2 copy in[0] -> out[0]
    3 copy in[1] -> out[1]
  tb 1 channel 0 send 2
    0 send in[0] multicast 0
    1 send in[1]

rank 1
  tb 0 channel 0 recv 0
    0 recv -> out[0]
    1 recv -> out[1]

rank 2
  tb 0 channel 0 recv 0
    0 recv -> out[0]
    1 recv -> out[1]
"""


def verdict(text: str) -> str:
    """The first mistake that the verifier finds."""
    try:
        Program(_core.Program.from_text(text)).verify()
    except UserError as wrong:
        return str(wrong)
    return ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("1 send in[1]\n\n", "1 send in[1] multicast 1\n\n", "multicast 1 has one message"),
        ("1 send in[1]\n    2", "1 send in[1] multicast 0\n    2", "rank 1 at the other end of two messages"),
        ("0 send in[0] multicast 0\n    1 send in[1]\n\n", "0 send in[0]\n    1 send in[1] multicast 0\n\n",
         "send different values"),
        ("2 copy in[0] -> out[0]", "2 copy in[0] -> out[0] multicast 0", "is in multicast 0 and sends nothing"),
        ("0 recv -> out[0]", "0 recv -> out[0] reduction 0", "is in reduction 0 and reduces nothing that it receives"),
        ("multicast 0", "multicast 99", "is in multicast 99, a number above that of instructions"),
    ],
)  # fmt: skip
def test_what_is_no_multicast_is_refused(old: str, new: str, message: str) -> None:
    assert old in BROADCAST
    found = verdict(BROADCAST.replace(old, new) if old else BROADCAST)
    assert message in found if message else not found
    assert ("GC3-V013" in found) == (bool(message) and "is in" not in message)


def test_a_group_of_too_many_messages_is_refused_at_once() -> None:
    """What takes time in the square of a group's messages is only for groups with one message for each rank."""
    steps = 100_000
    sends = "".join(f"    {i} send in[0] multicast 0\n" for i in range(steps))
    receives = "".join(f"    {i} recv -> out[0]\n" for i in range(steps))
    text = f"""program "b" version 1
collective broadcast ranks 2 chunks 1
protocol Simple instances 1 slots 2

rank 0
  tb 0 channel 0 send 1
{sends}    {steps} copy in[0] -> out[0]

rank 1
  tb 0 channel 0 recv 0
{receives}"""
    assert "at the other end of two messages" in verdict(text)


def test_no_message_waits_for_another_of_its_group() -> None:
    """Rank 2 gets its copy only after rank 1 has answered."""
    text = """program "b" version 1
collective broadcast ranks 3 chunks 1
protocol Simple instances 1 slots 2

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send in[0] multicast 0
    1 recv -> sc[0] signals
    2 copy in[0] -> out[0]
  tb 1 channel 0 send 2
    0 send in[0] after (0:1) multicast 0

rank 1
  tb 0 channel 0 send 0 recv 0
    0 rcs -> out[0]

rank 2
  tb 0 channel 0 recv 0
    0 recv -> out[0]
"""
    assert not verdict(text.replace(" multicast 0", ""))
    found = verdict(text)
    assert "GC3-V013" in found
    assert "rank 0 threadblock 1 step 0 (send in[0]" in found
    assert "waits for rank 1 threadblock 0 step 0 (rcs -> out[0]" in found


def test_sums_are_used_when_they_are_complete() -> None:
    """Rank 0 sends the sum of ranks 0 and 1 to rank 1, before it adds the data of rank 2."""
    text = """program "s" version 1
collective custom "partial" ranks 3 chunks 1
  rank 0 in 1 out 1
    out[0] = 0:0 + 1:0 + 2:0
  rank 1 in 1 out 1
    out[0] = 0:0 + 1:0
  rank 2 in 1 out 0
protocol Simple instances 1 slots 1

rank 0
  tb 0 channel 0 send 1 recv 1
    0 rrc in[0] -> out[0] signals reduction 0
    1 send out[0] signals
  tb 1 channel 0 recv 2
    0 rrc out[0] -> out[0] after (0:1) reduction 0

rank 1
  tb 0 channel 0 send 0 recv 0
    0 send in[0]
    1 recv -> out[0]

rank 2
  tb 0 channel 0 send 0
    0 send in[0]
"""
    plain = text.replace(" reduction 0", "")
    assert not verdict(plain)
    assert "(send out[0]" in verdict(text)
    assert "before its reduction is complete" in verdict(text)
    apart = text.replace("0 rrc out[0] -> out[0] after", "0 rrc in[0] -> out[0] after")
    assert "does not add to the sum of" in verdict(apart)


# --- the simulator


def test_a_switch_carries_a_group_once() -> None:
    """Ranks send S to all others: over a port as often as there are others, or once at part of the port's rate."""
    for ranks in (3, 5):
        once, plain = (gc3.compile(a, R=ranks) for a in (at_once, one_by_one))
        for efficiency in (0.0, 1.0, 0.5):
            found = [sim.Simulation(p, machine(efficiency)).run(GIB) for p in (once, plain)]
            expected = GIB / (RATE * efficiency) if efficiency else GIB * (ranks - 1) / RATE
            assert found[0].time_s == pytest.approx(expected, rel=0.05)
            assert found[1].time_s == pytest.approx(GIB * (ranks - 1) / RATE, rel=0.05)
            assert found[0].bound_s <= found[0].time_s


def test_sums_in_the_switch_enter_a_rank_once() -> None:
    """Of an AllReduce, all of S leaves and enters each rank once; without the switch, 2 (n-1)/n of it."""
    program = compiled("nvls_allreduce", R=8)
    once, plain = (sim.Simulation(program, machine(e)).run(GIB).time_s for e in (1.0, 0.0))
    assert once == pytest.approx(GIB / RATE, rel=0.1)
    assert plain == pytest.approx(GIB / RATE * 7 / 4, rel=0.1)


def test_both_models_of_sharing_agree() -> None:
    run = sim.Simulation(compiled("nvls_allreduce", R=8, instances=2), sim.platform("ndv5"))
    serial, fair = (run.run(4 * MIB, sharing=s).time_s for s in ("serial", "max-min"))
    assert serial == pytest.approx(fair, rel=0.15)


def test_only_simple_and_only_where_the_ports_are_shared() -> None:
    ndv5 = sim.platform("ndv5")
    program = compiled("nvls_allreduce", R=8, instances=4)
    without = settings.apply(ndv5, [settings.parse("nvlink4.multicast_efficiency=0")])
    assert sim.Simulation(program, ndv5).run(GIB).time_s < 0.8 * sim.Simulation(program, without).run(GIB).time_s
    flags = gc3.compile(algorithms.load("nvls_allreduce"), R=8, protocol="LL128")
    assert sim.Simulation(flags, ndv5).run(MIB).time_s == sim.Simulation(flags, without).run(MIB).time_s
    mesh = topologies.load("fully_connected:R=4")
    classes = tuple(replace(c, multicast_efficiency=1.0) for c in mesh.classes)
    small = compiled("nvls_allreduce", R=4)
    direct, same = (sim.Simulation(small, sim.platform(t)) for t in (mesh, replace(mesh, classes=classes)))
    assert direct.run(MIB).time_s == same.run(MIB).time_s


def test_steps_and_rounds_count_a_group_once() -> None:
    for efficiency, rounds in ((0.5, 1), (0.0, 3)):  # a port is of 6 lanes
        found = sim.Simulation(gc3.compile(at_once, R=16), machine(efficiency, "dgx2")).alpha_beta(MIB)
        assert (found.steps, found.rounds) == (1, rounds)


def test_what_the_time_counts_on_is_said() -> None:
    """No engine of gc3 uses such switches; nothing is said where the simulator does not either."""
    runner = CliRunner()
    for machine_, protocol, said in (("ndv5", "Simple", True), ("ndv5", "LL", False), ("ndv4", "Simple", False)):
        sizes = ["-b", "1MiB", "-e", "1MiB"]
        programs = [f"{name}:protocol={protocol}" for name in ("nvls_allreduce", "direct_allreduce")]
        result = runner.invoke(main, ["sim", *programs, "-t", machine_, *sizes])
        assert result.exit_code == 0, result.output
        assert ("--what-if CLASS.multicast_efficiency=0" in result.stderr) == said
        assert ("note: nvls_allreduce: the time is with switches" in result.stderr) == said


@pytest.mark.parametrize(("name", "instances"), [("nvls_ring_allreduce", 2), ("nvls_direct_allreduce", 3)])
def test_several_nodes_are_faster_than_nccl(name: str, instances: int) -> None:
    """A port carries S in each direction, and with NCCL what its head sends, too."""
    on = sim.platform(topologies.load("ndv5:N=2"))
    program = gc3.compile(algorithms.load(name), instances=instances, N=2, G=8)
    found = sim.Simulation(program, on).run(GIB)
    other = Nccl(on, "allreduce")
    assert other.choice(GIB).in_switch
    assert found.bound_s <= found.time_s < 0.95 * other(GIB).time_s
