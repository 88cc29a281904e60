"""Several programs at once, and traffic of others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main
from gc3.sim.nccl import Nccl
from gc3.sim.together import Session

pytestmark = pytest.mark.python_only

KIB, MIB = 1 << 10, 1 << 20


def gc3_sim(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result


def program(name: str, ranks: int = 8, **options: Any) -> gc3.Program:
    return gc3.compile(algorithms.load(name), R=ranks, **options)


@pytest.mark.parametrize("preset", ["ndv4", "mi300x"])
@pytest.mark.parametrize("protocol", ["LL", "Simple"])
def test_a_program_by_itself_takes_the_time_that_it_takes_alone(preset: str, protocol: str) -> None:
    on = sim.platform(preset)
    one = sim.Simulation(program("ring_allreduce", protocol=protocol, instances=4), on)
    late = sim.Disturbance({3: 20e-6}, {5: 1.5})
    for disturbance in (sim.Disturbance(), late):
        both = sim.together(on, [sim.Part(one, MIB)], disturbance=disturbance)
        assert both.parts[0].together_s == both.parts[0].alone_s == both.time_s
        assert both.parts[0].alone_s == one.run(MIB, disturbance=disturbance).time_s


def test_programs_that_are_bound_by_the_same_links_share_them() -> None:
    on = sim.platform("ndv4")
    ring = sim.Simulation(program("ring_allreduce", instances=24), on)
    for count in (2, 3):
        both = sim.together(on, [sim.Part(ring, 64 * MIB)] * count)
        name, busy = both.busiest
        assert name.startswith("node0.nvswitch.port")
        assert busy == pytest.approx(count * ring.run(64 * MIB).bound_s)
        assert both.time_s > busy
        assert max(part.factor for part in both.parts) == pytest.approx(count, rel=0.1)


def test_programs_on_other_ranks_do_not_disturb_each_other() -> None:
    on = sim.platform("ndv4")
    half = program("ring_allreduce", 4, instances=8, protocol="LL128")
    first, second, middle = (sim.Simulation(half, on, ranks=r) for r in (range(4), range(4, 8), range(2, 6)))
    apart = sim.together(on, [sim.Part(first, 16 * MIB), sim.Part(second, 16 * MIB)])
    assert [part.factor for part in apart.parts] == [1.0, 1.0]
    across = sim.together(on, [sim.Part(first, 16 * MIB), sim.Part(middle, 16 * MIB)])
    assert min(part.factor for part in across.parts) > 1.3


def test_a_later_program_does_not_disturb_one_that_has_ended() -> None:
    on = sim.platform("ndv4")
    ring = sim.Simulation(program("ring_allreduce", instances=8), on)
    alone = ring.run(MIB).time_s
    both = sim.together(on, [sim.Part(ring, MIB), sim.Part(ring, MIB, 2 * alone)])
    assert [part.together_s for part in both.parts] == pytest.approx([alone, alone])
    assert both.time_s == pytest.approx(3 * alone)


def test_a_program_waits_until_a_gpu_has_room() -> None:
    """An A100 has room for 108 threadblocks: two of these programs run at once, the third after one of them."""
    on = sim.platform("ndv4")
    ring = sim.Simulation(program("ring_allreduce", instances=48), on)
    assert set(ring.threadblocks) == {48}
    both = sim.together(on, [sim.Part(ring, MIB)] * 3)
    wide = replace(on, parameters=replace(on.parameters, threadblocks=0))
    free = sim.together(wide, [sim.Part(ring, MIB)] * 3)
    assert both.parts[2].together_s > both.parts[0].together_s + on.parameters.launch_s / 2
    assert free.parts[2].together_s < both.parts[2].together_s
    full = replace(on, parameters=replace(on.parameters, threadblocks=3 * 48))
    assert sim.together(full, [sim.Part(ring, MIB)] * 3) == free


def test_ranks_that_call_in_different_orders_may_wait_forever() -> None:
    on = sim.platform("ndv4")
    ring = sim.Simulation(program("ring_allreduce", 2, instances=100), on)
    session = Session(on)
    calls = [session.add(ring, MIB), session.add(ring, MIB)]
    for rank in range(2):
        session.begin(calls[rank], rank, 0)
        session.begin(calls[1 - rank], rank, 1000)
    with pytest.raises(gc3.UserError, match="waits for room beside 100 threadblocks") as caught:
        session.advance()
    assert caught.value.code == "GC3-S002"
    session = Session(on)
    session.begin(session.add(ring, MIB), 0, 0)
    assert session.advance() is None  # the other rank never makes its call


def test_every_run_gives_the_same_result() -> None:
    line = "together ring_allreduce:instances=4 direct_alltoall:start=5us ring_allreduce:ranks=2-5,protocol=LL"
    line += " -t mi300x -b 64KiB -e 4MiB --what-if jitter=3us --json"
    assert gc3_sim(line).stdout == gc3_sim(line).stdout


def test_the_command_takes_ranks_start_and_size() -> None:
    line = "together ring_allreduce:ranks=0-2+5,protocol=LL direct_alltoall:start=20us,size=16MiB -t ndv4"
    data = json.loads(gc3_sim(f"{line} -b 1MiB -e 4MiB --json").stdout)
    assert [row["size"] for row in data["rows"]] == [MIB, 4 * MIB]
    ring, alltoall = data["rows"][0]["programs"]
    assert ring["ranks"] == [0, 1, 2, 5]
    assert alltoall["size"] == 16 * MIB
    assert alltoall["start_us"] == pytest.approx(20)
    assert ring["together_us"] >= ring["alone_us"] > 0
    assert data["rows"][0]["time_us"] >= 20 + alltoall["together_us"] - 0.01
    text = gc3_sim("together ring_allreduce ring_allreduce -t ndv4 -b 1MiB -e 1MiB").stdout
    assert "ring_allreduce #2" in text
    assert "all done after" in text


def test_nodes_of_a_part_of_the_machine_follow_from_its_ranks(tmp_path: object) -> None:
    line = "together two_step_alltoall:ranks=0-1+8-9 -t ndv4:N=2 -b 1MiB -e 1MiB --json"
    (found,) = json.loads(gc3_sim(line).stdout)["rows"][0]["programs"]
    assert found["ranks"] == [0, 1, 8, 9]
    path = f"{tmp_path}/ring.gc3"
    program("ring_allreduce", 4).save(path)
    empty = json.loads(gc3_sim("together ring_allreduce:size=0 -t ndv4 -b 1MiB -e 1MiB --json").stdout)
    assert empty["rows"][0]["programs"][0]["size"] == 0
    line = f"together {path}:ranks=4-7 ring_allreduce -t ndv4 -b 1MiB -e 1MiB --json"
    assert json.loads(gc3_sim(line).stdout)["rows"][0]["programs"][0]["ranks"] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        ("ring_allreduce:ranks=0-8", 2, "'ndv4' has ranks 0 to 7"),
        ("ring_allreduce:ranks=3-1", 2, "a range rises"),
        ("ring_allreduce:ranks=a", 2, "is not a list of ranks, such as ranks=0-3+6"),
        ("ring_allreduce:ranks=0-1+1", 2, "names a rank twice"),
        ("ring_allreduce:start=3", 2, "is not a time"),
        ("ring_allreduce:size=big", 2, "is not a size"),
        ("ring_allreduce:start=9000000s", 1, "begins after 9e+06 s; the most is 1000000 s"),
        ("ring_allreduce:size=1024TiB", 1, "more than 2^32 operations"),
        ("ring_allreduce:R=4,ranks=0-1", 1, "has 4 ranks; 2 ranks of the machine are named"),
    ],
)
def test_invalid_parts_are_refused(spec: str, code: int, says: str) -> None:
    result = gc3_sim(f"together {spec} -t ndv4 -b 1MiB -e 1MiB", code=code)
    assert says in result.output


def test_cpu_engines_run_one_program_at_a_time() -> None:
    result = gc3_sim("together ring_allreduce -t cpu:R=4 -b 1MiB -e 1MiB", code=1)
    assert "share processors, which run one program at a time" in result.output


def test_background_traffic_leaves_the_rest_of_every_resource_on_its_way() -> None:
    on = sim.platform("ndv4")
    busy = sim.background(on, [sim.Traffic("0-1", 60e9), sim.Traffic("0-2", 0.3, relative=True)])
    left = dict(busy.slower)
    assert left["node0.nvswitch.port0.out"] == left["node0.nvswitch.port0.in"] == pytest.approx(1 - 60 / 300 - 0.3)
    assert left["node0.nvswitch.port1.in"] == pytest.approx(0.8)
    assert "node0.nvswitch.port3.in" not in left
    ring = program("ring_allreduce", instances=24)
    bound = sim.Simulation(ring, on).run(64 * MIB).bound_s
    assert sim.Simulation(ring, busy).run(64 * MIB).bound_s == pytest.approx(2 * bound)


def test_background_traffic_between_nodes_is_spread_over_their_ports() -> None:
    on = sim.platform("ndv4:N=2")
    one = dict(sim.background(on, [sim.Traffic("0-8", 10e9)]).slower)
    assert [f for name, f in one.items() if ".nic" in name] == pytest.approx([1 - 10 / 25] * 4)
    # Ranks 0 and 8 get the ports of ranks 1 and 9 in addition to their own.
    fabrics = [
        replace(f, ports=f.ports + tuple(replace(p, rank=p.rank - 1) for p in f.ports if p.rank in (1, 9)))
        if f.across_nodes
        else f
        for f in on.topology.fabrics
    ]
    both = replace(on, topology=replace(on.topology, fabrics=tuple(fabrics)))
    left = dict(sim.background(both, [sim.Traffic("0-8", 10e9)]).slower)
    nics = [name for name in left if ".nic" in name]
    assert len(nics) == 8  # two of each node, in both directions
    assert [left[name] for name in nics] == pytest.approx([1 - 5 / 25] * 8)


def test_background_traffic_carries_over_to_baselines() -> None:
    on = sim.platform("ndv4")
    busy = sim.background(on, [sim.Traffic("nvlink3", 0.5, relative=True)])
    before, after = (Nccl(machine, "allreduce").run(64 * MIB) for machine in (on, busy))
    assert before is not None
    assert after is not None
    assert after.bound_s == pytest.approx(2 * before.bound_s)
    # Also where switches add up, which no program does.
    h100 = sim.platform("ndv5")
    times = [
        Nccl(machine, "allreduce")(256 * MIB).time_s
        for machine in (h100, sim.background(h100, [sim.Traffic("memory", 0.99, relative=True)]))
    ]
    assert times[1] > 5 * times[0]
    line = "ring_allreduce -t ndv4 -b 64MiB -e 64MiB --baseline nccl --what-if background=nvlink3:0.5"
    assert "# changed: nvlink3 with 50% of other traffic" in gc3_sim(line).stdout
    data = json.loads(gc3_sim(f"{line} --what-if background=0-1:20GB/s --json").stdout)
    assert data["background"][1] == {"name": "0-1", "amount": 20e9, "relative": False}
    assert data["rows"][0]["programs"][1]["time_us"] > 1e6 * after.time_s


@pytest.mark.parametrize(
    ("option", "code", "says"),
    [
        ("0-1", 2, "is not NAME:RATE or NAME:FRACTION"),
        ("0-1:5us", 2, "is not NAME:RATE or NAME:FRACTION"),
        ("0-1:0", 2, "is not NAME:RATE or NAME:FRACTION"),
        ("0-9:1GB/s", 1, "has no path between the ranks of '0-9'"),
        ("nick:1GB/s", 1, "'ndv4' has no 'nick'"),
        ("nvlink3:1", 1, "leaves nothing of 'node0.nvswitch.port0.out', which carries 300 GB/s"),
        ("0-1:301GB/s", 1, "leaves nothing of"),
    ],
)
def test_invalid_traffic_is_refused(option: str, code: int, says: str) -> None:
    result = gc3_sim(f"ring_allreduce -t ndv4 -b 1MiB -e 1MiB --what-if background={option}", code=code)
    assert says in result.output
