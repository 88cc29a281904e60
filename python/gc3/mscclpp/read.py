"""Reads an execution plan as a one-sided program.

What the executor of MSCCL++ would do otherwise than the plan says, or could not hold, is among `Plan.refusals`; what
has no meaning at all is an error.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, cast

from gc3 import _core, errors
from gc3.mscclpp import form, refusals, text
from gc3.mscclpp.machine import Machine
from gc3.mscclpp.refusals import Range
from gc3.support import files, schema
from gc3.support.words import counted

_NAMES = {"i": "in", "o": "out", "s": "sc"}
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall")
_SYNCS = ("signal", "wait", "rlxsignal", "rlxwait")
_MOST_TILES = 2**16 - 1
_MOST_LINES = 2**20
_MOST_CHUNKS = 2**25  # of all ranks


@dataclass(frozen=True, slots=True)
class Plan:
    """An execution plan that was read.

    Attributes:
        program: What it does.
        states_collective: Whether it says what it computes; otherwise the program's collective demands nothing.
        refusals: Why the executor of MSCCL++ would not do what it says: "$.gpus[0]...: reason".
        unit_bytes: How much of a chunk the slowest pipeline handles in an iteration; None: there is no pipeline.
        ahead: Most tiles by which a pipeline may be ahead of one that it waits for: what semaphores have initially and
            steps outside of pipelines signal, of all that steps in pipelines use.
        ahead_of_one: The most of one such semaphore or channel.
        halves: Whether its scratch has two halves. Which one a call uses depends on the calls of all plans before it.
        min_bytes: The smallest message that it is for.
        max_bytes: The largest one.
    """

    program: _core.DirectProgram
    states_collective: bool
    refusals: tuple[str, ...]
    unit_bytes: Fraction | None
    ahead: int
    ahead_of_one: int
    halves: bool
    min_bytes: int
    max_bytes: int


class _Tile(NamedTuple):
    """The part of its operands that an operation handles in an iteration of a pipeline, in chunks of the program."""

    offset: int
    size: int


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


class _Reader(Machine):
    """The threadblocks of a plan, and what they do."""

    def __init__(self, plan: dict[str, Any], tiles: int, collective: str | None, file: str) -> None:
        super().__init__(plan, file)
        self.tiles, self.asked = tiles, collective
        self.reuse: bool = plan.get("reuse_resources", False)
        self.barriers: dict[tuple[int, int], tuple[int, int]] = {}  # (rank, id): the program's number, threadblocks
        self.local: dict[str, list[int]] = {}  # of the threadblock: numbers of its channels by type
        self.remote: dict[str, list[int]] = {}  # of the threadblock: numbers of its remote buffers by type
        self.given: Counter[str] = Counter()  # signals from outside of pipelines, of each channel and semaphore
        self.looped: set[str] = set()  # channels and semaphores that pipelines use
        self.lines: list[str] = []  # of the text form, from the first rank on
        self.steps = 0  # of the threadblock
        self.loop: dict[str, int] = {}  # of the first pipeline: its iter_context
        self.parts = 1  # chunks of the program in a chunk of the plan
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
                self._operation(op, None)

    def _fits(self, steps: int) -> None:
        if len(self.lines) + steps > _MOST_LINES:
            self.wrong(f"the program has more than {_MOST_LINES} steps in {counted(self.tiles, 'tile')}")

    def _step(self, text: str) -> None:
        self._fits(1)
        self.lines.append(f"    {self.steps} {text}")
        self.steps += 1

    def _field(self, op: dict[str, Any], field: str) -> Any:
        if field not in op:
            self.wrong(f"{op['name']} needs it", field)
        return op[field]

    def _pipeline(self, op: dict[str, Any]) -> None:
        context, inner = self._field(op, "iter_context"), self._field(op, "ops")
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
        self._fits(tiles * len(inner))
        for begin in range(0, whole, tile):
            for i, each in enumerate(inner):
                self.path = f"{here}.ops[{i}]"
                if not begin:
                    self._in_pipeline(each, chunks, unit)
                self._operation(each, _Tile(begin, min(tile, whole - begin)))

    def _in_pipeline(self, op: dict[str, Any], chunks: int, unit: int) -> None:
        if "src_buff" not in op:
            return
        moves = op["name"] in form.MOVES
        if moves and form.grain(op["name"]) == form.PAYLOAD:
            self.refuse("packets in a pipeline: the executor moves the same ones in each iteration", "name")
        size = Fraction(op["src_buff"][0]["size"], op.get("tbg_info", {}).get("tbg_size", 1))
        if size != chunks:
            self.wrong(f"{size} chunks in a pipeline over {chunks}: the executor moves others than these", "src_buff")
        ranges = (*op["src_buff"], *op.get("dst_buff", ()))
        if self.reuse and any("type" not in each or each["type"] == "s" for each in ranges):
            self.refuse("with reuse_resources a pipeline takes its scratch again after a number of tiles")
        why = refusals.of_bytes(op["name"], unit) if moves else ""
        if why:
            self.refuse(f"{why} in a tile", "name")

    def _operation(self, op: dict[str, Any], tile: _Tile | None) -> None:
        name: str = op["name"]
        first = tile is None or not tile.offset  # what the plan's text says wrong is said once
        if name == "nop":
            self._step("sync")
        elif name in _SYNCS:
            self._signal(op, tile, first=first)
        elif name == "flush":
            self._channels(op, first=first)  # the executor flushes as many channels as there are targets: none
        elif name == "barrier":
            self._barrier(op, first=first)
        elif name in ("sem_acquire", "sem_release"):
            numbers: list[int] = self._field(op, "semaphore_ids")
            self.known(numbers, len(self.gpus[self.rank].get("semaphores", ())), "semaphore_ids", "semaphores")
            if first:
                self._at_once(len(numbers), form.MOST_SEMAPHORES_AT_ONCE, "semaphore_ids")
            numbers = [self.first_semaphore[self.rank] + number for number in numbers]
            self._uses("semaphore", numbers, tile, gives=name == "sem_release")
            self._step(f"{name[4:]} {' '.join(map(str, numbers))}")
        elif name == "glre" and tile is None:
            self._load_reduce(op)
        elif name in form.MOVES:
            self._move(op, tile, first=first)
        else:
            self.wrong(f"no operation is called {name!r}{' inside a pipeline' if tile else ''}", "name")

    def _at_once(self, count: int, most: int, field: str) -> None:
        threads = self.plan.get("num_threads_per_block", form.MOST_THREADS)
        if count > most:
            self.refuse(f"{count}; an operation holds {most}", field)
        if count > threads:
            self.refuse(f"{count}, each of a thread of its own, and a threadblock has {threads}", field)

    def _barrier(self, op: dict[str, Any], *, first: bool) -> None:
        number, blocks = self._field(op, "barrier_id"), self._field(op, "num_threadblocks")
        if first and number >= form.MOST_BARRIERS:
            self.refuse(f"number {number} of {form.MOST_BARRIERS} barriers", "barrier_id")
        if blocks == 1:
            self._step("sync")
            return
        known, others = self.barriers.setdefault((self.rank, number), (len(self.barriers), blocks))
        if others != blocks:
            self.wrong(f"{blocks}; barrier {number} is of {others} elsewhere", "num_threadblocks")
        self._step(f"barrier {known}")

    def _channels(self, op: dict[str, Any], *, first: bool) -> list[int]:
        """Returns the numbers of the channels of an operation among those of the rank."""
        kind, ids = self._field(op, "channel_type"), self._field(op, "channel_ids")
        if kind == "switch":
            self.wrong(f"the executor has no {op['name']} of switch channels", "channel_type")
        self.known(ids, len(self.local[kind]), "channel_ids", f"{kind} channels of the threadblock")
        if first:
            self._at_once(len(ids), form.MOST_CHANNELS_AT_ONCE, "channel_ids")
        return [self.local[kind][i] for i in ids]

    def _uses(self, kind: str, numbers: list[int], tile: _Tile | None, *, gives: bool) -> None:
        objects = [f"{kind} {number}" for number in numbers]
        if tile is not None:
            self.looped.update(objects)
        elif gives:
            self.given.update(objects)

    def _signal(self, op: dict[str, Any], tile: _Tile | None, *, first: bool) -> None:
        name: str = op["name"].removeprefix("rlx")
        kind = op.get("channel_type", "")
        numbers = [self.channel(kind, number, to_peer=name == "signal") for number in self._channels(op, first=first)]
        self._uses("channel", numbers, tile, gives=name == "signal")
        # Of port channels the executor has only the ones that order memory.
        relaxed = " relaxed" if name != op["name"] and kind == "memory" else ""
        self._step(f"{name} {' '.join(map(str, numbers))}{relaxed}")

    def _load_reduce(self, op: dict[str, Any]) -> None:
        """Reads `glre`, which the DSL writes in a form of its own where it cannot fuse it with a store."""
        self.refuse("the executor does not know glre: only glres runs", "name")
        source = {
            "switch_channel_id": self._field(op, "channel_ids")[0],
            "index": self._field(op, "buffer_offset"),
            "size": self._field(op, "size"),
        }
        self._move({**op, "src_buff": [source], "dst_buff": [self._field(op, "dst_chunk")]}, None, first=True)

    def _ranges(self, op: dict[str, Any], field: str, kinds: str) -> list[Range]:
        given = self._field(op, field)
        count = len(given)
        fixed = kinds.rstrip("*")
        if count < len(fixed) - kinds.endswith("*") or (count > len(fixed) and not kinds.endswith("*")):
            self.wrong(f"{count} operands; {op['name']} has {len(fixed)}", field)
        return [self._range(op, each, fixed[min(i, len(fixed) - 1)], f"{field}[{i}]") for i, each in enumerate(given)]

    def _range(self, op: dict[str, Any], given: dict[str, Any], kind: str, field: str) -> Range:
        index: int = given["index"]
        size: int = given["size"]
        to, owners = "", (self.rank,)
        key = "type" if kind in "lp" else "buffer_id" if kind in "rq" else "switch_channel_id"
        if key not in given:
            self.wrong(f"{op['name']} needs it here", f"{field}.{key}")
        if key == "type":
            buffer = str(given["type"])
        elif key == "buffer_id":
            through = self._field(op, "channel_type")
            if through == "switch" or (through == "port" and op["name"] not in form.PUTS):
                self.wrong(f"{op['name']} through {through} channels, which is not read here", "channel_type")
            self.one_known(given[key], len(self.remote[through]), f"{field}.{key}", "buffers of the threadblock")
            remote = self.gpus[self.rank]["remote_buffers"][self.remote[through][given[key]]]
            owner: int = remote["rank"]
            owners, buffer = (owner,), str(remote["type"])
            to = "" if owner == self.rank else f"{owner}:"
        else:
            self.one_known(given[key], len(self.local["switch"]), f"{field}.{key}", "switches of the threadblock")
            number = self.local["switch"][cast("int", given[key])]
            buffer, owners, _ = self.switches[self.rank][number]
            to = f"g{self.groups.setdefault(owners, len(self.groups))}:"
        packet = kind in "pqn"
        if packet and buffer != "s":
            self.wrong(f"packets in buffer {buffer}; they are in scratch only", field)
        for each in owners:
            if index + size > self.chunks(each, buffer):
                self.wrong(
                    f"chunks {index} to {index + size - 1} of {self.chunks(each, buffer)} of buffer {buffer} "
                    f"of rank {each}",
                    field,
                )
        return Range(to, owners, buffer, packet, index, size)

    def _move(self, op: dict[str, Any], tile: _Tile | None, *, first: bool) -> None:
        sources, targets = (
            self._ranges(op, field, kinds)
            for field, kinds in zip(("src_buff", "dst_buff"), form.MOVES[op["name"]], strict=True)
        )
        paired = op["name"] in form.PAIRED
        if paired and len(sources) != len(targets):
            self.wrong(f"{len(targets)} targets of {len(sources)} sources", "dst_buff")
        for field, ranges in (("src_buff", sources), ("dst_buff", targets)):
            for i, each in enumerate(ranges):
                size = sources[i if paired else 0].size
                if each.size != size:
                    self.wrong(f"{each.size} chunks; the others have {size}", f"{field}[{i}].size")
        port = op.get("channel_type") == "port" and op["name"] in form.PUTS
        if first:
            for field, why in refusals.of_move(self.plan, op, sources, targets, port=port, tiled=tile is not None):
                self.refuse(why, field)
        if paired:
            self._pairs(op, tile, sources, targets, port=port)
            return
        if len(sources) > 1 and sources[1].packet:
            sources = [*sources[1:], sources[0]]  # the order in which they are added
        self._write(op, tile, sources, targets, "")

    def _pairs(
        self, op: dict[str, Any], tile: _Tile | None, sources: list[Range], targets: list[Range], *, port: bool
    ) -> None:
        through = self._through(op, targets, port=port)
        pairs = list(zip(sources, targets, through, strict=True))
        signals: list[int] = []
        if op["name"] in ("pws", "pwsf"):
            kind = "port" if port else "memory"
            signals = [
                self.channel(kind, number, to_peer=True)
                for number in self._channels(op, first=not (tile and tile.offset))
            ]
        self._uses("channel", signals, tile, gives=True)
        if not (port and signals):
            for source, target, channel in pairs:
                self._write(op, tile, [source], [target], channel)
        # Each thread puts and signals through a channel of its own. That it is the first one that does all in turn
        # makes no difference where all threads meet before and after, see refusals.of_plan.
        for number in sorted(set(signals), key=signals.index):
            # Threads put through one channel in any order, so all but its last signal tell of none of these puts.
            for _ in range(signals.count(number) - 1):
                self._step(f"signal {number}")
            for (source, target, channel), own in zip(pairs, signals, strict=False) if port else ():
                if own == number:
                    self._write(op, tile, [source], [target], channel)
            self._step(f"signal {number}")
            if op["name"] == "pwsf" and port:
                self._step(f"flush {number}")

    def _through(self, op: dict[str, Any], targets: list[Range], *, port: bool) -> list[str]:
        """Returns the port channels of the puts of an operation."""
        if not port:
            return [""] * len(targets)
        numbers = self._channels(op, first=False)
        if len(numbers) != len(targets):
            self.wrong(f"{len(numbers)} channels of {len(targets)} targets", "channel_ids")
        for i, (number, target) in enumerate(zip(numbers, targets, strict=True)):
            peer, _ = self.peers[self.rank]["port"][number]
            if (peer,) != target.owners:
                self.wrong(f"the channel leads to rank {peer}, not to the owner of the buffer", f"dst_buff[{i}]")
        return [f" through {self.channel('port', number, to_peer=True)}" for number in numbers]

    def _write(
        self, op: dict[str, Any], tile: _Tile | None, sources: list[Range], targets: list[Range], through: str
    ) -> None:
        group: dict[str, int] = op.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        if group["tb_id"] >= group["tbg_size"]:
            self.wrong(f"part {group['tb_id']} of {group['tbg_size']}", "tbg_info.tb_id")
        part = sources[0].size * self.parts // group["tbg_size"]
        offset, count = part * group["tb_id"], part
        if tile is not None:
            offset, count = offset + tile.offset, tile.size

        def place(each: Range) -> str:
            kind = "pkt " if each.packet else ""
            return f"{each.to}{kind}{_NAMES[each.buffer]}[{each.first * self.parts + offset}]"

        times = f" x{count}" if count != 1 else ""
        self._step(f"move {' + '.join(map(place, sources))} -> {' '.join(map(place, targets))}{times}{through}")

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
