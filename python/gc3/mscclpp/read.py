"""Reads an execution plan as a one-sided program.

What the executor of MSCCL++ would do otherwise than the plan says, or could not hold, is among `Plan.refusals`; what
has no meaning at all is an error.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from gc3 import _core, errors
from gc3.mscclpp import form, refusals, text
from gc3.mscclpp.operations import Operations, Tile
from gc3.support import files, schema
from gc3.support.words import counted

_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall")
_MOST_TILES = 2**16 - 1
_MOST_CHUNKS = 2**25  # of all ranks


@dataclass(frozen=True, slots=True)
class Plan:
    """An execution plan that was read."""

    program: _core.DirectProgram  # what it does
    states_collective: bool  # whether it says what it computes; otherwise the program's collective demands nothing
    refusals: tuple[str, ...]  # why the executor of MSCCL++ would not do what it says: "$.gpus[0]...: reason"
    # how much of a chunk the slowest pipeline handles in an iteration; None: there is no pipeline
    unit_bytes: Fraction | None
    # most tiles by which a pipeline may be ahead of one that it waits for: what semaphores have initially and steps
    # outside of pipelines signal, of all that steps in pipelines use
    ahead: int
    ahead_of_one: int  # the most of one such semaphore or channel
    # Whether its scratch has two halves. Which one a call uses depends on the calls of all plans before it.
    halves: bool
    has_scratch: bool
    min_bytes: int  # the smallest message that it is for
    max_bytes: int  # the largest one


def is_plan(data: Any) -> bool:
    """Returns whether a JSON document is an execution plan, right or wrong."""
    return isinstance(data, dict) and "gpus" in data and "gc3_topology" not in data


def load(path: str | os.PathLike[str], *, tiles: int = 1, collective: str | None = None) -> Plan:
    """Reads a file: see `read`."""
    return read(files.read_json(path, "BadPlan"), tiles=tiles, collective=collective, file=os.fsdecode(path))


def read(data: Any, *, tiles: int = 1, collective: str | None = None, file: str = "") -> Plan:
    """Returns the program of an execution plan.

    Args:
        data: The plan, as parsed JSON.
        tiles: How often the inner list of a pipeline runs; of the slowest one, if their units differ.
        collective: What the plan computes, in place of what it states.
        file: Its name in errors.

    Raises:
        gc3.UserError: It is no plan, or means nothing.
    """
    tiles = errors.whole(tiles, "tiles", 1, _MOST_TILES)
    schema.check(data, form.SCHEMA, "BadPlan", file=file, what="an execution plan of MSCCL++")
    return _Reader(_whole_numbers(data), tiles, collective, file).read()


def _whole_numbers(data: Any, levels: int = 16) -> Any:
    """The document with 2.0 as 2, which a schema takes for whole as well, down to the last level that has a meaning."""
    if levels and isinstance(data, dict):
        members = cast("dict[str, Any]", data).items()
        return {key: _whole_numbers(value, levels - 1) for key, value in members}
    if levels and isinstance(data, list):
        return [_whole_numbers(value, levels - 1) for value in cast("list[Any]", data)]
    return int(data) if isinstance(data, float) and data.is_integer() else data


class _Reader(Operations):
    """The threadblocks of a plan, and what they do."""

    def __init__(self, plan: dict[str, Any], tiles: int, collective: str | None, file: str) -> None:
        super().__init__(plan, tiles, file)
        self.asked = collective
        self.loop: dict[str, int] = {}  # of the first pipeline: its iter_context
        self.unit: Fraction | None = None  # bytes of a chunk of the plan that one tile takes

    def read(self) -> Plan:
        for field, why in refusals.of_plan(self.plan):
            self.path = ""
            self.refuse(why, field)
        self._cut()
        for rank, gpu in enumerate(self.gpus):
            self.rank = rank
            scratch = gpu["scratch_chunks"] * self.parts
            self.lines += ["", f"rank {rank}" + (f" scratch {scratch}" if scratch else "")]
            for number, block in enumerate(gpu["threadblocks"]):
                self._threadblock(block, number)
        self.path = ""
        collective, stated = self._collective()
        title = text.title(self.plan, collective, self.parts)
        objects = text.objects(self.channels, self.semaphores, self.barriers, self.groups)
        whole = "\n".join([*title, *objects, *self.lines, ""])
        self.given.update({f"semaphore {i}": initial for i, (_, initial) in enumerate(self.semaphores)})
        ahead = [self.given[each] for each in self.looped]
        program = _core.DirectProgram.from_text(whole, self.file or "<plan>")
        return Plan(
            program,
            stated,
            tuple(self.refusals),
            self.unit,
            sum(ahead),
            max(ahead, default=0),
            self.plan.get("use_double_scratch_buffer", False),
            any(gpu["scratch_chunks"] for gpu in self.gpus),
            self.plan.get("min_message_size", 0),
            self.plan.get("max_message_size", 2**64 - 1),
        )

    def _cut(self) -> None:
        """Decides into how many parts a chunk is cut, so that tiles and parts of threadblock groups are whole."""
        contexts: list[dict[str, int]] = []
        groups: list[tuple[int, int]] = []
        for gpu in self.gpus:
            for op in (op for block in gpu["threadblocks"] for op in block["ops"]):
                if "iter_context" in op:
                    contexts.append(op["iter_context"])
                for inner in (op, *op.get("ops", ())):
                    if "tbg_info" in inner and "src_buff" in inner:
                        groups.append((inner["src_buff"][0]["size"], inner["tbg_info"]["tbg_size"]))
        self.unit = max((Fraction(c["unit_size"], c["num_chunks"]) for c in contexts), default=None)
        cuts = {self._tile(c).denominator for c in contexts}
        cuts |= {Fraction(size, group).denominator for size, group in groups}
        for cut in cuts:
            self.parts = math.lcm(self.parts, cut)
            if self.parts > form.MOST_CHUNKS:
                break  # before the product grows without end
        for buffers in (("i", "o"), ("s",)):
            chunks = [self.parts * max(self.chunks(rank, each) for each in buffers) for rank in range(len(self.gpus))]
            if max(chunks) > form.MOST_CHUNKS or sum(chunks) > _MOST_CHUNKS:
                self.path = ""
                self.wrong(f"too many chunks, each cut into {self.parts} or more for pipelines and groups", "gpus")

    def _tile(self, context: dict[str, int]) -> Fraction:
        """Returns how many chunks of the plan a pipeline handles in an iteration."""
        assert self.unit is not None  # noqa: S101  there is a pipeline
        return context["unit_size"] / (self.tiles * self.unit)

    def _threadblock(self, block: dict[str, Any], number: int) -> None:
        here = f"gpus[{self.rank}].threadblocks[{number}]"
        self.path = here
        if block["id"] != number:
            self.wrong(f"it is {block['id']}; threadblocks stand in the order of their ids, from 0", "id")
        gpu = self.gpus[self.rank]
        self.local = {"memory": [], "port": [], "switch": []}
        self.remote = {"memory": [], "port": []}
        for i, channels in enumerate(block["channels"]):
            kind = channels["channel_type"]
            there = len(self.switches[self.rank] if kind == "switch" else self.peers[self.rank][kind])
            self.known(channels["channel_ids"], there, f"channels[{i}].channel_ids", f"{kind} channels")
            self.local[kind] += channels["channel_ids"]
        for i, refs in enumerate(block.get("remote_buffer_refs", ())):
            kind, field = refs["access_channel_type"], f"remote_buffer_refs[{i}].remote_buffer_ids"
            self.known(refs["remote_buffer_ids"], len(gpu["remote_buffers"]), field, "remote buffers")
            for k, buffer in enumerate(refs["remote_buffer_ids"]):
                if kind == "switch" or kind not in gpu["remote_buffers"][buffer]["access_channel_types"]:
                    self.wrong(f"buffer {buffer} is not accessed through {kind} channels", f"{field}[{k}]")
            self.remote[kind] += refs["remote_buffer_ids"]
        count = sum(1 + len(op.get("ops", ())) for op in block["ops"])
        if count > form.MOST_OPERATIONS:
            self.refuse(f"{count} operations; a threadblock holds {form.MOST_OPERATIONS}", "ops")
        for field, kinds in (("channels", self.local), ("remote_buffer_refs", self.remote)):
            most = max(map(len, kinds.values()))
            if most > form.MOST_CHANNELS:
                self.refuse(f"{most} of a type; a threadblock holds {form.MOST_CHANNELS}", field)
        self.lines.append(f"  tb {number}")
        self.steps = 0
        for i, op in enumerate(block["ops"]):
            self.path = f"{here}.ops[{i}]"
            if op["name"] == "pipeline":
                self._pipeline(op)
            else:
                self.operation(op, None)

    def _pipeline(self, op: dict[str, Any]) -> None:
        context, inner = self.field_of(op, "iter_context"), self.field_of(op, "ops")
        here, chunks, unit = self.path, context["num_chunks"], context["unit_size"]
        self.loop = self.loop or context
        other = (self.loop["num_chunks"], self.loop["unit_size"])
        if (chunks, unit) != other:
            units = f"{counted(chunks, 'chunk')} by {unit} bytes, and the first pipeline {other[0]} by {other[1]}"
            self.refuse(f"{units}: their tiles agree only for some sizes", "iter_context")
        tile = int(self.parts * self._tile(context))
        whole = chunks * self.parts
        tiles = -(-whole // tile)
        if tiles > form.MOST_ITERATIONS:
            self.wrong(f"{tiles} iterations; the executor counts to {form.MOST_ITERATIONS}")
        self.check_fits(tiles * len(inner))
        for begin in range(0, whole, tile):
            for i, each in enumerate(inner):
                self.path = f"{here}.ops[{i}]"
                if not begin:
                    self._in_pipeline(each, chunks, unit)
                self.operation(each, Tile(begin, min(tile, whole - begin)))

    def _in_pipeline(self, op: dict[str, Any], chunks: int, unit: int) -> None:
        if "src_buff" not in op:
            return
        moves = op["name"] in form.MOVES
        if moves and form.grain(op["name"]) == form.PAYLOAD:
            self.refuse("packets in a pipeline: the executor moves the same ones in each iteration", "name")
        for each in op["src_buff"]:
            size = Fraction(each["size"], op.get("tbg_info", {}).get("tbg_size", 1))
            if size != chunks:
                said = f"{size} chunks in a pipeline over {chunks}: the executor moves others than these"
                self.wrong(said, "src_buff")
        why = refusals.of_bytes(op["name"], unit) if moves else ""
        if why:
            self.refuse(f"{why} in a tile", "name")

    def _collective(self) -> tuple[_core.Collective | None, bool]:
        """The collective that the plan computes, in its own chunks; None: it states none, or its chunks do not fit."""
        name = self.plan["collective"] if self.asked is None else self.asked
        gpus, ranks = self.gpus, len(self.gpus)
        if name in _COLLECTIVES:
            blocks = 1 if name in ("allreduce", "allgather") else ranks
            chunks, rest = divmod(gpus[0]["input_chunks"], blocks)
            if chunks and not rest:
                made = _core.Collective.builtin(name, ranks, chunks, in_place=self.plan["inplace"])
                sizes = [(made.input_chunks(rank), made.output_chunks(rank)) for rank in range(ranks)]
                if sizes == [(gpu["input_chunks"], gpu["output_chunks"]) for gpu in gpus]:
                    return made, True
        if self.asked is not None:
            if name not in _COLLECTIVES:
                raise errors.error("BadCollective", f"{name!r}; a plan computes one of {', '.join(_COLLECTIVES)}")
            raise errors.error(
                "BadCollective",
                f"the chunks of the plan are not those of {name} of {counted(ranks, 'rank')}",
                file=self.file,
                line=1 if self.file else 0,
            )
        return None, False
