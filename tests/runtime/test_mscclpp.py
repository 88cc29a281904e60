"""Execution plans of MSCCL++: what is written is proven by a reader of its own, which finds every planted defect."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner

import gc3
from gc3 import algorithms, collectives, errors
from gc3.cli.main import main
from gc3.runtime import mscclpp
from gc3.runtime.mscclpp.limits import OPERATIONS, SEMAPHORES

Plan: TypeAlias = "dict[str, Any]"

PROGRAMS = [
    ("ring_allreduce", {"R": 2}),
    ("ring_allreduce", {"R": 5}),
    ("direct_allreduce", {"R": 4}),
    ("allpairs_allreduce", {"R": 4}),
    ("hierarchical_allreduce", {"N": 2, "G": 3}),
    ("recursive_halving_doubling_allreduce", {"R": 4}),
    ("double_binary_tree_allreduce", {"R": 6}),
    ("ring_allgather", {"R": 7}),
    ("bruck_allgather", {"R": 5}),
    ("ring_reducescatter", {"R": 4}),
    ("two_step_alltoall", {"N": 2, "G": 2}),
    ("direct_alltoall", {"R": 4}),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("name", "parameters"), PROGRAMS)
def test_plans_of_the_library_are_proven(name: str, parameters: dict[str, int], in_place: bool) -> None:
    for instances in (1, 2):
        how: dict[str, Any] = {"instances": instances, "in_place": in_place, **parameters}
        program = gc3.compile(algorithms.load(name), **how)
        plan = mscclpp.plan_of(program.core)
        mscclpp.check(json.loads(json.dumps(plan)), program.collective)
        for gpu in plan["gpus"]:
            assert len(gpu["semaphores"]) <= SEMAPHORES
            assert all(len(block["ops"]) <= OPERATIONS for block in gpu["threadblocks"])


def ring() -> gc3.Program:
    return gc3.compile(algorithms.load("ring_allreduce"), R=3)


def pairs() -> gc3.Program:
    return gc3.compile(algorithms.load("allpairs_allreduce"), R=3)


def ops(plan: Plan, gpu: int = 1) -> list[list[Any]]:
    return [block["ops"] for block in plan["gpus"][gpu]["threadblocks"]]


def test_every_operation_is_needed() -> None:
    """Without one operation, whichever it is, a plan is wrong; only nops whose work another one does may go."""
    found = 0
    for program in (ring(), pairs()):
        plan = mscclpp.plan_of(program.core)
        for block, listed in enumerate(ops(plan)):
            for number, op in enumerate(listed):
                mutant = copy.deepcopy(plan)
                del ops(mutant)[block][number]
                try:
                    mscclpp.check(mutant, program.collective)
                except errors.UserError:
                    found += 1
                else:
                    assert op["name"] == "nop"
    assert found > 40


@pytest.mark.parametrize("key", ["src_buff", "dst_buff"])
def test_every_place_matters(key: str) -> None:
    program = ring()
    plan = mscclpp.plan_of(program.core)
    places = [
        (block, number, which)
        for block, listed in enumerate(ops(plan))
        for number, op in enumerate(listed)
        for which, place in enumerate(op.get(key, ()))
        if place["index"] > 0
    ]
    assert len(places) >= 5
    for block, number, which in places:
        mutant = copy.deepcopy(plan)
        ops(mutant)[block][number][key][which]["index"] -= 1
        with pytest.raises(errors.UserError):
            mscclpp.check(mutant, program.collective)


def test_a_plan_of_another_collective_is_wrong() -> None:
    with pytest.raises(errors.UserError) as caught:
        mscclpp.check(mscclpp.plan_of(ring().core), collectives.get("reducescatter").model(3, in_place=True))
    assert caught.value.code in ("GC3-V008", "GC3-I005", "GC3-V006")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda plan: plan["gpus"].pop(), "GC3-I005"),
        (lambda plan: plan["gpus"][0].pop("channels"), "GC3-I005"),
        (lambda plan: plan["gpus"][0]["channels"][0].update(channel_type="switch"), "GC3-I005"),
        (lambda plan: plan["gpus"][0]["channels"][0]["connected_to"].pop(), "GC3-I005"),
        (lambda plan: ops(plan)[0][0].update(name="conjure"), "GC3-I005"),
        (lambda plan: ops(plan)[0].insert(0, {"name": "sem_acquire", "semaphore_ids": [0]}), "GC3-V004"),
        (
            lambda plan: ops(plan)[0].extend([{"name": "nop"}, {"name": "sem_release", "semaphore_ids": [0]}]),
            "GC3-V002",
        ),
        (lambda plan: ops(plan)[0].extend([{"name": "nop"}] * OPERATIONS), "GC3-V009"),
        (lambda plan: plan["gpus"][0].update(scratch_chunks=0), "GC3-I005"),
        (lambda plan: plan.clear(), "GC3-I005"),
    ],
)
def test_what_a_plan_cannot_be(change: Callable[[Plan], Any], code: str) -> None:
    program = ring()
    plan = mscclpp.plan_of(program.core)
    change(plan)
    with pytest.raises(errors.UserError) as caught:
        mscclpp.check(plan, program.collective)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "parameters", "how", "message"),
    [
        ("ring_allreduce", {"R": 16}, {}, "operations; MSCCL++'s executor holds 64"),
        ("allpairs_allreduce", {"R": 8}, {"in_place": True}, "semaphores between threadblocks"),
        ("flat_gather", {"R": 3}, {}, "it has no gather"),
        ("flat_broadcast", {"R": 3}, {}, "it has no broadcast"),
        ("ring_allreduce", {"R": 3}, {"protocol": "LL"}, "compile with protocol=Simple"),
    ],
)
def test_what_the_executor_cannot_run_is_said(
    name: str, parameters: dict[str, int], how: dict[str, Any], message: str
) -> None:
    program = gc3.compile(algorithms.load(name), **how, **parameters)
    with pytest.raises(errors.UserError) as caught:
        mscclpp.plan_of(program.core)
    assert message in caught.value.message


def test_compile_writes_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "ring.plan.json"
    result = CliRunner().invoke(main, ["export", "ring_allreduce:R=3", "-o", str(path)])
    assert result.exit_code == 0, result.output
    plan = json.loads(path.read_text())
    assert (plan["collective"], plan["inplace"], plan["protocol"]) == ("allreduce", True, "Simple")
    mscclpp.check(plan, ring().collective)
    result = CliRunner().invoke(main, ["export", "flat_gather:R=3", "-o", str(tmp_path / "no.plan.json")])
    assert result.exit_code == 1
    assert "it has no gather" in " ".join(result.stderr.split())
    assert not (tmp_path / "no.plan.json").exists()
