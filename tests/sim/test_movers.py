"""Who moves messages: pushed by threadblocks, pulled by them, or by copy engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click.testing
import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import UserError, _core, algorithms, datatypes, sim, synth, topologies
from gc3.cli.main import main
from gc3.comm.selection import read_rows
from gc3.runtime.program import Program
from gc3.sim import preset_file, presets, settings
from gc3.sim.parameters import DIRECT
from gc3.topologies.processors import PROCESSORS
from gc3.tune import Best, Search

pytestmark = pytest.mark.python_only

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def compiled(name: str, protocol: str, R: int = 2, instances: int = 1) -> Program:
    return gc3.compile(algorithms.load(name), protocol=protocol, instances=instances, R=R)


def command(*arguments: str) -> click.testing.Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def schedule() -> synth.Result:
    """AllGather (6, 7, 7) on a DGX-1."""
    with synth.Solvers() as solvers:
        session = synth.Session(synth.Network.of(topologies.load("dgx1")), solvers)
        found = synth.Task(session, "allgather").solve(6, 7, 7, prove=False).result
    assert found is not None
    return found


# --- programs


@pytest.mark.parametrize("protocol", ["Pull", "Copy"])
def test_every_form_of_a_program(protocol: str, tmp_path: Path) -> None:
    program = compiled("ring_allgather", protocol, R=3)
    assert program.verify().ok
    assert f"protocol {protocol} " in program.core.to_text()
    assert _core.Program.from_text(program.core.to_text()).to_text() == program.core.to_text()
    path = str(tmp_path / "p.gc3")
    program.save(path)
    assert Program.load(path).protocol == protocol
    data = [np.arange(100, dtype=np.int32) * (r + 1) for r in range(3)]
    for result in program.run(data):
        np.testing.assert_array_equal(result, np.concatenate(data))
    # The runtimes of MSCCL XML push.
    path = str(tmp_path / "p.xml")
    program.save(path)
    text = Path(path).read_text()
    assert 'proto="Simple"' in text
    assert Program.load(path).protocol == "Simple"
    Path(path).write_text(text.replace('proto="Simple"', f'proto="{protocol}"'))
    with pytest.raises(UserError, match="Simple, LL or LL128"):
        Program.load(path)


def test_copy_engines_do_not_reduce() -> None:
    with pytest.raises(UserError, match=r"GC3-C003.*ring_allreduce.*Copy"):
        compiled("ring_allreduce", "Copy")
    text = compiled("ring_allreduce", "Simple").core.to_text().replace("protocol Simple", "protocol Copy")
    written = Program(_core.Program.from_text(text))
    with pytest.raises(UserError, match="GC3-C003"):
        written.verify()
    with pytest.raises(UserError, match="GC3-C003"):
        sim.Simulation(written, sim.platform("dgx1"))
    assert compiled("ring_allreduce", "Pull").verify().ok
    with pytest.raises(UserError, match=r"GC3-L008.*push"):
        compiled("ring_allgather", "push")


# --- the simulator


def exchange(protocol: str, changes: Sequence[settings.Setting] = ()) -> sim.Prediction:
    """Two GPUs that are joined by NVLinks send each other 32 MiB."""
    on = settings.apply(sim.platform("dgx1"), changes)
    instances = 1 if protocol == "Copy" else 4  # more than a threadblock's rate
    return sim.Simulation(compiled("direct_alltoall", protocol, 2, instances), on, ranks=(0, 3)).run(64 * MIB)


def test_the_cost_of_a_copy() -> None:
    on = sim.platform("dgx1")
    wire, v100 = on.topology.link_class("nvlink2"), PROCESSORS["v100"]
    lanes = next(link.lanes for link in on.topology.links if (link.src, link.dst) == (0, 3))
    hop = on.parameters.protocols["Copy"].hop_s + (wire.latency_s or 0.0)
    rate = lanes * 25e9 * wire.dma_efficiency
    submit = on.parameters.protocols["Copy"].submit_s
    expected = on.parameters.launch_s + submit + v100.copy_s + 32 * MIB / rate + hop + 32 * MIB / 1e15
    assert exchange("Copy").time_s == pytest.approx(expected, rel=1e-9)
    start = 50e-6
    assert exchange("Copy", [settings.Setting("Copy.start", start)]).time_s == pytest.approx(
        expected + start - v100.copy_s, rel=1e-9
    )


def test_an_engine_serves_one_connection_at_a_time() -> None:
    """A rank that sends to three others over separate links, with three engines and with one."""
    one, three = (
        sim.Simulation(
            compiled("direct_alltoall", "Copy", R=4),
            settings.apply(sim.platform("dgx1"), [settings.Setting("Copy.engines", n)]),
        ).run(64 * MIB, explain=True)
        for n in (1, 3)
    )
    assert any("copy engine 0" in name for name in three.use)
    # Ranks 0 to 3 are joined by one or two lanes each: 16 MiB take 762 us over one, and 381 us over two.
    by_lanes = sorted(16 * MIB / (n * 22e9) for n in (1, 1, 2))
    assert three.time_s == pytest.approx(max(by_lanes), rel=0.05)
    assert one.time_s == pytest.approx(sum(by_lanes), rel=0.05)


def test_requests_take_a_tenth_of_links_that_are_used_both_ways() -> None:
    push, pull = exchange("Simple"), exchange("Pull")
    assert pull.bound_s / push.bound_s == pytest.approx(1 + 16 / 128 * 0.8 * 0.98)
    assert 1.05 < pull.time_s / push.time_s < 1.15
    one_way = [
        sim.Simulation(compiled("chain_broadcast", p, 2, 4), sim.platform("dgx1"), ranks=(0, 3)).run(64 * MIB)
        for p in ("Simple", "Pull")
    ]
    assert one_way[1].bound_s == one_way[0].bound_s
    assert one_way[1].time_s == pytest.approx(one_way[0].time_s, rel=0.02)


def test_the_lowering_of_a_schedule_depends_on_the_size(schedule: synth.Result) -> None:
    """001 figure 4: a kernel is faster at small sizes, and copies at large ones."""
    on = sim.platform("dgx1")
    assert Best("allgather", on).protocols == datatypes.FORMATS
    assert Best("allgather", on, protocols=datatypes.PROTOCOLS).protocols == datatypes.PROTOCOLS
    search = Search("allgather", on, 8, in_place=False, protocols=datatypes.PROTOCOLS, schedules={"it": schedule})
    ways = [search.fastest(size)[0][0][0].protocol for size in (8 * KIB, 2 * GIB)]
    assert ways[0] in datatypes.FORMATS
    assert ways[1] == "Copy"
    every = datatypes.PROTOCOLS
    assert Best("allreduce", on, protocols=every).protocols == ("Simple", "LL", "LL128", "Pull")
    assert Best("allgather", on, target="rccl", protocols=every).protocols == datatypes.FORMATS
    assert Best("allgather", on, protocols=("LL", "Copy")).protocols == ("Simple", "LL", "Copy")
    assert Best("allgather", sim.platform("mi300x"), protocols=every).protocols == datatypes.FORMATS


def test_programs_of_a_network_are_sent_by_its_nics() -> None:
    """A proxy sends, and neither a receiver nor a copy engine."""
    on = sim.platform("ndv4:N=2")
    pushed, pulled, copied = (
        sim.Simulation(compiled("direct_alltoall", protocol), on, ranks=(0, 8)).run(64 * MIB, explain=True)
        for protocol in ("Simple", "Pull", "Copy")
    )
    assert (pulled.time_s, pulled.use) == (pushed.time_s, pushed.use)
    assert copied.bound_by == pushed.bound_by
    assert copied.use.keys() == pushed.use.keys()
    assert copied.bound_s == pytest.approx(pushed.bound_s, rel=0.05)  # of fewer messages


def test_presets_and_their_files(tmp_path: Path) -> None:
    for name in ("v100", "a100", "h100", "gb200"):
        preset = presets.get(name)
        assert preset.protocols.keys() == {*datatypes.PROTOCOLS, DIRECT}
        assert preset.protocols["Copy"].copy_engines == PROCESSORS[name].copy_engines > 0
    assert presets.get("cpu-processes").protocols["Pull"].lend_bytes == 4096
    for name in ("mi300x", "cpu-threads", "ideal"):
        machine = sim.platform("dgx1", name)
        with pytest.raises(UserError, match=rf"'{name}' has no protocol Copy; it has Simple, LL, LL128\n"):
            sim.Simulation(compiled("ring_allgather", "Copy"), machine)
    path = tmp_path / "mine.json"
    path.write_text(preset_file.dumps(presets.get("v100")))
    assert preset_file.read(str(path)) == presets.get("v100")
    data = json.loads(path.read_text())
    data["protocols"]["Copy"]["copy_engines"] = 2.5
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"copy_engines: 2\.5 is not of type 'integer'"):
        preset_file.read(str(path))


def test_links_that_are_shared_at_once_are_refused() -> None:
    for protocol in ("Pull", "Copy"):
        program = sim.Simulation(compiled("direct_alltoall", protocol), sim.platform("dgx1"))
        with pytest.raises(UserError, match="--sharing serial"):
            program.run(MIB, sharing="max-min")


def test_engines_that_no_gpu_has_are_refused() -> None:
    for line, why in (
        ("Copy.engines=1000000000", "1000000000 copy engines of a rank; 64 at most are simulated"),
        ("Simple.engines=2", "engines: threadblocks push the messages of this protocol"),
        ("*.requests=0.1", "requests: threadblocks push the messages of this protocol"),
    ):
        said = command("sim", "ring_allgather", "-t", "dgx2", "-b", "1MiB", "-e", "1MiB", "--what-if", line)
        assert why in said.output


# --- commands


def test_commands_name_them_and_say_who_runs_them(tmp_path: Path, schedule: synth.Result) -> None:
    program = str(tmp_path / "copy.gc3")
    gc3.compile(replace(schedule, lanes=0).algorithm(), protocol="Copy").save(program)
    said = command("sim", program, "-t", "dgx1", "-b", "1MiB", "-e", "1MiB")
    assert said.exit_code == 0, said.output
    assert "only the engine on devices uses" in said.output
    said = command("sim", "ring_allgather:protocol=Pull", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB")
    assert said.exit_code == 0, said.output
    assert "copy engines" not in said.output
    said = command("sim", "ring_allgather:protocol=Copy", "-t", "mi300x", "-b", "1MiB", "-e", "1MiB")
    assert "has no protocol Copy; it has Simple, LL, LL128" in said.output
    said = command("topo", "show", "dgx1")
    assert "8 ranks of class v100 (5 copy engines, 1.9 us to start a copy)" in said.output


def test_a_table_carries_the_protocol(tmp_path: Path) -> None:
    table = tmp_path / "best.json"
    said = command("synth", "best", "broadcast", "-t", "dgx1:without=2+3+4+5+6+7", "-b", "1KiB", "-e", "1GiB",
                   "-f", "1048576", "--protocols", "LL,Copy", "-o", str(table))  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "protocol Copy: the time is with copy engines" in said.output
    rows = read_rows(str(table))
    used = [row.spec.compile(2, in_place=True).protocol for row in rows if row.limits.in_place is not False]
    assert used[0] == "LL"
    assert used[-1] == "Copy"
