"""Writes a one-sided program as an execution plan, which is read again and proven.

A move becomes what the executor has for it: `copy`, `put`, `get`, or a reduction that adds the rank's own value first.
A move with more operands than an operation holds becomes several, with a `nop` between. Through a switch go what it
adds up for all its ranks (`glres`) and one value for all of them (`gstore`); other moves are of each rank's place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gc3 import _core, errors
from gc3.mscclpp import form, refusals
from gc3.mscclpp.read import read
from gc3.support import files

Json: TypeAlias = "dict[str, Any]"
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall")
_LETTERS = {"in": "i", "out": "o", "sc": "s"}
_MOST_OTHERS = 8  # operands of other ranks of an operation, on each side
_OPERAND = re.compile(r"(g?\d+:)?(pkt )?(in|out|sc)\[(\d+)\]")
_OBJECT = re.compile(r"(channel|semaphore) (\d+) (?:from|rank) (\d+) (?:to|initial) (\d+)( port)?")
_BARRIER = re.compile(r"barrier (\d+) rank (\d+) threadblocks (\d+)")


@dataclass(frozen=True, slots=True)
class _Place:
    rank: int
    buffer: str
    index: int
    packet: bool = False
    group: int | None = None  # of a switch, whose ranks all have the place


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the text form: its operation, the numbers of its objects, or the operands of a move."""

    name: str
    relaxed: bool
    numbers: list[int]
    sources: list[_Place]
    targets: list[_Place]
    count: int


@dataclass
class _Block:
    """A threadblock."""

    rank: int
    number: int
    steps: list[_Step] = field(default_factory=list["_Step"])
    links: list[int] = field(default_factory=list[int])  # that it uses
    others: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])  # rank and buffer, likewise
    switches: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])  # group and buffer, likewise
    ops: list[Json] = field(default_factory=list["Json"])


