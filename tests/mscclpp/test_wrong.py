"""What is wrong with an execution plan is told with its place, and so is what its executor does otherwise."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

import gc3
from gc3 import _core, mscclpp
from mscclpp_plans import MEMORY, NOP, OPERATIONS, PORT, SIGNAL, Json, far, move, own, plan, steps, switch


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
    assert odd == [
        "ops[0].name: rre handles 16 bytes at once, and wrongly what is left of 8, which is buffer_alignment"
    ]
    assert refused(move("copy", [own()], [own()]), packets, buffer_alignment=4, num_threads_per_block=2048) == [
        "$.num_threads_per_block: a threadblock has at most 1024 threads",
        "ops[1].name: cpkt handles 8 bytes at once, and wrongly what is left of 4, which is buffer_alignment",
    ]
    both = {**SIGNAL, "channel_ids": [0, 1]}
    assert refused(both, {"name": "sem_release", "semaphore_ids": [0]}, num_threads_per_block=1) == [
        "ops[0].channel_ids: 2, each of a thread of its own, and a threadblock has 1"
    ]
    assert refused(store, move("gstore", [own()], [switch()]), reuse_resources=True, max_message_size=2**24) == [
        "ops[1].dst_buff[0]: with reuse_resources the other ranks' buffer is that of the first call"
    ]
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
    assert refused(copied) == refused(copied, reuse_resources=True, max_message_size=2**25) == []
    assert refused(copied, reuse_resources=True) == [
        "ops[0].ops[0].dst_buff[0]: with reuse_resources a pipeline takes its scratch again above 33554432 bytes: "
        "set max_message_size to that"
    ]
    assert len(refused(loop(move("rre", [own(), far()], [own()], **MEMORY), unit=1000))) == 1


def test_sizes_that_the_executor_cannot_count_are_refused() -> None:
    stored = move("copy", [own()], [own(0, 1, "s")])
    above = "with reuse_resources scratch chunks overlap above"
    for double, most in ((True, 2**24), (False, 2**25)):  # of 8 scratch chunks, of an input of 4
        reused = {"reuse_resources": True, "use_double_scratch_buffer": double}
        assert refused(stored, **reused, max_message_size=most) == []
        for size in ({"max_message_size": most + 1}, {}):
            why = f"ops[0].dst_buff[0]: {above} {most} bytes: set max_message_size to that"
            assert refused(stored, **reused, **size) == [why]
    assert refused(move("copy", [own()], [own(0, 1, "o")]), reuse_resources=True) == []
    loop = {"name": "pipeline", "iter_context": {"unit_size": 16, "num_chunks": 1}, "ops": [NOP]}
    most = 4 * 16 * 65535
    assert refused(loop) == refused(loop, min_message_size=most, max_message_size=most) == []
    for field in ("min_message_size", "max_message_size"):
        assert refused(loop, **{field: most + 1}) == [
            f"$.{field}: of {most + 1} bytes gpus[0].threadblocks[0].ops[0] has 65536 iterations; "
            "the executor counts to 65535"
        ]
    assert refused(NOP, protocol="Simple", max_message_size=2**31 - 1) == []
    assert refused(NOP, protocol="Simple", max_message_size=2**31) == [
        f"$.max_message_size: of {2**31} bytes a buffer of rank 0 has {2**32}, and the executor's offsets have 32 bits"
    ]
    assert refused(NOP, min_message_size=2, max_message_size=1) == [
        "$.min_message_size: 2 is more than max_message_size, 1"
    ]


def test_parts_of_chunks_that_are_cut_in_two_ways_are_refused() -> None:
    def part(size: int, group: int) -> Json:
        return move("copy", [own(0, size)], [own(0, size, "o")], tbg_info={"tb_id": 0, "tbg_size": group})

    for right in ((part(1, 4), part(1, 4), part(4, 2), part(4, 4)), (part(2, 3), part(2, 3))):
        assert refused(*right) == []
    assert refused(part(1, 2), part(1, 4), part(1, 4)) == [
        "ops[1].tbg_info: 1 chunk among 4 threadblocks, and others 1 among 2: where these parts end depends on the size"
    ]
    assert len(refused(part(1, 4), part(3, 4))) == 1
    # A size of 2 units leaves the first two of four parts longer than one of the two chunks.
    assert refused(part(2, 4)) == [
        "ops[0].tbg_info: 2 chunks among 4 threadblocks: where these parts end depends on the size"
    ]


def test_ranks_that_would_not_start_are_refused() -> None:
    mine = plan()
    mine["gpus"][1]["threadblocks"] = []
    assert mscclpp.read(mine).refusals == ("$.gpus[1].threadblocks: there are none, and a kernel needs one",)

    def switches(*ranks: list[tuple[str, list[int]]]) -> list[str]:
        mine = plan()
        mine["gpus"] += copy.deepcopy(mine["gpus"][:1])
        mine["gpus"][2]["id"] = 2
        for gpu, groups in zip(mine["gpus"], ranks, strict=True):
            gpu["threadblocks"][0]["channels"] = []
            gpu["channels"] = [
                {"channel_type": "switch", "buffer_type": kind, "rank_groups": [{"size": len(group), "ranks": group}]}
                for kind, group in groups
            ]
        return list(mscclpp.read(mine).refusals)

    some, last, ends = ("i", [0, 1]), ("s", [1, 2]), ("o", [0, 2])
    assert switches([some], [some, last], [last]) == []
    assert switches([some], [some], []) == []
    first = ["$.gpus[0].channels[0].rank_groups[0]: ranks [0, 1] do not all have this group as their next one"]
    assert switches([some], [], []) == first
    assert switches([some], [last], [last]) == first
    assert switches([some, ends], [last, some], [ends, last]) == first  # each waits for another
    assert switches([some], [("s", [0, 1])], []) in (
        ["$.gpus[0].channels[0].rank_groups[0]: it is of buffer i, and on rank 1 of buffer s"],
        ["$.gpus[1].channels[0].rank_groups[0]: it is of buffer s, and on rank 0 of buffer i"],
    )


def test_what_has_no_meaning_may_be_deep() -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    mine = plan(NOP)
    mine["comment"] = deep
    assert mscclpp.read(mine).refusals == ()
    mine["gpus"][0]["threadblocks"] = deep
    with pytest.raises(gc3.UserError, match="it is not an execution plan"):
        mscclpp.read(mine)


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
    (move("ppkt", [own()], [far(number=2)], **PORT), "ops[0].src_buff[0]: packets in buffer i; they are in scratch"),
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
