"""What the executor of MSCCL++ does otherwise than an operation says, unless it is harmless there.

Read from its ``execution_kernel.hpp``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gc3.mscclpp import form
from gc3.support.words import counted


class Range(NamedTuple):
    """An operand: a range of chunks of a buffer."""

    to: str  # whose it is, as the text form has it: "" of the own rank, "1:" or "g0:"
    owners: tuple[int, ...]
    buffer: str  # i, o, s
    packet: bool
    first: int
    size: int
    reached: bool  # as a remote buffer, which may be the own rank's, or through a switch


def of_plan(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields paths of a plan as a whole, each with what is wrong."""
    yield from _of_sizes(plan)
    yield from _of_groups(plan)
    yield from _of_scratch(plan)
    for rank, gpu in enumerate(plan["gpus"]):
        if not gpu["threadblocks"]:
            yield f"gpus[{rank}].threadblocks", "there are none, and a kernel needs one"
        for i, block in enumerate(gpu["threadblocks"]):
            for path in _unfenced(block["ops"]):
                why = "through channels of different threads: put a nop directly before and directly after it"
                yield f"gpus[{rank}].threadblocks[{i}].{path}", why


def _of_scratch(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where the executor computes the place of a chunk of another rank's scratch, it does so as if it were its own."""
    double, scratch = plan.get("use_double_scratch_buffer"), [gpu["scratch_chunks"] for gpu in plan["gpus"]]
    if double or plan.get("reuse_resources"):
        for rank, chunks in enumerate(scratch):
            if chunks != scratch[0]:
                what = "use_double_scratch_buffer" if double else "reuse_resources"
                yield f"gpus[{rank}].scratch_chunks", f"{chunks}, and {scratch[0]} of rank 0: they agree with {what}"
                return
    if not double or plan.get("reuse_resources"):
        return
    # The second half begins in the middle of the allocation, whose size follows from that of the user's buffers.
    for rank, gpu in enumerate(plan["gpus"]):
        cut = gpu["input_chunks"] or gpu["output_chunks"] or 1
        half, unit = gpu["scratch_chunks"] * (2 if plan["protocol"] == "LL" else 1), plan.get("buffer_alignment", 1)
        if gpu["scratch_chunks"] and ((cut & (cut - 1) and half % form.VECTOR) or unit & (unit - 1)):
            why = f"{gpu['scratch_chunks']}, of buffers cut into {cut}: the second half of scratch may begin between"
            yield f"gpus[{rank}].scratch_chunks", f"{why} vectors of {form.VECTOR} bytes"
            return


def most_bytes(plan: dict[str, Any], rank: int) -> int:
    """Returns the size of a message up to which chunks of reused scratch are as far apart as they are long."""
    halves, chunks = (2 if plan.get("use_double_scratch_buffer") else 1), plan["gpus"][rank]["scratch_chunks"]
    if chunks == 1:  # which may take all that there is
        return 2 * form.REUSED_SCRATCH * _message_chunks(plan, rank) // halves // (2 if plan["protocol"] == "LL" else 1)
    return form.REUSED_SCRATCH * _message_chunks(plan, rank) // (halves * chunks) if chunks else form.ANY_SIZE


def of_move(
    plan: dict[str, Any],
    op: dict[str, Any],
    sources: Sequence[Range],
    targets: Sequence[Range],
    *,
    port: bool,
    tiled: bool,
) -> Iterator[tuple[str, str]]:
    """Yields fields of an operation that moves data, each with what is wrong.

    Args:
        plan: The plan.
        op: The operation.
        sources: What it loads.
        targets: What it stores to.
        port: A proxy executes it.
        tiled: It is in a pipeline.
    """
    name: str = op["name"]
    for field, ranges in (("src_buff", sources), ("dst_buff", targets)):
        if len(ranges) > form.MOST_OPERANDS:
            yield field, f"{len(ranges)} operands; an operation holds {form.MOST_OPERANDS}"
        for i, each in enumerate(ranges):
            if why := _of_range(plan, each, tiled=tiled, port=port and field == "src_buff"):
                yield f"{field}[{i}]", why
    if name in form.REDUCTIONS and op.get("reduce_op", "sum") != "sum":
        yield "reduce_op", f"{op['reduce_op']!r}: the executor always adds"
    if why := of_bytes(name, plan.get("buffer_alignment", form.VECTOR)):
        yield "name", f"{why}, which is buffer_alignment"
    elif form.grain(name) == form.WORD and not port:
        apart = any(a.first != b.first for a, b in itertools.product(sources, targets))
        if apart and plan.get("buffer_alignment", form.VECTOR) % form.VECTOR:
            yield "name", f"{name} copies between places that are not a multiple of {form.VECTOR} bytes apart"
    if port and name == "ppkt":
        why = "the executor takes packets for port channels from the buffers of the first plan that it has run"
        yield "channel_type", why
    if name in form.PAIRED and not port:
        yield from _of_pairs(plan, name, list(zip(sources, targets, strict=True)))


def of_bytes(name: str, size: int) -> str:
    """Returns why an operation cannot move ranges of any multiple of `size` bytes; empty if it can."""
    grain = form.grain(name)
    return f"{name} handles {grain} bytes at once, and wrongly what is left of {size}" if size % grain else ""


def _message_chunks(plan: dict[str, Any], rank: int) -> int:
    """Returns into how many chunks a message is cut."""
    gpu = plan["gpus"][rank]
    first, other = gpu["input_chunks"], gpu["output_chunks"]
    if plan["collective"] == "allgather":
        first, other = other, first
    return first or other or 1


def _of_sizes(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    low, high = plan.get("min_message_size", 0), plan.get("max_message_size", form.ANY_SIZE)
    if low > high:
        yield "min_message_size", f"{low} is more than max_message_size, {high}"
    # A plan for any size is for those that the executor can do.
    for field, size in (("min_message_size", low), ("max_message_size", 0 if high == form.ANY_SIZE else high)):
        for why in _beyond(plan, size):
            yield field, f"of {size} bytes {why}"
            return


def _beyond(plan: dict[str, Any], size: int) -> Iterator[str]:
    """Yields what the executor cannot count in a message of `size` bytes."""
    for rank, gpu in enumerate(plan["gpus"]):
        chunks = _message_chunks(plan, rank)
        scratch = 0 if plan.get("reuse_resources") else gpu["scratch_chunks"]
        scratch *= (2 if plan["protocol"] == "LL" else 1) * (2 if plan.get("use_double_scratch_buffer") else 1)
        longest = max(gpu["input_chunks"], gpu["output_chunks"], scratch)
        if size * longest >= form.MOST_BYTES * chunks:
            yield f"a buffer of rank {rank} has {size * longest // chunks}, and the executor's offsets have 32 bits"
        for i, block in enumerate(gpu["threadblocks"]):
            for k, op in enumerate(block["ops"]):
                context = op.get("iter_context", {"num_chunks": 0, "unit_size": 1})
                tiles = -(-size * context["num_chunks"] // (chunks * context["unit_size"]))
                if tiles > form.MOST_ITERATIONS:
                    where = f"gpus[{rank}].threadblocks[{i}].ops[{k}]"
                    yield f"{where} has {tiles} iterations; the executor counts to {form.MOST_ITERATIONS}"


def _of_groups(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of chunks end at units of 16 bytes, so which parts of different cuts are the same depends on the size."""
    first = (0, 0)
    for rank, gpu in enumerate(plan["gpus"]):
        for i, block in enumerate(gpu["threadblocks"]):
            for k, op in enumerate(block["ops"]):
                if not ("tbg_info" in op and "src_buff" in op):
                    continue
                cut = (op["src_buff"][0]["size"], op["tbg_info"]["tbg_size"])
                if cut[0] % cut[1] == 0:
                    continue
                first = first if first[0] else cut
                if cut != first or math.gcd(*cut) > 1:
                    others = f", and others {first[0]} among {first[1]}" if cut != first else ""
                    chunks = f"{counted(cut[0], 'chunk')} among {cut[1]} threadblocks{others}"
                    why = f"{chunks}: where these parts end depends on the size"
                    yield f"gpus[{rank}].threadblocks[{i}].ops[{k}].tbg_info", why
                    return


def _unfenced(ops: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the paths of puts of several threads through port channels that other threads may be ahead of or behind.

    In the executor the thread i puts through the channel i; in a one-sided program the first thread does it all.
    """
    for i, op in enumerate(ops):
        around = [
            op["name"] == "rppkt" or (_meets(ops[i - 1], -1) if i else True),  # in it, before the threads put
            (_meets(ops[i + 1], 0) if i + 1 < len(ops) else True) or _only_puts(op, ops[i + 1 :]),
        ]
        if _by_threads(op) and not all(around):
            yield f"ops[{i}]"
        inner = op.get("ops", ())
        for k, each in enumerate(inner):
            before = around[0] and _meets(inner[-1], 0) if k == 0 else _meets(inner[k - 1], 0)
            after = around[1] and _meets(inner[0], 0) if k + 1 == len(inner) else _meets(inner[k + 1], 0)
            if _by_threads(each) and not (before and after):
                yield f"ops[{i}].ops[{k}]"


def _only_puts(op: dict[str, Any], later: Sequence[dict[str, Any]]) -> bool:
    """Whether an operation only tells proxies something, and other threads tell them nothing after it."""
    # rppkt begins with a meeting.
    tells = ("signal", "rlxsignal", *form.PUTS)
    return op["name"] in form.PACKET_PUTS and not any(
        each["name"] == "pipeline"
        or (each.get("channel_type") == "port" and each["name"] in tells and each["name"] != "rppkt")
        for each in later
    )


def _by_threads(op: dict[str, Any]) -> bool:
    return op["name"] in form.PUTS and op.get("channel_type") == "port" and len(op.get("channel_ids", ())) > 1


def _meets(op: dict[str, Any], end: int) -> bool:
    """Whether all threads meet in an operation, or in the first (0) or last (-1) one of a pipeline."""
    if op["name"] == "pipeline":
        return bool(op.get("ops")) and op["ops"][end]["name"] in ("nop", "barrier")
    return op["name"] in ("nop", "barrier")


def _of_range(plan: dict[str, Any], each: Range, *, tiled: bool, port: bool) -> str:
    """Says what is wrong with a range; `port`: a proxy reads it."""
    if each.buffer != "s":
        if not plan.get("reuse_resources") or not (each.reached or port):
            return ""
        whose = "the other ranks' buffer" if each.reached else "the buffer that a proxy reads"
        return f"with reuse_resources {whose} is that of the first call"
    if plan.get("reuse_resources"):
        # A pipeline goes through all chunks of the range, from the place of the first one on.
        most = min(most_bytes(plan, rank) for rank in each.owners) // (each.size if tiled else 1)
        if plan.get("max_message_size", form.ANY_SIZE) > most:
            what = "a pipeline takes its scratch again" if tiled else "scratch chunks overlap"
            return f"with reuse_resources {what} above {most} bytes: set max_message_size to that"
    if not each.packet:
        double = plan.get("use_double_scratch_buffer") and (each.reached or port)
        how = "plain access to another rank's" if each.reached else "a proxy that reads plain"
        return f"{how} scratch misses its second half" if double else ""
    room = min(plan["gpus"][rank]["scratch_chunks"] for rank in each.owners)
    fits = plan["protocol"] == "LL" or 2 * (each.first + each.size) <= room
    return "" if fits else "protocol Simple makes no room for the flags of packets"


def _of_pairs(plan: dict[str, Any], name: str, pairs: Sequence[tuple[Range, Range]]) -> Iterator[tuple[str, str]]:
    buffer = pairs[0][0].buffer
    for i, (source, target) in enumerate(pairs):
        if name != "get" and source.buffer != buffer:
            yield f"src_buff[{i}].type", f"the executor reads all sources from buffer {buffer}"
        half = plan.get("use_double_scratch_buffer") and target.buffer == "s"
        if name == "get" and (half or source.first != target.first):
            yield f"src_buff[{i}].index", "get exchanges the offsets of its two sides, which differ here"
    if name in ("pws", "pwsf"):
        yield "channel_type", "on memory channels the executor leaves out the signal"
