"""Explains the duration of a recorded run of a CPU engine: its steps in the terms of the simulator.

A recording has the times at which each step ended and at which its threadblock reached it. The cause of the wait in
between follows from the program: the message that the step received, the slot that it filled, the steps it depends on,
and the worker, which may have been busy with other threadblocks. The last of these decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gc3 import _core
from gc3.runtime.recording import Recording
from gc3.sim.details import Details
from gc3.sim.explanation import RECORD, Explanation
from gc3.sim.run_timeline import Run

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints: TypeAlias = npt.NDArray[np.int64]

_NOWHERE = -1
_PS_PER_NS = 1000
_ROUNDS = 8  # of moving starts; a chain of as many clocks read too early has not been seen
_CAUSES = {name: number for number, name in enumerate(_core.sim_causes())}
# By interp::Waiting of gc3/runtime/interp/layout.h: nothing, dependency, input, credit.
_WAITING = np.array([_CAUSES[name] for name in ("core", "semaphore", "receive", "credit")], np.int64)


def run(recording: Recording) -> Run:
    """Returns the run, ready to be explained and drawn."""
    wired = _Wired(recording.program)
    records = _Steps(recording, wired).records() if len(recording.steps) else np.zeros(0, RECORD)
    # The cause of a step after the last recorded one is not known.
    known_ns = recording.steps["end"].max() if recording.dropped else recording.end_ns
    seconds = float(known_ns - recording.begin_ns) * 1e-9
    outcome = _core.SimOutcome.of_records(records.tobytes(), seconds)
    title = f"{recording.program.name} on the {recording.engine} engine"
    why = Explanation(wired.step_name, outcome, wired.connections)
    ranks = [recording.engine] * recording.program.rank_count
    return Run(title, wired, ranks, why, Details(recording.program))


class _Wired:
    """The program as flat arrays: threadblocks and steps counted over all ranks."""

    def __init__(self, program: _core.Program) -> None:
        self.opcodes = {op.name: op for op in _core.opcodes()}
        self.ranks: list[int] = []
        self.first_tb: list[int] = []
        self.first_step: list[int] = []  # of each threadblock
        self.steps: list[dict[str, Any]] = []
        self._routes: list[list[int]] = []
        self.connections: list[str] = []  # pairs of ranks
        self._ends: dict[tuple[int, int, int], list[list[int]]] = {}  # sending and receiving steps of a connection
        pairs: dict[tuple[int, int], int] = {}
        for rank, of_rank in enumerate(program.as_dict()["ranks"]):
            self.first_tb.append(len(self.ranks))
            for tb in of_rank["threadblocks"]:
                self.first_step.append(len(self.steps))
                self.ranks.append(rank)
                route: list[int] = []
                for step in tb["steps"]:
                    op = self.opcodes[step["opcode"]]
                    if op.sends:
                        key = (rank, tb["send_peer"])
                        route = [pairs.setdefault(key, len(pairs))]
                        self._ends.setdefault((*key, tb["channel"]), [[], []])[0].append(len(self.steps))
                    if op.receives:
                        key = (tb["recv_peer"], rank)
                        self._ends.setdefault((*key, tb["channel"]), [[], []])[1].append(len(self.steps))
                    self.steps.append(step)
                self._routes.append(route)
        self.connections = [f"rank {src} to rank {dst}" for src, dst in pairs]

    def rank_of(self) -> list[int]:
        return self.ranks

    def step_name(self, tb: int, step: int) -> str:
        rank = self.ranks[tb]
        op = self.opcodes[self.steps[self.first_step[tb] + step]["opcode"]]
        return f"rank {rank} threadblock {tb - self.first_tb[rank]} step {step} ({op.xml})"

    def route(self, tb: int) -> list[int]:
        return self._routes[tb]

    def senders(self) -> Ints:
        """By step that receives: the step that sends it, in the same tile."""
        found = np.full(len(self.steps), _NOWHERE, np.int64)
        for sends, receives in self._ends.values():
            found[receives] = sends
        return found

    def freers(self, slots: int) -> tuple[Ints, Ints]:
        """By step that sends: the step that frees the slot it fills, and how many tiles before."""
        found = np.full(len(self.steps), _NOWHERE, np.int64)
        tiles = np.zeros(len(self.steps), np.int64)
        for sends, receives in self._ends.values():
            for number, step in enumerate(sends):
                back, message = divmod(number - slots, len(sends))
                found[step], tiles[step] = receives[message], -back
        return found, tiles

    def dependencies(self) -> Ints:
        """By step: the steps of the rank that it depends on, padded with none."""
        most = max((len(step["deps"]) for step in self.steps), default=0)
        found = np.full((len(self.steps), most), _NOWHERE, np.int64)
        ends = [*self.first_step[1:], len(self.steps)]
        for tb, (first, end) in enumerate(zip(self.first_step, ends, strict=True)):
            base = self.first_tb[self.ranks[tb]]
            for k in range(first, end):
                named: list[tuple[int, int]] = self.steps[k]["deps"]
                deps = [self.first_step[base + other] + step for other, step in named]
                found[k, : len(deps)] = deps
        return found


class _Steps:
    """The recorded steps ordered by start, and the positions of related steps."""

    def __init__(self, recording: Recording, wired: _Wired) -> None:
        found = recording.steps[np.lexsort([recording.steps[name] for name in ("step", "tile", "end", "start")])]
        self._found = found
        self._wired = wired
        self._cuts_through = recording.program.protocol in ("LL", "LL128")  # LL and LL128: line by line
        self.tb = np.array(wired.first_tb, np.int64)[found["rank"]] + found["tb"]
        self.place = np.array([*wired.first_step, 0], np.int64)[self.tb] + found["step"]
        self._keys = self.place + found["tile"].astype(np.int64) * len(wired.steps)
        self._by_key = np.argsort(self._keys)
        self.ready: Ints = found["ready"] - recording.begin_ns
        self.start: Ints = found["start"] - recording.begin_ns
        self.end: Ints = found["end"] - recording.begin_ns
        self.sender = self._at(wired.senders()[self.place])
        freers, back = wired.freers(recording.slots)
        self.freer = self._at(freers[self.place], back[self.place])
        self._settle()

    def _at(self, places: Ints, tiles_before: Ints | int = 0) -> Ints:
        """The recorded steps at these places of the program, a number of tiles before; -1 for those not recorded."""
        keys = places + (self._found["tile"].astype(np.int64) - tiles_before) * len(self._wired.steps)
        slots = np.minimum(np.searchsorted(self._keys, keys, sorter=self._by_key), len(self._keys) - 1)
        found = self._by_key[slots]
        return np.where((places != _NOWHERE) & (self._keys[found] == keys), found, _NOWHERE)

    def _settle(self) -> None:
        """Corrects times that were read too early: no message is received before it is sent.

        The clock is read at the beginning of a turn, shortly before the check for the message.
        """
        takes = np.flatnonzero(self.sender != _NOWHERE)
        for _ in range(_ROUNDS):
            late = self.start[self.sender[takes]] > self.start[takes]
            if not late.any():
                break
            self.start[takes[late]] = self.start[self.sender[takes[late]]]
        self.end = np.maximum(self.end, self.start)
        self.delivered: Ints = np.array(self.end)
        # A receiver may have seen a message before its sender has read the clock again. With cut-through it may start
        # before everything is sent, but not end.
        seen = (self.end if self._cuts_through else self.start)[takes]
        self.delivered[self.sender[takes]] = np.minimum(self.delivered[self.sender[takes]], seen)

    def records(self) -> npt.NDArray[Any]:
        """The steps in the form of the simulator's records."""
        found, ops = self._found, self._wired.opcodes
        wait, before, on_core = self._waits()
        records = np.zeros(len(found), RECORD)
        for name, times in (
            ("ready", self.ready),
            ("due", np.where(on_core, self.ready, self.start)),
            ("start", self.start),
            ("end", self.end),
            ("delivered", self.delivered),
        ):
            records[name] = times * _PS_PER_NS
        for name in ("bytes", "step", "tile"):
            records[name] = found[name]
        records["tb"] = self.tb
        records["before"] = before
        records["resource"] = _NOWHERE & 0xFFFFFFFF
        records["sent_by"] = self.sender & 0xFFFFFFFF
        records["wait"] = wait
        ended_by_input: npt.NDArray[np.bool_] = (found["paused"] != 0) & (self.sender != _NOWHERE)
        ended_by_input &= self.delivered[self.sender] > self.start
        records["delivered_by"] = np.where(ended_by_input, _CAUSES["receive"], _CAUSES["threadblock"])
        sends = np.array([ops[step["opcode"]].sends for step in self._wired.steps], bool)
        records["sends"] = sends[self.place]
        return records

    def _waits(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """The last cause of each step's wait, its record, and whether the wait was for its worker instead."""
        latest: Ints = np.array(self.ready)
        wait = _WAITING[self._found["waiting"]]
        wait[np.unique(self.tb, return_index=True)[1]] = _CAUSES["launch"]  # the first of each threadblock
        before = np.full(len(self.tb), _NOWHERE, np.int64)

        def consider(cause: str, others: Ints, times: Ints) -> None:
            """Makes it the cause if it comes later than those found so far."""
            then = np.where(others == _NOWHERE, -1, np.minimum(times, self.start))
            decides = then > latest
            latest[decides], wait[decides], before[decides] = then[decides], _CAUSES[cause], others[decides]

        dependencies = self._wired.dependencies()[self.place]
        for k in range(dependencies.shape[1]):
            step = self._at(dependencies[:, k])
            consider("semaphore", step, self.end[step])
        consider("credit", self.freer, self.end[self.freer])
        # With cut-through, the first line counts.
        through = self.delivered[self.sender] > self.start
        consider("receive", self.sender, np.where(through, self.start[self.sender], self.delivered[self.sender]))
        busy = self._busy_until()
        on_core = busy > latest
        before[on_core] = _NOWHERE
        wait[on_core | (self.start <= self.ready)] = _CAUSES["threadblock"]
        return wait, (before & 0xFFFFFFFF).astype(np.uint32), on_core

    def _busy_until(self) -> Ints:
        """When the worker of each step last ended a step before this one started."""
        busy = np.full(len(self.tb), -1, np.int64)
        for worker in np.unique(self._found["worker"]):
            own = np.flatnonzero(self._found["worker"] == worker)
            ends = np.sort(self.end[own])
            before = np.searchsorted(ends, self.start[own], side="right") - 1
            busy[own] = np.where(before >= 0, ends[before], -1)
        return busy
