"""Execution plans of MSCCL++ become one-sided programs."""

from __future__ import annotations

import copy
import json
import re

import pytest

import gc3
from gc3 import _core, mscclpp
from gc3.runtime.checking import Case
from gc3.runtime.direct import DirectProgram
from mscclpp_plans import (
    ALLREDUCE,
    NOP,
    OPERATIONS,
    PORT,
    SHIPPED,
    SIGNAL,
    WAIT,
    Json,
    far,
    move,
    other_half,
    own,
    plan,
    steps,
    switch,
)

FILES = sorted(SHIPPED.glob("*.json"))


@pytest.mark.parametrize(("op", "expected"), OPERATIONS, ids=[op["name"] for op, _ in OPERATIONS])
def test_every_operation(op: Json, expected: list[str]) -> None:
    read = mscclpp.read(plan(op))
    assert steps(read) == expected
    assert read.refusals == ()
    assert not read.states_collective
    assert all(d.code != "GC3-V001" for d in _core.verify(read.program).diagnostics)


def test_what_the_steps_name() -> None:
    """Channels pair by their order between two ranks; the other end of a channel waits for the same one."""
    both = {**SIGNAL, "channel_ids": [1, 0]}
    port = {**SIGNAL, "channel_type": "port"}
    mine = plan(
        both,
        port,
        {"name": "sem_acquire", "semaphore_ids": [1]},
        {"name": "barrier", "barrier_id": 7, "num_threadblocks": 2},
        move("gstore", [own()], [switch()]),
        others=({**both, "name": "wait", "channel_ids": [1]}, {**port, "name": "wait"}, SIGNAL),
        use_double_scratch_buffer=True,
        reuse_resources=True,
        min_message_size=7,
    )
    mine["gpus"][0]["threadblocks"][0]["channels"][0]["channel_ids"] = [1, 0]
    read = mscclpp.read(mine)
    text = read.program.to_text()
    assert text.startswith(
        'direct "mine" version 1\n'
        'collective custom "test" ranks 2 chunks 1\n'
        "  rank 0 in 4 out 4\n"
        "  rank 1 in 4 out 4\n"
        "halves 2 shared scratch\n"
        "channel 0 from 0 to 1\n"
        "channel 1 from 0 to 1\n"
        "channel 2 from 0 to 1 port\n"
        "channel 3 from 1 to 0\n"
        "semaphore 0 rank 0 initial 0\n"
        "semaphore 1 rank 0 initial 2\n"
        "semaphore 2 rank 1 initial 1\n"
        "semaphore 3 rank 1 initial 2\n"
        "barrier 0 rank 0 threadblocks 2\n"
        "group 0 ranks 0 1\n"
    )
    assert "0 signal 0 1\n    1 signal 2\n" in text  # its channel 1 of the threadblock is the first of the rank
    assert "0 wait 1\n    1 wait 2\n    2 signal 3\n" in text
    assert (read.min_bytes, read.max_bytes, read.unit_bytes) == (7, 2**64 - 1, None)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_collective_is_proven(groups: int) -> None:
    mine = plan(*ALLREDUCE, others=other_half(ALLREDUCE), collective="allreduce", inplace=True)
    if groups > 1:  # each threadblock a third of its two chunks
        for gpu in mine["gpus"]:
            first = gpu["threadblocks"][0]
            gpu["channels"][0]["connected_to"] = [1 - gpu["id"]] * groups
            gpu["threadblocks"] = []
            for number in range(groups):
                block = copy.deepcopy(first)
                block["id"] = number
                block["channels"][0]["channel_ids"] = [number]
                for op in block["ops"]:
                    if op["name"] == "rres":
                        op["tbg_info"] = {"tb_id": number, "tbg_size": groups}
                gpu["threadblocks"].append(block)
    read = mscclpp.read(mine)
    assert read.states_collective
    assert (read.program.collective.chunks, read.program.collective.split) == (4 * groups, groups)
    assert _core.verify(read.program).ok
    ops = mine["gpus"][1]["threadblocks"][0]["ops"]
    ops.pop(ops.index(SIGNAL) - 1)
    assert not _core.verify(mscclpp.read(mine).program).ok


def test_puts_through_one_channel_at_once_are_told_of_together() -> None:
    twice = move("pws", [own(0), own(1)], [far(2), far(3)], channel_type="port", channel_ids=[0, 0])
    moves = [f"move in[{i}] -> 1:in[{i + 2}] through 0" for i in (0, 1)]
    assert steps(mscclpp.read(plan(twice))) == ["signal 0", *moves, "signal 0"]


