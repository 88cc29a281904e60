"""What the executor of MSCCL++ does otherwise than an operation says, unless it is harmless there.

Read from its ``execution_kernel.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gc3.mscclpp import form


class Range(NamedTuple):
    """An operand: a range of chunks of a buffer."""

    to: str  # whose it is, as the text form has it: "" of the own rank, "1:" or "g0:"
    owners: tuple[int, ...]
    buffer: str  # i, o, s
    packet: bool
    first: int
    size: int


def of_move(
    plan: dict[str, Any], op: dict[str, Any], sources: Sequence[Range], targets: Sequence[Range], *, port: bool
) -> Iterator[tuple[str, str]]:
    """Yields fields of an operation that moves data, each with what is wrong; `port`: a proxy executes it."""
    name: str = op["name"]
    for field, ranges in (("src_buff", sources), ("dst_buff", targets)):
        if len(ranges) > form.MOST_OPERANDS:
            yield field, f"{len(ranges)} operands; an operation holds {form.MOST_OPERANDS}"
        for i, each in enumerate(ranges):
            if why := _of_range(plan, each):
                yield f"{field}[{i}]", why
    if name in form.REDUCTIONS and op.get("reduce_op", "sum") != "sum":
        yield "reduce_op", f"{op['reduce_op']!r}: the executor always adds"
    if why := of_bytes(name, plan.get("buffer_alignment", form.VECTOR)):
        yield "name", f"{why}, which is buffer_alignment"
    if name in form.PAIRED and not port:
        yield from _of_pairs(plan, name, list(zip(sources, targets, strict=True)))


def of_bytes(name: str, size: int) -> str:
    """Returns why an operation cannot move ranges of any multiple of `size` bytes; empty if it can."""
    grain = form.grain(name)
    return f"{name} handles {grain} bytes at once, and wrongly what is left of {size}" if size % grain else ""


def _of_range(plan: dict[str, Any], each: Range) -> str:
    if each.buffer != "s":
        kept = plan.get("reuse_resources") and each.to
        return "with reuse_resources the other ranks' buffer is that of the first call" if kept else ""
    if not each.packet:
        double = plan.get("use_double_scratch_buffer") and each.to
        return "plain access to another rank's scratch misses its second half" if double else ""
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
