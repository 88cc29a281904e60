"""Programs become execution plans of MSCCL++, which do what the programs do."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
import one_rank_programs
from gc3 import _core, algorithms, chunk, mscclpp
from gc3.cli.main import main
from gc3.runtime.checking import Case
from gc3.runtime.direct import DirectProgram
from mscclpp_plans import SHIPPED

SIZES = {"N": {"N": 2, "G": 2}, "R": {"R": 4}}
NAMES = [
    name
    for name, about in algorithms.catalogue().items()
    if about.collective_name in ("allreduce", "allgather", "reducescatter", "alltoall")
]


def lowered(name: str, **how: Any) -> _core.DirectProgram:
    given = {p.name for p in algorithms.load(name).parameters}
    size = {} if name == "ndv2_allreduce" else next((SIZES[p] for p in SIZES if p in given), {})
    core = gc3.compile(algorithms.load(name), **{**size, **how}).core
    packets = how.get("protocol") == "LL"
    return _core.lower_to_packets(core) if packets else _core.lower(core, pushing=True)


def plan_of(name: str, **how: Any) -> dict[str, Any]:
    return mscclpp.plan_of(lowered(name, **how))


def mixes(program: _core.DirectProgram) -> bool:
    """Whether scratch holds values beside packets."""
    text = program.to_text()
    return "pkt sc[" in text and re.search(r"(?<!pkt )sc\[", text) is not None


def operations(plan: dict[str, Any], rank: int = 0) -> list[str]:
    return [op["name"] for block in plan["gpus"][rank]["threadblocks"] for op in block["ops"]]


@pytest.mark.parametrize("protocol", ["Simple", pytest.param("LL", marks=pytest.mark.python_only)])
@pytest.mark.parametrize("in_place", [False, pytest.param(True, marks=pytest.mark.python_only)])
@pytest.mark.parametrize("name", NAMES)
def test_plans_of_the_library_compute_what_numpy_does(name: str, in_place: bool, protocol: str) -> None:
    core = lowered(name, in_place=in_place, instances=2 if in_place else 1, protocol=protocol)
    if mixes(core):  # our engine runs it
        with pytest.raises(gc3.UserError) as caught:
            mscclpp.plan_of(core)
        assert f"'{core.name}'" in str(caught.value)
        assert "its scratch holds values beside packets" in str(caught.value)
        assert "leave out protocol=LL" in str(caught.value)
    else:
        plan = json.loads(json.dumps(mscclpp.plan_of(core)))
        assert plan["protocol"] == protocol
        assert protocol == "Simple" or not {"signal", "wait"} & set(operations(plan))
        read = mscclpp.read(plan)
        assert read.states_collective
        assert read.refusals == ()
        core = read.program
    program = DirectProgram(core)
    case = Case(program.collective, program.collective.chunks * 5, "int32", "sum")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=case.count, dtype="int32", workers=2)
    assert case.compare(inputs, outputs).ok


def test_what_can_be_one_operation_is_one() -> None:
    """Sums are loaded and stored at once, copies are stored by who has them, and nothing goes through scratch."""
    entry, leave = ["rlxsignal", "rlxwait", "nop"], ["nop", "signal", "wait"]
    assert operations(plan_of("direct_allreduce", in_place=True)) == [*entry, "rres", *leave]
    assert operations(plan_of("direct_allgather", in_place=False)) == [*entry, "copy", "put", *leave]
    exchanged = plan_of("direct_alltoall", in_place=False)
    assert Counter(operations(exchanged))["put"] == 3
    assert all(gpu["scratch_chunks"] == 0 for gpu in exchanged["gpus"])


def test_what_a_switch_does_for_all_ranks_is_one_operation() -> None:
    entry, leave = ["rlxsignal", "rlxwait", "nop"], ["nop", "signal", "wait"]
    for in_place in (False, True):
        plan = plan_of("nvls_allreduce", in_place=in_place)
        assert operations(plan) == [*entry, "glres", *leave]
        buffers = [channel.get("buffer_type") for channel in plan["gpus"][1]["channels"]]
        assert buffers == [None, *(["o"] if in_place else ["i", "o"])]
    assert operations(plan_of("nvls_allgather", N=1, G=4, in_place=True)) == [*entry, "gstore", *leave]
    between = plan_of("nvls_allgather", N=2, G=3, in_place=True)
    assert operations(between) == [*entry, "put", "nop", "gstore", "nop", "signal", "wait", "nop", "gstore", *leave]
    # It has none that keeps a sum at one rank: each is loaded.
    assert "glres" not in operations(plan_of("nvls_reducescatter", N=1, G=4, in_place=True))


STORED_BY_ANOTHER = """direct "pull" version 1
collective allreduce ranks 2 chunks 2
halves 1
channel 0 from 0 to 1
channel 1 from 1 to 0
group 0 ranks 0 1

