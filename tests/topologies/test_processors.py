"""The processor classes of ranks, and the properties that depend on them and not on the name of a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim, topologies
from gc3.cli.main import main
from gc3.sim import presets
from gc3.sim.nccl import choose, graphs
from gc3.topologies import document, importing, probe, processors
from gc3.topologies.model import Topology

pytestmark = pytest.mark.python_only

DATA = Path(__file__).parent.parent / "data" / "topologies"
LIST = "".join(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-{i:08x})\n" for i in range(8))
MIB = 1 << 20


def gc3_(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == code, result.output
    return result


def ring_us(on: str | Topology) -> float:
    ring = gc3.compile(algorithms.load("ring_allreduce"), R=4)
    return sim.simulate(ring, on, MIB).time_us


def test_every_machine_says_its_class_and_every_class_of_theirs_has_a_preset() -> None:
    for name, preset in topologies.catalogue().items():
        machine = topologies.load(name, **{p.name: 2 for p in preset.parameters if p.default is None})
        assert machine.processor, name
        assert presets.for_topology(machine).name == {"cpu": "cpu-threads"}.get(machine.processor, machine.processor)
    for name in processors.PROCESSORS:
        assert name in presets.PRESETS


def test_a_machine_is_as_fast_under_any_name(tmp_path: Path) -> None:
    """With another name, a machine was simulated as ideal, seven times too fast."""
    machine = topologies.load("ndv4")
    renamed = replace(machine, name="mymachine")
    assert ring_us(renamed) == ring_us(machine)
    path = tmp_path / "mymachine.json"
    path.write_text(topologies.dumps(renamed))
    assert topologies.load(str(path)) == renamed
    assert ring_us(str(path)) == ring_us(machine)


def test_imported_machines_are_as_fast_as_their_gpus(tmp_path: Path) -> None:
    """An NCCL XML with sm=80 was simulated as ideal."""
    xml = (DATA / "nccl_h100.xml").read_text()
    for capability, name in (("90", "h100"), ("80", "a100")):
        path = tmp_path / "node.xml"
        path.write_text(xml.replace('sm="90"', f'sm="{capability}"'))
        machine = importing.import_file(str(path))
        assert machine.processor == name
        assert presets.for_topology(machine).name == name
        assert ring_us(machine) > 10 * ring_us(replace(machine, ranks=topologies.load("ring:R=4").ranks))


def test_xml_of_unknown_and_amd_gpus(tmp_path: Path) -> None:
    xml = (DATA / "nccl_h100.xml").read_text()
    path = tmp_path / "node.xml"
    amd = {'gcn="gfx942"': "mi300x", 'gcn="gfx90a"': "mi250", 'gcn="906"': "mi50"}
    for given, name in {'sm="86"': "sm86", **amd, "": ""}.items():
        path.write_text(xml.replace('sm="90"', given))
        assert importing.import_file(str(path)).processor == name
    path.write_text(xml.replace('sm="90"', 'gcn="&#x202e;[ 31m"'))
    assert importing.import_file(str(path)).processor == "gfx-31m"
    path.write_text(xml)
    assert importing.import_file(str(path), processor="gb200").processor == "gb200"


def test_an_unknown_class_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    machine = topologies.load("ndv4")
    unknown = replace(machine, ranks=tuple(replace(r, processor="sm86") for r in machine.ranks))
    silent = replace(machine, ranks=tuple(replace(r, processor="") for r in machine.ranks))
    mixed = replace(machine, ranks=(*machine.ranks[:7], unknown.ranks[7]))
    path = tmp_path / "m.json"
    for topology, says in (
        (unknown, "are of processor class 'sm86', for which there is no preset"),
        (silent, "does not name the processor class"),
        (mixed, "are of different processor classes"),
    ):
        path.write_text(topologies.dumps(topology))
        assert topologies.load(str(path)) == topology
        refused = gc3_(f"sim ring_allreduce -t {path}", code=1).stderr
        assert says in refused
        assert "a100, h100, v100, gb200, mi300x, mi250, mi50, cpu, cpu-ethernet, cpu-infiniband, ideal" in refused
        assert "preset=NAME" in refused
        assert "preset a100" in gc3_(f"sim ring_allreduce -t {path}:preset=a100 -b 1MiB -e 1MiB").stdout


def test_files_say_the_class_once_or_by_rank() -> None:
    data: dict[str, Any] = json.loads(topologies.dumps(topologies.load("ndv4")))
    assert data["processor"] == "a100"
    assert all("processor" not in rank for rank in data["ranks"])
    data["ranks"][3]["processor"] = "h100"
    mixed = document.from_data(data)
    assert [r.processor for r in mixed.ranks[2:5]] == ["a100", "h100", "a100"]
    assert mixed.processor is None
    assert document.loads(topologies.dumps(mixed)) == mixed
    del data["processor"]
    assert document.from_data(data).ranks[0].processor == ""


def test_nvidia_smi_names_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = (DATA / "smi_a100.txt").read_text()
    path = tmp_path / "topo.txt"
    for text in (LIST + table, table + "\n" + LIST):
        path.write_text(text)
        assert importing.import_file(str(path)).processor == "a100"
    path.write_text(LIST.replace("A100-SXM4-40GB", "H100 PCIe", 1) + table)
    assert importing.import_file(str(path)).ranks[0].processor == "nvidia-h100-pcie"
    path.write_text(table)
    assert importing.import_file(str(path)).processor == ""
    out = gc3_(f"topo import {path} --processor a100 -o {tmp_path}/m.json").stdout
    assert "processors: 8 ranks of class a100" in out
    assert topologies.load(f"{tmp_path}/m.json").processor == "a100"

    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncase $1 in -L) cat <<'E'\n{LIST}E\n;; *) cat '{path}' ;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert probe.probe().processor == "a100"
    assert probe.probe(gpus=False).processor == "cpu"


def test_nccls_choices_depend_on_the_machine_and_not_its_name() -> None:
    for spec in ("dgx1", "dgx2", "ndv4", "ndv5", "summit", "lassen", "ndv2:N=2", "ndv4:N=3", "dgx_h100:N=2"):
        machine = topologies.load(spec)
        renamed = replace(machine, name="mymachine")
        assert graphs.graph(renamed) == graphs.graph(machine), spec
        assert choose(renamed, "allreduce", MIB) == choose(machine, "allreduce", MIB)
    assert graphs.graph(topologies.load("dgx1:pcie=1")) == graphs.graph(topologies.load("dgx1"))
    imported = importing.import_file(str(DATA / "nccl_dgx1.xml"))
    assert graphs.graph(imported) == graphs.graph(topologies.load("dgx1"))
    assert graphs.graph(importing.import_file(str(DATA / "nccl_h100.xml"))) == graphs.graph(
        topologies.load("ndv5:without=4+5+6+7")
    )


def test_nccls_choices_follow_the_wires() -> None:
    machine = topologies.load("ndv4")
    fewer = tuple(replace(r, lanes=8) if r.kind == "egress" else r for r in machine.resources)
    found = graphs.graph(replace(machine, resources=fewer))
    assert found.channels * found.rate <= 8 * 21
    cut = replace(topologies.load("dgx1"), links=topologies.load("dgx1").links[:-2])  # 5 and 6 lose their link
    assert all({a, b} != {5, 6} for o in graphs.graph(cut).ring.orders for a, b in zip(o, o[1:] + o[:1], strict=True))


def test_gpus_that_nccl_was_not_read_for_take_the_nearest_and_say_so() -> None:
    machine = topologies.load("ndv4")
    for name, like in (
        ("sm86", "ampere"),
        ("sm121", "blackwell"),
        ("sm61", "volta"),
        ("some-gpu", "ampere"),
        ("mi250", "hopper"),
    ):
        other = replace(machine, ranks=tuple(replace(r, processor=name) for r in machine.ranks))
        found = graphs.graph(other)
        assert found.gpu == like
        assert name in found.notes[0]
    assert not graphs.graph(machine).notes
