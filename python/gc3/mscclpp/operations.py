"""The operations of a threadblock of an execution plan, as steps of a one-sided program."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, cast

from gc3.mscclpp import form, refusals
from gc3.mscclpp.machine import Machine
from gc3.mscclpp.refusals import Range
from gc3.support.words import counted

_NAMES = {"i": "in", "o": "out", "s": "sc"}
_SYNCS = ("signal", "wait", "rlxsignal", "rlxwait")
_MOST_LINES = 2**20


class Tile(NamedTuple):
    """The part of its operands that an operation handles in an iteration of a pipeline, in chunks of the program."""

    offset: int
    size: int


class Operations(Machine):
    """What the threadblocks of a plan do.

    Attributes:
        tiles: How often the inner list of a pipeline runs.
        parts: Chunks of the program in a chunk of the plan.
        barriers: By rank and id, the program's number and the threadblocks.
        local: Of the threadblock that is read: numbers of its channels by type.
        remote: Of it: numbers of its remote buffers by type.
        given: Signals from outside of pipelines, of each channel and semaphore.
        looped: Channels and semaphores that pipelines use.
        lines: Of the text form, from the first rank on.
        steps: Of the threadblock.
    """

    def __init__(self, plan: dict[str, Any], tiles: int, file: str) -> None:
        """Checks the ranks of a plan, as `Machine` does."""
        super().__init__(plan, file)
        self.tiles, self.parts, self.steps = tiles, 1, 0
        self.barriers: dict[tuple[int, int], tuple[int, int]] = {}
        self.local: dict[str, list[int]] = {}
        self.remote: dict[str, list[int]] = {}
        self.given: Counter[str] = Counter()
        self.looped: set[str] = set()
        self.lines: list[str] = []

    def check_fits(self, steps: int) -> None:
        """Refuses a program with so many steps more if that is too long."""
        if len(self.lines) + steps > _MOST_LINES:
            self.wrong(f"the program has more than {_MOST_LINES} steps in {counted(self.tiles, 'tile')}")

    def _step(self, text: str) -> None:
        self.check_fits(1)
        self.lines.append(f"    {self.steps} {text}")
        self.steps += 1

    def field_of(self, op: dict[str, Any], field: str) -> Any:
        """Returns a field that an operation needs."""
        if field not in op:
            self.wrong(f"{op['name']} needs it", field)
        return op[field]

    def operation(self, op: dict[str, Any], tile: Tile | None) -> None:
        """Adds the steps of an operation, in a pipeline those of a tile."""
        name: str = op["name"]
        first = tile is None or not tile.offset  # what the plan's text says wrong is said once
        for field in form.FIELDS.keys() & op.keys() if first else ():
            if name not in form.FIELDS[field]:
                self.refuse("the executor puts it in the place of another field of this operation", field)
        if name == "nop":
            self._step("sync")
        elif name in _SYNCS:
            self._signal(op, tile, first=first)
        elif name == "flush":
            self._channels(op, first=first)  # the executor flushes as many channels as there are targets: none
        elif name == "barrier":
            self._barrier(op, first=first)
        elif name in ("sem_acquire", "sem_release"):
            numbers: list[int] = self.field_of(op, "semaphore_ids")
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
        number, blocks = self.field_of(op, "barrier_id"), self.field_of(op, "num_threadblocks")
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
        kind, ids = self.field_of(op, "channel_type"), self.field_of(op, "channel_ids")
        if kind == "switch":
            self.wrong(f"the executor has no {op['name']} of switch channels", "channel_type")
        self.known(ids, len(self.local[kind]), "channel_ids", f"{kind} channels of the threadblock")
        if first:
            self._at_once(len(ids), form.MOST_CHANNELS_AT_ONCE, "channel_ids")
        return [self.local[kind][i] for i in ids]

    def _uses(self, kind: str, numbers: list[int], tile: Tile | None, *, gives: bool) -> None:
        objects = [f"{kind} {number}" for number in numbers]
        if tile is not None:
            self.looped.update(objects)
        elif gives:
            self.given.update(objects)

    def _signal(self, op: dict[str, Any], tile: Tile | None, *, first: bool) -> None:
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
            "switch_channel_id": self.field_of(op, "channel_ids")[0],
            "index": self.field_of(op, "buffer_offset"),
            "size": self.field_of(op, "size"),
        }
        self._move({**op, "src_buff": [source], "dst_buff": [self.field_of(op, "dst_chunk")]}, None, first=True)

    def _ranges(self, op: dict[str, Any], field: str, kinds: str, *, first: bool) -> list[Range]:
        given = self.field_of(op, field)
        count = len(given)
        fixed = kinds.rstrip("*")
        if count < len(fixed) - kinds.endswith("*") or (count > len(fixed) and not kinds.endswith("*")):
            self.wrong(f"{count} operands; {op['name']} has {len(fixed)}", field)
        return [
            self._range(op, each, fixed[min(i, len(fixed) - 1)], f"{field}[{i}]", first=first)
            for i, each in enumerate(given)
        ]

    def _range(self, op: dict[str, Any], given: dict[str, Any], kind: str, field: str, *, first: bool) -> Range:
        index: int = given["index"]
        size: int = given["size"]
        to, owners = "", (self.rank,)
        key = "type" if kind in "lp" else "buffer_id" if kind in "rq" else "switch_channel_id"
        if first and len(form.WHOSE & given.keys()) > 1:
            self.refuse("the executor reads only one of type, buffer_id and switch_channel_id", field)
        if key not in given:
            self.wrong(f"{op['name']} needs it here", f"{field}.{key}")
        if key == "type":
            buffer = str(given["type"])
        elif key == "buffer_id":
            through = self.field_of(op, "channel_type")
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
        return Range(to, owners, buffer, packet, index, size, key != "type")

    def _move(self, op: dict[str, Any], tile: Tile | None, *, first: bool) -> None:
        port = op.get("channel_type") == "port" and op["name"] in form.PUTS
        # A proxy copies what there is, so what it sends as packets are packets.
        all_kinds = ("p*", "q*") if port and op["name"] == "ppkt" else form.MOVES[op["name"]]
        sources, targets = (
            self._ranges(op, field, kinds, first=first)
            for field, kinds in zip(("src_buff", "dst_buff"), all_kinds, strict=True)
        )
        paired = op["name"] in form.PAIRED
        if paired and len(sources) != len(targets):
            self.wrong(f"{len(targets)} targets of {len(sources)} sources", "dst_buff")
        for field, ranges in (("src_buff", sources), ("dst_buff", targets)):
            for i, each in enumerate(ranges):
                size = sources[i if paired else 0].size
                if each.size != size:
                    self.wrong(f"{each.size} chunks; the others have {size}", f"{field}[{i}].size")
        if first:
            for field, why in refusals.of_move(self.plan, op, sources, targets, port=port, tiled=tile is not None):
                self.refuse(why, field)
        if paired:
            self._pairs(op, tile, sources, targets, port=port)
            return
        if port:
            self._pass_on(op, tile, sources, targets, first=first)
            return
        if len(sources) > 1 and sources[1].packet:
            sources = [*sources[1:], sources[0]]  # the order in which they are added
        self._write(op, tile, sources, targets, "")

    def _pairs(
        self, op: dict[str, Any], tile: Tile | None, sources: list[Range], targets: list[Range], *, port: bool
    ) -> None:
        first = not (tile and tile.offset)
        through = self._through(op, targets, port=port, first=first)
        pairs = list(zip(sources, targets, through, strict=True))
        signals: list[int] = []
        if op["name"] in ("pws", "pwsf"):
            kind = "port" if port else "memory"
            signals = [
                self.channel(kind, number, to_peer=True) for number in self._channels(op, first=first and not port)
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

    def _pass_on(
        self, op: dict[str, Any], tile: Tile | None, sources: list[Range], targets: list[Range], *, first: bool
    ) -> None:
        """Packets that all threads wait for before they meet, and proxies then copy."""
        self._write(op, tile, sources, [], "")
        self._step("sync")
        for target, channel in zip(targets, self._through(op, targets, port=True, first=first), strict=True):
            self._write(op, tile, sources, [target], channel)

    def _through(self, op: dict[str, Any], targets: list[Range], *, port: bool, first: bool) -> list[str]:
        """Returns the port channels of the puts of an operation."""
        if not port:
            return [""] * len(targets)
        numbers = self._channels(op, first=first)
        if len(numbers) != len(targets):
            self.wrong(f"{len(numbers)} channels of {len(targets)} targets", "channel_ids")
        for i, (number, target) in enumerate(zip(numbers, targets, strict=True)):
            peer, _ = self.peers[self.rank]["port"][number]
            if (peer,) != target.owners:
                self.wrong(f"the channel leads to rank {peer}, not to the owner of the buffer", f"dst_buff[{i}]")
        return [f" through {self.channel('port', number, to_peer=True)}" for number in numbers]

    def _write(
        self, op: dict[str, Any], tile: Tile | None, sources: list[Range], targets: list[Range], through: str
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
        into = f" -> {' '.join(map(place, targets))}" if targets else ""
        self._step(f"move {' + '.join(map(place, sources))}{into}{times}{through}")