rank 0
  tb 0
    0 signal 0 relaxed
    1 wait 1 relaxed
    2 sync
    3 move in[0] + 1:in[0] -> out[0]
    4 sync
    5 move out[0] -> g0:out[0]
    6 sync
    7 signal 0
    8 wait 1

rank 1
  tb 0
    0 signal 1 relaxed
    1 wait 0 relaxed
    2 sync
    3 move 0:in[1] + in[1] -> out[1] 0:out[1]
    4 sync
    5 move 0:out[1] -> g0:out[1]
    6 sync
    7 signal 1
    8 wait 0
"""


def test_a_value_of_another_rank_is_loaded_before_it_goes_through_a_switch() -> None:
    plan = mscclpp.plan_of(_core.DirectProgram.from_text(STORED_BY_ANOTHER, "a text"))
    assert "gstore" not in operations(plan, 1)
    assert operations(plan, 0).count("gstore") == 1


def test_packets_replace_signals() -> None:
    """A sum is stored as packets where it is made; what comes on the way is passed on as it came."""
    how: dict[str, Any] = {"protocol": "LL", "in_place": True}
    assert operations(plan_of("direct_allreduce", **how)) == ["ppkt", "nop", "upkt", "upkt", "upkt", "respkt"]
    assert operations(plan_of("direct_allgather", **how)) == ["ppkt", "upkt", "upkt", "upkt"]
    assert Counter(operations(plan_of("ring_allgather", **how))) == {"ppkt": 1, "rppkt": 2, "upkt": 3}
    many = plan_of("direct_allreduce", R=12, protocol="LL")
    sums = [op for block in many["gpus"][0]["threadblocks"] for op in block["ops"] if op["name"].endswith("epkt")]
    assert [len(op["src_buff"]) for op in sums] == [9]
    # What is staged in scratch is added as it came.
    assert Counter(operations(plan_of("allpairs_allreduce", **how))) == {"ppkt": 1, "nop": 1, "upkt": 3, "respkt": 1}


@gc3.algorithm("allreduce", ranks=lambda R: R)
def each_adds_all(R: int) -> None:
    """Each rank adds up all inputs, in an order of its own, without scratch."""
    for rank in range(R):
        total = chunk((rank + 1) % R, "in", 0).copy(rank, "out", 0)
        for step in range(2, R + 1):
            total = total.reduce(chunk((rank + step) % R, "in", 0))


def test_ranks_that_compute_the_same_sum_add_packets_in_one_order() -> None:
    """The executor adds the own value last, so that is the first term on all ranks, whoever has it."""
    program = _core.lower_to_packets(gc3.compile(each_adds_all, R=4, protocol="LL").core)
    case = Case(program.collective, 64, "float32", "sum")
    inputs = [np.random.default_rng(rank).normal(size=case.count).astype(np.float32) * 10**rank for rank in range(4)]
    for each in (program, mscclpp.read(mscclpp.plan_of(program)).program):
        results = DirectProgram(each).run([given.copy() for given in inputs])
        assert all((result == results[0]).all() for result in results)


# The public program, and what is compared with it: as many chunks, and as many instances as it has threadblocks.
PUBLIC: list[tuple[str, str, dict[str, Any]]] = [
    ("allgather_pkt", "direct_allgather", {"protocol": "LL"}),
    ("allgather_pkt_rppkt", "direct_allgather", {"protocol": "LL"}),
    ("allreduce_naivy", "direct_allreduce", {"protocol": "LL"}),
    ("allreduce_pkt", "direct_allreduce", {"protocol": "LL"}),
    ("allreduce", "direct_allreduce", {"instances": 8}),
    ("alltoall", "direct_alltoall", {"instances": 2}),
    ("alltoall_ring", "direct_alltoall", {"instances": 16}),
    ("alltoall_ring_oop", "direct_alltoall", {"instances": 16, "in_place": False}),
    ("alltoall_ring_peers", "direct_alltoall", {"instances": 16}),
    ("alltoall_pipeline", "direct_alltoall", {"instances": 2}),
    ("allreduce_nvls_zero_copy", "nvls_allreduce", {"instances": 8}),
    ("allgather_nvls_zero_copy", "nvls_allgather", {"N": 1, "instances": 8}),
]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.python_only)])
@pytest.mark.parametrize(("public", "name", "how"), PUBLIC, ids=[public for public, *_ in PUBLIC])
def test_plans_are_not_longer_than_the_public_ones(public: str, name: str, how: dict[str, Any], ranks: int) -> None:
    path = SHIPPED / f"{public}_{ranks}.json"
    if not path.exists():
        pytest.skip("the public plans are not here")

    def length(plan: dict[str, Any]) -> int:
        blocks = [block["ops"] for gpu in plan["gpus"] for block in gpu["threadblocks"]]
        return sum(1 + len(op.get("ops", ())) for ops in blocks for op in ops)

    theirs = json.loads(path.read_text())
    size = {"G" if name == "nvls_allgather" else "R": ranks}
    ours = plan_of(name, **size, **{"in_place": True, **how})
    assert ours["collective"] == theirs["collective"]
    assert length(ours) <= length(theirs)


def test_many_ranks_are_divided_among_operations() -> None:
    """An operation holds 8 other ranks and 8 channels, and the read plan has no refusal for them."""
    plan = plan_of("direct_allreduce", R=12)
    assert operations(plan).count("rlxsignal") == 2
    sums = [op for op in plan["gpus"][0]["threadblocks"][0]["ops"] if op["name"].startswith("rre")]
    assert [(len(op["src_buff"]), len(op["dst_buff"])) for op in sums] == [(9, 1), (4, 9)]
    assert operations(plan).count("put") == 1


def test_each_wrong_step_of_a_plan_is_found() -> None:
    plan = plan_of("direct_allreduce", R=3)
    ops: list[Any] = plan["gpus"][1]["threadblocks"][0]["ops"]
    for number in range(len(ops)):
        op = ops.pop(number)
        assert not _core.verify(mscclpp.read(plan).program).ok, op
        ops.insert(number, op)
        for side in ("src_buff", "dst_buff"):
            for place in op.get(side, ()):
                place["index"] -= 1
                assert not _core.verify(mscclpp.read(plan).program).ok, op
                place["index"] += 1
    assert _core.verify(mscclpp.read(plan).program).ok


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("ring_allreduce", {"R": 20}, "operations; a threadblock holds 64"),
        ("direct_allreduce", {"R": 20}, "19 of a type; a threadblock holds 16"),
        ("flat_gather", {"R": 3}, "it has no gather"),
        (
            "ring_allreduce",
            {"R": 3, "protocol": "LL128"},
            "it has no LL128: compile with protocol=Simple or protocol=LL",
        ),
        ("ring_allreduce", {"R": 20, "protocol": "LL"}, "19 of a type; a threadblock holds 16"),
        ("one_step_allreduce", {"R": 3, "protocol": "LL"}, "its scratch holds values beside packets"),
        ("direct_allgather", {"R": 3, "memory": "direct", "in_place": False}, "another offset than it stores to"),
    ],
)
def test_what_the_executor_cannot_run_is_said(name: str, how: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "no.plan.json"
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(algorithms.load(name), **how).save(path)
    assert message in str(caught.value)
    assert not path.exists()


def test_one_sided_programs_are_saved_by_their_ending(tmp_path: Path) -> None:
    program = gc3.compile(algorithms.load("ring_allreduce"), R=3, memory="direct")
    program.save(tmp_path / "ring.txt")
    assert DirectProgram.load(tmp_path / "ring.txt") == program
    program.save(tmp_path / "ring.plan.json")
    assert mscclpp.load(tmp_path / "ring.plan.json").program.collective == program.collective
    with pytest.raises(gc3.UserError, match=r"written as \.txt or \.plan\.json"):
        program.save(tmp_path / "ring.gc3")


def test_plans_that_share_scratch_say_up_to_which_size(tmp_path: Path) -> None:
    text = """direct "x" version 1
