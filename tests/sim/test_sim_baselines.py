"""Baselines: NCCL's own choice, and logs of nccl-tests."""

from __future__ import annotations

import csv
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3
from gc3 import sim, topologies
from gc3.cli.baselines import of_nccl
from gc3.cli.main import main
from gc3.sim import settings, trust
from gc3.sim.fit import calibrate
from gc3.sim.nccl import Nccl, choose, graphs, in_switch, programs, sends, tables, tuning
from nccl_log import ALLREDUCE

pytestmark = pytest.mark.python_only

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MEASURED = Path(__file__).parents[1] / "data" / "measured"
SIZES = (KIB, 32 * KIB, 256 * KIB, MIB, 8 * MIB, 64 * MIB, GIB)

# --- NCCL's model


@pytest.mark.parametrize(
    ("machine", "us", "within"),
    [
        ("dgx1", (10, 12, 25, 55, 173, 988, 14969), 0.03),
        ("dgx2", (18, 20, 33, 80, 222, 1109, 16089), 0.03),
        ("ndv4", (10, 11, 18, 41, 109, 556, 8052), 0.03),
        ("ndv4:N=2", (28, 32, 45, 65, 188, 889, 10719), 0.03),
        ("ndv4:N=8", (48, 52, 80, 103, 278, 1256, 12005), 0.08),
        ("dgx_h100", (15, 15, 18, 28, 85, 382, 5276), 0.03),
        # With the 0.85 of trees whose NIC serves one GPU; the others' values from 1 MiB on, 115, 180 and 742, lack it.
        ("dgx_h100:N=16", (55, 60, 103, 117, 194, 856, 7215), 0.01),
    ],
)
def test_times_of_nccls_model(machine: str, us: tuple[float, ...], within: float) -> None:
    """AllReduce values that others computed from NCCL's sources, independently of this model, without NVLS."""
    topology = topologies.load(machine)
    version = "2.30" if machine.startswith("dgx_h100") else None
    for size, expected in zip(SIZES, us, strict=True):
        found = tuning.choices(graphs.graph(topology, version), "allreduce", size)
        fastest = min(1e6 * choice.time_s for choice in found if not choice.in_switch)
        assert fastest == pytest.approx(expected, rel=within)


def test_choices_of_nccls_model() -> None:
    ndv4 = topologies.load("ndv4")
    assert [str(choose(ndv4, "allreduce", s)) for s in (KIB, 64 * KIB, MIB, 8 * MIB, GIB)] == [
        "ring LL, 1 channel",
        "ring LL, 2 channels",
        "ring LL, 24 channels",
        "ring LL128, 24 channels",
        "ring Simple, 24 channels",
    ]
    assert str(choose(topologies.load("ndv4", N=32), "allreduce", MIB)) == "tree LL128, 16 channels"
    assert all(c.protocol != "LL128" for c in tuning.choices(graphs.graph(topologies.load("summit")), "allreduce", MIB))
    newer = choose(ndv4, "allgather", MIB, version="2.30")
    assert newer.time_s != choose(ndv4, "allgather", MIB).time_s


@pytest.mark.parametrize(
    ("file", "column", "machine", "collective", "within"),
    [
        ("ndv4_1node_allreduce.csv", "nccl_in_place_us", "ndv4", "allreduce", 0.07),
        ("ndv5_1node_allgather.csv", "nccl_us", "ndv5", "allgather", 0.05),
        ("ndv5_1node_allreduce.csv", "nccl_us", "ndv5", "allreduce", 0.05),
    ],
)
def test_nccl_takes_as_long_as_was_measured(
    file: str, column: str, machine: str, collective: str, within: float
) -> None:
    nccl = Nccl(sim.platform(machine), collective)
    rows = csv.DictReader(line for line in (MEASURED / file).read_text().splitlines() if not line.startswith("#"))
    misses = [math.log(nccl(int(row["bytes"])).time_s * 1e6 / float(row[column])) for row in rows]
    assert statistics.fmean(abs(x) for x in misses) < within


# --- reduction and multicast in switches


