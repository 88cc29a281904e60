"""The presets compared with known data of the machines, the model, and programs checked against it."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest

import gc3
from gc3 import topologies
from gc3.algorithms import catalogue as algorithms
from gc3.errors import UserError
from gc3.topologies import Bound, Link, LinkClass, Rank, Topology

pytestmark = pytest.mark.python_only

GB = 1e9
SMALLEST = {"R": 8, "D": 3, "X": 4, "N": 2, "G": 4}


def example(name: str) -> Topology:
    needed = [p.name for p in topologies.catalogue()[name].parameters if p.default is None]
    return topologies.load(name, **{p: SMALLEST[p] for p in needed})


EVERY = [p.name for p in topologies.catalogue().values()]


def test_catalogue_has_what_the_papers_name() -> None:
    machines = {p.name for p in topologies.catalogue().values() if not p.generic}
    assert machines >= {
        *("dgx1", "ndv2", "dgx2", "ndv4", "ndv5", "dgx_h100", "z52", "summit", "lassen", "gb200_nvl72"),
    }
    shapes = {p.name for p in topologies.catalogue().values() if p.generic}
    assert shapes == {
        *("ring", "line", "star", "fully_connected", "hypercube", "torus", "fat_tree", "hierarchical", "cpu"),
        *("ethernet_hosts", "infiniband_hosts"),
    }


@pytest.mark.parametrize("name", EVERY)
def test_every_number_has_a_source(name: str) -> None:
    preset = topologies.catalogue()[name]
    assert preset.summary
    assert preset.source
    for link_class in example(name).classes:
        assert link_class.source, link_class.name


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"cpu"}))
def test_links_come_in_both_directions(name: str) -> None:
    """All presets but `cpu`, which only limits what a rank writes, have the same bandwidth in both directions."""
    machine = example(name)
    lanes = {(k.src, k.dst): (k.link_class, k.lanes) for k in machine.links}
    assert all(lanes[b, a] == kind for (a, b), kind in lanes.items())
    for rank in range(machine.rank_count):
        assert topologies.egress(machine, rank) == pytest.approx(topologies.ingress(machine, rank))


# DGX-1: 001 figure 1, section 2.4 and section 5.2.1.


def test_dgx1_has_six_nvlinks_per_gpu() -> None:
    machine = topologies.load("dgx1")
    for rank in range(8):
        assert sum(k.lanes for k in machine.links if k.src == rank) == 6
        assert topologies.egress(machine, rank) == pytest.approx(150 * GB)


@pytest.mark.parametrize("count", [1, 2])
def test_dgx1_links_of_a_kind_form_one_cycle(count: int) -> None:
    """Follows the links with `count` lanes: they lead through all GPUs and back."""
    onward: dict[int, list[int]] = {}
    for k in topologies.load("dgx1").links:
        if k.lanes == count:
            onward.setdefault(k.src, []).append(k.dst)
    assert all(len(targets) == 2 for targets in onward.values())
    seen, here = [0], onward[0][0]
    while here != 0:
        previous = seen[-1]
        seen.append(here)
        here = next(target for target in onward[here] if target != previous)
    assert sorted(seen) == list(range(8))


def test_dgx1_bounds_of_sccl() -> None:
    """Diameter 2; 7/6 from what a GPU can receive; 4/6 from the worst half (001 section 2.4, inverse bisection)."""
    machine = topologies.load("dgx1")
    assert topologies.diameter(machine) == 2
    unit = 25 * GB
    received = [Fraction(7) / Fraction(topologies.ingress(machine, r) / unit) for r in range(8)]
    assert received == [Fraction(7, 6)] * 8
    halves = (half for half in itertools.combinations(range(8), 4) if 0 in half)
    assert max(Fraction(4) / Fraction(topologies.cut_bandwidth(machine, half) / unit) for half in halves) == Fraction(
        4, 6
    )


def test_dgx1_relation_enumerates_its_links() -> None:
    bounds = topologies.relation(topologies.load("dgx1"))
    assert len(bounds) == 32
    assert all(len(bound.pairs) == 1 for bound in bounds)
    assert sum(bound.chunks for bound in bounds) == 8 * 6
    assert Bound(((0, 1),), 2) in bounds
    assert Bound(((0, 2),), 1) in bounds


def test_dgx1_without_and_with_pcie() -> None:
    bare, full = topologies.load("dgx1"), topologies.load("dgx1:pcie=1")
    assert bare.path(0, 5) is None
    path = full.path(0, 5)
    assert path is not None
    kinds = [full.all_resources[i].kind for i in path.resources]
    assert kinds == ["pcie", "switch", "xbus", "switch", "pcie"]
    assert topologies.diameter(full) == 1
    # All traffic between the quads except NVLink uses one QPI.
    assert topologies.cut_bandwidth(full, range(4)) == pytest.approx(150 * GB + 6 * GB)


# The others.


def test_z52_is_a_ring_of_unit_links() -> None:
    machine = topologies.load("z52")
    assert topologies.diameter(machine) == 4
    bounds = topologies.relation(machine)
    assert len(bounds) == 16
    assert {bound.chunks for bound in bounds} == {1}
    assert sorted(k.src for k in machine.links if k.link_class == "pcie4") == [1, 2, 5, 6]


def test_dgx2_boards() -> None:
    machine = topologies.load("dgx2")
    assert machine.rank_count == 16
    assert topologies.egress(machine, 3) == pytest.approx(150 * GB)
    # 48 links between the boards carry exactly what eight GPUs of six links can send.
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(1200 * GB)
    near, far = machine.path(0, 1), machine.path(0, 8)
    assert near is not None
    assert far is not None
    assert len(near.resources) == 2
    assert [machine.all_resources[i].kind for i in far.resources] == ["egress", "switch", "ingress"]


def test_ndv4_inside_a_node() -> None:
    machine = topologies.load("ndv4")
    assert topologies.egress(machine, 0) == pytest.approx(300 * GB)
    assert topologies.cut_bandwidth(machine, range(4)) == pytest.approx(4 * 300 * GB)
    bounds = topologies.relation(machine)
    assert len(bounds) == 16
    assert all(bound.chunks == 12 and len(bound.pairs) == 7 for bound in bounds)


def test_ndv4_between_nodes() -> None:
    """Two GPUs share two NICs, and with two rails one GPU can use either."""
    machine = topologies.load("ndv4:N=2,rails=2")
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(8 * 25 * GB)
    names = []
    for channel in range(3):
        path = machine.path(2, 9, channel)
        assert path is not None
        assert path.link_class == "hdr"
        names.append([machine.all_resources[i].name for i in path.resources])
    assert names[0] == names[2]
    assert names[0][1:3] == ["node0.nic2.out", "node1.nic0.in"]
    assert names[1][1:3] == ["node0.nic3.out", "node1.nic1.in"]
    assert machine.rails(2, 9) == 2
    assert machine.rails(2, 3) == 1
    # Within a pair of GPUs the two NICs are one pool of two chunks per round.
    pooled = [b for b in topologies.relation(machine) if b.chunks == 2]
    assert len(pooled) == 2 * 2 * 4
    assert {len({src for src, _ in b.pairs}) for b in pooled} == {2, 8}


@pytest.mark.parametrize("name", ["ndv5", "dgx_h100"])
def test_h100_nodes(name: str) -> None:
    machine = topologies.load(name, N=2)
    assert machine.rank_count == 16
    assert topologies.cut_bandwidth(topologies.load(name), [0]) == pytest.approx(450 * GB)
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(8 * 50 * GB)
    assert machine.rails(0, 8) == 1


@pytest.mark.parametrize(("name", "per_socket", "direct"), [("summit", 3, 50), ("lassen", 2, 75)])
def test_power9_nodes(name: str, per_socket: int, direct: int) -> None:
    """Direct links in a socket; traffic between sockets shares one X-Bus of 32 GB/s; one EDR rail for each socket."""
    machine = topologies.load(name, N=2)
    assert machine.rank_count == 4 * per_socket
    path = machine.path(0, 1)
    assert path is not None
    (wire,) = path.resources
    assert machine.bandwidth(machine.all_resources[wire]) == direct * GB
    node = topologies.load(name)
    assert topologies.cut_bandwidth(node, range(per_socket)) == pytest.approx(32 * GB)
    crossing = machine.path(0, per_socket)
    assert crossing is not None
    assert [machine.all_resources[i].kind for i in crossing.resources] == ["link", "xbus", "link"]
    assert topologies.cut_bandwidth(machine, range(2 * per_socket)) == pytest.approx(2 * 12.5 * GB)


def test_nvl72_is_one_domain_of_18_trays() -> None:
    machine = topologies.load("gb200_nvl72")
    assert (machine.rank_count, machine.node_count) == (72, 18)
    assert topologies.egress(machine, 71) == pytest.approx(900 * GB)
    two = topologies.load("gb200_nvl72:N=2,G=8")
    path = two.path(0, 8)
    assert path is not None
    assert path.link_class == "ndr"
    near = two.path(0, 4)
    assert near is not None
    assert near.link_class == "nvlink5"


def test_mi300x_links_all_pairs() -> None:
    machine = topologies.load("mi300x")
    assert topologies.egress(machine, 0) == pytest.approx(7 * 64 * GB)


def test_mi250_is_the_machine_of_forestcoll() -> None:
    """Every die has 7 links of 50 GB/s."""
    machine = topologies.load("mi250:N=2")
    assert (machine.rank_count, machine.node_count) == (32, 2)
    lanes = [sum(link.lanes for link in machine.links if link.src == rank) for rank in range(32)]
    assert lanes == [7] * 32
    assert topologies.diameter(topologies.load("mi250")) == 5


# Shapes.


@pytest.mark.parametrize(
    ("spec", "ranks", "links", "diameter"),
    [
        ("ring:R=1", 1, 0, 0),
        ("ring:R=2", 2, 2, 1),
        ("ring:R=8", 8, 16, 4),
        ("line:R=1", 1, 0, 0),
        ("line:R=5", 5, 8, 4),
        ("star:R=1", 1, 0, 0),
        ("star:R=6", 6, 10, 2),
        ("fully_connected:R=5", 5, 20, 1),
        ("hypercube:D=0", 1, 0, 0),
        ("hypercube:D=6", 64, 64 * 6, 6),
        ("torus:X=4,Y=4", 16, 64, 4),
        ("torus:X=3,Y=2,Z=2", 12, 12 * 4, 3),
        ("torus:X=1", 1, 0, 0),
        ("fat_tree:R=7,leaf=3", 7, 0, 1),
        ("hierarchical:N=3,G=4", 12, 0, 1),
        ("hierarchical:N=1,G=1", 1, 0, 0),
    ],
)
def test_shapes(spec: str, ranks: int, links: int, diameter: int) -> None:
    machine = topologies.load(spec)
    assert (machine.rank_count, len(machine.links), topologies.diameter(machine)) == (ranks, links, diameter)


def test_shape_bandwidth_and_latency() -> None:
    machine = topologies.load("ring:R=4,GBps=10,latency_ns=1500")
    assert topologies.egress(machine, 0) == pytest.approx(20 * GB)
    assert machine.classes[0].latency_s == pytest.approx(1.5e-6)


def test_fat_tree_tapers() -> None:
    full, tapered = topologies.load("fat_tree:R=8"), topologies.load("fat_tree:R=8,taper=2")
    assert topologies.cut_bandwidth(full, range(4)) == pytest.approx(100 * GB)
    assert topologies.cut_bandwidth(tapered, range(4)) == pytest.approx(50 * GB)
    assert topologies.cut_bandwidth(tapered, range(2)) == pytest.approx(50 * GB)


def test_hierarchical_nics() -> None:
    one, many = topologies.load("hierarchical:N=2,G=4,nics=2"), topologies.load("hierarchical:N=2,G=2,nics=4")
    assert topologies.cut_bandwidth(one, range(4)) == pytest.approx(50 * GB)
    assert topologies.cut_bandwidth(many, range(2)) == pytest.approx(100 * GB)
    assert (one.rails(0, 4), many.rails(0, 2)) == (1, 2)


def test_racks_have_tapered_uplinks() -> None:
    machine = topologies.load("hierarchical:N=4,G=4,nics=2,rack=2,taper=2")
    assert topologies.cut_bandwidth(machine, range(4)) == pytest.approx(50 * GB)  # a node
    assert topologies.cut_bandwidth(machine, range(8)) == pytest.approx(50 * GB)  # a rack
    paths = [machine.path(0, there) for there in (1, 4, 8)]
    assert [path and path.link_class for path in paths] == ["wire", "nic", "spine"]


# The relation.


def test_relation_in_units_of_the_caller() -> None:
    machine = topologies.load("summit")
    by_lane = {b.chunks for b in topologies.relation(machine)}
    by_gigabyte = {b.chunks for b in topologies.relation(machine, 1 * GB)}
    assert (by_lane, by_gigabyte) == ({1, 2}, {32, 50})
    with pytest.raises(UserError, match="cannot carry a chunk per round") as problem:
        topologies.relation(machine, 40 * GB)
    assert problem.value.code == "GC3-L017"


def test_relation_of_its_own_comes_first() -> None:
    """SCCL's half-duplex bus of the Z52 (001 section 5.2.2), which links alone cannot express."""
    pairs = ((0, 1), (1, 0), (1, 2), (2, 1))
    machine = replace(topologies.load("line:R=3"), bounds=(Bound(pairs, 1),))
    assert topologies.relation(machine) == (Bound(pairs, 1),)


