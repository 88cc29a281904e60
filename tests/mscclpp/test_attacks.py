"""Plans that an adversary had accepted: what MSCCL++'s executor does with each is beside it."""

from __future__ import annotations

from typing import Any

import pytest

import gc3
from gc3 import mscclpp
from mscclpp_plans import MEMORY, NOP, PORT, SIGNAL, WAIT, Json, far, move, own, plan


def refusals(mine: Json) -> list[str]:
    return list(mscclpp.read(mine).refusals)


def ports(count: int, *ops: Json, **top: Any) -> list[str]:
    """Of a plan whose rank 0 has so many port channels, all in one threadblock."""
    mine = plan(*ops, **top)
    mine["gpus"][0]["channels"][1]["connected_to"] = [1] * count
    mine["gpus"][0]["threadblocks"][0]["channels"][1]["channel_ids"] = list(range(min(count, 16)))
    return refusals(mine)


def through(name: str, count: int, **more: Any) -> Json:
    sources = [own(0, 1, "s")] if name == "rppkt" else [own()] * count
    return move(name, sources, [far(0, number=2)] * count, channel_type="port", channel_ids=list(range(count)), **more)


@pytest.mark.parametrize("name", ["put", "pws", "pwsf", "rppkt"])
def test_each_thread_tells_one_proxy(name: str) -> None:
    """Thread i tells the proxy of the i-th target; the array of channels has 8 places, and what follows it others."""
    assert ports(8, NOP, through(name, 8), NOP) == []
    at = "$.gpus[0].threadblocks[0].ops[1].channel_ids"
    assert ports(9, NOP, through(name, 9), NOP) == [f"{at}: 9; an operation holds 8"]
    alone = ports(2, NOP, through(name, 2), NOP, num_threads_per_block=1)
    assert alone == [f"{at}: 2, each of a thread of its own, and a threadblock has 1"]


def test_a_trigger_names_1024_channels_and_512_memories() -> None:
    assert ports(1024) == []
    assert ports(1025) == ["$.gpus[0].channels: 1025 for its proxy, which can tell 1024 apart"]
    mine = plan()
    mine["gpus"][0]["remote_buffers"] *= 170  # 510
    assert refusals(mine) == ["$.gpus[0].remote_buffers: 513 for its proxy, which can tell 512 apart"]


def test_a_pipeline_goes_through_all_chunks_of_reused_scratch() -> None:
    """Modulo what one chunk of scratch has."""
    copied = move("copy", [own(0, 4)], [own(0, 4, "s")])
    loop = {"name": "pipeline", "iter_context": {"unit_size": 1024, "num_chunks": 4}, "ops": [copied]}
    most = 2**25 // 4
    assert refusals(plan(loop, reuse_resources=True, max_message_size=most)) == []
    [why] = refusals(plan(loop, reuse_resources=True, max_message_size=most + 1))
    assert f"takes its scratch again above {most} bytes" in why


def test_reused_scratch_of_one_chunk_may_take_all_that_there_is() -> None:
    for protocol, double, most in (("LL", False, 2**28), ("LL", True, 2**27), ("Simple", False, 2**29)):
        mine = plan(move("copy", [own()], [own(0, 1, "s")]), reuse_resources=True, protocol=protocol)
        mine.update(use_double_scratch_buffer=double, max_message_size=most)
        for gpu in mine["gpus"]:
            gpu["scratch_chunks"] = 1
        assert refusals(mine) == []
        mine["max_message_size"] += 1
        assert f"overlap above {most} bytes" in refusals(mine)[0]


@pytest.mark.parametrize("field", ["reuse_resources", "use_double_scratch_buffer"])
@pytest.mark.parametrize("chunks", [0, 9])
def test_ranks_compute_places_in_the_scratch_of_others_by_their_own(field: str, chunks: int) -> None:
    mine = plan(max_message_size=2**20, **{field: True})
    mine["gpus"][1]["scratch_chunks"] = chunks
    assert f"$.gpus[1].scratch_chunks: {chunks}, and 8 of rank 0: they agree with {field}" in refusals(mine)