@pytest.mark.parametrize(
    ("machine", "version", "size", "expected"),
    [
        ("ndv5", None, 256 * KIB, "ring LL"),
        ("ndv5", None, 512 * KIB, "nvls Simple"),  # where the measured time rises, too: 20.5 to 29.9 us
        ("ndv5", "2.17.1", 512 * KIB, "ring LL"),
        ("ndv5", "2.17.1", GIB, "nvls Simple"),
        ("ndv5", "2.16.5", GIB, "ring Simple"),
        ("ndv5", "2.30", GIB, "nvls Simple"),
        ("dgx2", "2.30", GIB, "ring Simple"),
        ("ndv4", "2.30", GIB, "ring Simple"),
        ("ndv5:N=2", "2.17.1", GIB, "ring Simple"),
        ("ndv5:N=2", "2.18.3", 64 * KIB, "tree LL"),  # these two: NCCL's log in nccl issue 1453
        ("ndv5:N=2", "2.18.3", 512 * KIB, "nvls_tree Simple"),
        ("ndv5:N=4", "2.19.3", 4 * GIB, "ring Simple"),  # nccl issue 1221: NVLS changes nothing from 4 nodes on
        ("ndv5:without=6+7", "2.20.3", GIB, "nvls Simple"),
        ("ndv5:without=6+7", "2.18.3", GIB, "ring Simple"),  # whose search does not try 50 GB/s
    ],
)
def test_where_nccl_lets_switches_add_up(machine: str, version: str | None, size: int, expected: str) -> None:
    assert str(choose(topologies.load(machine), "allreduce", size, version=version)).startswith(expected)


def test_what_switches_serve() -> None:
    ndv5 = topologies.load("ndv5")
    served = {
        (version, name)
        for version in ("2.16.5", "2.18.3", "2.28")
        for name in tuning.COLLECTIVES
        if any(choice.in_switch for choice in tuning.choices(graphs.graph(ndv5, version), name, GIB))
    }
    assert served == {
        ("2.18.3", "allreduce"),
        ("2.18.3", "reducescatter"),
        *(("2.28", name) for name in ("allreduce", "allgather", "reducescatter")),
    }
    pair = tuning.choices(graphs.graph(topologies.load("ndv5:without=2+3+4+5+6+7")), "allreduce", GIB)
    assert not any(choice.in_switch for choice in pair)
    across = tuning.choices(graphs.graph(topologies.load("ndv5", N=2), "2.28"), "allgather", GIB)
    assert not any(choice.in_switch for choice in across)


def test_time_in_switches_was_measured() -> None:
    """Nothing is fitted here: rates and latency are the machine's and NCCL's published constants."""
    nccl = Nccl(sim.platform("ndv5"), "allreduce")
    rows = calibrate.read_csv(str(MEASURED / "ndv5_1node_allreduce.csv"), "nccl_us")
    misses = [math.log(nccl(size).time_s / time) for size, time in rows if size >= 512 * KIB]
    assert len(misses) == 12
    assert statistics.fmean(abs(x) for x in misses) < 0.06
    assert max(abs(x) for x in misses) < 0.2


def test_time_in_switches_follows_from_the_machine() -> None:
    on = sim.platform("ndv5")
    before = Nccl(on, "allreduce").run(GIB)
    assert before is not None
    port = 450e9 * 0.824 * 0.986 * 0.85  # line rate, kernels, Simple, in the switch
    assert before.bound_s == pytest.approx(GIB * 9 / 8 / port)  # all of S, and once more the share of a head
    assert before.bound_by.startswith("node0.nvswitch.port")
    assert (GIB / before.time_s / 1e9, before.busbw) == pytest.approx((before.algbw, before.algbw * 7 / 4))
    slow = Nccl(sim.degrade(on, [("node0.nvswitch.port5.in", 0.5)]), "allreduce").run(GIB)
    assert slow is not None
    assert slow.bound_by == "node0.nvswitch.port5.in"
    assert slow.bound_s == pytest.approx(2 * before.bound_s)
    late = Nccl(on, "allreduce").run(GIB, sim.Disturbance({3: 1e-3}, {2: 2.0}))
    assert late is not None
    assert late.time_s == pytest.approx(2 * before.time_s + 1e-3)
    plain = settings.apply(on, [settings.Setting("nvlink4.multicast_efficiency", 0.0, relative=True)])
    assert str(Nccl(plain, "allreduce").choice(GIB)).startswith("ring")
    across = Nccl(sim.platform("ndv5:N=4"), "allreduce").run(64 * MIB)
    assert across is not None
    assert across.bound_by.endswith((".out", ".in"))
    assert across.bound_s == pytest.approx(64 * MIB * 2 / 8 / (50e9 * 0.97), rel=0.02)