@pytest.mark.parametrize("kind", ["put", "pws", "pwsf"])
def test_threads_that_put_through_their_own_channels_meet_before_and_after(kind: str) -> None:
    put = move(kind, [own(0), own(1)], [far(2, number=1), far(3, number=1)], channel_type="port", channel_ids=[0, 1])
    one = move(kind, [own(0)], [far(2, number=1)], **PORT)
    copied, barrier = (
        move("copy", [own()], [own(4, 1, "s")]),
        {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1},
    )

    def refusals(*ops: Json) -> list[str]:
        mine = plan(*ops)
        mine["gpus"][0]["channels"][1]["connected_to"] = [1, 1]
        mine["gpus"][0]["threadblocks"][0]["channels"][1]["channel_ids"] = [0, 1]
        read = mscclpp.read(mine)
        if ops == (put,):
            moves = [f"move in[{i}] -> 1:out[{i + 2}] through {i}" for i in (0, 1)]
            signals = {"put": [], "pws": ["signal"], "pwsf": ["signal", "flush"]}[kind]
            assert steps(read) == [step for i in (0, 1) for step in (moves[i], *(f"{name} {i}" for name in signals))]
        return [why.split(":")[0].removeprefix("$.gpus[0].threadblocks[0].") for why in read.refusals]

    def loop(*ops: Json) -> Json:
        wide = copy.deepcopy(ops)
        return {"name": "pipeline", "iter_context": {"unit_size": 64, "num_chunks": 1}, "ops": list(wide)}

    for right in ((put,), (NOP, put, barrier, copied), (copied, one, copied), (loop(NOP, put, NOP),)):
        assert refusals(*right) == []
    assert refusals(loop(put, NOP)) == []  # where a kernel begins no thread is ahead
    assert refusals(loop(copied, NOP), put, loop(NOP, copied)) == []
    assert refusals(copied, put, NOP) == ["ops[1]"]
    assert refusals(put, copied) == ["ops[0]"]
    assert refusals(loop(put)) == ["ops[0].ops[0]"]
    assert refusals(NOP, loop(copied, put), NOP) == ["ops[1].ops[1]"]
    assert refusals(loop(NOP, copied), put, NOP) == ["ops[1]"]


def packets_by_proxies(kind: str, meets: Json = NOP) -> Json:
    """An AllGather by packets that proxies copy: `rppkt` waits for them, `ppkt` takes what is there."""

    def gather(rank: int) -> tuple[Json, ...]:
        return (
            move("cpkt", [own()], [own(rank, 1, "s")]),
            *([] if kind == "rppkt" else [meets]),
            move(kind, [own(rank, 1, "s")], [far(rank, number=2)], **PORT),
            move("copy", [own()], [own(rank, 1, "o")]),
            move("upkt", [own(1 - rank, 1, "s")], [own(1 - rank, 1, "o")]),
        )

    mine = plan(*gather(0), others=gather(1), collective="allgather", use_double_scratch_buffer=True)
    for gpu in mine["gpus"]:
        gpu.update(input_chunks=1, output_chunks=2, scratch_chunks=2)
        gpu["channels"].pop(2)
        gpu["threadblocks"][0]["channels"].pop(2)
        for channels in gpu["channels"][2:]:
            channels["buffer_type"] = "s"
    return mine


def test_packets_through_port_channels_are_proven_and_run() -> None:
    read = mscclpp.read(packets_by_proxies("rppkt"))
    assert read.refusals == ()
    assert _core.verify(read.program).ok
    program = DirectProgram(read.program)
    case = Case(program.collective, 100, "int32", "sum")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=case.count, dtype="int32", workers=2)
    assert case.compare(inputs, outputs).ok
    # The executor is right as long as no other plan has run.
    by_threads = mscclpp.read(packets_by_proxies("ppkt"))
    assert [why.split(": ")[1] for why in by_threads.refusals] == [
        "the executor takes packets for port channels from the buffers of the first plan that it has run"
    ] * 2
    assert steps(by_threads)[2] == "move pkt sc[0] -> 1:pkt sc[0] through 0"
    assert _core.verify(by_threads.program).ok
    unordered = _core.verify(mscclpp.read(packets_by_proxies("ppkt", {"name": "flush", **PORT})).program)
    assert not unordered.ok
    assert "move pkt sc[0] -> 1:pkt sc[0] through 0" in str(unordered.diagnostics[0])


def test_threads_that_only_tell_proxies_of_packets_need_not_meet_again() -> None:
    def refusals(*ops: Json) -> list[str]:
        mine = plan(*ops)
        mine["gpus"][0]["channels"][1]["connected_to"] = [1, 1]
        mine["gpus"][0]["threadblocks"][0]["channels"][1]["channel_ids"] = [0, 1]
        return [why.split(":")[0].removeprefix("$.gpus[0].threadblocks[0].") for why in mscclpp.read(mine).refusals]

    far_packets = [far(5, number=2), far(6, number=2)]
    both = move("rppkt", [own(4, 1, "s")], far_packets, channel_type="port", channel_ids=[0, 1])
    copied = move("copy", [own()], [own(0, 1, "o")])
    assert refusals(copied, both, copied) == refusals(both, both) == []
    assert refusals(both, copied, {**SIGNAL, "channel_type": "port"}) == ["ops[0]"]
    assert refusals(both, NOP, {**SIGNAL, "channel_type": "port"}) == []


