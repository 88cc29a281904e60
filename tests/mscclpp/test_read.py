"""Execution plans of MSCCL++ become one-sided programs; what is wrong with one is told with its place."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gc3
from gc3 import _core, mscclpp

SHIPPED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "mscclpp-plans"
FILES = sorted(SHIPPED.glob("*.json"))

Json = dict[str, Any]


def own(index: int = 0, size: int = 1, buffer: str = "i") -> Json:
    return {"type": buffer, "index": index, "size": size}


def far(index: int = 0, size: int = 1, number: int = 0) -> Json:
    return {"buffer_id": number, "index": index, "size": size}


def switch(index: int = 0, size: int = 1) -> Json:
    return {"switch_channel_id": 0, "index": index, "size": size}


def move(name: str, sources: list[Json], targets: list[Json], **more: Any) -> Json:
    return {"name": name, "src_buff": sources, "dst_buff": targets, **more}


MEMORY = {"channel_type": "memory"}
PORT = {"channel_type": "port", "channel_ids": [0]}
SIGNAL = {"name": "signal", "channel_ids": [0], "channel_type": "memory"}
WAIT = {**SIGNAL, "name": "wait"}
NOP = {"name": "nop"}


def plan(*ops: Json, others: tuple[Json, ...] = (), collective: str = "test", **top: Any) -> Json:
    """Two ranks of 4 input, 4 output and 8 scratch chunks; rank 0 executes `ops`, rank 1 `others`."""

    def gpu(rank: int, steps: tuple[Json, ...]) -> Json:
        peer = 1 - rank
        return {
            "id": rank,
            "input_chunks": 4,
            "output_chunks": 4,
            "scratch_chunks": 8,
            "channels": [
                {"channel_type": "memory", "connected_to": [peer, peer]},
                {"channel_type": "port", "connected_to": [peer]},
                {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]},
                {"channel_type": "switch", "buffer_type": "s", "rank_groups": [{"size": 2, "ranks": [1, 0]}]},
            ],
            "remote_buffers": [
                {"rank": peer, "type": kind, "access_channel_types": ["memory", "port"]} for kind in "ios"
            ],
            "semaphores": [{"init_value": rank}, {"init_value": 2}],
            "threadblocks": [
                {
                    "id": 0,
                    "ops": list(steps),
                    "channels": [
                        {"channel_type": "memory", "channel_ids": [0, 1]},
                        {"channel_type": "port", "channel_ids": [0]},
                        {"channel_type": "switch", "channel_ids": [0, 1]},
                    ],
                    "remote_buffer_refs": [
                        {"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]} for kind in ("memory", "port")
                    ],
                }
            ],
        }

    head = {"name": "mine", "collective": collective, "protocol": "LL", "inplace": False}
    return {**copy.deepcopy({**head, "gpus": [gpu(0, ops), gpu(1, others)]}), **top}


def steps(read: mscclpp.Plan) -> list[str]:
    """What rank 0 does."""
    text = read.program.to_text()
    return re.findall(r"^    \d+ (.*)", text[text.index("rank 0 scratch") : text.index("rank 1 scratch")], re.MULTILINE)


PKT = {"switch_channel_id": 1, "index": 1, "size": 1}
OPERATIONS: list[tuple[Json, list[str]]] = [
    (NOP, ["sync"]),
    (SIGNAL, ["signal 0"]),
    (WAIT, ["wait 0"]),
    ({**SIGNAL, "name": "rlxsignal", "channel_ids": [0, 1]}, ["signal 0 1 relaxed"]),
    ({**WAIT, "name": "rlxwait", "channel_type": "port"}, ["wait 0"]),
    ({"name": "flush", **PORT}, []),
    ({"name": "sem_acquire", "semaphore_ids": [1, 0]}, ["acquire 1 0"]),
    ({"name": "sem_release", "semaphore_ids": [0]}, ["release 0"]),
    ({"name": "barrier", "barrier_id": 3, "num_threadblocks": 2}, ["barrier 0"]),
    ({"name": "barrier", "barrier_id": 3, "num_threadblocks": 1}, ["sync"]),
    (move("copy", [own(1, 2)], [own(2, 2, "o")]), ["move in[1] -> out[2] x2"]),
    (
        move("put", [own(0), own(1)], [far(2, number=1), far(3, number=2)], **MEMORY),
        ["move in[0] -> 1:out[2]", "move in[1] -> 1:sc[3]"],
    ),
    (move("put", [own(0)], [far(2)], **PORT), ["move in[0] -> 1:in[2] through 0"]),
    (move("pws", [own(0)], [far(2)], **PORT), ["move in[0] -> 1:in[2] through 0", "signal 0"]),
    (move("pwsf", [own(0)], [far(2)], **PORT), ["move in[0] -> 1:in[2] through 0", "signal 0", "flush 0"]),
    (move("get", [far(2)], [own(2, 1, "o")], **MEMORY), ["move 1:in[2] -> out[2]"]),
    (move("re", [own(0), own(1)], [own(2, 1, "o")]), ["move in[0] + in[1] -> out[2]"]),
    (
        move("res", [own(0), own(1)], [own(2, 1, "o"), far(3)], **MEMORY),
        ["move in[0] + in[1] -> out[2] 1:in[3]"],
    ),
    (move("rre", [own(0), far(1)], [own(0, 1, "o")], **MEMORY), ["move in[0] + 1:in[1] -> out[0]"]),
    (
        move("rres", [own(0), far(0)], [own(0), far(0)], reduce_op="sum", **MEMORY),
        ["move in[0] + 1:in[0] -> in[0] 1:in[0]"],
    ),
    (move("cpkt", [own(0)], [own(5, 1, "s")]), ["move in[0] -> pkt sc[5]"]),
    (move("upkt", [own(5, 1, "s")], [own(0, 1, "o")]), ["move pkt sc[5] -> out[0]"]),
    (move("ppkt", [own(0)], [far(5, number=2)], **MEMORY), ["move in[0] -> 1:pkt sc[5]"]),
    (
        move("rppkt", [own(4, 1, "s")], [far(5, number=2), far(6, number=2)], **MEMORY),
        ["move pkt sc[4] -> 1:pkt sc[5] 1:pkt sc[6]"],
    ),
    # The executor adds the own value last.
    (
        move("repkt", [own(0), own(4, 1, "s"), own(5, 1, "s")], [own(0, 1, "o")]),
        ["move pkt sc[4] + pkt sc[5] + in[0] -> out[0]"],
    ),
    (
        move("respkt", [own(0), own(4, 1, "s")], [own(0, 1, "o"), far(7, number=2)], **MEMORY),
        ["move pkt sc[4] + in[0] -> out[0] 1:pkt sc[7]"],
    ),
    (
        move("recpkt", [own(0), own(4, 1, "s")], [own(0, 1, "o"), own(6, 1, "s")]),
        ["move pkt sc[4] + in[0] -> out[0] pkt sc[6]"],
    ),
    (
        move("recspkt", [own(0), own(4, 1, "s")], [own(0, 1, "o"), own(6, 1, "s"), far(7, number=2)], **MEMORY),
        ["move pkt sc[4] + in[0] -> out[0] pkt sc[6] 1:pkt sc[7]"],
    ),
    (move("glres", [switch(1)], [switch(1)], channel_type="switch"), ["move g0:in[1] -> g0:in[1]"]),
    (move("gstore", [own(2, 1, "o")], [switch(1)], channel_type="switch"), ["move out[2] -> g0:in[1]"]),
    (move("gstorepkt", [own(2, 1, "s")], [PKT], channel_type="switch"), ["move pkt sc[2] -> g0:pkt sc[1]"]),
]


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


ALLREDUCE = (
    {**SIGNAL, "name": "rlxsignal"},
    NOP,
    {**WAIT, "name": "rlxwait"},
    NOP,
    *(move("rres", [own(c, 2), far(c, 2)], [own(c, 2), far(c, 2)], **MEMORY) for c in (0,)),
    NOP,
    SIGNAL,
    NOP,
    WAIT,
    NOP,
)


def other_half(ops: tuple[Json, ...]) -> tuple[Json, ...]:
    moved = copy.deepcopy(ops)
    for op in moved:
        for each in (*op.get("src_buff", ()), *op.get("dst_buff", ())):
            each["index"] += 2
    return moved


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


def refused(*ops: Json, **top: Any) -> list[str]:
    return [why.removeprefix("$.gpus[0].threadblocks[0].") for why in mscclpp.read(plan(*ops, **top)).refusals]


def test_what_the_executor_would_do_otherwise_is_refused() -> None:
    put = move("pws", [own(0)], [far(2)], channel_type="memory", channel_ids=[0])
    assert refused(put) == ["ops[0].channel_type: on memory channels the executor leaves out the signal"]
    get = move("get", [far(1), far(2)], [own(1), own(3)], **MEMORY)
    assert refused(get) == ["ops[0].src_buff[1].index: get exchanges the offsets of its two sides, which differ here"]
    put = move("put", [own(0), own(0, 1, "o")], [far(2), far(3)], **MEMORY)
    assert refused(put) == ["ops[0].src_buff[1].type: the executor reads all sources from buffer i"]
    assert refused(move("rre", [own(), far()], [own()], reduce_op="max", **MEMORY)) == [
        "ops[0].reduce_op: 'max': the executor always adds"
    ]
    store = move("put", [own()], [far(number=2)], **MEMORY)
    assert refused(store, use_double_scratch_buffer=True) == [
        "ops[0].dst_buff[0]: plain access to another rank's scratch misses its second half"
    ]
    assert refused(store) == []
    packets = move("cpkt", [own()], [own(3, 1, "s")])
    assert refused(packets, protocol="Simple") == []
    packets["dst_buff"] = [own(4, 1, "s")]
    assert refused(packets, protocol="Simple") == [
        "ops[0].dst_buff[0]: protocol Simple makes no room for the flags of packets"
    ]
    odd = refused(move("rre", [own(), far()], [own()], **MEMORY), buffer_alignment=8)
    assert odd == ["ops[0].name: where buffer_alignment is no multiple of 16, the rest is reduced at wrong addresses"]
    assert refused(*[NOP] * 65) == ["ops: 65 operations; a threadblock holds 64"]
    many = move("put", [own()] * 11, [far()] * 11, **MEMORY)
    assert [why.partition(":")[0] for why in refused(many)] == ["ops[0].src_buff", "ops[0].dst_buff"]
    glre: Json = {"name": "glre", "channel_ids": [0], "buffer_offset": 1, "size": 2, "dst_chunk": own(4, 2, "s")}
    assert refused(glre) == ["ops[0].name: the executor does not know glre: only glres runs"]
    assert steps(mscclpp.read(plan(glre))) == ["move g0:in[1] -> sc[4] x2"]
    empty = plan()
    empty["gpus"][0]["output_chunks"] = 0
    assert mscclpp.read(empty).refusals == ("$.gpus[0].output_chunks: it is 0, by which the executor divides",)


def test_what_an_operation_in_a_pipeline_would_do_otherwise_is_refused() -> None:
    def loop(op: Json, unit: int = 1024) -> Json:
        return {"name": "pipeline", "iter_context": {"unit_size": unit, "num_chunks": 1}, "ops": [op]}

    assert refused(loop(move("cpkt", [own()], [own(0, 1, "s")]))) == [
        "ops[0].ops[0].name: packets in a pipeline: the executor moves the same ones in each iteration"
    ]
    copied = loop(move("copy", [own()], [own(0, 1, "s")]))
    assert refused(copied) == []
    assert len(refused(copied, reuse_resources=True)) == 1
    assert len(refused(loop(move("rre", [own(), far()], [own()], **MEMORY), unit=1000))) == 1


WRONG: list[tuple[Json, str]] = [
    ({"name": "swap"}, "ops[0].name: no operation is called 'swap'"),
    ({**SIGNAL, "channel_ids": [2]}, "ops[0].channel_ids[0]: number 2 of 2 memory channels of the threadblock"),
    ({**SIGNAL, "channel_type": "switch"}, "ops[0].channel_type: the executor has no signal of switch channels"),
    ({"name": "signal", "channel_type": "memory"}, "ops[0].channel_ids: signal needs it"),
    ({"name": "sem_acquire", "semaphore_ids": [2]}, "ops[0].semaphore_ids[0]: number 2 of 2 semaphores"),
    ({"name": "barrier", "barrier_id": 1}, "ops[0].num_threadblocks: barrier needs it"),
    (move("copy", [own(3, 2)], [own(0, 2)]), "ops[0].src_buff[0]: chunks 3 to 4 of 4 of buffer i of rank 0"),
    (move("copy", [own(), own()], [own()]), "ops[0].src_buff: 2 operands; copy has 1"),
    (move("copy", [own()], [own(0, 2)]), "ops[0].dst_buff[0].size: 2 chunks; the others have 1"),
    (move("copy", [own()], [far()], **MEMORY), "ops[0].dst_buff[0].type: copy needs it here"),
    (move("put", [own()], [far(number=3)], **MEMORY), "ops[0].dst_buff[0].buffer_id: number 3 of 3 buffers"),
    (move("put", [own()], [far(), far()], **MEMORY), "ops[0].dst_buff: 2 targets of 1 sources"),
    (move("put", [own()], [far()], channel_type="port", channel_ids=[0, 0]), "ops[0].channel_ids: 2 channels of 1"),
    (move("ppkt", [own()], [far(number=2)], **PORT), "ops[0].channel_type: ppkt through port channels"),
    (move("cpkt", [own()], [own(0, 1, "o")]), "ops[0].dst_buff[0]: packets in buffer o; they are in scratch only"),
    (move("re", [own()], [own()], tbg_info={"tb_id": 2, "tbg_size": 2}), "ops[0].tbg_info.tb_id: part 2 of 2"),
    (
        {
            "name": "pipeline",
            "iter_context": {"unit_size": 1, "num_chunks": 2},
            "ops": [move("copy", [own()], [own()])],
        },
        "ops[0].ops[0].src_buff: 1 chunks in a pipeline over 2",
    ),
    ({"name": "pipeline", "ops": []}, "ops[0].iter_context: pipeline needs it"),
]


@pytest.mark.parametrize(("op", "expected"), WRONG)
def test_a_wrong_operation_is_named_by_its_path(op: Json, expected: str) -> None:
    with pytest.raises(gc3.UserError, match=re.escape(f"$.gpus[0].threadblocks[0].{expected}")) as caught:
        mscclpp.read(plan(op), file="p.json")
    assert (caught.value.code, caught.value.file) == ("GC3-I011", "p.json")


def test_the_collective_must_have_the_chunks_of_the_plan() -> None:
    mine = plan()
    assert mscclpp.read(mine, collective="allreduce").program.collective.chunks == 4
    assert mscclpp.read(mine, collective="alltoall").program.collective.chunks == 2
    with pytest.raises(gc3.UserError, match="the chunks of the plan are not those of allgather of 2 ranks"):
        mscclpp.read(mine, collective="allgather")
    with pytest.raises(gc3.UserError, match="a plan computes one of allreduce"):
        mscclpp.read(mine, collective="gather")
    mine["collective"] = "allgather"  # what the file says is not believed either
    assert not mscclpp.read(mine).states_collective


def test_names_are_quoted() -> None:
    mine = plan(collective='a "b"\n')
    mine["name"] = 'q"uo\\te\x00é'
    program = mscclpp.read(mine).program
    assert program.name == 'q"uo\\te\x00é'
    assert 'collective custom "a \\"b\\"\\x0a" ranks 2' in program.to_text()


def fields(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the paths of all parts of a document."""
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield (*path, key)
        yield from fields(value, (*path, key))