def test_chunks_in_switches_are_shorter_for_small_calls() -> None:
    model = tables.constants("2.18.3").in_switch
    assert model is not None
    found = [in_switch.chunk_bytes(mib * MIB, 128, model) for mib in (1, 8, 64, 1024)]
    assert found == [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB]
    pair, many = ([in_switch.chunk_bytes(mib * MIB, 128, model, n) for mib in (1, 8, 64)] for n in (2, 8))
    assert pair == [32 * KIB, 64 * KIB, 128 * KIB]
    assert many == [32 * KIB, 64 * KIB, 64 * KIB]


def test_versions_between_those_that_were_read() -> None:
    asked = ("2.8", "2.12.12", "2.19.4-1", "2.27.3+cuda12.9", "2.29.2")
    assert [tables.constants(text).version for text in asked] == ["2.8.4", "2.8.4", "2.20.3", "2.28.3", "2.30"]
    assert [tables.constants(text).version for text in ("2.7.8", "2.31")] == ["2.8.4", "2.30"]
    assert [tables.said(text) != () for text in ("2.28.7", "2.7.8", "2.12.12", "2.31")] == [False, True, True, True]
    for text in ("3.0", "2", "2.x", "2.18.3 or so"):
        with pytest.raises(gc3.UserError, match=r"is no version of NCCL; expected 2\.x or 2\.x\.y"):
            tables.constants(text)


@pytest.mark.parametrize("machine", ["dgx1", "ndv2:N=2", "dgx2", "ndv4:N=3", "summit"])
@pytest.mark.parametrize("collective", tuning.COLLECTIVES)
def test_nccls_schedules_are_right_and_use_all_nics(machine: str, collective: str) -> None:
    topology = topologies.load(machine)
    found = graphs.graph(topology)
    choice = choose(topology, collective, 64 * MIB)
    p = programs.program(topology, found, collective, choice)
    assert p.verify().ok
    assert p.collective.name == collective
    topologies.check(p, topology)
    outcome = sim.Simulation(p, sim.platform(topology)).run(64 * MIB)
    if machine == "ndv4:N=3" and collective.startswith("all"):
        assert outcome.busbw > 4 * 23.75  # of eight cards of 23.75 GB/s


def test_trees_are_right() -> None:
    topology = topologies.load("ndv4", N=5)
    found = graphs.graph(topology)
    p = programs.program(topology, found, "allreduce", tuning.Choice("tree", "LL", 16, 0.0))
    assert p.verify().ok


def test_all_peers_are_served_once_in_the_order_of_nccl() -> None:
    assert sends.peers(8) == [0, 4, 1, 7, 3, 5, 2, 6]
    for ranks in range(1, 70):
        assert sorted(sends.peers(ranks)) == list(range(ranks))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize(("channels", "pieces", "at_once"), [(1, 1, 1), (2, 1, 1), (8, 4, 1), (4, 1, 8), (32, 3, 2)])
def test_an_alltoall_of_sends_is_right(ranks: int, channels: int, pieces: int, at_once: int) -> None:
    p = sends.alltoall(ranks, channels, pieces, at_once)
    assert p.verify().ok
    used = {tb.channel for rank in range(ranks) for tb in p.threadblocks(rank)}
    assert len(used) <= channels


def test_a_channel_serves_its_peers_in_turns() -> None:
    """Two channels of 8 ranks: each message but the first of a channel waits for the message before."""
    p = sends.alltoall(8, 2)
    assert p.core.dependency_count == 8 * 6
    twice = sends.alltoall(8, 2, at_once=4)
    assert twice.core.dependency_count == 0
    on = Nccl(sim.platform("ndv4"), "alltoall").sending(1 << 20)
    turns, together = (sim.Simulation(q, on).run(8 << 20).time_s for q in (p, twice))
    assert turns > 2.5 * together  # 22 GB/s a channel


def test_messages_of_an_alltoall_may_be_longer_than_a_slot() -> None:
    nccl = Nccl(sim.platform("ndv5:without=2+3+4+5+6+7"), "alltoall")
    assert nccl(16 * GIB).time_s == pytest.approx(16 * nccl(GIB).time_s, rel=0.01)


def test_messages_within_a_node_are_divided() -> None:
    sizes = (KIB, 512 * KIB, MIB, 2 * MIB, 8 * MIB, 9 * MIB, 64 * MIB)
    assert [sends.parts(size, 8, 1, 32) for size in sizes] == [1, 1, 2, 4, 4, 6, 16]
    assert sends.parts(64 * MIB, 16, 2, 16) == 1


