"""A training step on a machine: execution traces of its ranks, whose collectives are simulated with compute between.

A rank computes one node at a time on its GPU and one on its host, of those that are ready the one with the lowest
number. Collectives of a group are called in the order of their numbers, one after another, as on a stream of NCCL;
those of different groups, and messages between two ranks, may be under way at once and share the links. A collective of
one rank takes no time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gc3 import errors
from gc3.sim.platform import Platform
from gc3.sim.predict import UNDISTURBED, Disturbance, Simulation
from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, RECEIVE, SEND, Node, Trace
from gc3.sim.together import LONGEST, NEVER, Session, moment, picoseconds

MESSAGE = "message"  # in place of a collective's name
_PS = 1e12
_GIVES_A_BLOCK = ("allgather", "gather")  # S counts the blocks of all ranks


@dataclass(frozen=True, slots=True)
class Chosen:
    """What executes a collective."""

    label: str  # its name
    simulation: Simulation | None  # the program on the ranks of the group; None: only its time is known
    time_s: float = 0.0  # then the seconds from the last rank's call until all are done, whatever else uses the links


_ONE_RANK = Chosen("nothing to do", None)

# From the name of a collective or `MESSAGE`, the ranks in their order, and S in bytes.
Choose = Callable[[str, tuple[int, ...], int], Chosen]


@dataclass(frozen=True, slots=True)
class Called:
    """A collective of the step, or a message."""

    name: str  # of its node on the first rank
    what: str  # the collective, or `MESSAGE`
    ranks: tuple[int, ...]  # who takes part
    size: int  # S in bytes
    program: str  # what executed it
    first_s: float  # seconds at which the first rank called it
    last_s: float  # the last one
    end_s: float  # when all were done
    exposed_s: float  # seconds of it in which a rank's GPU computed nothing, in the mean over its ranks
    nodes: tuple[int, ...]  # the number of its node on each rank


@dataclass(frozen=True, slots=True)
class RankTime:
    """How a rank spent the step, in seconds."""

    end_s: float  # when it was done
    compute_s: float  # the GPU computed
    communication_s: float  # at least one collective or message was under way
    exposed_s: float  # the same, while the GPU computed nothing


@dataclass(frozen=True, slots=True)
class Step:
    """A simulated step."""

    time_s: float  # seconds until the last rank is done
    ranks: tuple[RankTime, ...]  # of each rank
    calls: tuple[Called, ...]  # collectives and messages in the order of their first call
    traces: tuple[Trace, ...]  # the traces with the simulated times
    untimed: int  # the number of nodes that compute and have no duration in the traces

    @property
    def exposed_s(self) -> float:
        """Seconds of exposed communication, in the mean over ranks."""
        return sum(rank.exposed_s for rank in self.ranks) / max(len(self.ranks), 1)


def simulate(
    on: Platform,
    traces: Sequence[Trace],
    choose: Choose,
    groups: Mapping[str, Sequence[int]] | None = None,
    *,
    disturbance: Disturbance = UNDISTURBED,
) -> Step:
    """Returns the times of a step.

    Args:
        on: The machine.
        traces: Of each rank; see `gc3.sim.read.chakra.read_all`.
        choose: Names what executes a collective of several ranks.
        groups: The ranks of each group; None: of every group, the ranks whose traces name it.
        disturbance: Ranks that begin the step late, or whose compute and threadblocks take longer.

    Raises:
        gc3.UserError: Ranks do not agree on their collectives, or wait for each other forever.
    """
    if len(traces) > on.topology.rank_count:
        raise _bad(f"{len(traces)} traces; '{on.topology.name}' has {on.topology.rank_count} ranks")
    calls = [*_collectives(traces, groups), *_messages(traces)]
    return _Replay(on, traces, calls, choose, disturbance).run()


@dataclass(slots=True)
class _Call:
    """A collective or message: its nodes by rank, and what is known of its times in picoseconds."""

    what: str
    ranks: tuple[int, ...]
    size: int
    nodes: dict[int, Node]
    chosen: Chosen | None = None
    number: int = -1  # in the session
    begins: dict[int, int] = field(default_factory=dict[int, int])
    ends: dict[int, int] = field(default_factory=dict[int, int])


def _collectives(traces: Sequence[Trace], groups: Mapping[str, Sequence[int]] | None) -> list[_Call]:
    by_group: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for rank, trace in enumerate(traces):
        for node in trace:
            if node.kind == COLLECTIVE:
                by_group[node.group][rank].append(node)
    calls: list[_Call] = []
    for group, of_rank in by_group.items():
        if groups is not None and group and group not in groups:
            raise _bad(f"no ranks are given for group '{errors.shown(group)}'; there are {', '.join(groups) or 'none'}")
        given = groups[group] if groups is not None and group else ()
        ranks = tuple(given or (range(len(traces)) if not group else sorted(of_rank)))
        called = f"collectives of group '{errors.shown(group)}'" if group else "collectives of all ranks"
        counts = {rank: len(of_rank.get(rank, ())) for rank in ranks}
        if len(set(counts.values())) > 1 or set(of_rank) - set(ranks):
            told = ", ".join(f"rank {rank}: {len(nodes)}" for rank, nodes in sorted(of_rank.items())[:8])
            raise _bad(f"ranks do not call the same number of {called} ({told})")
        for nodes in zip(*(of_rank[rank] for rank in ranks), strict=True):
            first = nodes[0]
            for rank, node in zip(ranks, nodes, strict=True):
                if (node.collective, node.size) != (first.collective, first.size):
                    raise _bad(
                        f"{called}: rank {ranks[0]} calls {first.collective} of {first.size} B (node {first.number}), "
                        f"rank {rank} {node.collective} of {node.size} B (node {node.number})"
                    )
            whole = first.size * (len(ranks) if first.collective in _GIVES_A_BLOCK else 1)
            calls.append(_Call(first.collective, ranks, whole, dict(zip(ranks, nodes, strict=True))))
    return calls


def _messages(traces: Sequence[Trace]) -> list[_Call]:
    """Pairs of the k-th send and the k-th receive of two ranks with a tag."""
    found: dict[tuple[int, int, int], tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
    for rank, trace in enumerate(traces):
        for node in trace:
            if node.kind == SEND:
                found[rank, node.peer, node.tag][0].append(node)
            elif node.kind == RECEIVE:
                found[node.peer, rank, node.tag][1].append(node)
    calls: list[_Call] = []
    for (src, dst, tag), (sends, receives) in found.items():
        sizes = [[node.size for node in nodes] for nodes in (sends, receives)]
        if sizes[0] != sizes[1] or src == dst:
            raise _bad(
                f"rank {src} sends {len(sends)} messages with tag {tag} to rank {dst}, which receives {len(receives)}; "
                "they have to be as many, of the same sizes, between two ranks"
            )
        calls += [
            _Call(MESSAGE, (src, dst), send.size, {src: send, dst: receive})
            for send, receive in zip(sends, receives, strict=True)
        ]
    return calls


class _Replay:
    """One step; times are in picoseconds."""

    def __init__(
        self,
        on: Platform,
        traces: Sequence[Trace],
        calls: Sequence[_Call],
        choose: Choose,
        disturbance: Disturbance,
    ) -> None:
        self._session = Session(on, disturbance)
        self._late, self._slow = disturbance.lists(on.topology.rank_count)
        self._traces = traces
        self._calls = calls
        self._choose = choose
        self._events: list[tuple[int, int, int]] = []  # time, rank, node: a heap of ends
        self._call_of = {(rank, node.number): call for call in calls for rank, node in call.nodes.items()}
        self._in_session: list[_Call] = []
        self._missing = [{node.number: len(node.after) for node in trace} for trace in traces]
        self._next: list[dict[int, list[Node]]] = [defaultdict(list) for _ in traces]  # who waits for a node
        for rank, trace in enumerate(traces):
            for node in trace:
                for number in node.after:
                    self._next[rank][number].append(node)
        # By rank: what is ready on (False) the GPU and (True) the host, by number, and who computes there.
        self._ready: list[dict[bool, list[tuple[int, Node]]]] = [{False: [], True: []} for _ in traces]
        self._busy: list[dict[bool, bool]] = [{False: False, True: False} for _ in traces]
        # By rank and group: the collectives that were not called yet, in order, which of them are ready, and whether
        # one is under way.
        self._streams: dict[tuple[int, str], deque[Node]] = defaultdict(deque)
        for rank, trace in enumerate(traces):
            for node in trace:
                if node.kind == COLLECTIVE:
                    self._streams[rank, node.group].append(node)
        self._callable: set[tuple[int, int]] = set()
        self._streaming: set[tuple[int, str]] = set()
        self._times: list[dict[int, tuple[int, int]]] = [{} for _ in traces]

    def run(self) -> Step:
        for rank, trace in enumerate(self._traces):
            late = moment(self._late[rank]) if self._late else 0
            for node in trace:
                if not node.after:
                    self._become_ready(late, rank, node)
        while True:
            upcoming = self._events[0][0] if self._events else NEVER
            found = self._session.advance(upcoming)
            if found is not None:
                at, number, place = found
                call = self._in_session[number]
                self._end(at, call.ranks[place], call.nodes[call.ranks[place]])
            elif self._events:
                at, rank, number = heapq.heappop(self._events)
                self._end(at, rank, self._node(rank, number))
            else:
                break
        for rank, trace in enumerate(self._traces):
            for node in trace:
                if node.number not in self._times[rank]:
                    raise _bad(
                        f"rank {rank} never comes to node {node.number} '{errors.shown(node.name)}': "
                        "nodes or ranks wait for each other in a circle"
                    )
        return self._result()

    def _node(self, rank: int, number: int) -> Node:
        trace = self._traces[rank]
        return trace[bisect_left(trace, number, key=lambda node: node.number)]

    def _become_ready(self, at: int, rank: int, node: Node) -> None:
        if node.kind == COLLECTIVE:
            self._callable.add((rank, node.number))
            self._continue_stream(at, rank, node.group)
        elif node.kind in (SEND, RECEIVE):
            self._begin_call(at, rank, node)
        elif node.duration_s == 0:
            self._times[rank][node.number] = (at, at)
            heapq.heappush(self._events, (at, rank, node.number))
        else:
            heapq.heappush(self._ready[rank][node.on_cpu], (node.number, node))
            self._continue_compute(at, rank, node.on_cpu)

    def _continue_compute(self, at: int, rank: int, on_cpu: bool) -> None:
        ready = self._ready[rank][on_cpu]
        if self._busy[rank][on_cpu] or not ready:
            return
        _, node = heapq.heappop(ready)
        self._busy[rank][on_cpu] = True
        end = at + picoseconds(node.duration_s * (self._slow[rank] if self._slow else 1.0))
        if end > LONGEST:
            raise _bad(f"rank {rank}: the step takes longer than {LONGEST / _PS:.0f} s")
        self._times[rank][node.number] = (at, end)
        heapq.heappush(self._events, (end, rank, node.number))

    def _continue_stream(self, at: int, rank: int, group: str) -> None:
        stream = self._streams[rank, group]
        if (rank, group) in self._streaming or not stream or (rank, stream[0].number) not in self._callable:
            return
        self._streaming.add((rank, group))
        self._begin_call(at, rank, stream.popleft())

    def _begin_call(self, at: int, rank: int, node: Node) -> None:
        call = self._call_of[rank, node.number]
        if call.chosen is None:
            many = len(call.ranks) > 1
            call.chosen = self._choose(call.what, call.ranks, call.size) if many else _ONE_RANK
            if call.chosen.simulation is not None:
                call.number = self._session.add(call.chosen.simulation, call.size)
                self._in_session.append(call)
        call.begins[rank] = at
        if call.chosen.simulation is not None:
            self._session.begin(call.number, call.ranks.index(rank), at)
        elif len(call.begins) == len(call.ranks):
            # Ranks that begin the step late make their first calls in the order of their numbers.
            end = max(call.begins.values()) + picoseconds(call.chosen.time_s)
            for other in call.ranks:
                heapq.heappush(self._events, (end, other, call.nodes[other].number))

    def _end(self, at: int, rank: int, node: Node) -> None:
        call = self._call_of.get((rank, node.number))
        if call is not None:
            call.ends[rank] = at
            self._times[rank][node.number] = (call.begins[rank], at)
            if node.kind == COLLECTIVE:
                self._streaming.discard((rank, node.group))
                self._continue_stream(at, rank, node.group)
        elif node.duration_s:
            self._busy[rank][node.on_cpu] = False
        for other in self._next[rank][node.number]:
            self._missing[rank][other.number] -= 1
            if self._missing[rank][other.number] == 0:
                self._become_ready(at, rank, other)
        if call is None and node.duration_s:
            self._continue_compute(at, rank, node.on_cpu)

    def _result(self) -> Step:
        computing = [
            _Intervals(
                times[node.number]
                for node in trace
                if node.number in times and (rank, node.number) not in self._call_of and not node.on_cpu
            )
            for rank, (trace, times) in enumerate(zip(self._traces, self._times, strict=True))
        ]
        calling: list[list[tuple[int, int]]] = [[] for _ in self._traces]
        calls: list[Called] = []
        for call in self._calls:
            exposed = 0
            for rank in call.ranks:
                span = call.begins[rank], call.ends[rank]
                calling[rank].append(span)
                exposed += computing[rank].left_of(*span)
            assert call.chosen is not None  # noqa: S101  it was called
            first, last, end = min(call.begins.values()), max(call.begins.values()), max(call.ends.values())
            calls.append(
                Called(
                    call.nodes[call.ranks[0]].name,
                    call.what,
                    call.ranks,
                    call.size,
                    call.chosen.label,
                    first / _PS,
                    last / _PS,
                    end / _PS,
                    exposed / len(call.ranks) / _PS,
                    tuple(call.nodes[rank].number for rank in call.ranks),
                )
            )
        ranks: list[RankTime] = []
        for times, busy, spans in zip(self._times, computing, calling, strict=True):
            under_way = _Intervals(spans)
            ranks.append(
                RankTime(
                    max((end for _, end in times.values()), default=0) / _PS,
                    busy.total / _PS,
                    under_way.total / _PS,
                    sum(busy.left_of(*span) for span in under_way.spans) / _PS,
                )
            )
        untimed = sum(n.kind == chakra.COMPUTE and n.duration_s == 0 for trace in self._traces for n in trace)
        return Step(
            max((rank.end_s for rank in ranks), default=0.0),
            tuple(ranks),
            tuple(sorted(calls, key=lambda call: call.first_s)),
            tuple(
                tuple(_timed(node, *times[node.number]) for node in trace)
                for trace, times in zip(self._traces, self._times, strict=True)
            ),
            untimed,
        )


def _timed(node: Node, start: int, end: int) -> Node:
    return replace(node, start_s=start / _PS, duration_s=(end - start) / _PS)


class _Intervals:
    """Times in which something happens, joined where they touch."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.spans: list[tuple[int, int]] = []
        for begin, end in sorted(span for span in spans if span[1] > span[0]):
            if self.spans and begin <= self.spans[-1][1]:
                self.spans[-1] = self.spans[-1][0], max(end, self.spans[-1][1])
            else:
                self.spans.append((begin, end))

    @property
    def total(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    def left_of(self, begin: int, end: int) -> int:
        """The part of a span in which it does not happen."""
        left = end - begin
        at = max(bisect_left(self.spans, (begin, begin)) - 1, 0)
        while at < len(self.spans) and self.spans[at][0] < end:
            left -= max(min(end, self.spans[at][1]) - max(begin, self.spans[at][0]), 0)
            at += 1
        return left


def _bad(what: str) -> errors.Gc3Error:
    return errors.error("BadTrace", what)