VALUES = [None, True, "x", -1, 0, 2, 3.0, 1.5, 10**30, [], [0], {}]
FUZZED = ("signal", "sem_acquire", "barrier", "put", "res", "respkt", "gstorepkt")


def damaged(whole: Json, path: tuple[Any, ...], value: Any) -> Json:
    """A copy with another value at a path, or without it."""
    copied = copy.deepcopy(whole)
    holder: Any = copied
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    if value == "drop":
        del holder[path[-1]]
    return copied


def outcome(data: Any) -> _core.DirectProgram | gc3.UserError:
    try:
        return mscclpp.read(data, file="p.json").program
    except gc3.UserError as problem:
        return problem


@pytest.mark.parametrize("share", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 10))])
def test_any_field_that_is_wrong_gives_one_message(share: int) -> None:
    """Each kind of field is dropped, and gets values of other types and sizes."""
    loop = {"name": "pipeline", "iter_context": {"unit_size": 64, "num_chunks": 1}, "ops": [SIGNAL]}
    grouped = move("copy", [own()], [own()], tbg_info={"tb_id": 0, "tbg_size": 2})
    glre: Json = {"name": "glre", "channel_ids": [0], "buffer_offset": 1, "size": 2, "dst_chunk": own(4, 2, "s")}
    whole = plan(loop, grouped, glre, *(op for op, _ in OPERATIONS if op["name"] in FUZZED), reuse_resources=False)
    whole.update(buffer_alignment=16, num_threads_per_block=1, use_double_scratch_buffer=False, max_message_size=9)
    # One path of each kind: those of an operation are of its own kind, otherwise the numbers in a path do not matter.
    paths = {
        tuple("n" if isinstance(k, int) and "ops" not in path[:i] else k for i, k in enumerate(path)): path
        for path in fields(whole)
    }
    read = wrong = 0
    for number, path in enumerate(paths.values()):
        for value in ("drop", *VALUES)[(number + share) % 10 :: 10]:
            program = outcome(damaged(whole, path, value))
            if isinstance(program, gc3.UserError):
                assert program.code == "GC3-I011", (path, value)
                assert re.search(r"\$(\.|: )", program.message), (path, value)
                wrong += 1
                continue
            read += 1
            assert all(d.code != "GC3-V001" for d in _core.verify(program).diagnostics), (path, value)
    assert read > 10
    assert wrong > 100