@pytest.mark.nightly
def test_an_alltoall_of_512_gpus_was_measured() -> None:
    nccl = Nccl(sim.platform("ndv4:N=64"), "alltoall")
    out, in_place = (
        dict(calibrate.read_csv(str(MEASURED / "ndv4_64nodes_alltoall.csv"), f"nccl_{mode}_us"))
        for mode in ("out_of_place", "in_place")
    )
    for size in (MIB, 4 * MIB, 64 * MIB, 256 * MIB):  # of 8 and 16 MiB the two columns differ by up to a factor of 3
        found = nccl.run(size)
        assert found is not None
        assert found.time_s == pytest.approx(math.sqrt(out[size] * in_place[size]), rel=0.12)


def test_an_alltoall_of_64_gpus_was_measured() -> None:
    """Between the times out of place and in place of 8 MiB on 8 nodes in nccl issue 1531."""
    found = Nccl(sim.platform("ndv5:N=8"), "alltoall").run(8 * MIB)
    assert found is not None
    assert 295.6e-6 < found.time_s < 337.8e-6


@pytest.mark.parametrize(
    ("machine", "file", "column", "collective", "version", "within"),
    [
        ("ndv4:N=2", "a100_nodes_allreduce.csv", "n2_us", "allreduce", None, 0.15),
        ("ndv4:N=4", "a100_nodes_allreduce.csv", "n4_us", "allreduce", None, 0.08),
        ("ndv4:N=8", "a100_nodes_allreduce.csv", "n8_us", "allreduce", None, 0.08),
        ("ndv4:N=16", "a100_nodes_allreduce.csv", "n16_us", "allreduce", None, 0.1),
        ("ndv5:N=2", "h100_nodes_allreduce.csv", "a_2_us", "allreduce", "2.26", 0.1),
        ("ndv5:N=4", "h100_nodes_allreduce.csv", "a_4_us", "allreduce", "2.26", 0.12),
        ("ndv5:N=8", "h100_nodes_allreduce.csv", "b_8_us", "allreduce", "2.26", 0.16),
        ("ndv5:N=10", "h100_nodes_allreduce.csv", "c_10_us", "allreduce", "2.29", 0.25),
        ("ndv4:N=2", "ndmv4_2nodes_alltoall.csv", "nccl_us", "alltoall", "2.17.1", 0.2),  # fitted on 64 nodes
        ("ndv5:N=2", "h100_nodes_alltoall.csv", "n2_out_us", "alltoall", "2.27", 0.1),
        ("ndv5:N=10", "h100_nodes_alltoall.csv", "n10_out_us", "alltoall", "2.29", 0.2),
    ],
)
def test_several_nodes_were_measured(
    machine: str, file: str, column: str, collective: str, version: str | None, within: float
) -> None:
    """Median of |log(predicted / measured)|: of A100 up to 256 KiB, as its four NICs bound longer calls."""
    nccl = Nccl(sim.platform(machine), collective, version)
    most = 256 * KIB if file.startswith("a100") else GIB
    rows = [row for row in calibrate.read_csv(str(MEASURED / file), column) if row[0] <= most]
    found = [(nccl.run(size), time) for size, time in rows]
    assert all(prediction is not None for prediction, _ in found)
    assert statistics.median(abs(math.log(p.time_s / time)) for p, time in found if p) < within


def test_trees_move_short_chunks_with_ll128() -> None:
    found = [programs.tree_chunk_bytes(576_000, mib * MIB, 16, 32, 4) for mib in (1, 4, 16, 64, 1024)]
    assert found == [18_000, 18_000, 72_000, 72_000, 576_000]
    on = Nccl(sim.platform("ndv5:N=4"), "allreduce", "2.26")
    whole = on.run_choice(tuning.Choice("tree", "LL128", 16, 0.0), MIB)
    assert whole is not None
    assert whole.time_s < 100e-6  # 82 us were measured; with chunks of a whole FIFO slot it would be 111


@pytest.mark.parametrize(
    ("machine", "collective", "version", "size", "says"),
    [
        ("ndv4", "allreduce", None, MIB, "in sample; median error "),
        ("ndv4", "allreduce", "2.8", MIB, "in sample; median error "),
        ("ndv4", "allreduce", "2.30", MIB, "not measured (NCCL 2.30); taken as 25%"),
        ("ndv4", "allreduce", None, 1 << 30, "not measured (above 32 MiB); "),
        ("ndv4", "alltoall", None, MIB, "not measured ("),
        ("ndv4:without=3", "allreduce", None, MIB, "not measured (ndv4 with 7 GPUs a node"),
        ("ndv4:N=2", "alltoall", "2.17.1", 1 << 30, "held out; median error "),
        ("ndv5:N=4", "allreduce", "2.26", MIB, "in sample; median error "),
        ("ndv5:N=4", "alltoall", "2.29", 16 * MIB, "in sample; median error "),
    ],
)
def test_a_baseline_has_the_error_of_what_was_measured(
    machine: str, collective: str, version: str | None, size: int, says: str
) -> None:
    nccl = Nccl(sim.platform(machine), collective, version)
    assert of_nccl(nccl, size).text.startswith(says)
    assert of_nccl(nccl, size, [trust.CHANGED]).scope == trust.NOT_MEASURED


