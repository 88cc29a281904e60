"""Turns a list of steps into an algorithm: which address goes from which rank to which, as synthesizers say it.

An address is a piece of data that all ranks call by the same number; chunks that share an address are reduced when they
meet. A step is a set of sends (address, from, to), which read what was there before the step.

Every rank keeps an address in one place: where it lies in its output, or else in scratch. An input moves there when
something is first reduced into it. Where every address keeps its place when input and output share memory, as in all
but alltoall, the program is written in place and works on the input itself. Sends of a step between the same ranks
whose places adjoin on both sides are one message of several chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn, TypeAlias

from gc3 import collectives, errors
from gc3._core import chunk
from gc3.lang.algorithm import Algorithm

Send: TypeAlias = "tuple[int, int, int]"  # address, from, to
ChannelOf: TypeAlias = "Callable[[int, int, int, bool], int]"
Slot: TypeAlias = "tuple[int, int]"  # rank, address


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of data: the rank that has it before, the ranks that must have it after, its address."""

    owner: int
    wanted: frozenset[int]
    address: int


@dataclass(frozen=True, slots=True)
class StepList:
    """A collective as data, and which address goes where in which step.

    Attributes:
        file: Where it was read from; empty for what was not.
        name: The algorithm's name.
        purpose: What it calls its collective.
        ranks: Number of ranks.
        chunks: The collective's chunks, cut as the instance says.
        steps: The sends of each step.
        channel_of: The channel of a transfer, by sender, receiver, its place there, and whether it is reduced into
            what is there; None: the compiler chooses.
    """

    file: str
    name: str
    purpose: str
    ranks: int
    chunks: tuple[Chunk, ...]
    steps: tuple[tuple[Send, ...], ...]
    channel_of: ChannelOf | None = None

    def inputs(self) -> list[list[int]]:
        """Returns the addresses in each rank's input, in its order."""
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for piece in self.chunks:
            found[piece.owner].add(piece.address)
        return [sorted(addresses) for addresses in found]

    def outputs(self) -> list[list[int]]:
        """Returns the addresses in each rank's output, in its order."""
        together: dict[frozenset[int], set[int]] = {}
        for piece in self.chunks:
            together.setdefault(piece.wanted, set()).add(piece.address)
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for wanted, addresses in together.items():
            for rank in wanted:
                found[rank] |= addresses
        return [sorted(addresses) for addresses in found]

    def fail(self, message: str) -> NoReturn:
        """Raises the error of a list that makes no sense."""
        raise errors.error("BadJson", message, file=self.file, line=1 if self.file else 0)


def stepwise(steps: StepList, known: tuple[str, int, int] | None = None, *, step_channels: bool = False) -> Algorithm:
    """Returns the algorithm that a list of steps describes.

    Writing it raises `gc3.UserError` where the list makes no sense.

    Args:
        steps: The list.
        known: Name, chunks and root of the built-in collective that it does, where that is known; finding out takes
            long where many ranks reduce. The verifier finds a mistake.
        step_channels: Each step sends on a channel of its own.
    """
    purpose = _Purpose(steps)
    found = purpose.builtin() if known is None else known
    name, chunks, root = found if found is not None else ("", 1, 0)
    in_place = found is not None and purpose.fits_in_place(name, chunks, root)
    return Algorithm(
        name=steps.name,
        function=lambda: _Writer(steps, in_place=in_place, step_channels=step_channels).write(),
        collective=name or purpose.custom(),
        parameters=(),
        in_place=in_place,
        ranks=steps.ranks,
        chunks=chunks,
        root=root,
        gpus_per_node=0,
        scratch=(),
        section="",
        summary=f"A synthesized schedule of {len(steps.steps)} steps.",
        good_for="",
        cost=None,
        file=steps.file,
        line=1 if steps.file else 0,
    )