class _Writer:
    def __init__(self, program: _core.DirectProgram) -> None:
        self.program = program
        self.channels: list[tuple[int, int]] = []
        self.semaphores: list[list[int]] = [[] for _ in range(program.rank_count)]  # initial values
        self.semaphore_of: list[int] = []  # the rank's number of each
        self.barriers: list[tuple[int, int]] = []  # the rank's number, threadblocks
        self.groups: list[list[int]] = []  # the ranks of each
        self.scratch = [0] * program.rank_count
        self.blocks: list[_Block] = []
        self.others: list[list[tuple[int, str]]] = [[] for _ in range(program.rank_count)]
        self.head: list[str] = []
        self._parse(program.to_text())
        self.link_of = self._pair()
        self.link_between: dict[frozenset[int], int] = {}  # the first of each two ranks
        for link in self.link_of:
            self.link_between.setdefault(frozenset(self.channels[link]), link)

    def refuse(self, why: str) -> errors.Gc3Error:
        """Returns the error that the executor cannot run the program."""
        return _refusal(self.program, why)

    def write(self) -> Json:
        """Returns the plan."""
        collective, ranks = self.program.collective, self.program.rank_count
        packets = self._has(packet=True)
        if packets and self._has(packet=False, buffer="s"):
            # The executor lays scratch out by the size of the message, and takes any word with a call's flag as sent.
            raise self.refuse(
                "its scratch holds values beside packets, and a call of another size may take such values for packets: "
                "leave out protocol=LL"
            )
        for block in self.blocks:
            for step in block.steps:
                self._step(block, step)
            self._reach(block)
        ends: list[list[int]] = [[] for _ in range(ranks)]  # per rank, its channels in order
        peers: list[list[int]] = [[] for _ in range(ranks)]
        for link in sorted(set(self.link_of)):
            for rank, peer in (self.channels[link], self.channels[link][::-1]):
                ends[rank].append(link)
                peers[rank].append(peer)
        reused, double = "shared scratch" in self.head[0], self.head[0].startswith("halves 2")
        # As refusals.of_plan asks: as much on all ranks, and for a second half that begins at a whole vector.
        unit = form.VECTOR // (2 if packets else 1)
        alike = -(-max(self.scratch) // unit) * unit if double else max(self.scratch)
        switches = sorted({switch for block in self.blocks for switch in block.switches})
        through = [[switch for switch in switches if rank in self.groups[switch[0]]] for rank in range(ranks)]
        gpus = [
            {
                "id": rank,
                "input_chunks": collective.input_chunks(rank),
                "output_chunks": collective.output_chunks(rank),
                "scratch_chunks": alike if reused or double else self.scratch[rank],
                "threadblocks": [self._block(b, ends[rank], through[rank]) for b in self.blocks if b.rank == rank],
                "channels": [
                    {"channel_type": "memory", "connected_to": peers[rank]},
                    *(
                        {
                            "channel_type": "switch",
                            "buffer_type": buffer,
                            "rank_groups": [{"size": len(self.groups[group]), "ranks": self.groups[group]}],
                        }
                        for group, buffer in through[rank]
                    ),
                ],
                "remote_buffers": [
                    {"rank": owner, "type": buffer, "access_channel_types": ["memory"]}
                    for owner, buffer in self.others[rank]
                ],
                "semaphores": [{"init_value": initial} for initial in self.semaphores[rank]],
            }
            for rank in range(ranks)
        ]
        plan = {
            "name": self.program.name,
            "collective": collective.name,
            "protocol": "LL" if packets else "Simple",
            "inplace": collective.in_place,
            "reuse_resources": reused,
            "gpus": gpus,
            "num_threads_per_block": form.MOST_THREADS,
            "use_double_scratch_buffer": double,
            "buffer_alignment": form.VECTOR,
            "min_message_size": 0,
            "max_message_size": form.ANY_SIZE,
        }
        if plan["reuse_resources"]:
            plan["max_message_size"] = min(refusals.most_bytes(plan, rank) for rank in range(ranks))
        return plan

    def _reach(self, block: _Block) -> None:
        """Gives a threadblock a channel to each rank whose memory it uses: its executor connects no other ranks."""
        for owner in dict.fromkeys(owner for owner, _ in block.others):
            pair = frozenset((block.rank, owner))
            if not any(pair == frozenset(self.channels[link]) for link in block.links):
                if pair not in self.link_between:
                    self.link_between[pair] = len(self.channels)
                    self.link_of.append(len(self.channels))
                    self.channels.append((block.rank, owner))
                block.links.append(self.link_between[pair])

    def _has(self, *, packet: bool, buffer: str = "") -> bool:
        places = (place for block in self.blocks for step in block.steps for place in (*step.sources, *step.targets))
        return any(place.packet == packet and place.buffer.startswith(buffer) for place in places)

    def _parse(self, text: str) -> None:
        rank = 0
        for line in text.splitlines()[2:]:
            words = line.split()
            if not words:
                continue
            if line.startswith("rank"):
                rank = int(words[1])
                if rank == 1:
                    self._check_room()
                self.scratch[rank] = int(words[3]) if len(words) > 2 else 0  # noqa: PLR2004  "scratch N"
            elif words[0] == "tb":
                self.blocks.append(_Block(rank, int(words[1])))
            elif line.startswith("    "):
                self.blocks[-1].steps.append(self._read_step(rank, words[1], line))
            else:
                self._parse_head(line)

    def _parse_head(self, line: str) -> None:
        if made := _OBJECT.fullmatch(line):
            kind, _, first, second, port = made.groups()
            if port:
                raise self.refuse("port channels are not written")
            if kind == "channel":
                self.channels.append((int(first), int(second)))
            else:
                self.semaphore_of.append(len(self.semaphores[int(first)]))
                self.semaphores[int(first)].append(int(second))
        elif made := _BARRIER.fullmatch(line):
            self.barriers.append((int(made[1]), int(made[3])))
        elif line.startswith("group"):
            self.groups.append([int(word) for word in line.split()[3:]])
        else:
            self.head.append(line)

    def _check_room(self) -> None:
        """Refuses threadblocks of rank 0 that the executor has no room for, before all others are read."""
        self.link_of = list(range(len(self.channels)))  # not paired yet, which changes no number here
        for block in self.blocks:
            tried = _Block(0, block.number)
            for step in block.steps:
                self._step(tried, step)
            for has, what, most in (
                (len(tried.ops), "ops: {} operations", form.MOST_OPERATIONS),
                (len(tried.others), "remote_buffer_refs: {} of a type", form.MOST_CHANNELS),
            ):
                if has > most:
                    where = f"$.gpus[0].threadblocks[{block.number}]"
                    raise self.refuse(f"{where}.{what.format(has)}; a threadblock holds {most}")
        self.others[0].clear()

    def _read_step(self, rank: int, name: str, line: str) -> _Step:
        if name != "move":
            words = line.split()[2:]
            return _Step(name, "relaxed" in words, [int(w) for w in words if w != "relaxed"], [], [], 0)
        sides: list[list[_Place]] = []
        for side in line.split(" -> "):
            sides.append([])
            for owner, packet, buffer, index in _OPERAND.findall(side):
                group = int(owner[1:-1]) if owner.startswith("g") else None
                at = rank if group is not None or not owner else int(owner[:-1])
                sides[-1].append(_Place(at, _LETTERS[buffer], int(index), bool(packet), group))
        times = re.search(r" x(\d+)", line)
        sources, targets = sides
        if not self._is_of_switch(rank, sources, targets):
            sources, targets = self._apart(sources), self._apart(targets)
        return _Step(name, False, [], sources, targets, int(times[1]) if times else 1)

    @staticmethod
    def _is_of_switch(rank: int, sources: list[_Place], targets: list[_Place]) -> bool:
        """Whether the executor has a move through a switch."""
        if len(sources) != 1 or any(place.packet for place in (*sources, *targets)):
            return False
        if sources[0].group is None:
            return sources[0].rank == rank
        return len(targets) == 1 and targets[0].group == sources[0].group

    def _apart(self, places: list[_Place]) -> list[_Place]:
        """The places with those of each rank of a group."""
        return [
            _Place(rank, place.buffer, place.index, place.packet)
            for place in places
            for rank in ([place.rank] if place.group is None else self.groups[place.group])
        ]

    def _pair(self) -> list[int]:
        """Returns for each channel the first of the two that become one of the plan's, which go both ways."""
        uses: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in self.channels]
        for number, block in enumerate(self.blocks):
            for step in block.steps:
                for channel in step.numbers if step.name in ("signal", "wait") else ():
                    uses[channel][step.name == "wait"].add(number)
        waiting: dict[Any, list[int]] = {}
        links: list[int] = []
        for channel, (givers, takers) in enumerate(uses):
            back = waiting.get((frozenset(takers), frozenset(givers)))
            if back:
                links.append(back.pop(0))
            else:
                links.append(channel)
                waiting.setdefault((frozenset(givers), frozenset(takers)), []).append(channel)
        return links

    def _block(self, block: _Block, ends: Sequence[int], switches: Sequence[tuple[int, str]]) -> Json:
        channels = [ends.index(link) for link in block.links]
        through = [switches.index(switch) for switch in block.switches]
        others = [self.others[block.rank].index(other) for other in block.others]
        return {
            "id": block.number,
            "ops": block.ops,
            "channels": [
                {"channel_type": "memory", "channel_ids": channels},
                *([{"channel_type": "switch", "channel_ids": through}] if through else []),
            ],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": others}],
        }

    def _step(self, block: _Block, step: _Step) -> None:
        if step.name == "move":
            self._move(block, step)
        elif step.name == "sync":
            block.ops.append({"name": "nop"})
        elif step.name in ("signal", "wait"):
            links = [_number(block.links, self.link_of[channel]) for channel in step.numbers]
            for some in _groups(links, form.MOST_CHANNELS_AT_ONCE):
                name = f"{'rlx' if step.relaxed else ''}{step.name}"
                block.ops.append({"name": name, "channel_ids": some, "channel_type": "memory"})
        elif step.name in ("acquire", "release"):
            numbers = [self.semaphore_of[number] for number in step.numbers]
            for some in _groups(numbers, form.MOST_SEMAPHORES_AT_ONCE):
                block.ops.append({"name": f"sem_{step.name}", "semaphore_ids": some})
        elif step.name == "barrier":
            first = [rank for rank, _ in self.barriers].index(self.barriers[step.numbers[0]][0])
            number, blocks = step.numbers[0] - first, self.barriers[step.numbers[0]][1]
            block.ops.append({"name": "barrier", "barrier_id": number, "num_threadblocks": blocks})
        else:
            raise self.refuse(f"{step.name} is not written")

    def _move(self, block: _Block, step: _Step) -> None:
        if any(place.packet for place in (*step.sources, *step.targets)):
            self._move_packets(block, step)
            return
        if any(target.group is not None for target in step.targets):
            self._move_through_switch(block, step)
            return
        own = [s for s in step.sources if s.rank == block.rank]
        others = [s for s in step.sources if s.rank != block.rank]
        kept = [t for t in step.targets if t.rank == block.rank]
        far = [t for t in step.targets if t.rank != block.rank]
        if len(step.sources) == 1 and own:
            self._copy(block, own[0], kept, step.count)
            self._put(block, own[0], far, step.count)
            return
        if not kept:
            raise self.refuse("a step keeps nothing of what it loads from other ranks or adds up")
        # The first term and the target may be one place, so a target that is a term takes that part.
        target = next((t for t in kept if t in own), kept[0])
        first = target if target in own else own[0] if own else None
        if first is None:
            if others[0].index != target.index:
                raise self.refuse(
                    "a step loads from another offset than it stores to, which get exchanges; "
                    "without memory=direct, whoever has the value stores it"
                )
            self._add(block, "get", [others.pop(0)], [target], step.count)
            first = target
            if others or far or len(kept) > 1:
                block.ops.append({"name": "nop"})
        else:
            own.remove(first)
        parts = [("rre", some) for some in _groups(others, _MOST_OTHERS)]
        parts += [("re", some) for some in _groups(own, _MOST_OTHERS)]
        for i, (name, terms) in enumerate(parts):
            last = i == len(parts) - 1
            stored = far[:_MOST_OTHERS] if last else []
            self._add(block, f"{name}s" if stored else name, [first, *terms], [target, *stored], step.count)
            first, far = target, far[len(stored) :]
            if not last:
                block.ops.append({"name": "nop"})
        rest = [t for t in kept if t != target]
        if parts and (rest or far):
            block.ops.append({"name": "nop"})
        self._copy(block, target, rest, step.count)
        self._put(block, target, far, step.count)

    def _move_through_switch(self, block: _Block, step: _Step) -> None:
        if rest := [t for t in step.targets if t.group is None]:
            self._move(block, replace(step, targets=rest))
            block.ops.append({"name": "nop"})  # the switch may store to the source, too
        name = "gstore" if step.sources[0].group is None else "glres"
        for target in step.targets:
            if target.group is not None:
                self._add(block, name, step.sources, [target], step.count)

    def _move_packets(self, block: _Block, step: _Step) -> None:
        *packets, last = step.sources
        kept = [t for t in step.targets if not t.packet]
        sent = [t for t in step.targets if t.packet]
        if not packets:
            for target in kept:
                self._add(block, "upkt", [last], [target], step.count)
            for target in [] if last.packet else [t for t in sent if t.rank == block.rank]:
                self._add(block, "cpkt", [last], [target], step.count)
            far = [t for t in sent if t.rank != block.rank]
            if not last.packet:
                self._put(block, last, far, step.count, "ppkt")
            for some in _groups(far, _MOST_OTHERS) if last.packet else ():
                self._add(block, "rppkt", [last], some, step.count)
            return
        if last.packet or last.rank != block.rank or len(kept) != 1 or any(t.rank == block.rank for t in sent):
            raise self.refuse("a sum of packets is not of one own value, or kept in more than one place")
        for i in range(0, len(packets), _MOST_OTHERS):
            final = i + _MOST_OTHERS >= len(packets)
            if i:
                block.ops.append({"name": "nop"})
            stored = sent[:_MOST_OTHERS] if final else []
            terms = [kept[0] if i else last, *packets[i : i + _MOST_OTHERS]]
            self._add(block, "respkt" if stored else "repkt", terms, [kept[0], *stored], step.count)
        rest = sent[_MOST_OTHERS:]
        if rest:
            block.ops.append({"name": "nop"})
        self._put(block, kept[0], rest, step.count, "ppkt")

    def _copy(self, block: _Block, source: _Place, targets: list[_Place], count: int) -> None:
        for target in targets:
            self._add(block, "copy", [source], [target], count)

    def _put(self, block: _Block, source: _Place, targets: list[_Place], count: int, name: str = "put") -> None:
        """Adds a put, or more pairs to the put before it."""
        for target in targets:
            put = block.ops[-1] if block.ops and block.ops[-1]["name"] == name else None
            if put:
                before = put["src_buff"][-1]
                alike = (before["type"], before["size"]) == (source.buffer, count)
                if alike and len(put["src_buff"]) < _MOST_OTHERS:
                    put["src_buff"].append(self._range(block, source, count))
                    put["dst_buff"].append(self._range(block, target, count))
                    continue
            self._add(block, name, [source], [target], count)

    def _add(self, block: _Block, name: str, sources: Sequence[_Place], targets: Sequence[_Place], count: int) -> None:
        op: Json = {"name": name}
        op["src_buff"] = [self._range(block, place, count) for place in sources]
        op["dst_buff"] = [self._range(block, place, count) for place in targets]
        if name in form.REDUCTIONS:
            op["reduce_op"] = "sum"
        if any(place.rank != block.rank for place in (*sources, *targets)):
            op["channel_type"] = "memory"
        if name in ("glres", "gstore"):
            op["channel_type"] = "switch"
        block.ops.append(op)

    def _range(self, block: _Block, place: _Place, count: int) -> Json:
        where: Json = {"type": place.buffer}
        if place.group is not None:
            where = {"switch_channel_id": _number(block.switches, (place.group, place.buffer))}
        elif place.rank != block.rank:
            _number(self.others[block.rank], (place.rank, place.buffer))
            where = {"buffer_id": _number(block.others, (place.rank, place.buffer))}
        return {**where, "index": place.index, "size": count}