@pytest.mark.parametrize("kind", ["pws", "pwsf"])
def test_a_plan_through_port_channels_is_proven_if_it_flushes(kind: str) -> None:
    def gather(rank: int) -> tuple[Json, ...]:
        return (
            *ALLREDUCE[:4],
            move("copy", [own(0, 2)], [own(2 * rank, 2, "o")]),
            move(kind, [own(0, 2)], [far(2 * rank, 2, number=1)], **PORT),
            {**WAIT, "channel_type": "port"},
            NOP,
        )

    mine = plan(*gather(0), others=gather(1), collective="allgather")
    for gpu in mine["gpus"]:
        gpu["input_chunks"] = 2
    read = mscclpp.read(mine)
    assert read.states_collective
    assert read.refusals == ()
    # Without it the proxy may read the input after the call.
    assert _core.verify(read.program).ok == (kind == "pwsf")


def test_a_pipeline_runs_its_list_for_each_tile() -> None:
    loop = {"name": "pipeline", "iter_context": {"unit_size": 1024, "num_chunks": 2}}
    inner = [move("copy", [own(1, 2)], [own(0, 2, "o")]), NOP]
    mine = plan({**loop, "ops": inner})
    read = mscclpp.read(mine)
    assert steps(read) == ["move in[1] -> out[0] x2", "sync"]
    assert read.unit_bytes == 512
    read = mscclpp.read(mine, tiles=3)
    assert (read.program.collective.chunks, read.program.collective.split) == (3, 3)
    moves = [f"move in[{3 + i}] -> out[{i}] x2" for i in (0, 2, 4)]
    assert steps(read) == [step for each in moves for step in (each, "sync")]
    # A second one whose tiles are two thirds as long ends with a shorter one.
    other = {**loop, "iter_context": {"unit_size": 1024, "num_chunks": 3}}
    mine = plan({**loop, "ops": inner[:1]}, {**other, "ops": [move("copy", [own(0, 3)], [own(0, 3, "s")])]})
    read = mscclpp.read(mine)
    assert steps(read) == ["move in[1] -> out[0] x2", "move in[0] -> sc[0] x2", "move in[2] -> sc[2]"]
    assert read.refusals == (
        "$.gpus[0].threadblocks[0].ops[1].iter_context: 3 chunks by 1024 bytes, and the first pipeline "
        "2 by 1024: their tiles agree only for some sizes",
    )


# Of the public plans: what their readers say of them.
HANG = {"ut_signal_wait_fuse_test", "ut_relaxed_signal_wait_fuse_test"}
UNFIT = {
    "ut_get_test": "get exchanges the offsets",
    "ut_get_fuse_test": "get exchanges the offsets",
    "ut_switch_reduce_test": "the executor does not know glre",
}


@pytest.mark.skipif(not FILES, reason="the public plans are not here")
def test_public_plans() -> None:
    """All are read; those of a collective say so, and those without a switch are proven, pipelines for three tiles."""
    for path in FILES:
        data = json.loads(path.read_text())
        assert mscclpp.is_plan(data)
        looped = '"pipeline"' in path.read_text()
        for tiles in (1, 3) if looped else (1,):
            read = mscclpp.read(data, tiles=tiles, file=path.name)
            assert read.states_collective == (not path.stem.startswith("ut_")), path.name
            proof = _core.verify(read.program)
            assert all(d.code != "GC3-V001" for d in proof.diagnostics), path.name
            if read.states_collective and "nvls" not in path.stem:
                assert proof.ok, (path.name, str(proof.diagnostics[0]))
            if path.stem in HANG:
                assert not proof.ok
            # Some tests of units have a rank without chunks, or that does nothing.
            others = [why for why in read.refusals if not re.search("it is 0, by which|a kernel needs one", why)]
            expected = UNFIT.get(path.stem)
            assert bool(others) == (expected is not None), (path.name, others)
            assert expected is None or all(expected in why for why in others)


# Their last signals are relaxed, after stores through a switch.
UNPROVEN = re.compile("all(reduce|gather)_nvls_zero_copy_[24]")


@pytest.mark.python_only
@pytest.mark.skipif(not FILES, reason="the public plans are not here")
def test_public_plans_compute_what_numpy_does() -> None:
    for path in FILES:
        data = json.loads(path.read_text())
        first = mscclpp.read(data, file=path.name)
        if not first.states_collective:
            continue
        tiles = (1, 1) if first.unit_bytes is None else (1, 3)
        for times, of in zip((1, 100), tiles, strict=True):
            program = DirectProgram(mscclpp.read(data, tiles=of).program)
            case = Case(program.collective, program.collective.chunks * times, "int32", "sum")
            inputs, outputs = case.inputs(), case.poisoned_outputs()
            if UNPROVEN.fullmatch(path.stem):
                with pytest.raises(gc3.UserError, match="relaxed signals and packets make nothing visible"):
                    program.run(inputs, outputs=outputs, count=case.count, dtype="int32")
                break
            program.run(inputs, outputs=outputs, count=case.count, dtype="int32", workers=2)
            assert case.compare(inputs, outputs).ok, (path.name, times, of)
