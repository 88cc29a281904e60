"""How many threadblocks a GPU holds, and that all commands which know the machine respect it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim, topologies
from gc3.cli.main import main
from gc3.sim import preset_file, presets
from gc3.sim.nccl import Nccl
from gc3.topologies.processors import GC3, NCCL, PROCESSORS
from gc3.tune.space import candidates

pytestmark = pytest.mark.python_only

MIB = 1 << 20


def gc3_(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == code, result.output
    return result


def allpairs(instances: int) -> gc3.Program:
    """A program with 14 threadblocks per instance on each of 8 ranks."""
    return gc3.compile(algorithms.load("allpairs_allreduce"), R=8, instances=instances)


def test_gpus_hold_as_many_threadblocks_as_their_hardware_does() -> None:
    held = {name: (p.threadblocks(NCCL), p.threadblocks(GC3)) for name, p in PROCESSORS.items()}
    assert held == {
        "v100": (80, 160),
        "a100": (108, 216),
        "h100": (132, 264),
        "gb200": (148, 296),
        "mi50": (60, 60),
        "mi250": (104, 104),
        "mi300x": (304, 304),
    }
    for name, (nccl, _) in held.items():
        assert presets.get(name).threadblocks == nccl
    assert topologies.load("dgx2").threadblocks == 80
    for none in ("cpu-threads", "ideal"):
        assert presets.get(none).threadblocks == 0


def test_more_than_a_gpu_holds_are_not_simulated() -> None:
    """112, 448 and 512 threadblocks on an A100 with 108 multiprocessors were simulated without a warning."""
    for instances, most in ((8, 112), (32, 448)):
        with pytest.raises(gc3.UserError, match=f"GC3-C001.*rank 0 of 'allpairs_allreduce' has {most}; .* holds 108"):
            sim.simulate(allpairs(instances), "ndv4", MIB)
        assert sim.simulate(allpairs(instances), "ndv4", MIB, preset="ideal").time_us > 0
    assert sim.simulate(allpairs(7), "ndv4", MIB).time_us > 0
    # NCCL serves the other ranks of an AllToAll in turn.
    assert Nccl(sim.platform("ndv4:N=16"), "alltoall")(MIB).time_s > 0


def test_the_commands_lower_what_they_compile_and_refuse_the_rest(tmp_path: Path) -> None:
    lowered = "at most 108 threadblocks on a rank"
    assert lowered in gc3_("compile allpairs_allreduce:R=8,instances=8 -t ndv4").stdout
    assert lowered in gc3_("verify allpairs_allreduce:R=8,instances=8 -t ndv4").stdout
    assert "at most 112" in gc3_("compile allpairs_allreduce:R=8,instances=8").stdout
    run = "sim allpairs_allreduce:instances={} -t ndv4 -b 1MiB -e 1MiB {}"
    lower, exact = (json.loads(gc3_(run.format(n, "--json")).stdout)["rows"][0]["programs"][0] for n in (8, 7))
    assert 0 < lower["time_us"] < exact["time_us"]
    for line in (
        "compile allpairs_allreduce:R=8,instances=16 -t ndv4",
        run.format(32, ""),
        f"trace allpairs_allreduce:instances=32 -t ndv4 -o {tmp_path}/t.json",
    ):
        assert "GC3-C001" in gc3_(line, code=1).stderr
    # Here only steps count, and not threadblocks.
    assert "allpairs" in gc3_(run.format(32, "--mode alphabeta")).stdout


def test_a_file_is_held_to_the_machine(tmp_path: Path) -> None:
    file = str(tmp_path / "big.gc3")
    allpairs(8).save(file)
    assert "GC3-C001" in gc3_(f"sim {file} -t ndv4 -b 1MiB -e 1MiB", code=1).stderr
    assert "has 112 threadblocks; the limit is 108" in gc3_(f"compile {file} -t ndv4 -o {file}", code=1).stderr
    assert "has 112 threadblocks; the limit is 108" in gc3_(f"verify {file} -t ndv4", code=1).output
    gc3_(f"verify {file} -t ring:R=8", code=1)  # which lacks paths, and holds any number
    assert "no path" in gc3_(f"compile {file} -t dgx1 -o {file}", code=1).stderr


def test_synthesis_respects_the_machine(tmp_path: Path) -> None:
    line = "synth broadcast:instances=32 -t {} --steps least"
    assert "GC3-C001" in gc3_(line.format("dgx1"), code=1).stderr
    path = tmp_path / "shape.json"
    data = json.loads(topologies.dumps(topologies.load("dgx1")))
    path.write_text(json.dumps({**data, "processor": "ideal"}))
    assert "threadblocks on a rank" in gc3_(line.format(path)).stdout


def test_the_tuner_tries_only_what_fits() -> None:
    def most(threadblocks: int) -> int:
        found = candidates("allreduce", 8, in_place=False, instances=(1, 8), threadblocks=threadblocks)
        return max(max(spec.compile(8, in_place=False).core.threadblocks_per_rank) for spec in found)

    assert most(108) <= 108 < most(0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("threadblocks", "-3"),
        ("threadblocks", "1.5"),
        ("launch_s", '"a"'),
        ("cores", "null"),
        ("protocols.LL.rate", "-1.0"),
        ("protocols.LL.factors.recv", "[]"),
        ("evidence.held_out", '"a"'),
    ],
)
def test_a_preset_file_with_an_invalid_number_is_refused(place: str, value: str, tmp_path: Path) -> None:
    data = json.loads(preset_file.dumps(presets.get("a100")))
    *outer, last = place.split(".")
    inner = data
    for key in outer:
        inner = inner[key]
    assert last in inner
    inner[last] = json.loads(value)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    refused = gc3_(f"sim ring_allreduce -t ndv4:preset={path}", code=1).stderr
    assert "GC3-S001" in refused
    assert last in refused