def _number(known: list[Any], one: Any) -> int:
    """Returns the number of `one` among those known; it is added to them."""
    if one not in known:
        known.append(one)
    return known.index(one)


def _groups(numbers: Sequence[Any], most: int) -> Iterator[list[Any]]:
    for i in range(0, len(numbers), most):
        yield list(numbers[i : i + most])


def _refusal(program: _core.Program | _core.DirectProgram, why: str) -> errors.Gc3Error:
    return errors.error("BadArgument", f"'{errors.shown(program.name)}': MSCCL++'s executor cannot run it: {why}")


def check(program: _core.Program | _core.DirectProgram) -> None:
    """Refuses what no plan can be of; one rank of a program is enough to see it.

    Raises:
        gc3.UserError: MSCCL++'s executor cannot run it.
    """
    collective = program.collective
    if collective.name not in _COLLECTIVES or collective.is_custom:
        raise _refusal(program, f"it has no {collective.name}; it has {', '.join(_COLLECTIVES)}")
    if collective.ranks > form.MOST_RANKS:
        raise _refusal(program, f"it has {collective.ranks} ranks; a plan has at most {form.MOST_RANKS}")
    if isinstance(program, _core.Program) and program.protocol not in ("Simple", "LL"):
        raise _refusal(program, f"it has no {program.protocol}: compile with protocol=Simple or protocol=LL")


def plan_of(program: _core.DirectProgram) -> Json:
    """Returns the execution plan of a program, for JSON.

    Raises:
        gc3.UserError: MSCCL++'s executor cannot run it, or it is wrong.
    """
    check(program)
    plan = _Writer(program).write()
    written = read(plan)
    if written.refusals:
        raise _refusal(program, written.refusals[0])
    found = _core.verify(written.program).diagnostics
    if found:
        raise errors.UserError(*found)
    return plan


def save(program: _core.Program | _core.DirectProgram, path: str | os.PathLike[str]) -> None:
    """Writes the execution plan of a program; see `plan_of`. One of messages is lowered to one-sided moves.

    Raises:
        gc3.UserError: There is none, or the file cannot be written.
    """
    check(program)
    if isinstance(program, _core.Program):
        program = (
            _core.lower(program, pushing=True) if program.protocol == "Simple" else _core.lower_to_packets(program)
        )
    files.replace_text(os.fsdecode(path), json.dumps(plan_of(program), indent=2) + "\n")