def test_with_reused_resources_a_proxy_reads_the_buffers_of_the_first_call() -> None:
    how = {"reuse_resources": True, "max_message_size": 2**20}
    put = move("put", [own(0)], [far(0, number=2)], **PORT)
    [why] = refusals(plan(put, **how))
    assert why.endswith("src_buff[0]: with reuse_resources the buffer that a proxy reads is that of the first call")
    assert refusals(plan(move("put", [own(0, 1, "s")], [far(0, number=2)], **PORT), **how)) == []
    own_rank = plan(move("put", [own(1)], [far(0)], **MEMORY), **how)
    own_rank["gpus"][0]["remote_buffers"][0]["rank"] = 0
    assert refusals(own_rank)[0].endswith("with reuse_resources the other ranks' buffer is that of the first call")


def test_the_second_half_of_scratch_is_missed_by_proxies_too() -> None:
    put = plan(move("put", [own(0, 1, "s")], [far(0)], **PORT), use_double_scratch_buffer=True)
    assert refusals(put)[0].endswith("src_buff[0]: a proxy that reads plain scratch misses its second half")
    own_rank = plan(move("put", [own()], [far(number=2)], **MEMORY), use_double_scratch_buffer=True)
    own_rank["gpus"][0]["remote_buffers"][2]["rank"] = 0
    assert refusals(own_rank)[0].endswith("plain access to another rank's scratch misses its second half")


@pytest.mark.parametrize(("cut", "unit", "right"), [(4, 16, True), (3, 16, False), (4, 48, False)])
def test_the_second_half_of_scratch_begins_at_a_whole_line(cut: int, unit: int, right: bool) -> None:
    """It begins in the middle of an allocation whose size follows from that of the buffers, cut into chunks."""
    mine = plan(use_double_scratch_buffer=True, buffer_alignment=unit)
    for gpu in mine["gpus"]:
        gpu.update(input_chunks=cut, scratch_chunks=3)
    said = [why for why in refusals(mine) if "the second half of scratch may begin between vectors" in why]
    assert bool(said) != right


@pytest.mark.parametrize("name", ["copy", "put"])
def test_copies_of_vectors_begin_at_places_that_are_whole_vectors_apart(name: str) -> None:
    target = own(1, 1, "o") if name == "copy" else far(1, number=1)
    apart = plan(move(name, [own(0)], [target], **MEMORY), buffer_alignment=8)
    assert refusals(apart)[0].endswith(f"{name} copies between places that are not a multiple of 16 bytes apart")
    target["index"] = 0
    assert refusals(plan(move(name, [own(0)], [target], **MEMORY), buffer_alignment=8)) == []


def test_all_pairs_of_a_pipeline_are_as_long_as_it_is() -> None:
    pairs = move("put", [own(0, 2), own(2, 1)], [far(0, 2), far(2, 1)], **MEMORY)
    loop = {"name": "pipeline", "iter_context": {"unit_size": 1024, "num_chunks": 2}, "ops": [pairs]}
    with pytest.raises(gc3.UserError, match="1 chunks in a pipeline over 2"):
        mscclpp.read(plan(loop))


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (move("put", [own()], [far()], semaphore_ids=[0], **MEMORY), "semaphore_ids"),
        ({**SIGNAL, "barrier_id": 3}, "barrier_id"),
        (move("copy", [own()], [own(0, 1, "o")], iter_context={"unit_size": 16, "num_chunks": 1}), "iter_context"),
    ],
)
def test_fields_of_other_operations_are_refused(op: Json, field: str) -> None:
    assert refusals(plan(op)) == [
        f"$.gpus[0].threadblocks[0].ops[0].{field}: "
        "the executor puts it in the place of another field of this operation"
    ]


def test_a_range_says_once_whose_it_is() -> None:
    both = {**own(), "buffer_id": 1}
    [why] = refusals(plan(move("put", [both], [far()], **MEMORY)))
    assert why.endswith("src_buff[0]: the executor reads only one of type, buffer_id and switch_channel_id")


def test_what_tells_no_proxy_may_follow_packets_of_several_threads() -> None:
    waits = ({**WAIT, "channel_type": "port"}, {"name": "flush", **PORT})
    for each in waits:
        assert ports(2, through("rppkt", 2), each) == []