def test_a_speedup_within_the_greater_error_is_no_number() -> None:
    line = "allpairs_allreduce:protocol=LL -t ndv4 -b 64KiB -e 64KiB --baseline nccl"
    programs = json.loads(gc3_sim(f"{line} --json"))["rows"][0]["programs"]
    assert [p["distinguishable"] for p in programs] == [True, True]
    assert {p["expected"]["scope"] for p in programs} == {trust.IN_SAMPLE}
    near = "ring_allreduce:protocol=LL128,instances=4 -t ndv4 -b 64KiB -e 64KiB --baseline nccl"
    ring, _ = json.loads(gc3_sim(f"{near} --json"))["rows"][0]["programs"]
    assert abs(math.log(ring["speedup"])) < ring["expected"]["judged"] == pytest.approx(math.log(1.25))
    assert not ring["distinguishable"]
    assert "         ~  ring_allreduce" in gc3_sim(near)
    assert "not distinguishable from NCCL 2.8.4 (error 25%)" in gc3_sim(near)


def test_sends_and_receives() -> None:
    """One connection through a card carries 13.1 GB/s, whatever the card's rate."""
    on = sim.platform("ndv4:N=2")
    cell = Nccl(on, "alltonext")(256 * MIB)
    assert cell.algbw == pytest.approx(13.1, rel=0.05)
    assert cell.cause == "send and receive"
    assert Nccl(on, "alltoall")(64 * MIB).time_s > 0


def test_a_program_that_is_too_large_leaves_nccls_model() -> None:
    nccl = Nccl(sim.platform("ndv4:N=64"), "allgather")
    assert nccl.run(GIB) is None
    assert nccl(GIB).cause.endswith("by its own model only")
    assert nccl(GIB).time_s == choose(nccl.on.topology, "allgather", GIB).time_s
    worth = of_nccl(nccl, GIB)
    assert worth.scope == trust.NOT_MEASURED
    assert "NCCL's own model, not simulated" in worth.text


