"""What the ranks of an execution plan have: channels, switches, buffers and semaphores."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

from gc3 import errors
from gc3.mscclpp.form import MOST_MEMORIES, MOST_PORTS, MOST_THREADS

_CHUNKS = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}


class Machine:
    """A plan whose ranks have been checked, without their threadblocks.

    Attributes:
        plan: It.
        path: The part of it that is read.
        rank: The rank whose part it is.
        refusals: Why the executor would not do what the plan says.
        peers: Per rank and type, the other end of each memory and port channel, and the how many-th to it that is.
        switches: Per rank, the buffer, the ranks and the path of its switch channels.
        semaphores: Rank and initial value of all semaphores.
        first_semaphore: Per rank, the number of its first one.
        channels: What steps use of channels, one direction each: (from, to, port, the how many-th of the two ranks).
        groups: The sets of ranks that steps reach through switches.
    """

    def __init__(self, plan: dict[str, Any], file: str) -> None:
        """Checks the ranks of a plan that has the form of the schema; `file` is its name in errors."""
        self.plan, self.file = plan, file
        self.gpus: list[dict[str, Any]] = plan["gpus"]
        self.path, self.rank = "", 0
        self.refusals: list[str] = []
        self.peers: list[dict[str, list[tuple[int, int]]]] = []
        self.switches: list[list[tuple[str, tuple[int, ...], str]]] = []
        self.semaphores: list[tuple[int, int]] = []
        self.first_semaphore: list[int] = []
        self.channels: dict[tuple[int, int, bool, int], int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        if plan.get("num_threads_per_block", 0) > MOST_THREADS:
            self.refuse(f"a threadblock has at most {MOST_THREADS} threads", "num_threads_per_block")
        self.empty = False  # whether a refusal says that there are no chunks
        for rank, gpu in enumerate(self.gpus):
            self._rank(rank, gpu)
        self._connect_switches()

    def wrong(self, message: str, field: str = "") -> NoReturn:
        """Raises the error that `field` of the part that is read is wrong."""
        where = self.path + (f".{field}" if field and self.path else field)
        raise errors.error("BadPlan", f"$.{where}: {message}", file=self.file, line=1 if self.file else 0)

    def refuse(self, message: str, field: str = "") -> None:
        """Notes that the executor would not do what `field` of the part that is read says."""
        self.refusals.append(f"$.{self.path}{'.' if field and self.path else ''}{field}: {message}")

    def chunks(self, rank: int, buffer: str) -> int:
        """Returns the number of chunks of a buffer."""
        return self.gpus[rank][_CHUNKS[buffer]]

    def known(self, numbers: list[int], there: int, field: str, what: str) -> None:
        """Checks that all numbers of a field are below the number of what is there."""
        for i, number in enumerate(numbers):
            self.one_known(number, there, f"{field}[{i}]", what)

    def one_known(self, number: int, there: int, field: str, what: str) -> None:
        """Checks that the number of a field is below the number of what is there."""
        if number >= there:
            self.wrong(f"number {number} of {there} {what}", field)

    def channel(self, kind: str, number: int, *, to_peer: bool) -> int:
        """Returns the program's number of a direction of a channel.

        Channels of two ranks pair in their order: the first of one with the first of the other.
        """
        peer, nth = self.peers[self.rank][kind][number]
        ends = (self.rank, peer) if to_peer else (peer, self.rank)
        key = (*ends, kind == "port", nth)
        return self.channels.setdefault(key, len(self.channels))

    def _rank(self, rank: int, gpu: dict[str, Any]) -> None:
        ranks = len(self.gpus)
        self.path = f"gpus[{rank}]"
        if gpu["id"] != rank:
            self.wrong(f"it is {gpu['id']}; the gpus stand in the order of their ids, from 0", "id")
        if not self.empty and not (gpu["input_chunks"] and gpu["output_chunks"]):
            field = "output_chunks" if gpu["input_chunks"] else "input_chunks"
            self.refuse("it is 0, by which the executor divides", field)
            self.empty = True
        self.peers.append({"memory": [], "port": []})
        self.switches.append([])
        counts: Counter[tuple[str, int]] = Counter()
        for i, channel in enumerate(gpu["channels"]):
            self.path = f"gpus[{rank}].channels[{i}]"
            self._channels_of(rank, channel, counts)
        for i, remote in enumerate(gpu["remote_buffers"]):
            if remote["rank"] >= ranks:
                self.path = f"gpus[{rank}].remote_buffers[{i}]"
                self.wrong(f"rank {remote['rank']} of {ranks}", "rank")
        self.path = f"gpus[{rank}]"
        reached = sum("port" in remote["access_channel_types"] for remote in gpu["remote_buffers"])
        for count, most, field in (
            (len(self.peers[rank]["port"]), MOST_PORTS, "channels"),
            (reached + len(_CHUNKS), MOST_MEMORIES, "remote_buffers"),
        ):
            if count > most:
                self.refuse(f"{count} for its proxy, which can tell {most} apart", field)
        self.first_semaphore.append(len(self.semaphores))
        self.semaphores += [(rank, semaphore["init_value"]) for semaphore in gpu.get("semaphores", ())]

    def _channels_of(self, rank: int, channel: dict[str, Any], counts: Counter[tuple[str, int]]) -> None:
        kind, ranks = channel["channel_type"], len(self.gpus)
        for field in ("buffer_type", "rank_groups") if kind == "switch" else ("connected_to",):
            if field not in channel:
                self.wrong(f"a {kind} channel needs it", field)
        if kind != "switch":
            for k, peer in enumerate(channel["connected_to"]):
                if peer >= ranks or peer == rank:
                    self.wrong(f"rank {peer} is no other rank of {ranks}", f"connected_to[{k}]")
                self.peers[rank][kind].append((peer, counts[kind, peer]))
                counts[kind, peer] += 1
            return
        for k, group in enumerate(channel["rank_groups"]):
            members: list[int] = group["ranks"]
            if len(set(members)) != len(members) or max(members) >= ranks or rank not in members:
                why = f"{members} are not different ranks of {ranks}, this one among them"
                self.wrong(why, f"rank_groups[{k}].ranks")
            if len(members) != group["size"]:
                self.wrong(f"{group['size']}; there are {len(members)} ranks", f"rank_groups[{k}].size")
            path = f"{self.path}.rank_groups[{k}]"
            self.switches[rank].append((channel["buffer_type"], tuple(sorted(members)), path))

    def _connect_switches(self) -> None:
        """Checks that all members of a group set it up for the same buffer, and in an order in which all come to it."""
        done = [0] * len(self.gpus)
        ready = list(range(len(self.gpus)))
        while ready:
            rank = ready.pop()
            if done[rank] == len(self.switches[rank]):
                continue
            buffer, members, self.path = self.switches[rank][done[rank]]
            others = [self.switches[member][done[member] : done[member] + 1] for member in members]
            if any(not other or other[0][1] != members for other in others):
                continue
            for member, [(theirs, _, _)] in zip(members, others, strict=True):
                done[member] += 1
                if theirs != buffer:
                    self.refuse(f"it is of buffer {buffer}, and on rank {member} of buffer {theirs}")
            ready += members
        for rank, number in enumerate(done):
            if number < len(self.switches[rank]):
                _, members, self.path = self.switches[rank][number]
                self.refuse(f"ranks {list(members)} do not all have this group as their next one")
                break