class _Purpose:
    """What a schedule computes, by its data: names are only believed where several collectives fit."""

    def __init__(self, schedule: StepList) -> None:
        self.schedule = schedule
        self.inputs = schedule.inputs()
        self.outputs = schedule.outputs()

    @cached_property
    def expected(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """For each place of an output what must be reduced into it, as places of inputs."""
        expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
        place = [{address: i for i, address in enumerate(addresses)} for addresses in self.inputs]
        index = [{address: i for i, address in enumerate(addresses)} for addresses in self.outputs]
        for c in self.schedule.chunks:
            for rank in c.wanted:
                term = (c.owner, place[c.owner][c.address])
                expected.setdefault((rank, index[rank][c.address]), []).append(term)
        return expected

    def builtin(self) -> tuple[str, int, int] | None:
        """Returns name, chunks and root of the built-in collective that this is, if any."""
        ranks = range(self.schedule.ranks)
        sizes = [(len(self.inputs[r]), len(self.outputs[r])) for r in ranks]
        least = min(n for pair in sizes for n in pair if n)
        busiest = max(ranks, key=lambda r: (sum(sizes[r]), -r))
        said = self.schedule.purpose.partition("(")[0].replace("_", "").lower()
        for name in sorted(collectives.BUILTIN, key=lambda n: n != said):
            chunks = max(least // len(ranks), 1) if name == "alltoall" else least
            root = busiest if collectives.BUILTIN[name].rooted else 0
            if self._is(name, chunks, root, sizes):
                return name, chunks, root
        return None

    def _is(self, name: str, chunks: int, root: int, sizes: list[tuple[int, int]]) -> bool:
        model = collectives.get(name).model(len(sizes), chunks=chunks, root=root)
        for rank, (inputs, outputs) in enumerate(sizes):
            there = model.output_chunks(rank)
            if not any(model.expected_terms(rank, i) for i in range(there)):
                there = 0  # an output in which nothing is expected, as rank 0's of alltonext, is not listed
            if (inputs, outputs) != (model.input_chunks(rank), there):
                return False
        return all(
            sorted(model.expected_terms(rank, i)) == sorted(self.expected[rank, i])
            for rank, (_, outputs) in enumerate(sizes)
            for i in range(outputs)
        )

    def fits_in_place(self, name: str, chunks: int, root: int) -> bool:
        """Returns whether in place every address of a rank has one place of its own."""
        model = collectives.get(name).model(self.schedule.ranks, chunks=chunks, root=root, in_place=True)
        for rank, buffers in enumerate(zip(self.inputs, self.outputs, strict=True)):
            names = [(a, model.canonical(rank, b, i)) for b in (0, 1) for i, a in enumerate(buffers[b])]
            addresses, places = {a for a, _ in names}, {place for _, place in names}
            if not len(set(names)) == len(addresses) == len(places):
                return False
        return True

    def custom(self) -> Callable[[], collectives.Collective]:
        """Returns what makes the custom collective that this is."""

        def make() -> collectives.Collective:
            return collectives.custom(
                self.schedule.purpose or "custom",
                inputs=[len(addresses) for addresses in self.inputs],
                outputs=[len(addresses) for addresses in self.outputs],
                expect=self.expected,
            )

        return make


class _Move(NamedTuple):
    """Data that go from a place to another; with `adds` they are reduced into what is there."""

    src: int
    dst: int
    adds: bool
    src_buffer: str
    dst_buffer: str
    src_index: int
    dst_index: int
    channel: int | None

    def write(self, count: int, channel_of: ChannelOf | None) -> None:
        """Writes it, for `count` chunks."""
        there = chunk(self.src, self.src_buffer, self.src_index, count)
        channel = self.channel
        if channel_of is not None and self.src != self.dst:
            channel = channel_of(self.src, self.dst, self.dst_index, self.adds)
        if self.adds:
            chunk(self.dst, self.dst_buffer, self.dst_index, count).reduce(there, ch=channel)
        else:
            there.copy(self.dst, self.dst_buffer, self.dst_index, ch=channel)

    def follows(self, first: _Move, count: int) -> bool:
        """Returns whether it adjoins `count` moves from `first` on, on both sides."""
        return (
            self.src_index == first.src_index + count
            and self.dst_index == first.dst_index + count
            and self[:_PLACE] == first[:_PLACE]
        )


_PLACE = 5  # the fields of a move before the places in its buffers


class _Writer:
    """Writes the program. What a slot holds is a set of ranks, those whose data were reduced into it, as bits."""

    def __init__(self, schedule: StepList, *, in_place: bool, step_channels: bool) -> None:
        self.schedule = schedule
        self.step_channels = step_channels
        self.channel: int | None = None
        self.in_place = in_place
        self.inputs = _index(schedule.inputs())
        self.outputs = _index(schedule.outputs())
        self.with_output = {rank for rank, _ in self.outputs}
        self.scratch: dict[tuple[int, tuple[str, int], int], int] = {}
        self.used = [0] * schedule.ranks
        self.held: dict[Slot, int] = {(rank, address): 1 << rank for rank, address in self.inputs}
        self.home: set[Slot] = {slot for slot in self.inputs if self._works_on_input(slot)}

    def write(self) -> None:
        for step, sends in enumerate(self.schedule.steps):
            self.channel = step if self.step_channels else None
            self._step(step, sends)
        self.channel = None
        left = [slot for slot in self.outputs if slot not in self.home and self.held.get(slot)]
        self._write(self._move(slot, slot) for slot in left)

    def _step(self, step: int, sends: tuple[tuple[int, int, int], ...]) -> None:
        sources = {(src, address) for address, src, _ in sends}
        before = {slot: self.held.get(slot, 0) for slot in sources}
        settling: list[_Move] = []  # what must be at home before something is reduced into it
        moving: list[_Move] = []
        waiting: list[tuple[Slot, int, bool]] = []
        for address, src, dst in sorted(sends):  # in order of senders, as they are written
            given, slot = before[src, address], (dst, address)
            mine = self.held.get(slot, 0)
            if given == 0:
                self.schedule.fail(f"steps[{step}]: rank {src} sends address {address}, which it does not have yet")
            if given | mine == mine:
                continue  # nothing new to the receiver
            adds = mine != 0 and given & mine == 0
            if mine & ~given and not adds:
                twice = (given & mine).bit_length() - 1
                self.schedule.fail(
                    f"steps[{step}]: address {address} from rank {src} to rank {dst} would count the data of rank "
                    f"{twice} twice"
                )
            self.held[slot] = mine | given
            if slot in sources:  # it still goes out as it was before the step
                aside = self._scratch(dst, ("aside", src), address)
                moving.append(self._to((src, address), dst, "scratch", aside, adds=False))
                waiting.append((slot, aside, adds))
                continue
            if adds:
                settling += self._settled(slot)
            moving.append(self._move((src, address), slot, adds=adds))
        self._write(settling)
        self._write(moving)
        for slot, _, adds in waiting:
            self._write(self._settled(slot) if adds else ())
        self._write(_Move(slot[0], slot[0], adds, "scratch", self._place(slot)[0], aside, self._place(slot)[1], None)
                    for slot, aside, adds in waiting)  # fmt: skip
        self.home.update((dst, address) for address, _, dst in sends)

    def _settled(self, slot: Slot) -> list[_Move]:
        """What takes a slot's own input home, once."""
        if slot in self.home:
            return []
        move = self._move(slot, slot)
        self.home.add(slot)
        return [move]

    def _move(self, source: Slot, slot: Slot, *, adds: bool = False) -> _Move:
        return self._to(source, slot[0], *self._place(slot), adds=adds)

    def _to(self, source: Slot, dst: int, buffer: str, index: int, *, adds: bool) -> _Move:
        src_buffer, src_index = self._place(source) if source in self.home else ("in", self.inputs[source])
        channel = self.channel if source[0] != dst else None
        return _Move(source[0], dst, adds, src_buffer, buffer, src_index, index, channel)

    def _works_on_input(self, slot: Slot) -> bool:
        # The input of a rank without output, as in a reduce, must stay as it is.
        return self.in_place and slot in self.inputs and slot[0] in self.with_output

    def _place(self, slot: Slot) -> tuple[str, int]:
        """Where the slot is kept once something has arrived."""
        if self._works_on_input(slot):
            return "in", self.inputs[slot]
        if slot in self.outputs:
            return "out", self.outputs[slot]
        return "scratch", self._scratch(slot[0], ("home", 0), slot[1])

    def _scratch(self, rank: int, use: tuple[str, int], address: int) -> int:
        key = (rank, use, address)
        if key not in self.scratch:
            self.scratch[key] = self.used[rank]
            self.used[rank] += 1
        return self.scratch[key]

    def _write(self, moves: Iterable[_Move]) -> None:
        """Writes moves that do not depend on each other, those that adjoin as one."""
        first, count = None, 0
        for move in sorted(moves):
            if first is not None and move.follows(first, count):
                count += 1
                continue
            if first is not None:
                first.write(count, self.schedule.channel_of)
            first, count = move, 1
        if first is not None:
            first.write(count, self.schedule.channel_of)


def _index(addresses: list[list[int]]) -> dict[Slot, int]:
    return {(rank, address): i for rank, held in enumerate(addresses) for i, address in enumerate(held)}
