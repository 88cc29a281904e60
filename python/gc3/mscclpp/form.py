"""The form of an execution plan: its JSON schema, its operations, and what MSCCL++'s executor can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gc3.support.schema import COUNT, TEXT, array, record

MOST_RANKS = 1024
MOST_CHUNKS = 2**22  # of a buffer

_FLAG = {"type": "boolean"}
_NUMBER = {**COUNT, "maximum": 2**31 - 1}
_CHUNKS = {**COUNT, "maximum": MOST_CHUNKS}
_POSITIVE = {**_NUMBER, "minimum": 1}
_BYTES = {**COUNT, "maximum": 2**64 - 1}
_BUFFER = {"enum": ["i", "o", "s"]}
_CHANNEL = {"enum": ["memory", "port", "switch"]}
_NUMBERS = array(_NUMBER)
_RANGE = record(
    {"type": _BUFFER, "buffer_id": _NUMBER, "switch_channel_id": _NUMBER},
    index=_NUMBER,
    size={**_CHUNKS, "minimum": 1},
)
_RANGES = array(_RANGE, minItems=1)


def _operation(inner: dict[str, Any] | None) -> dict[str, Any]:
    fields = {
        "src_buff": _RANGES,
        "dst_buff": _RANGES,
        "channel_type": _CHANNEL,
        "channel_ids": array(_NUMBER, minItems=1),
        "semaphore_ids": array(_NUMBER, minItems=1),
        "barrier_id": _NUMBER,
        "num_threadblocks": _POSITIVE,
        "reduce_op": TEXT,
        "dst_chunk": _RANGE,  # this and the next two of glre, which has a form of its own
        "buffer_offset": _NUMBER,
        "size": {**_CHUNKS, "minimum": 1},
        "tbg_info": record(tb_id=_NUMBER, tbg_size={**_CHUNKS, "minimum": 1}),
    }
    if inner is not None:
        fields["iter_context"] = record(unit_size=_POSITIVE, num_chunks={**_CHUNKS, "minimum": 1})
        fields["ops"] = array(inner)
    return record(fields, name=TEXT)


SCHEMA = record(
    {
        "reuse_resources": _FLAG,
        "use_double_scratch_buffer": _FLAG,
        "buffer_alignment": _POSITIVE,
        "num_threads_per_block": _POSITIVE,
        "min_message_size": _BYTES,
        "max_message_size": _BYTES,
    },
    name=TEXT,
    collective=TEXT,
    protocol={"enum": ["Simple", "LL"]},
    inplace=_FLAG,
    gpus=array(
        record(
            {"semaphores": array(record(init_value=_NUMBER))},
            id=_NUMBER,
            input_chunks=_CHUNKS,
            output_chunks=_CHUNKS,
            scratch_chunks=_CHUNKS,
            channels=array(
                record(
                    {
                        "connected_to": _NUMBERS,
                        "buffer_type": _BUFFER,
                        "rank_groups": array(record(size=_NUMBER, ranks=array(_NUMBER, minItems=1))),
                    },
                    channel_type=_CHANNEL,
                )
            ),
            remote_buffers=array(record(rank=_NUMBER, type=_BUFFER, access_channel_types=array(_CHANNEL))),
            threadblocks=array(
                record(
                    {"remote_buffer_refs": array(record(access_channel_type=_CHANNEL, remote_buffer_ids=_NUMBERS))},
                    id=_NUMBER,
                    channels=array(record(channel_type=_CHANNEL, channel_ids=_NUMBERS)),
                    ops=array(_operation(_operation(None))),
                )
            ),
        ),
        minItems=1,
        maxItems=MOST_RANKS,
    ),
)

# The operands of src_buff and of dst_buff of the operations that move data; * repeats the last one any number of times.
#   l  own memory                    p  packets in the own scratch
#   r  memory of another rank        q  packets in another rank's scratch
#   m  memory of a switch's ranks    n  packets in their scratch
MOVES: Mapping[str, tuple[str, str]] = {
    "copy": ("l", "l"),
    "put": ("l*", "r*"),
    "pws": ("l*", "r*"),
    "pwsf": ("l*", "r*"),
    "get": ("r*", "l*"),
    "re": ("l*", "l"),
    "res": ("l*", "lr*"),
    "rre": ("lr*", "l"),
    "rres": ("lr*", "lr*"),
    "cpkt": ("l", "p"),
    "upkt": ("p", "l"),
    "ppkt": ("l*", "q*"),
    "rppkt": ("p", "q*"),
    "repkt": ("lp*", "l"),
    "respkt": ("lp*", "lq*"),
    "recpkt": ("lp*", "lp"),
    "recspkt": ("lp*", "lpq*"),
    "glre": ("m", "l"),
    "glres": ("m", "m"),
    "gstore": ("l", "m"),
    "gstorepkt": ("p", "n"),
}
PAIRED = ("put", "pws", "pwsf", "get", "ppkt")  # each source goes to the target at its position
PACKET_PUTS = ("ppkt", "rppkt")
PUTS = ("put", "pws", "pwsf", *PACKET_PUTS)  # of which proxies do those through port channels
REDUCTIONS = ("re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt", "glre", "glres")

# Fields that the executor keeps where it keeps others, and the operations that have them.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "semaphore_ids": ("sem_acquire", "sem_release"),
    "barrier_id": ("barrier",),
    "num_threadblocks": ("barrier",),
    "iter_context": ("pipeline",),
}
WHOSE = {"type", "buffer_id", "switch_channel_id"}  # of a range

# Limits of the arrays of execution_common.hpp.
MOST_OPERATIONS = 64  # of a threadblock, with those inside its pipelines
MOST_CHANNELS = 16  # of a threadblock, of each type; likewise its remote buffers
MOST_OPERANDS = 10  # sources or targets of an operation
MOST_CHANNELS_AT_ONCE = 8  # of an operation
MOST_SEMAPHORES_AT_ONCE = 16
MOST_BARRIERS = 16
MOST_ITERATIONS = 2**16 - 1  # of a pipeline
MOST_THREADS = 1024  # of a threadblock
MOST_PORTS = 1024  # of a rank, which a trigger of its proxy can name
MOST_MEMORIES = 512  # likewise: its three buffers, and others' that it reaches through ports
MOST_BYTES = 2**32  # of a buffer, or one more
REUSED_SCRATCH = 2**26  # bytes of the scratch that plans share
ANY_SIZE = 2**64 - 1  # as max_message_size
# Bytes that operations handle at once. What is left of a range is left out, or found at wrong addresses.
VECTOR, PAYLOAD, WORD = 16, 8, 4


def grain(name: str) -> int:
    """Returns how many bytes an operation handles at once."""
    packets = {"p", "q", "n"} & set("".join(MOVES[name]))
    return PAYLOAD if packets else VECTOR if name in REDUCTIONS else WORD
