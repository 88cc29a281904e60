"""Execution plans for the tests of their reader: two ranks with channels of each type."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from gc3 import mscclpp

Json = dict[str, Any]
# The plans that MSCCL++'s public programs write, where they are.
SHIPPED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "mscclpp-plans"


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
    # Proxies copy packets that are there.
    (
        move("rppkt", [own(4, 2, "s")], [far(5, 2, number=2)], **PORT),
        ["move pkt sc[4] x2", "sync", "move pkt sc[4] -> 1:pkt sc[5] x2 through 0"],
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
