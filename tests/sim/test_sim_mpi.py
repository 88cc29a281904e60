"""MPI in the simulator: the preset, rendezvous, and what of the others stays as it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main
from gc3.sim import preset_file, presets, settings
from gc3.sim.platform import Platform

pytestmark = pytest.mark.python_only

KIB, MIB = 1 << 10, 1 << 20
US = 1e-6


def on_mpi(machine: str, *changes: str) -> Platform:
    return settings.apply(sim.platform(machine, "mvapich2-gdr"), [settings.parse(text) for text in changes])


def alltoall(name: str, window: int, on: Platform, message: int, **parameters: Any) -> float:
    program = gc3.compile(algorithms.load(name), window=window, **parameters)
    return sim.Simulation(program, on).run(message * program.collective.ranks).time_s


def test_the_order_of_calls_and_the_windows_of_mpi_take_different_times() -> None:
    """Compiled for a GPU, the two take the same time to the microsecond."""
    machine = sim.platform("lassen:N=4")
    free = Platform(machine.topology, replace(machine.parameters, threadblocks=0))
    flat, nodes = {"R": 16}, {"N": 4, "G": 4}
    eager, scatter = "eager_pairwise_alltoall", "scatter_destination_alltoall"
    compiled = [alltoall(name, 0, free, 64 * KIB, **given) for name, given in ((eager, nodes), (scatter, flat))]
    assert compiled[0] == pytest.approx(compiled[1], abs=1e-6)
    on = on_mpi("lassen:N=4")
    times = [
        alltoall(eager, 1000, on, 64 * KIB, **nodes),
        alltoall(scatter, 4, on, 64 * KIB, **flat),
        alltoall(scatter, 1, on, 64 * KIB, **flat),
    ]
    assert times[0] < 0.95 * times[1]
    assert times[1] < 0.95 * times[2]


def test_a_rank_handles_one_message_after_the_other() -> None:
    """Sends that a rank posts at once leave it one by one, whatever their links."""
    on = on_mpi("fully_connected:R=9")
    program = gc3.compile(algorithms.load("flat_scatter"), R=9, window=100)
    wire = on.latency(on.topology.classes[0].name, on.parameters.protocol("Simple"))
    expected = 9 * US + wire + 1 * US  # a copy of its own block and eight sends; the last arrives and is received
    assert sim.Simulation(program, on).run(9 * 4).time_s == pytest.approx(expected, rel=1e-3)
    # Eight that arrive at once, when the copy is done, are received one by one.
    program = gc3.compile(algorithms.load("flat_gather"), R=9, window=100)
    assert sim.Simulation(program, on).run(9 * 4).time_s == pytest.approx(1 * US + wire + 8 * US, rel=1e-3)


def test_a_rendezvous_begins_at_its_size_and_takes_a_round_trip() -> None:
    on = on_mpi("fully_connected:R=2", "Simple.op=0us", "Simple.rendezvous_bytes=1KiB")
    program = gc3.compile(algorithms.load("flat_scatter"), R=2, window=1)
    simulation = sim.Simulation(program, on)
    wire = on.latency(on.topology.classes[0].name, on.parameters.protocol("Simple"))
    below, at = (simulation.run(2 * size, explain=True) for size in (KIB - 4, KIB))
    assert at.time_s - below.time_s == pytest.approx(2 * wire, rel=0.01)
    assert at.explanation is not None
    assert at.explanation.causes["rendezvous"] == pytest.approx(2 * wire)
    assert below.explanation is not None
    assert "rendezvous" not in below.explanation.causes


def test_the_critical_path_continues_behind_waits_for_windows_processors_and_receivers() -> None:
    """What a rank waited for is named, and not the wait: here a NIC, which is busy for most of the time."""
    on = on_mpi("lassen:N=4")
    program = gc3.compile(algorithms.load("scatter_destination_alltoall"), R=16, window=4)
    for sharing in ("serial", "max-min"):
        found = sim.Simulation(program, on).run(MIB, sharing=sharing, explain=True)
        why = found.explanation
        assert why is not None
        assert why.cause.startswith("link node")
        assert why.causes["link"] > 0.6 * found.time_s
        assert sum(why.causes.values()) == pytest.approx(found.time_s)
        assert why.path[0].from_s == 0
        assert all(one.to_s == next_.from_s for one, next_ in itertools.pairwise(why.path))
        # Each of 16 processors handles 30 messages for 1 to 3 us, so no wait for one is longer than all of these.
        assert why.causes["core"] < 90e-6
        records = why.records
        assert ((records["ready"] <= records["due"]) & (records["due"] <= records["start"])).all()
        assert why.stalls["core"] == pytest.approx((records["start"] - records["due"]).sum() * 1e-12)


def test_a_deadlock_by_rendezvous_names_the_window() -> None:
    ring = gc3.compile(algorithms.load("ring_allreduce"), R=4)
    with pytest.raises(gc3.UserError, match=r"GC3-S002[\s\S]*window=N"):
        sim.Simulation(ring, on_mpi("fully_connected:R=4")).run(MIB)


def test_a_preset_with_a_rendezvous_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "mpi.json"
    path.write_text(preset_file.dumps(presets.get("mvapich2-gdr")), encoding="utf-8")
    assert presets.get(str(path)).protocols == presets.get("mvapich2-gdr").protocols
    old = json.loads(path.read_text(encoding="utf-8"))
    del old["protocols"]["Simple"]["rendezvous_bytes"]  # written before there was one
    path.write_text(json.dumps(old), encoding="utf-8")
    assert presets.get(str(path)).protocol("Simple").rendezvous_bytes == 0


def test_on_the_command_line() -> None:
    line = (
        "sim eager_pairwise_alltoall:window=100 scatter_destination_alltoall:window=4 -t lassen:N=2,preset=mvapich2-gdr"
    )
    args = [*line.split(), "-b", "512KiB", "-e", "512KiB", "--json"]
    found = CliRunner().invoke(main, args)
    assert found.exit_code == 0, found.output
    times = [p["time_us"] for p in json.loads(found.stdout)["rows"][0]["programs"]]
    assert times[0] < times[1]
    explained = CliRunner().invoke(main, [*args[:-1], "--mode", "explain"])
    assert explained.exit_code == 0, explained.output
    assert "rendezvous" in explained.output


CASES: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("ndv4", "", "ring_allreduce", {"R": 8, "channels": 4}, "Simple"),
    ("ndv4", "", "allpairs_allreduce", {"R": 8}, "LL"),
    ("ndv4:N=2", "", "two_step_alltoall", {"N": 2, "G": 8}, "LL128"),
    ("dgx_h100:N=2", "", "hierarchical_allreduce", {"N": 2, "G": 8}, "Simple"),
    ("mi300x", "", "direct_allgather", {"R": 8}, "LL"),
    ("lassen:N=4", "", "scatter_destination_alltoall", {"R": 16}, "Simple"),
    ("summit:N=2", "", "hierarchical_allgather", {"N": 2, "G": 6}, "Simple"),
    ("ring:R=8", "ideal", "ring_allgather", {"R": 8}, "LL128"),
    ("cpu:R=4", "", "pairwise_alltoall", {"R": 4}, "Simple"),
    ("cpu:R=4", "cpu-processes", "ring_allreduce", {"R": 4}, "Simple"),
]


def test_other_presets_give_the_times_that_they_gave_before(golden: Callable[..., None]) -> None:
    """To the picosecond. The golden text was written by the version without MPI."""
    lines: list[str] = []
    for machine, preset, name, parameters, protocol in CASES:
        program = gc3.compile(algorithms.load(name), protocol=protocol, **parameters)
        simulation = sim.Simulation(program, sim.platform(machine, preset or None))
        for sharing in ("serial", "max-min"):
            times = [round(simulation.run(size, sharing=sharing).time_s * 1e12) for size in (KIB, 1 << 20, 1 << 24)]
            lines.append(" ".join([machine, preset or "own", name, protocol, sharing, *map(str, times)]))
    golden("\n".join(lines) + "\n")
