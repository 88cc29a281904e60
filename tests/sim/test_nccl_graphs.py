"""NCCL on any machine: its graphs by the rules of its search, and as it logs them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import gc3
from gc3 import sim, topologies
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.sim.nccl import Nccl, graphs, system
from gc3.tune import nccl_rules

pytestmark = pytest.mark.python_only

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def gc3_sim(line: str, *, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("machine", "version", "channels", "running", "rates", "cross", "kinds"),
    [
        # Logs: nccl issue 1197 (H100), and one of 16 H100 with NICs of 400 Gbit/s and NCCL 2.30.
        ("ndv5", "2.19.4", 12, 24, (30.0, 30.0), 0, ("NVL", "PIX")),
        ("ndv5:N=2", "2.30", 8, 16, (48.0, 48.0), 2, ("NVL", "PIX")),
        ("dgx1", "2.8.4", 6, 12, (21.0, 21.0), 0, ("NVL", "PIX")),
        ("ndv4:N=2", "2.8.4", 8, 16, (24.0, 24.0), 0, ("NVL", "PXN")),
        ("dgx2:N=2", "2.8.4", 8, 16, (12.0, 12.0), 0, ("NVL", "PIX")),
        ("summit:N=2", "2.8.4", 2, 4, (12.0, 12.0), 0, ("SYS", "SYS")),
        ("gb200_nvl72:G=8", "2.28.3", 16, 32, (45.0, 45.0), 0, ("NVL", "PIX")),
        ("hierarchical:N=2,G=8,nics=4,GBps=450,nic_GBps=50", "2.28.3", 8, 16, (24.0, 24.0), 0, ("NVL", "PIX")),
    ],
)
def test_channels_follow_from_the_machine(
    machine: str,
    version: str,
    channels: int,
    running: int,
    rates: tuple[float, float],
    cross: int,
    kinds: tuple[str, str],
) -> None:
    found = graphs.graph(topologies.load(machine), version)
    assert (found.channels, found.running) == (channels, running)
    assert (found.ring.inside, found.ring.across, found.ring.cross) == (*rates, cross)
    assert (system.CLASSES[found.ring.type_inside], system.CLASSES[found.ring.type_across]) == kinds


def test_rings_of_slow_cards_and_of_sockets_are_those_of_logs() -> None:
    """Nccl issues 601 (4 NICs of 10 Gbit/s) and 1358 (two GPUs, each on a CPU of its own)."""
    slow = topologies.load("hierarchical:N=2,G=4,nics=4,GBps=12")
    slow = replace(
        slow, classes=tuple(replace(c, bandwidth_bytes_per_s=1.25e9) if c.name == "nic" else c for c in slow.classes)
    )
    found = graphs.graph(slow, "2.10.3")
    assert (found.channels, found.ring.inside) == (4, 1.2)
    build = topologies.Builder("sockets", processor="a100")
    pair = [build.rank(f"gpu{s}", socket=s) for s in (0, 1)]
    qpi = topologies.LinkClass("qpi", 10e9)
    pcie = topologies.LinkClass("pcie4", 24e9)
    slots = [build.duplex(f"gpu{s}", "pcie", pcie) for s in (0, 1)]
    between = build.duplex("cpus", "xbus", qpi)
    for a, b in ((0, 1), (1, 0)):
        build.link(pair[a], pair[b], qpi, lanes=0, via=(slots[a][0], between[a], slots[b][1]))
    found = graphs.graph(build.build(), "2.18.3")
    assert (found.channels, found.ring.inside, system.CLASSES[found.ring.type_inside]) == (1, 10.0, "SYS")


LONG = ("gb200_nvl72", "mi250")


@pytest.mark.parametrize(
    "machine", [pytest.param(m, marks=pytest.mark.nightly if m in LONG else ()) for m in topologies.catalogue()]
)
def test_nccl_on_every_family(machine: str) -> None:
    """Each family of machines, on one and several nodes where it has any, for rings, trees and sends."""
    parameters = {p.name: p.default for p in topologies.catalogue()[machine].parameters}
    needed = {name: 2 if name in "DX" else 4 for name, default in parameters.items() if default is None}
    for nodes in (1, 2, 4) if "N" in parameters else (1,):
        on = sim.platform(topologies.load(machine, **(needed | ({"N": nodes} if "N" in parameters else {}))))
        if on.topology.ranks[0].kind == "cpu":
            continue
        for collective in ("allreduce", "alltoall"):
            assert Nccl(on, collective)(MIB).time_s > 0


# --- as NCCL logs it


@pytest.mark.parametrize("machine", ["ndv5:N=2", "summit"])
def test_nccls_graphs_are_shown_as_in_its_log(machine: str, tmp_path: Path) -> None:
    """And are read again: the rings of `Channel` lines begin at rank 0."""
    line = f"ring_allreduce -t {machine} -b 1KiB -e 1GiB -f 1024 --mode nccl"
    text = gc3_sim(line)
    log = tmp_path / "nccl.log"
    log.write_text("".join(f"node0:77:77 [0] NCCL INFO {told}\n" for told in text.splitlines()))
    assert gc3_sim(f"{line} --nccl-log {log}").splitlines() == text.splitlines()
    data = json.loads(gc3_sim(f"{line} --json"))
    assert [row["size"] for row in data["choices"]] == [KIB, MIB, GIB]
    assert data["graphs"] == [told for told in text.splitlines() if told[0] not in "#A"]


def test_rings_between_nodes_are_those_of_a_log() -> None:
    """Of 16 H100 with NICs of 400 Gbit/s only channels 0, 1, 8 and 9 join rank 0 to rank 8 (a published log)."""
    told = gc3_sim("ring_allreduce -t ndv5:N=2 -b 1MiB -e 1MiB --mode nccl --baseline nccl:2.30")
    rings = [told.split(":")[1].split() for told in told.splitlines() if told.startswith("Channel")]
    assert len(rings) == 16
    assert [c for c, ring in enumerate(rings) if "8" in (ring[1], ring[-1])] == [0, 1, 8, 9]


LOG = """node0:77:90 [0] NCCL INFO NCCL version 2.19.3+cuda12.3
node0:77:91 [1] NCCL INFO Pattern 4, crossNic 0, nChannels 1, bw 10.000000/10.000000, type NVL/PIX, sameChannels 1
node0:77:90 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1
node0:77:91 [1] NCCL INFO  0 : GPU/2A000 GPU/3A000 GPU/AB000 GPU/4A000
node0:77:90 [0] NCCL INFO Channel 00/02 :    0   1   3   2
node0:77:90 [0] NCCL INFO Channel 01/02 :    0   2   3   1
node0:77:90 [0] NCCL INFO 2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer
node0:77:90 [0] NCCL INFO 1048576 Bytes -> Algo 1 proto 1 time 63.000000
node0:77:90 [0] NCCL INFO AllReduce: 2097152 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
"""


def test_a_log_takes_the_place_of_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    line = f"ring_allreduce -t ndv4:without=4+5+6+7 -b 1MiB -e 2MiB -f 2 --nccl-log {path}"
    told = gc3_sim(f"{line} --mode nccl").splitlines()
    assert told[1:4] == [
        "NCCL version 2.19.3",
        "Pattern 4, crossNic 0, nChannels 1, bw 10.000000/10.000000, type NVL/PIX, sameChannels 1",
        " 0 : GPU/0 GPU/1 GPU/3 GPU/2",
    ]
    assert "Channel 01/02 : 0 2 3 1" in told
    assert told[-2].startswith("AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}")
    assert told[-1].startswith("AllReduce: 2097152 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}")
    data = json.loads(gc3_sim(f"{line} --baseline nccl --json"))
    assert [row["programs"][1]["cause"].split(";")[0] for row in data["rows"]] == [
        "ring LL128, 2 channels",
        "tree LL, 1 channel",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (LOG, "", 0, "it has no graphs, rings or choices: run with NCCL_DEBUG=INFO"),
        ("nChannels 1, bw 10", "nChannels 1, bw ten", 2, "'Pattern 4, crossNic 0, nChannels 1, bw ten"),
        ("0   1   3   2", "0   1   3   4", 5, "channel 0 of 2 is no ring of the machine's 4 ranks"),
        ("GPU/2A000 GPU/3A000", "GPU/2A000", 4, "channel 0 names 3 GPUs, 3 of them different ones; a node of the"),
        ("GPU/2A000 GPU/3A000", "GPU/2A000 GPU/2A000 GPU/3A000", 4, "channel 0 names 5 GPUs, 4 of them different"),
        ("2 coll channels", "400000000 coll channels", 7, "400000000 channels: NCCL has at most 64"),
        ("2 coll channels", f"{'9' * 5000} coll channels", 7, "999999999999 channels: NCCL has at most 64"),
        ("nChannels 1, bw 10", "nChannels 65, bw 10", 2, "65 channels: NCCL has at most 64"),
        ("nChannels 1, bw 10", f"nChannels {'1' * 5000}, bw 10", 2, "is no pattern of NCCL"),
        ("2097152 Bytes", f"{'2' * 5000} Bytes", 9, "is no choice of NCCL"),
        ("={0..0}", "={0..70}", 9, "is no choice of NCCL"),
        (" 0 : GPU/2A000", " 1 : GPU/2A000", 4, "channel 1 of pattern 4 does not follow channel -1 of 1"),
        ("Channel 00/02", "Channel 01/02", 0, "there is no line of channel 0"),
        ("nChannels 1, bw 10", "nChannels 0, bw 10", 2, "pattern 4 has 0 channels of 10.000000/10.000000 GB/s"),
        ("bw 10.000000/10", "bw 0.000000/10", 2, "pattern 4 has 1 channels of 0.000000/10.000000 GB/s"),
        ("GPU/2A000", "GPU/-", 0, "pattern 4 has 1 channels, but 0 lines of them"),
        ("Algo 1 proto 1", "Algo 9 proto 1", 8, "'1048576 Bytes -> Algo 9 proto 1 time 63.000000' is no choice"),
        ("proto LL channel", "proto LX channel", 9, "'AllReduce: 2097152 Bytes -> Algo TREE proto LX"),
    ],
)
def test_damaged_logs_of_nccl_are_told_with_the_line(old: str, new: str, line: int, says: str, tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    assert old in LOG
    path.write_text(LOG.replace(old, new))
    command = f"ring_allreduce -t ndv4:without=4+5+6+7 -b 1MiB -e 1MiB --mode nccl --nccl-log {path}"
    result = CliRunner().invoke(main, ["sim", *command.split()])
    assert result.exit_code == 1
    assert f"{path}:{line}" in result.stderr or not line
    assert says in result.stderr


def test_options_that_need_nccl() -> None:
    for line in ("--nccl-log x.log", "--mode nccl --baseline nccl.log"):
        gc3_sim(f"ring_allreduce -t ndv4 -b 1MiB -e 1MiB {line}", code=2)


def test_rings_of_rccl_use_each_link_alike() -> None:
    """The tables of RCCL 2.21.5 for 8 MI300X: 14 rings on one node, and on several 8 that begin at a NIC each."""
    for nodes, each, running in ((1, 8, 56), (2, 8, 64)):
        found = graphs.graph(topologies.load("mi300x", N=nodes))
        uses = Counter(
            hop for order in found.ring.orders for hop in pairwise((*order, order[0]) if nodes == 1 else order)
        )
        assert found.running == running
        assert len(uses) == 56
        assert set(uses.values()) == {each}
        firsts, lasts = (Counter(end) for end in zip(*found.ring.cards, strict=True))
        assert nodes == 1 or firsts == lasts == Counter(dict.fromkeys(range(8), 8))
        assert "RCCL's rings, programs and constants are those of 2.21.5" in found.notes[0]


def test_rccl_chooses_by_its_own_constants_and_programs() -> None:
    inside, across = (Nccl(sim.platform(f"mi300x:N={nodes}"), "allreduce") for nodes in (1, 2))
    assert [str(inside.choice(size)) for size in (64 * KIB, 256 * KIB, 16 * MIB, 16 * MIB + 4)] == [
        "allpairs LL, 4 channels",
        "allpairs LL, 8 channels",
        "allpairs Simple, 8 channels",
        "ring Simple, 56 channels",
    ]
    assert [str(across.choice(size)) for size in (KIB, MIB, 16 * MIB, GIB)] == [
        "tree LL, 1 channel",
        "tree LL, 64 channels",
        "tree Simple, 64 channels",
        "ring Simple, 64 channels",
    ]
    # The same program takes the same time, whoever starts it.
    same = gc3.compile(load("allpairs_allreduce"), R=8, chunks=8, protocol="LL", instances=4)
    assert inside(KIB).time_s == pytest.approx(sim.Simulation(same, inside.on).run(KIB).time_s)
    assert inside.label == "RCCL 2.21.5"
    assert inside(KIB).cause == "allpairs LL, 4 channels; a program of MSCCL, by its table of sizes"


@pytest.mark.parametrize("machine", ["mi300x:without=5", "mi300x:N=2,without=1+9", "mi250"])
def test_other_nodes_of_amd_have_what_nccl_would_find(machine: str) -> None:
    found = graphs.graph(topologies.load(machine))
    assert not found.rccl
    assert "runs RCCL, whose rings and constants are its own: those of NCCL are used" in found.notes[0]


def test_a_choice_by_rccls_programs_is_shown_and_left_to_it() -> None:
    line = "ring_allreduce -t mi300x -b 1KiB -e 1KiB --mode nccl"
    told = gc3_sim(line).splitlines()
    assert told[-1] == (
        "AllReduce: 1024 Bytes -> MSCCL's program of all pairs, proto LL, 4 instances  # a program of MSCCL, by its "
        "table of sizes"
    )
    assert "RCCL version 2.21.5" in told
    data = json.loads(gc3_sim(f"{line} --json"))
    assert (data["choices"][0]["model_us"], data["version"], data["channels"]) == (None, "2.21.5", 56)
    assert nccl_rules.best(Nccl(sim.platform("mi300x"), "allreduce"), KIB) is None
