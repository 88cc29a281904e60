"""Reads an execution plan and runs it on symbolic data, as MSCCL++'s executor would.

Written from the executor's reader and kernel, and sharing nothing with the writer: threadblocks advance in an order
drawn at random, signals and semaphores count, and every chunk holds the multiset of inputs reduced into it. Two
accesses to a place, one of them a write, must be ordered by signals, semaphores and nops.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gc3 import errors
from gc3.runtime.mscclpp.limits import OPERATIONS, SEMAPHORES

if TYPE_CHECKING:
    from gc3 import _core

Place: TypeAlias = "tuple[int, str, int]"  # rank, buffer, chunk
Clock: TypeAlias = "dict[tuple[int, int], int]"  # per threadblock, how many of its operations come before

_SYNC = {"nop", "signal", "wait", "sem_acquire", "sem_release"}


def _wrong(what: str, name: str = "CorruptProgram") -> errors.Gc3Error:
    return errors.error(name, f"execution plan of MSCCL++: {what}")


class _Machine:
    def __init__(self, plan: Mapping[str, Any], collective: _core.Collective, seed: int) -> None:
        self.plan, self.collective = plan, collective
        self.random = random.Random(seed)  # noqa: S311  an order, not a secret
        self.gpus: list[Any] = plan["gpus"]
        if [gpu["id"] for gpu in self.gpus] != list(range(collective.ranks)):
            raise _wrong(f"it has {len(self.gpus)} gpus; the collective has {collective.ranks} ranks")
        self.values: dict[Place, Counter[tuple[int, int]]] = {}
        self.written: dict[Place, Clock] = {}
        self.readers: dict[Place, list[tuple[tuple[int, int], int]]] = {}
        self.wires = self._pair()
        self.signals: dict[tuple[int, int], list[Clock]] = {}  # (rank, channel): what has been signalled to it
        self.semaphores: dict[tuple[int, int], list[Clock]] = {}
        self.now: dict[tuple[int, int], Clock] = {}
        self.fenced: dict[tuple[int, int], Clock] = {}
        for rank in range(collective.ranks):
            for i in range(collective.input_chunks(rank)):
                self.values[self.place(rank, "i", i)] = Counter({(rank, i): 1})

    def _pair(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Pairs the channels of two ranks by their order."""
        ends: dict[tuple[int, int], list[int]] = {}
        for gpu in self.gpus:
            number = 0
            for channel in gpu["channels"]:
                if channel["channel_type"] != "memory":
                    raise _wrong(f"a channel of type {channel['channel_type']}, which is not read here")
                for peer in channel["connected_to"]:
                    ends.setdefault((gpu["id"], peer), []).append(number)
                    number += 1
        wires: dict[tuple[int, int], tuple[int, int]] = {}
        for (rank, peer), mine in ends.items():
            theirs = ends.get((peer, rank), [])
            if len(mine) != len(theirs):
                raise _wrong(f"ranks {rank} and {peer} count different channels between them")
            for a, b in zip(mine, theirs, strict=True):
                wires[rank, a] = (peer, b)
        return wires

    def place(self, rank: int, buffer: str, index: int) -> Place:
        if buffer == "s":
            return rank, "s", index
        kind, at = self.collective.canonical(rank, "io".index(buffer), index)
        return rank, "io"[kind], at

    def _size(self, rank: int, buffer: str) -> int:
        return self.gpus[rank][{"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}[buffer]]

    def run(self) -> None:
        for gpu in self.gpus:
            if len(gpu.get("semaphores", ())) > SEMAPHORES:
                raise _wrong(
                    f"gpu {gpu['id']} has {len(gpu['semaphores'])} semaphores of {SEMAPHORES}", "LimitExceeded"
                )
            for block in gpu["threadblocks"]:
                if len(block["ops"]) > OPERATIONS:
                    raise _wrong(
                        f"threadblock {block['id']} of gpu {gpu['id']} has {len(block['ops'])} operations",
                        "LimitExceeded",
                    )
        blocks = {(gpu["id"], b["id"]): self._block(gpu["id"], b) for gpu in self.gpus for b in gpu["threadblocks"]}
        while blocks:
            moved = False
            for key in self.random.sample(sorted(blocks), len(blocks)):
                for went in blocks[key]:
                    moved |= went
                    if not went or self.random.random() < 0.5:  # noqa: PLR2004
                        break
                else:
                    moved = True
                    del blocks[key]
            if not moved:
                raise _wrong(f"deadlock: {len(blocks)} threadblocks wait, first {min(blocks)}", "OrderDeadlock")
        for what, left in (("signals", self.signals), ("semaphores", self.semaphores)):
            if any(left.values()):
                raise _wrong(
                    f"{what} are left over after the run: the next one would take them for its own", "UnmatchedTransfer"
                )

    def _block(self, rank: int, block: Any) -> Iterator[bool]:
        """Runs a threadblock: yields True after an operation, False while one has to wait."""
        key = (rank, block["id"])
        self.now[key], self.fenced[key] = {}, {}
        channels: list[int] = [i for c in block["channels"] for i in c["channel_ids"]]
        buffers: list[int] = [i for r in block.get("remote_buffer_refs", ()) for i in r["remote_buffer_ids"]]
        unsynced: list[tuple[Place, bool]] = []  # accesses since the last nop: other threads may still make them
        for number, op in enumerate(block["ops"]):
            name = op["name"]
            taken = self._taken(rank, name, op, channels)
            while taken is None or any(not waiting for waiting in taken):
                if taken is None:
                    break
                yield False
            for waiting in taken or ():
                _join(self.now[key], waiting.pop(0))
            if name == "nop":
                unsynced.clear()
            elif name in ("signal", "sem_release"):
                if unsynced:
                    raise _wrong(
                        f"{name} of threadblock {key} without a nop after the data that it tells of", "DataRace"
                    )
                self._give(rank, name, op, channels, {**self.now[key], key: number + 1})
            elif name not in _SYNC:
                self._move(rank, key, number, op, buffers, unsynced)
            yield True

    def _taken(self, rank: int, name: str, op: Any, channels: list[int]) -> list[list[Clock]] | None:
        if name == "wait":
            numbers: list[int] = op["channel_ids"]
            return [self.signals.setdefault((rank, channels[i]), []) for i in numbers]
        if name == "sem_acquire":
            numbers = op["semaphore_ids"]
            return [self.semaphores.setdefault((rank, i), []) for i in numbers]
        return None

    def _give(self, rank: int, name: str, op: Any, channels: list[int], clock: Clock) -> None:
        if name == "signal":
            for i in op["channel_ids"]:
                self.signals.setdefault(self.wires[rank, channels[i]], []).append(dict(clock))
        else:
            for i in op["semaphore_ids"]:
                self.semaphores.setdefault((rank, i), []).append(dict(clock))

    def _run_of(self, rank: int, buff: Any, buffers: list[int]) -> list[Place]:
        if "buffer_id" in buff:
            remote = self.gpus[rank]["remote_buffers"][buffers[buff["buffer_id"]]]
            rank, buffer = remote["rank"], remote["type"]
        else:
            buffer = buff["type"]
        if buff["index"] + buff["size"] > self._size(rank, buffer):
            raise _wrong(f"an operation goes beyond buffer {buffer} of gpu {rank}")
        return [self.place(rank, buffer, buff["index"] + i) for i in range(buff["size"])]

    def _move(
        self,
        rank: int,
        key: tuple[int, int],
        number: int,
        op: Any,
        buffers: list[int],
        unsynced: list[tuple[Place, bool]],
    ) -> None:
        sources = [self._run_of(rank, buff, buffers) for buff in op["src_buff"]]
        targets = [self._run_of(rank, buff, buffers) for buff in op["dst_buff"]]
        if op["name"] not in ("put", "copy", "re", "res") or (op["name"] in ("put", "copy") and len(sources) != 1):
            raise _wrong(f"operation {op['name']}, which is not read here")
        results: list[Counter[tuple[int, int]]] = []
        for i in range(len(sources[0])):
            total: Counter[tuple[int, int]] = Counter()
            for run in sources:
                self._reads(key, number, run[i], unsynced)
                total.update(self.values[run[i]])
            results.append(total)
        for run in targets:
            for place, value in zip(run, results, strict=True):
                self._writes(key, number, place, unsynced)
                self.values[place] = value
        unsynced += [(p, False) for run in sources for p in run] + [(p, True) for run in targets for p in run]

    def _reads(self, key: tuple[int, int], number: int, place: Place, unsynced: list[tuple[Place, bool]]) -> None:
        if place not in self.values:
            raise _wrong(f"threadblock {key} reads {place}, which nothing has written", "UninitializedRead")
        self._ordered(key, self.written.get(place, {}), place)
        if (place, True) in unsynced:
            raise _wrong(f"threadblock {key} reads {place} without a nop after its own write", "DataRace")
        self.readers.setdefault(place, []).append((key, number))

    def _writes(self, key: tuple[int, int], number: int, place: Place, unsynced: list[tuple[Place, bool]]) -> None:
        self._ordered(key, self.written.get(place, {}), place)
        for reader, at in self.readers.pop(place, []):
            self._ordered(key, {reader: at + 1}, place)
        if (place, True) in unsynced:
            raise _wrong(f"threadblock {key} writes {place} twice without a nop between", "DataRace")
        self.written[place] = {key: number + 1}

    def _ordered(self, key: tuple[int, int], before: Clock, place: Place) -> None:
        for other, at in before.items():
            if other != key and self.now[key].get(other, 0) < at:
                raise _wrong(f"threadblocks {other} and {key} race for {place}", "DataRace")


def _join(clock: Clock, other: Clock) -> None:
    for key, at in other.items():
        clock[key] = max(clock.get(key, 0), at)


def check(plan: Mapping[str, Any], collective: _core.Collective, *, orders: int = 3) -> None:
    """Proves that a plan implements a collective, in `orders` random orders of its threadblocks.

    Data races and missing synchronisation are found in any order, so one would do for them.

    Raises:
        gc3.UserError: It does not, or cannot be read.
    """
    try:
        for seed in range(orders):
            machine = _Machine(plan, collective, seed)
            machine.run()
            for rank in range(collective.ranks):
                for i in range(collective.output_chunks(rank)):
                    wanted = Counter(collective.expected_terms(rank, i))
                    held = machine.values.get(machine.place(rank, "o", i), Counter())
                    if wanted and held != wanted:
                        raise _wrong(
                            f"output[{i}] of rank {rank} holds {dict(held)}, not {dict(wanted)}", "WrongResult"
                        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, errors.Gc3Error):
            raise
        raise _wrong(f"it is not as the executor reads it: {type(problem).__name__}: {problem}") from problem
