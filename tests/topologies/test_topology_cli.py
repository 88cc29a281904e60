"""gc3 topo, gc3 verify --topology, and drawings."""

import json
import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from gc3 import topologies
from gc3.cli.command import Command
from gc3.cli.main import main
from gc3.cli.topo import topo
from gc3.errors import UserError
from gc3.topologies import document
from gc3.topologies.layout import Layout, nic_number
from gc3.topologies.plot import line_widths, plot

pytestmark = pytest.mark.python_only

SAMPLES = Path(__file__).parents[1] / "data" / "topologies"
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs gc3 in an empty folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    Path("nccl_topo.xml").write_bytes((SAMPLES / "nccl_dgx1.xml").read_bytes())
    Path("topo.txt").write_bytes((SAMPLES / "smi_a100.txt").read_bytes())
    Path("my_machine.json").write_text(topologies.dumps(topologies.load("summit")))

    def run_main(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result

    return run_main


def test_list(run: Run) -> None:
    text = run("topo", "list").stdout
    assert "dgx1:N=1,pcie=0" in text
    assert "Shapes" in text
    rows = json.loads(run("topo", "list", "--json").stdout)["topologies"]
    assert [r["name"] for r in rows] == list(topologies.catalogue())
    ring = next(r for r in rows if r["name"] == "ring")
    assert ring["parameters"][0] == {"name": "R", "default": None, "required": True}


def test_show(run: Run) -> None:
    text = run("topo", "show", "dgx1").stdout
    assert "dgx1: 8 ranks, 1 node, 32 links" in text
    assert "     0   -   2   1   1   2   .   .   .\n" in text
    assert "nvlink2  25 GB/s, kernels 80%" in text
    assert "*" in run("topo", "show", "summit").stdout
    assert "too many to print" in run("topo", "show", "ring:R=64").stdout
    assert "8 ranks with 2 ports each, between nodes" in run("topo", "show", "ndv4:rails=2").stdout


def test_show_as_json_is_the_file_format(run: Run) -> None:
    machine = topologies.load("ndv4:N=2")
    assert document.loads(run("topo", "show", "ndv4:N=2", "--json").stdout) == machine
    run("topo", "show", "ndv4:N=2", "-o", "m.json")
    assert topologies.load("m.json") == machine
    assert "cannot write" in run("topo", "show", "ndv4", "-o", "no/such/m.json", code=1).stderr


def test_show_relation(run: Run) -> None:
    assert "32 bounds" in run("topo", "show", "dgx1", "--relation").stdout
    data = json.loads(run("topo", "show", "ndv4", "--relation", "--json").stdout)
    assert {b["chunks"] for b in data["bounds"]} == {12}
    assert "and 3 more" in run("topo", "show", "ndv4", "--relation").stdout


def test_validate(run: Run) -> None:
    assert "summit: 6 ranks" in run("topo", "validate", "my_machine.json").stdout
    data = json.loads(run("topo", "validate", "my_machine.json", "--json").stdout)
    assert (data["ok"], data["ranks"], data["unknown_bandwidths"]) == (True, 6, [])
    broken = json.loads(Path("my_machine.json").read_text())
    broken["links"][3]["dst"] = 77
    Path("my_machine.json").write_text(json.dumps(broken))
    result = run("topo", "validate", "my_machine.json", code=1)
    assert "GC3-M005" in result.stderr
    assert "$.links[3].dst: rank 77 does not exist" in result.stderr
    error = json.loads(run("topo", "validate", "my_machine.json", "--json", code=1).stdout)["error"]
    assert (error["code"], error["file"]) == ("GC3-M005", "my_machine.json")


def test_import(run: Run) -> None:
    text = run("topo", "import", "nccl_topo.xml", "--links-only", "-o", "m.json").stdout
    assert "nccl_topo: 8 ranks" in text
    assert len(topologies.load("m.json").links) == 32
    smi = ("topo", "import", "topo.txt", "--nodes", "2", "--name", "pair", "--rate", "nic=25", "--rate", "nvlink=50")
    machine = document.loads(run(*smi, "--json").stdout)
    assert (machine.name, machine.rank_count) == ("pair", 16)
    assert {c.name: c.bandwidth_bytes_per_s for c in machine.classes} == {"nvlink": 50e9, "nic": 25e9, "pcie": None}
    result = run("topo", "import", "topo.txt")
    assert "bandwidth of class 'pcie' is unknown" in result.stderr
    assert "nothing was written" in result.stderr
    assert "GC3-M006" in run("topo", "import", "my_machine.json", code=1).stderr


def test_probe(run: Run) -> None:
    assert "this-machine" in run("topo", "probe", "--cpu").stdout
    machine = document.loads(run("topo", "probe", "--cpu", "--json", "-o", "m.json").stdout)
    assert topologies.load("m.json") == machine


def test_bad_usage(run: Run) -> None:
    assert "GC3-M004" in run("topo", "show", "dgx9", code=1).stderr
    assert "expected NAME=NUMBER" in run("topo", "show", "ndv4:two", code=1).stderr
    run("topo", "plot", "dgx1", code=2)


def test_verify_on_a_machine(run: Run) -> None:
    good = run("verify", "ring_allreduce:R=8", "--topology", "ring:R=8")
    assert "every send has a path on ring:R=8" in good.stdout
    bad = run("verify", "allpairs_allreduce:R=8", "--topology", "dgx1", code=1)
    assert "rank 0 sends to rank 5 (threadblock" in bad.stderr
    data = json.loads(run("verify", "allpairs_allreduce:R=8", "--topology", "dgx1", "--json", code=1).stdout)
    assert (data["ok"], data["topology"], data["diagnostics"][0]["code"]) == (False, "dgx1", "GC3-M007")
    assert "GC3-M008" in run("verify", "ring_allreduce:R=9", "--topology", "dgx1", code=1).stderr
    assert "GC3-M004" in run("verify", "ring_allreduce:R=9", "--topology", "x", code=1).stderr


EXAMPLES = [example for c in topo.commands.values() if isinstance(c, Command) for example in c.examples]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_help(example: str, run: Run) -> None:
    run(*shlex.split(example)[1:])


# Drawings.


@pytest.mark.parametrize(
    "spec", ["dgx1:pcie=1", "dgx2", "ndv4:N=3", "summit:N=2", "torus:X=4,Y=4", "ring:R=1", "star:R=5"]
)
def test_drawing_has_every_rank(spec: str, run: Run) -> None:
    """An SVG has each rank's number and one curve for each pair of linked ranks."""
    run("topo", "plot", spec, "-o", "m.svg")
    text = Path("m.svg").read_text()
    root = ElementTree.fromstring(text)  # noqa: S314  our own file
    assert root.tag.endswith("svg")
    machine = topologies.load(spec)
    written = {(element.text or "").strip() for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {str(r) for r in range(machine.rank_count)} <= written
    layout = Layout(machine)
    pairs = {(min(k.src, k.dst), max(k.src, k.dst)) for k in machine.links}
    assert len(layout.lines) >= len(pairs)
    assert len(set(layout.points)) == machine.rank_count


@pytest.mark.parametrize(
    ("spec", "nics"),
    [
        ("dgx1", 4),
        ("ndv2", 1),
        ("summit:N=2", 4),
        ("ndv4:N=3", 24),
        ("ndv4:N=2,rails=2", 16),
        ("hierarchical:N=2,G=4,nics=8", 16),
        ("hierarchical:N=4,G=4,nics=2,rack=2", 8),
        ("ring:R=4", 0),
    ],
)
def test_every_nic_is_a_place_that_its_ranks_lead_to(spec: str, nics: int) -> None:
    machine = topologies.load(spec)
    layout = Layout(machine)
    assert len(set(layout.nics.values())) == len(layout.nics) == nics
    leads = {(line.start, line.end) for line in layout.lines}
    for name, place in layout.nics.items():
        port = next(p for f in machine.fabrics for p in f.ports if any(r.startswith(f"{name}.") for r in p.out))
        joint = layout.joints.get(name, place)
        assert (layout.points[port.rank], joint) in leads
        assert joint == place or (joint, place) in leads
        assert machine.node_count == 1 or any(start == place for start, _ in leads)


@pytest.mark.parametrize("spec", ["ndv4", "dgx1", "dgx2", "summit"])
def test_nics_without_a_network_are_beside_their_ranks(spec: str) -> None:
    layout = Layout(topologies.load(spec))
    middle = [sum(at) / len(layout.points) for at in zip(*layout.points, strict=True)]
    outermost = max(math.dist(point, middle) for point in layout.points)
    for place in layout.nics.values():
        assert math.dist(place, middle) > outermost
        near = sorted(layout.points, key=lambda point: math.dist(point, place))
        back = {line.end: line.start for line in layout.lines}  # its rank, before a switch where there is one
        first = back[place] if back[place] in layout.points else back[back[place]]
        assert near.index(first) < len(near) / 2


def test_nics_face_the_network() -> None:
    """Also in rows of nodes below it: no line to it passes through a node."""
    layout = Layout(topologies.load("hierarchical:N=4,G=4,nics=2"))
    network = next(place for place, name in layout.hubs if name == "network")
    for x, y in layout.nics.values():
        middle = (x + network[0]) / 2, (y + network[1]) / 2
        for _, (left, bottom), side in layout.boxes:
            assert not (left < middle[0] < left + side and bottom < middle[1] < bottom + side)


@pytest.mark.parametrize(("spec", "bundles"), [("gb200_nvl72", 18), ("ndv4:N=8", 0), ("hierarchical:N=16,G=4", 0)])
def test_lines_to_a_network_of_many_nodes_cross_none(spec: str, bundles: int) -> None:
    """The ranks of a node share one, which has their number; each NIC has its own."""
    machine = topologies.load(spec)
    layout = Layout(machine)
    assert [count for _, count in layout.counts] == ["4 x"] * bundles
    drops = [line for line in layout.lines if not line.bend and line.start[0] == line.end[0]]
    assert {place for place, _ in layout.counts} <= {line.start for line in drops}
    assert set(layout.nics.values()) <= {line.start for line in drops}
    for _, (left, bottom), side in layout.boxes:
        for line in layout.lines:
            (x, y) = (a + b for a, b in zip(line.start, line.end, strict=True))
            if left < x / 2 < left + side and bottom < y / 2 < bottom + side:  # then it is of this node
                assert left < line.start[0] < left + side
                assert bottom < line.start[1] < bottom + side


def test_lines_pass_by_switches() -> None:
    layout = Layout(topologies.load("ndv4:N=2"))
    ends = layout.joints.values()
    crossing = [line for line in layout.lines if line.start == layout.points[10] and line.end in ends]
    assert [line.bend != 0 for line in crossing] == [True]  # it would lie on the links of ranks 10 and 14
    straight = [line for line in layout.lines if line.start == layout.points[0]]
    assert not any(line.bend for line in straight)


def test_the_network_above_racks_crosses_no_node() -> None:
    layout = Layout(topologies.load("hierarchical:N=12,G=2,rack=3"))
    uplinks = [line for line in layout.lines if line.label == "spine"]
    assert [name for _, name in layout.hubs].count("spine") == 1
    leaves = {place for place, name in layout.hubs if name == "leaf"}
    assert len(leaves) == 4
    assert leaves <= {line.start for line in uplinks}
    for line in uplinks:
        (x, y), (right, top) = (tuple(sorted(at)) for at in zip(line.start, line.end, strict=True))
        for _, (left, bottom), side in layout.boxes:
            assert line.bend == 0
            assert right < left or x > left + side or top < bottom or y > bottom + side


def test_a_drawing_tells_two_nics_from_four(run: Run) -> None:
    """NICs have their numbers, and only what is not as usual is in the title."""
    for nics in (2, 4):
        run("topo", "plot", f"hierarchical:N=2,G=4,nics={nics}", "-o", "m.svg")
        written = [e.text for e in ElementTree.parse("m.svg").iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
        assert written.count("3") == 1 + 2 * (nics == 4)  # a rank, and a NIC of each node
        assert f"hierarchical (N=2, G=4, nics={nics}): 8 ranks on 2 nodes" in written
        assert f"node 0, {nics} NICs" in written


def test_imported_nics_are_drawn_once(run: Run) -> None:
    """What they send and receive has names of its own."""
    run("topo", "import", str(SAMPLES / "nccl_h100.xml"), "--nodes", "2", "-o", "m.json")
    layout = Layout(topologies.load("m.json"))
    assert sorted(map(nic_number, layout.nics)) == sorted("0123" * 2)
    assert [name for name, *_ in layout.boxes] == ["node 0, 4 NICs", "node 1, 4 NICs"]


@pytest.mark.parametrize(("spec", "joints"), [("ndv4", 8), ("ndv4:rails=2", 4), ("dgx1", 4), ("mi250", 0)])
def test_pcie_switches_are_between_ranks_and_their_nics(spec: str, joints: int) -> None:
    """Two GPUs that share two NICs do so behind one."""
    assert len(set(Layout(topologies.load(spec)).joints.values())) == joints


def test_drawing_shows_groups_of_nodes(run: Run) -> None:
    """Each rack has a frame around its nodes, and no other nodes, in that of its pod."""
    nodes = {"levels": [{"name": "rack", "groups": [0, 1, 0, 1]}, {"name": "pod", "groups": [0] * 4}]}
    data = json.loads(run("topo", "show", "ndv4:N=4", "--json").stdout)
    Path("m.json").write_text(json.dumps({**data, **nodes}))
    run("topo", "plot", "m.json", "-o", "m.svg")
    written = [e.text for e in ElementTree.parse("m.svg").iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
    assert {"pod 0", "rack 0", "rack 1", "node 0, 8 NICs"} <= set(written)
    layout = Layout(topologies.load("m.json"))
    inside = {
        name: [
            box.partition(",")[0]
            for box, (x, y), side in layout.boxes
            if left < x < x + side < right and bottom < y < y + side < top
        ]
        for name, (left, bottom), (right, top) in layout.groups
    }
    assert sorted(inside.pop("pod 0")) == ["node 0", "node 1", "node 2", "node 3"]
    assert inside == {"rack 0": ["node 0", "node 2"], "rack 1": ["node 1", "node 3"]}


def test_drawing_is_the_same_every_time(run: Run) -> None:
    for kind in ("png", "svg"):
        for name in ("a", "b"):
            run("topo", "plot", "dgx1", "-o", f"{name}.{kind}")
        assert Path(f"a.{kind}").read_bytes() == Path(f"b.{kind}").read_bytes()
    assert Path("a.png").read_bytes()[:4] == b"\x89PNG"
    data = json.loads(run("topo", "plot", "dgx1", "-o", "c.PDF", "--json").stdout)
    assert (data["file"], data["ranks"]) == ("c.PDF", 8)


def test_drawing_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = topologies.load("dgx1")
    for bad, code in (("x.gif", "GC3-L017"), (str(tmp_path / "no" / "x.png"), "GC3-I002")):
        with pytest.raises(UserError) as problem:
            plot(machine, bad)
        assert problem.value.code == code
    with pytest.raises(UserError, match="at most 1024"):
        plot(topologies.load("ring:R=1025"), "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install matplotlib") as problem:
        plot(machine, str(tmp_path / "x.png"))
    assert problem.value.code == "GC3-M010"


def test_layout_tells_links_apart() -> None:
    """A wrap-around link of a torus bends around the ranks between; other links stay straight."""
    bends = [line.bend != 0 for line in Layout(topologies.load("torus:X=4,Y=4")).lines]
    assert (bends.count(True), bends.count(False)) == (8, 24)
    assert not any(line.bend for line in Layout(topologies.load("dgx1")).lines if not line.dashed)


def test_layout_of_boards() -> None:
    """The trunk is one thick line from each board to what joins them, not one from each GPU."""
    layout = Layout(topologies.load("dgx2"))
    assert [name for _, name in layout.hubs] == ["board0", "board1", "boards"]
    of_links = sorted(line.bandwidth or 0 for line in layout.lines if not line.dashed)
    assert of_links == [150e9] * 16 + [1200e9] * 2


def test_widths_follow_bandwidth() -> None:
    widths = line_widths([25e9, 50e9, 300e9, None], thickest=6)
    assert widths[None] < widths[25e9] < widths[50e9] < widths[300e9] == 6