collective allreduce ranks 1 chunks 1
halves 1 shared scratch

rank 0 scratch 3
  tb 0
    0 move in[0] -> sc[1]
    1 sync
    2 move sc[1] -> out[0]
"""
    DirectProgram(_core.DirectProgram.from_text(text, "x")).save(tmp_path / "x.plan.json")
    plan = json.loads((tmp_path / "x.plan.json").read_text())
    assert (plan["reuse_resources"], plan["max_message_size"]) == (True, 2**26 // 3)


def test_export_writes_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "ring.plan.json"
    result = CliRunner().invoke(main, ["export", "ring_allreduce:R=3", "-o", str(path)])
    assert result.exit_code == 0, result.output
    plan = json.loads(path.read_text())
    assert (plan["collective"], plan["inplace"], plan["protocol"]) == ("allreduce", True, "Simple")
    assert "proven" in CliRunner().invoke(main, ["verify", str(path)]).output
    result = CliRunner().invoke(main, ["export", "flat_gather:R=3", "-o", str(tmp_path / "no.plan.json")])
    assert result.exit_code == 1
    assert "it has no gather" in " ".join(result.stderr.split())
    assert not (tmp_path / "no.plan.json").exists()


def test_what_no_plan_has_room_for_is_refused_at_the_first_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program in which one rank stands for all, the ranks are not made first."""
    many = gc3.compile(algorithms.load("hierarchical_allreduce"), N=512, G=8)
    with pytest.raises(gc3.UserError, match="it has 4096 ranks; a plan has at most 1024"):
        many.save(tmp_path / "a.plan.json")
    assert "_whole" not in vars(many)
    monkeypatch.setattr("gc3.mscclpp.write.read", None)  # the plan of all ranks
    with pytest.raises(gc3.UserError, match=r"\$.gpus\[0\].threadblocks\[0\].ops: \d+ operations; a threadblock"):
        gc3.compile(one_rank_programs.ring_allgather, R=16).save(tmp_path / "a.plan.json")
