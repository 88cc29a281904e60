"""Memory of GPUs, and compute beside programs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main
from gc3.sim.nccl import Nccl
from gc3.topologies.processors import PROCESSORS

pytestmark = pytest.mark.python_only

MIB = 1 << 20
SIZE = 64 * MIB
# Next to nothing uses memory besides programs.
SHARED = sim.background(sim.platform("ndv4"), [sim.Traffic("memory", 1.0)])


def gc3_sim(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result


def ring(protocol: str = "Simple", instances: int = 24) -> gc3.Program:
    return gc3.compile(algorithms.load("ring_allreduce"), R=8, protocol=protocol, instances=instances)


def memory(prediction: sim.Prediction) -> list[tuple[float, int]]:
    return [use for name, use in prediction.use.items() if name.endswith(".memory")]


@pytest.mark.parametrize(("protocol", "wire"), [("Simple", 1.0), ("LL", 2.0), ("LL128", 16 / 15)])
def test_traffic_in_memory_is_what_the_steps_read_and_write(protocol: str, wire: float) -> None:
    """Of S / 8 in each step of the ring: slots are written and read with their flags, buffers without.

    A rank sends once, then 6 times receives, reduces and sends on, once stores as well, 6 times stores and sends on,
    and stores once.
    """
    found = sim.Simulation(ring(protocol, 1), SHARED).run(MIB, explain=True)
    slots = 14 * wire + 14 * wire  # written by the previous rank, read
    buffers = 1 + 6 * 1 + 2 + 6 * 1 + 1
    busy = MIB / 8 * (slots + buffers) / 1555e9
    assert [seconds for seconds, _ in memory(found)] == pytest.approx([busy] * 8, rel=1e-3)


def test_memory_is_that_of_the_processor_class_and_does_not_bind_programs_alone() -> None:
    for machine, rate in (("ndv4", 1555e9), ("ndv5", 3350e9), ("mi300x", 5.3e12), ("dgx1", 900e9)):
        on = sim.platform(machine)
        assert on.parameters.memory_rate == rate == PROCESSORS[on.topology.processor or ""].memory
    alone, unlimited = (
        sim.Simulation(ring(), machine).run(SIZE, explain=True) for machine in (SHARED, sim.platform("ndv4"))
    )
    assert alone.time_s == unlimited.time_s
    assert 0.2 < max(memory(alone))[0] / alone.time_s < 0.5
    assert not memory(unlimited)


def test_compute_that_uses_memory_slows_programs_down() -> None:
    on = sim.platform("ndv4")
    program = ring()
    busy = sim.background(on, [sim.Traffic("memory", 0.8, relative=True)])
    before, after = (sim.Simulation(program, machine).run(SIZE) for machine in (on, busy))
    assert after.bound_by.endswith(".memory")
    assert after.time_s > 1.8 * before.time_s
    assert after.bound_s == pytest.approx(5 * max(memory(sim.Simulation(program, SHARED).run(SIZE, explain=True)))[0])
    one = sim.background(on, [sim.Traffic("rank3.memory", 1244e9)])
    assert sim.Simulation(program, one).run(SIZE).bound_by == "rank3.memory"
    nccl = [Nccl(machine, "allreduce").run(SIZE) for machine in (on, busy)]
    assert nccl[0] is not None
    assert nccl[1] is not None
    assert nccl[1].time_s > 1.5 * nccl[0].time_s


def test_serial_and_fair_sharing_of_memory_agree() -> None:
    busy = sim.background(sim.platform("ndv4"), [sim.Traffic("memory", 0.8, relative=True)])
    made = sim.Simulation(ring(instances=8), busy)
    serial, fair = (made.run(16 * MIB, sharing=sharing).time_s for sharing in ("serial", "max-min"))
    assert serial == pytest.approx(fair, rel=0.15)


def test_compute_leaves_room_for_whole_threadblocks() -> None:
    assert sim.beside(sim.platform("dgx1"), 0.9).parameters.threadblocks == 8  # of 80; 80 * (1 - 0.9) is less
    assert sim.beside(sim.platform("ndv4"), 0.9).parameters.threadblocks == 10  # of 108


def test_compute_leaves_room_for_fewer_threadblocks() -> None:
    line = "ring_allreduce:instances=48 -t ndv4 -b 1MiB -e 1MiB"
    assert "# changed: compute on 50% of the multiprocessors" in gc3_sim(f"{line} --what-if compute=0.5").stdout
    assert "GC3-C001" in gc3_sim(f"{line} --what-if compute=0.6", code=1).output
    assert json.loads(gc3_sim(f"{line} --what-if compute=0.5 --json").stdout)["compute"] == pytest.approx(0.5)
    # Two programs of 48 threadblocks run at once on 108 multiprocessors, and one after the other on 54.
    pair = "together ring_allreduce:instances=48 ring_allreduce:instances=48 -t ndv4 -b 1MiB -e 1MiB --json"
    free, half = (json.loads(gc3_sim(f"{pair} {more}").stdout)["rows"][0] for more in ("", "--what-if compute=0.5"))
    assert half["time_us"] > free["time_us"]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("-t ndv4 --what-if compute=1", 2, "is not a fraction below 1"),
        ("-t ndv4 --what-if compute=0.999", 1, "leaves no room for a threadblock"),
        ("-t cpu:R=4 --what-if compute=0.5", 1, "does not say how many threadblocks a GPU holds"),
        ("-t cpu:R=4 --what-if background=memory:0.5", 1, "does not limit the memory of ranks"),
        ("-t ndv4 --what-if background=memory:1", 1, "leaves nothing of 'rank0.memory', which carries 1555 GB/s"),
    ],
)
def test_invalid_compute_is_refused(line: str, code: int, says: str) -> None:
    assert says in gc3_sim(f"ring_allreduce -b 1MiB -e 1MiB {line}", code=code).output


def test_the_rate_is_a_parameter() -> None:
    line = "ring_allreduce:instances=24 -t ndv4 -b 64MiB -e 64MiB --json"
    (row,) = json.loads(gc3_sim(f"{line} --what-if memory.rate=600GB/s --what-if background=memory:300GB/s").stdout)[
        "rows"
    ]
    assert row["programs"][0]["bound_by"].endswith(".memory")
