"""Topologies in files: the JSON form, imports, hostile input, and the probe."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gc3 import topologies
from gc3.cli.main import main
from gc3.errors import UserError
from gc3.topologies import document, importing, nccl_xml, nvidia_smi, probe
from gc3.topologies.nvidia_smi import Rates

pytestmark = pytest.mark.python_only

SAMPLES = Path(__file__).parents[1] / "data" / "topologies"
NEEDED = {"R": 5, "D": 3, "X": 3, "N": 2, "G": 4}


@pytest.mark.parametrize("name", list(topologies.catalogue()))
def test_round_trip(name: str, tmp_path: Path) -> None:
    """Text and file give the same topology and the same text again."""
    parameters = topologies.catalogue()[name].parameters
    given = {p.name: NEEDED[p.name] for p in parameters if p.default is None}
    if any(p.name == "N" for p in parameters):
        given["N"] = 2
    machine = topologies.load(name, **given)
    text = topologies.dumps(machine)
    assert document.loads(text) == machine
    assert topologies.dumps(document.loads(text)) == text
    path = tmp_path / "machine.json"
    path.write_text(text)
    assert topologies.load(str(path)) == machine


def test_least_that_a_file_says() -> None:
    text = """{"gc3_topology": 1, "name": "pair", "ranks": [{"name": "a"}, {"name": "b"}],
               "classes": [{"name": "wire", "bandwidth_bytes_per_s": 1e9}],
               "links": [{"src": 0, "dst": 1, "class": "wire"}, {"src": 1, "dst": 0, "class": "wire"}]}"""
    machine = document.loads(text)
    assert topologies.egress(machine, 0) == 1e9
    assert machine.links[0].lanes == 1
    assert machine.ranks[1].kind == "gpu"


def test_levels() -> None:
    """A file may say which nodes are in a rack, and which racks in a pod; without it there are only nodes."""
    machine = topologies.load("hierarchical:N=5,G=2,rack=2,taper=2")
    assert machine.levels == (topologies.Level("rack", (0, 0, 1, 1, 2)),)
    data = json.loads(topologies.dumps(machine))
    data["levels"].append({"name": "pod", "groups": [0, 0, 0, 0, 1]})
    assert document.from_data(data).rank_levels[2] == ("pod", (0, 0, 0, 0, 0, 0, 0, 0, 1, 1))
    del data["levels"]
    assert document.from_data(data).rank_levels == (("node", (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)),)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([("rack", [0, 0, 1])], r"\$.levels\[0\].groups: it has 3 numbers; expected the group of each of 4 nodes"),
        ([("rack", [0, 0, 2, 2])], r"\$.levels\[0\].groups: the groups are \[0, 2\]; expected numbers from 0"),
        ([("node", [0, 0, 1, 1])], r"\$.levels\[0\].name: 'node'; expected another name"),
        ([("rack", [0, 0, 1, 1])] * 2, r"\$.levels\[1\].name: 'rack' is already the name of levels\[0\]"),
        (
            [("rack", [0, 0, 1, 1]), ("pod", [0, 1, 1, 1])],
            r"\$.levels\[1\].groups: nodes 0 and 1 are in rack 0, but in pods 0 and 1; expected each rack in one pod",
        ),
    ],
)
def test_levels_must_be_nested(levels: list[tuple[str, list[int]]], message: str) -> None:
    data = json.loads(topologies.dumps(topologies.load("hierarchical:N=4,G=1")))
    data["levels"] = [{"name": name, "groups": groups} for name, groups in levels]
    with pytest.raises(UserError, match=message):
        document.from_data(data)


def good() -> dict[str, Any]:
    return json.loads(topologies.dumps(topologies.load("ndv4:N=2")))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["name"], None, r"\$.name: None is not of type 'string'"),
        (["gc3_topology"], 2, r"\$.gc3_topology: 1 was expected"),
        (["ranks"], [], r"\$.ranks: \[\] should be non-empty"),
        (["ranks", 3, "node"], -1, r"\$.ranks\[3\].node: -1 is less than"),
        (["ranks", 3, "kind"], "tpu", r"\$.ranks\[3\].kind: 'tpu' is not one of"),
        (["classes", 1, "bandwidth_bytes_per_s"], 0, r"\$.classes\[1\].bandwidth_bytes_per_s: 0 is less than or equal"),
        (["classes", 1, "bandwidth_bytes_per_s"], "25e9", r"\$.classes\[1\].bandwidth_bytes_per_s: '25e9' is not"),
        (["classes", 0, "kernel_efficiency"], 2, r"\$.classes\[0\].kernel_efficiency: 2 is greater"),
        (["resources", 0, "lanes"], 0, r"\$.resources\[0\].lanes: 0 is less than"),
        (["resources", 0, "lanes"], True, r"\$.resources\[0\].lanes: True is not of type 'integer'"),
        (["resources", 0, "kind"], "pipe", r"\$.resources\[0\].kind: 'pipe' is not one of"),
        (["resources", 0, "class"], "rope", r"\$.resources\[0\].class: there is no class 'rope'"),
        (["resources", 0, "colour"], "red", r"\$.resources\[0\]: Additional properties are not allowed"),
        (["resources", 1, "name"], "node0.nvswitch.port0.out", r"\$.resources\[1\].name: .* is already the name of"),
        (["fabrics", 0, "ports", 2, "rank"], 99, r"\$.fabrics\[0\].ports\[2\].rank: rank 99 does not exist"),
        (["fabrics", 0, "ports", 2, "in", 0], "x", r"\$.fabrics\[0\].ports\[2\].in\[0\]: there is no resource 'x'"),
        (["bounds"], [{"pairs": [[0, 0]], "chunks": 1}], r"\$.bounds\[0\].pairs\[0\]: no link or fabric joins 0 to 0"),
    ],
)
def test_file_errors_name_the_place(place: list[Any], value: Any, message: str, tmp_path: Path) -> None:
    data = good()
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=message) as problem:
        topologies.load(str(path))
    assert problem.value.code == "GC3-M005"
    assert problem.value.file == str(path)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "it is not JSON", 1),
        ('{\n "name": }', "it is not JSON: Expecting value at column 10", 2),
        ("[]", r"\$: \[\] is not of type 'object'", 1),
        ("{}", r"\$: 'gc3_topology' is a required property", 1),
        ('{"a": NaN}', "NaN is not a JSON number", 1),
        ('{"a": 1, "a": 2}', "the member 'a' is given twice", 1),
        ("[" * 100_000, "nested too deeply", 1),
        ('{"gc3_topology": 1e999}', r"\$: 'name' is a required property", 1),
    ],
)
def test_files_that_are_not_topologies(text: str, message: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as problem:
        topologies.read(str(path))
    assert (problem.value.code, problem.value.line) == ("GC3-M005", line)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        topologies.read(str(binary))
    with pytest.raises(UserError, match="Is a directory") as problem:
        topologies.read(str(tmp_path))
    assert problem.value.code == "GC3-I001"
    monkeypatch.setattr(document, "MAX_BYTES", 2)
    with pytest.raises(UserError, match="larger than"):
        topologies.read(str(binary))


# Imports.


def test_nccl_xml_of_a_dgx1_has_the_nvlinks_of_the_preset() -> None:
    found = importing.import_file(str(SAMPLES / "nccl_dgx1.xml"), slow_paths=False)
    preset = topologies.load("dgx1")
    lanes = [{(k.src, k.dst): k.lanes for k in m.links} for m in (found, preset)]
    assert lanes[0] == lanes[1]
    assert [r.socket for r in found.ranks] == [0] * 4 + [1] * 4
    assert set(topologies.relation(found)) == set(topologies.relation(preset))


def test_nccl_xml_paths_over_pcie() -> None:
    machine = importing.import_file(str(SAMPLES / "nccl_dgx1.xml"))
    path = machine.path(0, 7)
    assert path is not None
    assert [machine.all_resources[i].name for i in path.resources] == [
        "pci 0000:06:00.0.up",
        "pci 0000:02:00.0.up",
        "cpu0->cpu1",
        "pci 0000:8c:00.0.down",
        "pci 0000:8a:00.0.down",
    ]
    assert topologies.diameter(machine) == 1


def test_nccl_xml_of_several_nodes() -> None:
    """Each GPU uses the NIC on its own PCIe switch."""
    machine = importing.import_file(str(SAMPLES / "nccl_dgx1.xml"), nodes=3, name="cluster")
    assert (machine.name, machine.rank_count, machine.node_count) == ("cluster", 24, 3)
    path = machine.path(3, 12)
    assert path is not None
    assert [machine.all_resources[i].name for i in path.resources] == [
        "copy0.pci 0000:0b:00.0.up",
        "copy0.pci 0000:0e:00.0.down",
        "copy0.nic1.mlx5_1.tx",
        "copy1.nic2.mlx5_2.rx",
        "copy1.pci 0000:84:00.0.up",
        "copy1.pci 0000:85:00.0.down",
    ]
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(4 * 12.5e9)


def test_nccl_xml_with_switches() -> None:
    """A virtual machine: ranks in another order than devices, lanes to four switches, PCIe widths hidden."""
    machine = importing.import_file(str(SAMPLES / "nccl_h100.xml"))
    assert [r.name for r in machine.ranks] == ["gpu3", "gpu2", "gpu1", "gpu0"]
    assert topologies.egress(machine, 0) == pytest.approx(450e9)
    assert not machine.links
    rates = {r.name: machine.bandwidth(r) for r in machine.resources}
    assert rates["pci 0000:c0:00.0.up"] == pytest.approx(63.0e9, rel=1e-3)
    assert machine.link_class("net 400 Gbit/s").latency_s == pytest.approx(2.5e-6)


def test_nccl_xml_of_several_hosts_power9_and_amd() -> None:
    """Two hosts in one file; NVLinks to the CPU replace PCIe; xGMI; a GPU that the job does not use."""
    text = b"""<system version="1">
      <cpu host_hash="0xa" numaid="0" arch="ppc64"><pci busid="1" link_speed="8 GT/s"><gpu dev="0" sm="70">
        <nvlink target="2" count="3" tclass="0x030200"/>
        <nvlink target="cpu" count="3" tclass="0x068001"/></gpu></pci></cpu>
      <cpu host_hash="0xa" numaid="8" arch="ppc64"><pci busid="2"><gpu dev="1" sm="70">
        <nvlink target="9" count="3" tclass="0x030200"/></gpu></pci></cpu>
      <cpu host_hash="0xb" numaid="0" arch="x86_64" vendor="AuthenticAMD"><pci busid="3"><gpu dev="0" gcn="gfx942">
        <xgmi target="4" count="1"/></gpu></pci><pci busid="4"><gpu dev="1" gcn="906">
        <xgmi target="3" count="1"/></gpu></pci></cpu>
    </system>"""
    machine = importing.assemble(nccl_xml.parse(text), name="mixed", source="")
    assert [(r.name, r.node, r.socket) for r in machine.ranks] == [
        ("host0.gpu0", 0, 0),
        ("host0.gpu1", 0, 8),
        ("host1.gpu0", 1, 0),
        ("host1.gpu1", 1, 0),
    ]
    links = {(k.src, k.dst): (k.link_class, k.lanes, k.via) for k in machine.links}
    assert links[0, 1] == ("nvlink2", 3, ())
    assert links[1, 0][2] == ("pci 2.up", "cpu1->cpu0", "gpu0 to CPU.down")
    assert links[2, 3][:2] == ("xgmi3", 1)
    assert machine.link_class(links[3, 2][0]).bandwidth_bytes_per_s is None
    assert machine.path(0, 2) is None


def test_hosts_of_one_file_may_have_the_same_bus_ids(tmp_path: Path) -> None:
    text = (SAMPLES / "nccl_dgx1.xml").read_text()
    inside = text[text.index(">", text.index("<system")) + 1 : text.rindex("</system>")]
    hosts = [inside.replace("<cpu ", f'<cpu host_hash="0x{n}" ') for n in (1, 2)]
    (tmp_path / "two.xml").write_text(f'<system version="1">{"".join(hosts)}</system>')
    one = importing.import_file(str(SAMPLES / "nccl_dgx1.xml"))
    two = importing.import_file(str(tmp_path / "two.xml"))
    assert two.rank_count == 2 * one.rank_count
    assert len(two.links) == 2 * len(one.links)
    assert {(k.src - 8, k.dst - 8, k.lanes) for k in two.links if min(k.src, k.dst) >= 8} == {
        (k.src, k.dst, k.lanes) for k in one.links
    }
    first, second = ({via for k in two.links if k.src // 8 == host for via in k.via} for host in (0, 1))
    assert first
    assert not first & second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "it is not XML"),
        (b"<system>", "it is not XML: no element found"),
        (b"<graphs/>", "the root element is <graphs>"),
        (b"<system/>", "there is no <gpu>"),
        (b"<system>\x00</system>", "it is not XML"),
        (b'<?xml version="1.0" encoding="nonsense"?><system/>', "it is not XML"),
        (b'<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>', "document type or entities"),
        (b'<!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "document type or entities"),
        (b"<system>" + b"<pci>" * 100_000, "more than 64 levels"),
        (b"<system>" + b"<cpu/>" * 200_000 + b"</system>", "100000 elements"),
        (b"<system>" + b" " * nccl_xml.MAX_BYTES + b"</system>", "at most 16 MiB"),
        (b'<system><cpu><pci busid="1"><gpu dev="1000000000"/></pci></cpu></system>', "dev='1000000000' of a <gpu>"),
        (b'<system><cpu><pci busid="1"><gpu dev="x"/></pci></cpu></system>', "dev='x' of a <gpu>"),
        (
            b'<system><cpu><pci busid="1"><gpu/></pci><pci busid="1"><gpu/></pci></cpu></system>',
            "two GPUs at bus id '1'",
        ),
        (
            b'<system><cpu><pci busid="1"><gpu><nvlink target="2" count="-3"/></gpu></pci></cpu></system>',
            "count='-3' of a <nvlink> is not a number from 1 to 1000",
        ),
        (b'<system><cpu><nic><net speed="-1"/></nic><pci><gpu/></pci></cpu></system>', "speed='-1' of a <net>"),
        (b'<system><cpu><nic><net latency="soon"/></nic><pci><gpu/></pci></cpu></system>', "latency='soon'"),
        (b'<system><cpu><nic><net latency="inf"/></nic><pci><gpu/></pci></cpu></system>', "latency=inf"),
    ],
)
def test_bad_xml_is_one_clear_error(text: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        nccl_xml.parse(text, file="machine.xml")
    assert (problem.value.code, problem.value.file) == ("GC3-M006", "machine.xml")
    assert len(problem.value.message) < 300


def test_smi_table_with_switches() -> None:
    """NV12 to seven others is more than a GPU has, so the lanes lead to switches; styles in the text are skipped."""
    machine = importing.import_file(str(SAMPLES / "smi_a100.txt"), nodes=2, rates=Rates(nic=25e9, pcie=31.5e9))
    assert (machine.rank_count, machine.node_count) == (16, 2)
    assert [r.socket for r in machine.ranks[:8]] == [3, 3, 2, 2, 1, 1, 0, 0]
    assert topologies.cut_bandwidth(machine, range(4)) == pytest.approx(4 * 300e9 + 50e9)
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(4 * 25e9)
    path = machine.path(5, 8)
    assert path is not None
    names = [machine.all_resources[i].name for i in path.resources]
    assert names[:3] == ["copy0.GPU5 slot.up", "copy0.NIC2 slot.down", "copy0.nic2.nic2.tx"]


def test_smi_table_with_direct_links() -> None:
    machine = importing.import_file(str(SAMPLES / "smi_bridges.txt"), rates=Rates(nvlink=14e9))
    lanes = {(k.src, k.dst): k.lanes for k in machine.links if k.lanes}
    assert lanes == {(0, 1): 4, (1, 0): 4, (2, 3): 4, (3, 2): 4}
    assert machine.bandwidth(machine.all_resources[-1]) == 4 * 14e9
    assert machine.path(0, 2) is not None
    with pytest.raises(UserError, match="unknown bandwidth"):
        topologies.egress(machine, 0)
    with pytest.raises(UserError, match="no data gets from rank 0 to rank 2"):  # two pairs that nothing joins
        importing.import_file(str(SAMPLES / "smi_bridges.txt"), slow_paths=False)


def test_other_forms_are_named(tmp_path: Path) -> None:
    file = tmp_path / "topo.json"
    file.write_text('{"name": "DGX2", "gpus_per_node": 16}')
    with pytest.raises(UserError, match=r"it is JSON, not NCCL's topology XML or .* it looks like a topology of TACCL"):
        importing.import_file(str(file))


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "no line begins with GPU0", 1),
        ("NVIDIA-SMI has failed", "no line begins with GPU0", 1),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV1\n", "there is no row for GPU1", 1),
        ("\tGPU0\tGPU1\nGPU0\tX\n", "1 columns for 2 devices", 2),
        ("\tGPU0\tGPU1\nGPU0\tX\tFAST\n", "'FAST' in column GPU1 is none of", 2),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV9999\n", "'NV9999' in column GPU1", 2),
        ("\tGPU0\nGPU0\tX\nGPU0\tX\n", "a second row of GPU0", 3),
        ("\tGPU0\nGPU1\tX\n", "the row of 'GPU1' has no column", 2),
    ],
)
def test_bad_tables(text: str, message: str, line: int) -> None:
    with pytest.raises(UserError, match=message) as problem:
        nvidia_smi.parse(text, file="topo.txt")
    assert (problem.value.code, problem.value.line) == ("GC3-M006", line)


def test_smi_table_with_network_cards_of_any_name(tmp_path: Path) -> None:
    """Warnings before the table, colours, Windows line ends, unknown cards, and a legend."""
    table = (
        "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\r\n"
        "\t\x1b[4mGPU0\tGPU1\thfi1_0\troceP2p1s0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\r\n"
        "GPU0\t X \tSYS\tPIX\tSYS\t0-15\t0\t\tN/A\r\n"
        "GPU1\tSYS\t X \tSYS\tNODE\t16-31\t1\t\tN/A\r\n"
        "hfi1_0\tPIX\tSYS\t X \tSYS\r\n"
        "roceP2p1s0\tSYS\tNODE\tSYS\t X \r\n\r\nLegend:\r\n\r\n  X    = Self\r\n"
        "NIC Legend:\r\n\r\n  NIC0: hfi1_0\r\n"
    )
    file = tmp_path / "topo.txt"
    file.write_bytes(table.encode())
    machine = importing.import_file(str(file), nodes=2, rates=Rates(nic=25e9, pcie=16e9))
    assert [r.socket for r in machine.ranks] == [0, 1, 0, 1]
    for rank, card in ((0, "hfi1_0"), (1, "rocep2p1s0")):
        path = machine.path(rank, 2 + rank)
        assert path is not None
        assert any(card in machine.all_resources[i].name for i in path.resources)


def test_one_gpu() -> None:
    table = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n"
    machine = importing.assemble(nvidia_smi.parse(table), name="one", source="")
    assert (machine.rank_count, machine.links, machine.fabrics) == (1, (), ())


def test_import_options(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nodes=0; expected"):
        importing.import_file(str(SAMPLES / "smi_a100.txt"), nodes=0)
    with pytest.raises(UserError, match="format='sysfs'; expected"):
        importing.import_file(str(SAMPLES / "smi_a100.txt"), format="sysfs")
    with pytest.raises(UserError, match="it is not XML"):
        importing.import_file(str(SAMPLES / "smi_a100.txt"), format="nccl")
    with pytest.raises(UserError) as problem:
        importing.import_file(str(tmp_path / "none.xml"))
    assert problem.value.code == "GC3-I001"


# For any input, the result is a topology or an error meant for the user.


def damaged(text: bytes, choice: random.Random) -> bytes:
    """Returns `text` with a few parts changed, dropped, doubled or replaced by something nasty."""
    parts = bytearray(text)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(parts))
        length = choice.choice((1, 1, 3, 20, 200))
        nasty = choice.choice((b"", b"\x00", b"-1", b"9" * 30, b"1e999", b"\xff", b"{", b"<", b'"', b"GPU0", b"null"))
        match choice.randrange(3):
            case 0:
                parts[at : at + length] = nasty
            case 1:
                parts[at:at] = parts[max(0, at - length) : at]
            case _:
                parts[at] = choice.randrange(256)
        if not parts:
            return b""
    return bytes(parts)


@pytest.mark.parametrize("name", ["nccl_dgx1.xml", "nccl_h100.xml", "smi_a100.txt", "smi_bridges.txt"])
def test_damaged_imports(name: str, tmp_path: Path) -> None:
    choice = random.Random(7)  # noqa: S311  no secret
    whole = (SAMPLES / name).read_bytes()
    path = tmp_path / name
    refused: list[str] = []
    for _ in range(250):
        path.write_bytes(damaged(whole, choice))
        try:
            importing.import_file(str(path))
        except UserError as problem:
            refused.append(problem.code)
    assert len(refused) > 20
    assert set(refused) <= {"GC3-M005", "GC3-M006"}


def test_damaged_documents() -> None:
    choice = random.Random(8)  # noqa: S311  no secret
    whole = topologies.dumps(topologies.load("summit")).encode()
    refused: list[str] = []
    for _ in range(400):
        try:
            document.loads(damaged(whole, choice).decode("utf-8", "replace"))
        except UserError as problem:
            refused.append(problem.code)
    assert len(refused) > 200
    assert set(refused) == {"GC3-M005"}


# The probe.


def test_probe_of_the_cores() -> None:
    machine = probe.probe(gpus=False)
    assert {rank.kind for rank in machine.ranks} == {"cpu"}
    assert all(c.bandwidth_bytes_per_s is None for c in machine.classes)
    assert machine.rank_count == 1 or machine.path(0, 1) is not None
    assert document.loads(topologies.dumps(machine)) == machine


def test_probe_measures() -> None:
    machine = probe.probe(gpus=False, measure=True)
    rates = {c.name: c.bandwidth_bytes_per_s for c in machine.classes}
    core, memory = rates["core"], rates["memory"]
    assert core is not None
    assert memory is not None
    assert 1e7 < core <= memory < 1e13


def test_a_measurement_without_memory_is_one_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_COPY_BYTES", 1 << 50)
    result = CliRunner().invoke(main, ["topo", "probe", "--cpu", "--measure"])
    assert result.exit_code == 1
    assert "GC3-R006" in result.output


@pytest.mark.parametrize(("status", "gpus", "kind"), [(0, None, "gpu"), (0, True, "gpu"), (9, None, "cpu")])
def test_probe_asks_nvidia_smi(
    status: int, gpus: bool | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for nvidia-smi that prints a table, or fails."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{SAMPLES / 'smi_a100.txt'}'\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert {rank.kind for rank in probe.probe(gpus=gpus).ranks} == {kind}


def test_probe_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="finds no GPU"):
        probe.probe(gpus=True)