def test_what_is_no_plan() -> None:
    assert mscclpp.is_plan(plan())
    assert not mscclpp.is_plan({"gc3_topology": 1, "gpus": 4})
    assert not mscclpp.is_plan([])
    for data in ({}, [], None, 3, {"gpus": []}):
        with pytest.raises(gc3.UserError, match="it is not an execution plan of MSCCL"):
            mscclpp.read(data)
    with pytest.raises(gc3.UserError, match="tiles=0"):
        mscclpp.read(plan(), tiles=0)


def test_hostile_sizes_are_refused_at_once() -> None:
    units = [2**31 - 1, 2**31 - 19, 2**31 - 61]
    loops = [{"name": "pipeline", "iter_context": {"unit_size": unit, "num_chunks": 1}, "ops": [NOP]} for unit in units]
    with pytest.raises(gc3.UserError, match="too many chunks"):
        mscclpp.read(plan(*loops))
    loops = [{"name": "pipeline", "iter_context": {"unit_size": 1, "num_chunks": 1}, "ops": [NOP] * 63}] * 2
    with pytest.raises(gc3.UserError, match="more than 1048576 steps in 65535 tiles"):
        mscclpp.read(plan(*loops), tiles=65535)
    loops = [{"name": "pipeline", "iter_context": {"unit_size": u, "num_chunks": 1}, "ops": []} for u in (1, 2**17)]
    with pytest.raises(gc3.UserError, match="131072 iterations; the executor counts to 65535"):
        mscclpp.read(plan(*loops))


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
            others = [why for why in read.refusals if "it is 0, by which" not in why]
            expected = UNFIT.get(path.stem)
            assert bool(others) == (expected is not None), (path.name, others)
            assert expected is None or all(expected in why for why in others)