# Specifications and their errors.


def test_specifications_agree() -> None:
    assert topologies.load("ndv4:N=2") == topologies.load("ndv4", N=2)
    assert topologies.load("ring: R=4, GBps=0x10") == topologies.load("ring", R=4, GBps=16)


@pytest.mark.parametrize(
    ("spec", "given", "code", "message"),
    [
        ("nope", {}, "GC3-M004", "'nope'; expected one of dgx1"),
        ("ring", {}, "GC3-L017", "needs a value for 'R'"),
        ("ring:R=4,X=2", {}, "GC3-L017", "no parameter 'X'"),
        ("ring:R=4", {"X": 2}, "GC3-L017", "no parameter 'X'"),
        ("ring:R", {}, "GC3-L017", "'R' of 'ring:R'; expected NAME=NUMBER"),
        ("ring:R=two", {}, "GC3-L017", "'R=two' of 'ring:R=two'; expected NAME=NUMBER"),
        ("ring:R=0", {}, "GC3-L017", "R=0; expected a number from 1 to 65536"),
        ("dgx1:pcie=2", {}, "GC3-L017", "pcie=2"),
        ("torus:X=1024,Y=1024", {}, "GC3-L017", r"X\*Y\*Z=1048576"),
        ("fat_tree:R=8,leaf=4,taper=3", {}, "GC3-L017", "taper=3"),
        ("hierarchical:N=4,G=4,rack=2,taper=3", {}, "GC3-L017", "taper=3"),
        ("hierarchical:N=4,G=4,taper=2", {}, "GC3-L017", "taper=2"),
        ("gb200_nvl72:G=6", {}, "GC3-L017", "G=6: a tray has 4 GPUs"),
        ("missing.json", {}, "GC3-I001", "missing.json"),
        ("missing.json", {"N": 2}, "GC3-L017", "takes no parameters"),
    ],
)
def test_bad_specifications(spec: str, given: dict[str, int], code: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        topologies.load(spec, **given)
    assert problem.value.code == code


# The model refuses contradictions.

WIRE = LinkClass("wire", 1e9)
TWO = (Rank("a"), Rank("b"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"ranks": ()}, r"\$.ranks: it is empty; expected at least one rank"),
        ({"ranks": (Rank("a", node=1),)}, r"\$.ranks: the nodes are \[1\]; expected numbers from 0"),
        ({"classes": (WIRE, WIRE)}, r"\$.classes\[1\].name: 'wire' is already the name of classes\[0\]"),
        (
            {"classes": (LinkClass("wire", 0.0),)},
            r"\$.classes\[0\].bandwidth_bytes_per_s: 0.0; expected a number above 0",
        ),
        ({"classes": (LinkClass("wire", 1.0, -1.0),)}, r"\$.classes\[0\].latency_s: -1.0; expected a time"),
        ({"classes": (LinkClass("wire", 1.0, dma_efficiency=1.5),)}, r"\$.classes\[0\].dma_efficiency: 1.5"),
        ({"links": (Link(0, 2, "wire"),)}, r"\$.links\[0\].dst: rank 2 does not exist; there are 2 ranks"),
        ({"links": (Link(1, 1, "wire"),)}, r"\$.links\[0\].dst: the link joins rank 1 to itself"),
        ({"links": (Link(0, 1, "wire"), Link(0, 1, "wire"))}, r"\$.links\[1\]: links\[0\] already joins 0 to 1"),
        ({"links": (Link(0, 1, "rope"),)}, r"\$.links\[0\].class: there is no class 'rope'"),
        ({"links": (Link(0, 1, "wire", 0),)}, r"\$.links\[0\].lanes"),
        ({"links": (Link(0, 1, "wire", 1, ("bus",)),)}, r"\$.links\[0\].via\[0\]: there is no resource 'bus'"),
        ({"bounds": (Bound(((0, 1),), 1),)}, r"\$.bounds\[0\].pairs\[0\]: no link or fabric joins 0 to 1"),
        ({"bounds": (Bound(((0, 5),), 1),)}, r"\$.bounds\[0\].pairs\[0\]: a rank of \[0, 5\] does not exist"),
    ],
)
def test_contradictions(parts: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        Topology(**{"name": "t", "ranks": TWO, "classes": (WIRE,), **parts})  # type: ignore[arg-type]
    assert problem.value.code == "GC3-M005"


def test_unknown_bandwidth_is_an_error_where_it_is_needed() -> None:
    machine = Topology("t", TWO, (LinkClass("wire", None),), links=(Link(0, 1, "wire"),))
    assert topologies.diameter(machine) is None  # 1 cannot reach 0
    for asked in (lambda: topologies.relation(machine), lambda: topologies.egress(machine, 0)):
        with pytest.raises(UserError, match="'link 0->1' of 't' is of class 'wire'") as problem:
            asked()
        assert problem.value.code == "GC3-M009"


def test_cut_of_ranks_that_do_not_exist() -> None:
    with pytest.raises(UserError, match="ranks 0 to 7"):
        topologies.cut_bandwidth(topologies.load("dgx1"), [8])


# Programs.


def compiled(name: str, **parameters: int) -> gc3.Program:
    return gc3.compile(algorithms()[name], **parameters)


def test_program_with_a_path_for_every_send() -> None:
    ring = compiled("ring_allreduce", R=8)
    assert topologies.check(ring, topologies.load("ring:R=8")) == ()
    assert topologies.check(ring, topologies.load("ndv4:N=2")) == ()
    assert topologies.check(compiled("hierarchical_allreduce", N=2, G=8), topologies.load("dgx1:N=2,pcie=1")) == ()


def test_send_without_a_path_names_pair_threadblock_and_step() -> None:
    allpairs = compiled("allpairs_allreduce", R=8)
    machine = topologies.load("dgx1")
    missing = {(a, b) for a, b in itertools.permutations(range(8), 2) if machine.path(a, b) is None}
    found = topologies.check(allpairs, machine, max_diagnostics=1000, check=False)
    named = {tuple(int(w) for w in d.message.replace("(", " ").split() if w.isdigit())[:2] for d in found}
    assert named == missing
    listing = allpairs.core.as_dict()["ranks"]
    for diagnostic in found:
        assert diagnostic.code == "GC3-M007"
        words = diagnostic.message.replace(",", " ").replace(")", " ").split()
        sender, receiver = int(words[1]), int(words[5])
        tb, step = int(words[words.index("(threadblock") + 1]), int(words[words.index("step") + 1])
        threadblock = listing[sender]["threadblocks"][tb]
        assert threadblock["send_peer"] == receiver
        assert "send" in threadblock["steps"][step]["opcode"]
    with pytest.raises(UserError) as problem:
        topologies.check(allpairs, machine)
    assert len(problem.value.diagnostics) == 10


def test_program_of_more_ranks_than_the_machine() -> None:
    with pytest.raises(UserError, match="has 16 ranks, 'dgx1' has 8") as problem:
        topologies.check(compiled("ring_allreduce", R=16), topologies.load("dgx1"))
    assert problem.value.code == "GC3-M008"


def test_first_sending_step_may_be_fused() -> None:
    """The first step of a middle rank of a ring receives; `sends` finds the step that sends."""
    core = compiled("ring_allreduce", R=3).core
    listing = core.as_dict()["ranks"]
    for rank, tb, peer, channel, step in core.sends():
        threadblock = listing[rank]["threadblocks"][tb]
        assert (threadblock["send_peer"], threadblock["channel"]) == (peer, channel)
        opcodes = [s["opcode"] for s in threadblock["steps"]]
        assert "send" in opcodes[step]
        assert not any("send" in opcode for opcode in opcodes[:step])