def test_a_baseline_says_where_it_is_only_nccls_model(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "allpairs_allreduce:protocol=LL -t ndv4 -b 64KiB -e 16MiB -f 256 --baseline nccl"
    assert "its own choice, simulated; " in gc3_sim(line)
    small, large = (
        tuning.best(graphs.graph(sim.platform("ndv4").topology), "allreduce", s) for s in (64 * KIB, 16 * MIB)
    )
    counts = [programs.operations(sim.platform("ndv4").topology, "allreduce", each) for each in (small, large)]
    assert counts[0] < counts[1]
    monkeypatch.setattr(programs, "MOST_OPERATIONS", counts[0])
    said = " ".join(gc3_sim(line).replace("#", " ").split())
    assert "its own choice, simulated, by its own model at 16 MiB; " in said
    found = [row["programs"][-1]["expected"]["scope"] for row in json.loads(gc3_sim(f"{line} --json"))["rows"]]
    assert found == [trust.IN_SAMPLE, trust.NOT_MEASURED]
    monkeypatch.setattr(programs, "MOST_OPERATIONS", 0)
    assert "its own choice, by its own model; " in gc3_sim(line)


def test_what_nccl_has_not() -> None:
    for machine, collective, version, says in (
        ("ndv5:N=2,without=15", "allreduce", None, "its nodes differ in their GPUs"),
        ("ndv4", "gather", None, "NCCL has no gather"),
        ("ndv4", "allreduce", "1.0", "'1.0' is no version of NCCL"),
        ("cpu:R=4", "allreduce", None, "NCCL runs on GPUs"),
    ):
        with pytest.raises(gc3.UserError, match="GC3-S001") as caught:
            Nccl(sim.platform(machine), collective, version)
        assert says in str(caught.value)
    alone = topologies.without(topologies.load("dgx1"), [(0, r) for r in (1, 2, 3, 4)])
    with pytest.raises(gc3.UserError, match="no link joins rank 0 to rank 1 of its node"):
        graphs.graph(alone)


def test_nics_that_reach_nobody_are_told_before_the_search() -> None:
    machine = topologies.load("dgx_h100:N=2")
    for lost, says in (((3,), "rank 3 reaches no NIC of its node"), (range(8), "join rank 0 to rank 8")):
        kept = {f.name: tuple(p for p in f.ports if p.rank not in lost or not f.across_nodes) for f in machine.fabrics}
        cut = [replace(f, ports=kept[f.name]) for f in machine.fabrics]
        with pytest.raises(gc3.UserError, match=says):
            graphs.graph(replace(machine, fabrics=tuple(cut)))
    half = Nccl(sim.platform("dgx_h100:N=2,without=3+11"), "allreduce")
    assert half.notes[-1] == "NICs that reach no rank are not used: node0.nic3.out, ..."
    assert half(MIB).time_s > 0


@pytest.mark.parametrize("version", ["2.8.4", "2.17.1", "2.20.3", "2.30"])
def test_every_version_has_constants_for_every_gpu(version: str) -> None:
    machines = ("gb200_nvl72:N=2,G=8", "ndv5", "mi300x", "dgx1:N=2")
    made = [Nccl(sim.platform(machine), "allreduce", version) for machine in machines]
    assert all(nccl(GIB).time_s > nccl(KIB).time_s > 0 for nccl in made)
    assert any("no constants for blackwell: those of hopper" in text for text in made[0].notes) == (version != "2.30")


# --- on the command line


def gc3_sim(line: str, *, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result.stdout


def test_baselines_are_columns_with_speedups(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(ALLREDUCE)
    line = f"ring_allreduce:protocol=LL -t ndv4 -b 1KiB -e 1MiB -f 32 --baseline {path} --baseline nccl"
    text = gc3_sim(line)
    assert "# baseline nccl.log (measured): measured, 3 sizes, times in place; the log reports 2 wrong elements" in text
    worth = "8% at 1 KiB to 32 KiB (in sample), 6% at 1 MiB (in sample)"
    assert f"# baseline NCCL 2.8.4: its own choice, simulated; error: {worth}" in text
    assert len(text.partition("#       size")[0].splitlines()) == 4
    other = tmp_path / "other.log"
    other.write_text(ALLREDUCE.replace("   71.80   14.60   25.56      2", "     N/A     N/A     N/A    N/A"))
    told = gc3_sim(f"ring_allreduce:protocol=LL -t ndv4 -b 1KiB -e 1MiB -f 32 --baseline {other}")
    assert "3 sizes, times in place, of 1 the other way, which is all that the log has" in told
    why = gc3_sim(f"{line} --mode explain")
    assert "# baseline NCCL 2.8.4: its own choice, simulated; 1 KiB to 32 KiB: in sample; median error " in why
    data = json.loads(gc3_sim(f"{line} --json"))
    assert [b["kind"] for b in data["baselines"]] == ["log", "nccl"]
    for row, us in zip(data["rows"], (17.17, 31.69, 71.8), strict=True):
        ours, log, nccl = row["programs"]
        assert log["time_us"] == pytest.approx(us)
        assert log["speedup"] == 1.0
        assert ours["speedup"] == pytest.approx(us / ours["time_us"])
        assert nccl["speedup"] == pytest.approx(us / nccl["time_us"])


def test_a_baseline_that_is_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("gc3.cli.trials.choose")  # before settings are searched
    result = CliRunner().invoke(main, ["sim", "ring_allreduce", "-t", "ndv4", "--baseline", "ncccl"])
    assert result.exit_code == 1
    assert "GC3-L017" in result.stderr
    table = tmp_path / "times.csv"
    table.write_text("bytes,nccl_us\n1024,5\n")
    told = CliRunner().invoke(main, ["sim", "ring_allreduce", "-t", "ndv4", "--baseline", str(table)]).stderr
    assert "it has no line with the columns size, time, algbw and busbw" in told
    assert "give the output of an nccl-tests program, or to gc3 sim calibrate --column a CSV file" in told
    assert "'ncccl' is neither nccl, nccl:VERSION, nor a file with a log: did you mean nccl?" in result.stderr


def test_a_baseline_needs_one_collective() -> None:
    gc3_sim("ring_allreduce ring_allgather -t ndv4 -b 1MiB -e 1MiB --baseline nccl", code=2)
    gc3_sim("ring_allreduce -t ndv4 -b 1MiB -e 1MiB --baseline absent.log", code=1)
