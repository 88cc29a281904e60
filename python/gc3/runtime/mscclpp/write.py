"""Writes a program as an execution plan.

A connection becomes a memory channel. Every message of it has a separate place in the receiver's scratch buffer, into
which the sender puts it; the receiver copies or reduces it from there. The receiver first signals that it has begun, so
no message of one run overwrites one of the run before. Dependencies between threadblocks become semaphores. The
executor does not synchronise the threads of a block between operations, so each step does with ``nop``.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from gc3 import errors
from gc3.runtime import schedule
from gc3.runtime.mscclpp.execute import check
from gc3.runtime.mscclpp.limits import OPERATIONS, SEMAPHORES
from gc3.support import files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gc3 import _core
    from gc3.runtime.schedule import Instruction, Threadblock

Connection: TypeAlias = "tuple[int, int, int]"  # sender, receiver, channel
Json: TypeAlias = "dict[str, Any]"
_LETTER = {"input": "i", "output": "o", "scratch": "s"}
_MOST_BYTES = 2**64 - 1
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall")


@dataclass
class _Rank:
    """What the threadblocks of a rank share."""

    channels: list[Connection] = field(default_factory=list["Connection"])  # by number
    peers: list[int] = field(default_factory=list[int])  # whose scratch it writes, by number
    semaphores: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])  # (giver, taker)
    scratch: int = 0


class _Writer:
    def __init__(self, program: _core.Program) -> None:
        self.program = program
        self.blocks = [schedule.threadblocks(program, rank) for rank in range(program.rank_count)]
        self.ranks = [_Rank(scratch=chunks) for chunks in program.scratch_per_rank]
        self.staged: dict[Connection, list[int]] = {}  # for each message its first chunk in the receiver's scratch

    def write(self) -> Json:
        self._connect()
        gpus = [self._gpu(rank) for rank in range(self.program.rank_count)]
        return {
            "name": self.program.name,
            "collective": self.program.collective.name,
            "protocol": "Simple",
            "inplace": self.program.collective.in_place,
            "reuse_resources": False,
            "gpus": gpus,
            "num_threads_per_block": 1024,
            "use_double_scratch_buffer": False,
            "buffer_alignment": 16,
            "min_message_size": 0,
            "max_message_size": _MOST_BYTES,
        }

    def _connect(self) -> None:
        """Numbers channels and remote buffers, and gives every message its place."""
        counts: dict[Connection, list[int]] = {}
        for rank, blocks in enumerate(self.blocks):
            for block in blocks:
                if block.send_peer is not None:
                    sizes = [step.count for step in block.steps if step.sends]
                    counts[rank, block.send_peer, block.channel] = sizes
        # Channels between two ranks are paired by their order, so both number them in the same one.
        for connection in sorted(counts):
            sender, receiver, _ = connection
            self.ranks[sender].channels.append(connection)
            self.ranks[receiver].channels.append(connection)
            if receiver not in self.ranks[sender].peers:
                self.ranks[sender].peers.append(receiver)
            places: list[int] = []
            for size in counts[connection]:
                places.append(self.ranks[receiver].scratch)
                self.ranks[receiver].scratch += size
            self.staged[connection] = places

    def _gpu(self, rank: int) -> Json:
        there, collective = self.ranks[rank], self.program.collective
        given = self._awaited(rank)
        blocks = [self._block(rank, tb, given) for tb in range(len(self.blocks[rank]))]
        if len(there.semaphores) > SEMAPHORES:
            raise _cannot(
                self.program, f"rank {rank} needs {len(there.semaphores)} semaphores between threadblocks", SEMAPHORES
            )
        return {
            "id": rank,
            "input_chunks": collective.input_chunks(rank),
            "output_chunks": collective.output_chunks(rank),
            "scratch_chunks": there.scratch,
            "threadblocks": blocks,
            "channels": [
                {"channel_type": "memory", "connected_to": [r if s == rank else s for s, r, _ in there.channels]}
            ],
            "remote_buffers": [{"rank": peer, "type": "s", "access_channel_types": ["memory"]} for peer in there.peers],
            "semaphores": [{"init_value": 0} for _ in there.semaphores],
        }

    def _awaited(self, rank: int) -> Mapping[tuple[int, int], list[int]]:
        """Returns the semaphores that each (threadblock, step) releases, and numbers those of the rank."""
        released: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for taker, block in enumerate(self.blocks[rank]):
            for giver, step in _waits(block):
                number = self.ranks[rank].semaphores.setdefault((giver, taker), len(self.ranks[rank].semaphores))
                released[giver, step].append(number)
        return released

    def _block(self, rank: int, tb: int, released: Mapping[tuple[int, int], list[int]]) -> Json:
        block, there = self.blocks[rank][tb], self.ranks[rank]
        send = None if block.send_peer is None else (rank, block.send_peer, block.channel)
        recv = None if block.recv_peer is None else (block.recv_peer, rank, block.channel)
        mine = [c for c in (send, recv) if c is not None]
        ops: list[Json] = []
        if recv is not None:
            ops.append(_sync("signal", [mine.index(recv)]))
        sent = received = 0
        waits = iter(_waits(block, each=True))
        for number, step in enumerate(block.steps):
            semaphores = [there.semaphores[giver, tb] for giver, _ in next(waits)]
            if semaphores:
                ops.append({"name": "sem_acquire", "semaphore_ids": semaphores})
            arriving = [mine.index(recv)] if recv is not None and step.receives else []
            beginning = [mine.index(send)] if send is not None and step.sends and sent == 0 else []
            if arriving or beginning:
                ops.append(_sync("wait", arriving + beginning))
            ops.append({"name": "nop"})
            staged = (
                {"type": "s", "index": self.staged[recv][received], "size": step.count} if recv and arriving else {}
            )
            received += len(arriving)
            remote = None
            if send is not None and step.sends:
                remote = {"buffer_id": 0, "index": self.staged[send][sent], "size": step.count}
                sent += 1
            ops += _moves(step, staged, remote)
            done = released.get((tb, number), [])
            if remote is not None or done:
                ops.append({"name": "nop"})
            if remote is not None and send is not None:
                ops.append(_sync("signal", [mine.index(send)]))
            if done:
                ops.append({"name": "sem_release", "semaphore_ids": done})
        if len(ops) > OPERATIONS:
            raise _cannot(self.program, f"threadblock {tb} of rank {rank} needs {len(ops)} operations", OPERATIONS)
        refs = [there.peers.index(send[1])] if send is not None else []
        return {
            "id": tb,
            "ops": ops,
            "channels": [{"channel_type": "memory", "channel_ids": [there.channels.index(c) for c in mine]}],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": refs}],
        }


def _waits(block: Threadblock, *, each: bool = False) -> list[Any]:
    """The steps of other threadblocks that a threadblock waits for, without those that an earlier wait implies.

    With `each`, as a list for each of its steps.
    """
    latest: dict[int, int] = {}
    found: list[list[tuple[int, int]]] = []
    for step in block.steps:
        mine: dict[int, int] = {}
        for giver, number in step.depends:
            if number > latest.get(giver, -1):
                latest[giver] = mine[giver] = number
        found.append(list(mine.items()))
    return found if each else [wait for waits in found for wait in waits]


def _sync(name: str, channels: list[int]) -> Json:
    return {"name": name, "channel_ids": channels, "channel_type": "memory"}


def _local(place: tuple[str, int] | None, count: int) -> Json:
    if place is None:
        return {}
    return {"type": _LETTER[place[0]], "index": place[1], "size": count}


def _moves(step: Instruction, staged: Json, remote: Json | None) -> list[Json]:
    """The operations that move the data of a step."""
    source, result = _local(step.source, step.count), _local(step.target, step.count)
    if step.opcode == "nop":
        return []
    inputs = [source or staged]
    if step.reduces:
        inputs = [source, staged] if step.receives else [result, source]
    if remote is None:
        name = "re" if step.reduces else "copy"
        return [{"name": name, "src_buff": inputs, "dst_buff": [result]}]
    if not step.receives:  # send
        return [{"name": "put", "src_buff": inputs, "dst_buff": [remote], "channel_ids": [0], "channel_type": "memory"}]
    # What is stored nowhere is summed in the place of the message.
    kept = result or staged
    return [
        {"name": "res", "src_buff": inputs, "dst_buff": [kept, remote], "channel_ids": [0], "channel_type": "memory"}
    ]


def _cannot(program: _core.Program, what: str, most: int) -> errors.Gc3Error:
    return errors.error("LimitExceeded", f"'{program.name}': {what}; MSCCL++'s executor holds {most}")


def plan_of(program: _core.Program) -> Json:
    """Returns the execution plan of a program, for JSON.

    Raises:
        gc3.UserError: MSCCL++'s executor cannot run it; the error says why.
    """
    collective = program.collective
    refused = ""
    if collective.name not in _COLLECTIVES or collective.is_custom:
        refused = f"it has no {collective.name}; it has {', '.join(_COLLECTIVES)}"
    elif program.protocol != "Simple":
        refused = f"{program.protocol} would need its packets: compile with protocol=Simple"
    if refused:
        raise errors.error("BadArgument", f"'{program.name}': MSCCL++'s executor cannot run it: {refused}")
    return _Writer(program).write()


def save(program: _core.Program, path: str | os.PathLike[str]) -> None:
    """Writes the execution plan of a program, which is proven first.

    Raises:
        gc3.UserError: MSCCL++'s executor cannot run it, or the file cannot be written.
    """
    plan = plan_of(program)
    check(plan, program.collective)
    files.replace_text(os.fsdecode(path), json.dumps(plan, indent=2) + "\n")
