"""Turns a list of steps into an algorithm. Synthesizers write such lists: which address each rank sends in each step.

An address is a piece of data that has the same number on all ranks. Chunks that share an address are reduced when they
meet. A step is a set of sends (address, from, to), which read the data from before the step.

Every rank keeps an address in one place: its place in the output if it has one, else in scratch. An input moves there
when it is first reduced with other data. If every address keeps its place when input and output share memory, as in all
collectives but alltoall, the program is written in place and works on the input itself. Sends of a step between the
same two ranks whose places are adjacent on both sides become one message of several chunks. Where switches carry them,
the sends of a chunk from a rank to the same place of several become a multicast, and those that a rank adds up a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, TypeAlias

from gc3 import collectives, errors
from gc3._core import chunk, next_step, parallelize
from gc3.lang.algorithm import Algorithm

Send: TypeAlias = "tuple[int, int, int]"  # address, from, to
ChannelOf: TypeAlias = "Callable[[int, int, int, bool], int]"
PartsOf: TypeAlias = "Callable[[int, int], int]"
SwitchedOf: TypeAlias = "Callable[[int, int, bool], bool]"


class Chunk(NamedTuple):
    """A piece of data: the rank that has it before, the ranks that must have it after, and its address."""

    owner: int
    wanted: frozenset[int]
    address: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A custom collective, and the addresses in its buffers."""

    collective: collectives.Collective
    inputs: tuple[tuple[int, ...], ...]  # for each rank the address of each input chunk
    outputs: tuple[tuple[int | None, ...], ...]  # for each rank that of each output chunk; None if any value will do


@dataclass(frozen=True, slots=True)
class StepList:
    """A collective as data, and the sends of addresses in each step.

    Attributes:
        file: The file it was read from, or an empty string.
        name: The algorithm's name.
        purpose: Its name for the collective.
        ranks: Number of ranks.
        chunks: The collective's chunks, cut into the number of parts that the instance gives.
        steps: The sends of each step.
        channel_of: The channel of a transfer, by sender, receiver, its place there, and whether it is reduced into
            the data there; None: the compiler chooses.
        parts_of: In how many parallel parts a transfer runs, by sender and receiver; None: each in one.
        ordered: Whether the steps also order what a threadblock does; else the depth of dependencies does.
        switched: Whether a switch carries a transfer, by sender, receiver, and whether it is reduced, together with
            those of the same chunk from the same sender, or that are reduced there; None: no switch does.
        layout: The custom collective that it implements; None: its chunks say what it implements, and are in the order
            of their addresses in all buffers.
    """

    file: str
    name: str
    purpose: str
    ranks: int
    chunks: tuple[Chunk, ...]
    steps: tuple[tuple[Send, ...], ...]
    channel_of: ChannelOf | None = None
    parts_of: PartsOf | None = None
    ordered: bool = False
    layout: Layout | None = None
    switched: SwitchedOf | None = None

    def inputs(self) -> list[list[int]]:
        """Returns the addresses in each rank's input, in ascending order."""
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for piece in self.chunks:
            found[piece.owner].add(piece.address)
        return [sorted(addresses) for addresses in found]

    def outputs(self) -> list[list[int]]:
        """Returns the addresses in each rank's output, in ascending order."""
        together: dict[frozenset[int], set[int]] = {}
        for piece in self.chunks:
            together.setdefault(piece.wanted, set()).add(piece.address)
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for wanted, addresses in together.items():
            for rank in wanted:
                found[rank] |= addresses
        return [sorted(addresses) for addresses in found]

    def fail(self, message: str) -> NoReturn:
        """Raises the error of an invalid list of steps."""
        raise errors.error("BadJson", message, file=self.file, line=1 if self.file else 0)


def stepwise(steps: StepList, known: tuple[str, int, int] | None = None, *, step_channels: bool = False) -> Algorithm:
    """Returns the algorithm that a list of steps describes.

    Running it raises `gc3.UserError` if the list is invalid.

    Args:
        steps: The list.
        known: Name, chunks and root of the built-in collective that it implements, if known; finding it takes long
            if many ranks reduce. The verifier finds a wrong value.
        step_channels: Whether each step sends on its own channel.
    """
    purpose = _Purpose(steps)
    found = purpose.builtin() if known is None else known
    name, chunks, root = found if found is not None else ("", 1, 0)
    in_place = found is not None and purpose.fits_in_place(name, chunks, root)
    return Algorithm(
        name=steps.name,
        function=lambda: _Writer(purpose, in_place=in_place, step_channels=step_channels).write(),
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
        in_switch=False,
        file=steps.file,
        line=1 if steps.file else 0,
    )


class _Purpose:
    """Determines the collective of a schedule from its data; uses its name only if several collectives match."""

    def __init__(self, schedule: StepList) -> None:
        self.schedule = schedule
        layout = schedule.layout
        self.inputs = schedule.inputs() if layout is None else layout.inputs
        self.outputs = schedule.outputs() if layout is None else layout.outputs

    @cached_property
    def expected(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Returns the inputs that must be reduced into each place of an output."""
        if self.schedule.layout is not None:
            model = self.schedule.layout.collective.model()
            if model.tensors:
                raise errors.error("NotWithCompute", f"'{model.name}' has named tensors; lists of steps move chunks")
            slots = ((rank, i) for rank in range(model.ranks) for i in range(model.output_chunks(rank)))
            return {slot: model.expected_terms(*slot) for slot in slots}
        expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
        place = [{address: i for i, address in enumerate(addresses)} for addresses in self.inputs]
        index = [{address: i for i, address in enumerate(addresses)} for addresses in self.outputs]
        for c in self.schedule.chunks:
            for rank in c.wanted:
                term = (c.owner, place[c.owner][c.address])
                expected.setdefault((rank, index[rank][c.address]), []).append(term)
        return expected

    def builtin(self) -> tuple[str, int, int] | None:
        """Returns name, chunks and root of the built-in collective that the data describe, if any."""
        ranks = range(self.schedule.ranks)
        sizes = [(len(self.inputs[r]), len(self.outputs[r])) for r in ranks]
        least = min((n for pair in sizes for n in pair if n), default=0)
        if least == 0:
            return None  # no rank has any data
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
                there = 0  # an output without a required value, such as rank 0's of alltonext, is not listed
            if (inputs, outputs) != (model.input_chunks(rank), there):
                return False
        return all(
            sorted(model.expected_terms(rank, i)) == sorted(self.expected[rank, i])
            for rank, (_, outputs) in enumerate(sizes)
            for i in range(outputs)
        )

    def fits_in_place(self, name: str, chunks: int, root: int) -> bool:
        """Returns whether, in place, every address of a rank has exactly one place."""
        model = collectives.get(name).model(self.schedule.ranks, chunks=chunks, root=root, in_place=True)
        for rank, buffers in enumerate(zip(self.inputs, self.outputs, strict=True)):
            names = [(a, model.canonical(rank, b, i)) for b in (0, 1) for i, a in enumerate(buffers[b])]
            addresses, places = {a for a, _ in names}, {place for _, place in names}
            if not len(set(names)) == len(addresses) == len(places):
                return False
        return True

    def custom(self) -> Callable[[], collectives.Collective]:
        """Returns the arguments that describe it as a custom collective."""

        def make() -> collectives.Collective:
            if self.schedule.layout is not None:
                return self.schedule.layout.collective
            return collectives.custom(
                self.schedule.purpose or "custom",
                inputs=[len(addresses) for addresses in self.inputs],
                outputs=[len(addresses) for addresses in self.outputs],
                expect=self.expected,
            )

        return make


class _Move(NamedTuple):
    """Data that move from one place to another; with `adds` they are reduced into the data there.

    Attributes:
        also: What a switch carries with it: the other receivers, each a rank; with `adds` the other senders, each a
            rank, a buffer, and its index there as a distance from `src_index`.
    """

    src: int
    dst: int
    adds: bool
    src_buffer: str
    dst_buffer: str
    also: tuple[Any, ...]
    src_index: int
    dst_index: int
    channel: int | None

    def write(self, count: int, channel_of: ChannelOf | None, parts_of: PartsOf | None) -> None:
        """Writes it, for `count` chunks."""
        parts = 1 if parts_of is None else parts_of(self.src, self.dst)
        with nullcontext() if parts == 1 else parallelize(parts):
            self._write(count, channel_of)

    def _write(self, count: int, channel_of: ChannelOf | None) -> None:
        there = chunk(self.src, self.src_buffer, self.src_index, count)
        channel = self.channel
        if channel_of is not None and self.src != self.dst:
            channel = channel_of(self.src, self.dst, self.dst_index, self.adds)
        if self.adds and self.also:
            more = [chunk(rank, buffer, self.src_index + offset, count) for rank, buffer, offset in self.also]
            chunk(self.dst, self.dst_buffer, self.dst_index, count).multireduce([there, *more], ch=channel)
        elif self.also:
            there.multicast([self.dst, *self.also], self.dst_buffer, self.dst_index, ch=channel)
        elif self.adds:
            chunk(self.dst, self.dst_buffer, self.dst_index, count).reduce(there, ch=channel)
        else:
            there.copy(self.dst, self.dst_buffer, self.dst_index, ch=channel)

    def follows(self, first: _Move, count: int) -> bool:
        """Returns whether it is adjacent, on both sides, to the `count` moves from `first` on."""
        return (
            self.src_index == first.src_index + count
            and self.dst_index == first.dst_index + count
            and self[:_PLACE] == first[:_PLACE]
        )


def _joined(moves: Iterable[_Move], switched: SwitchedOf) -> Iterable[_Move]:
    """Returns moves with those that a switch carries as one joined."""
    found: dict[object, list[_Move]] = {}
    for move in moves:
        key: object = move
        if move.adds and switched(move.src, move.dst, True):
            key = move.dst, move.dst_buffer, move.dst_index
        elif not move.adds and switched(move.src, move.dst, False):
            key = move.src, move.src_buffer, move.src_index, move.dst_buffer, move.dst_index, False
        found.setdefault(key, []).append(move)
    for first, *others in found.values():
        if first.adds:
            also = tuple((m.src, m.src_buffer, m.src_index - first.src_index) for m in others)
        else:
            also = tuple(m.dst for m in others)
        yield first._replace(also=also)


_PLACE = 6  # the fields of a move before the places in its buffers


@dataclass(slots=True)
class _Slot:
    """The data that a rank has of an address."""

    held: int = 0  # the ranks whose data were reduced into it, as a bit set
    input: int = -1  # its place in the rank's input, if it is there
    # Buffer and place where it is kept once data has arrived; None until that is decided
    home: tuple[str, int] | None = None
    is_home: bool = False  # it is kept there now, not in the input
    step: int = -1  # the last step in which it is sent
    given: int = 0  # the value of `held` before that step


class _Writer:
    """Writes the program."""

    def __init__(self, purpose: _Purpose, *, in_place: bool, step_channels: bool) -> None:
        self.schedule = purpose.schedule
        self.step_channels = step_channels
        self.channel: int | None = None
        self.used = [0] * self.schedule.ranks  # scratch
        self.aside: dict[tuple[int, int, int], int] = {}
        self.slots: dict[tuple[int, int], _Slot] = {}
        self.results: list[tuple[int, _Slot]] = []
        self.again: list[tuple[int, _Slot, int]] = []  # outputs that hold what another one of the rank holds
        for rank, addresses in enumerate(purpose.inputs):
            # The input of a rank without output, as in a reduce, must not be changed.
            works_on_input = in_place and bool(purpose.outputs[rank])
            for i, address in enumerate(addresses):
                home = ("in", i) if works_on_input else None
                self.slots[rank, address] = _Slot(1 << rank, i, home, works_on_input)
        for rank, addresses in enumerate(purpose.outputs):
            for i, address in enumerate(addresses):
                if address is None:
                    continue
                slot = self._slot(rank, address)
                if slot.home is not None and slot.home[0] == "out":
                    self.again.append((rank, slot, i))
                    continue
                slot.home = slot.home or ("out", i)
                self.results.append((rank, slot))

    def write(self) -> None:
        for step, sends in enumerate(self.schedule.steps):
            if self.schedule.ordered:
                next_step()
            self.channel = step if self.step_channels else None
            self._step(step, sends)
        self.channel = None
        self._write(move for rank, slot in self.results if slot.held for move in self._settled(rank, slot))
        self._write(self._move(rank, slot, rank, ("out", i), adds=False) for rank, slot, i in self.again if slot.held)

    def _step(self, step: int, sends: tuple[tuple[int, int, int], ...]) -> None:
        for address, src, _ in sends:
            slot = self._slot(src, address)
            slot.step, slot.given = step, slot.held
        settling: list[_Move] = []  # inputs that must be copied home before data is reduced into them
        moving: list[_Move] = []
        waiting: list[tuple[int, _Slot, int, bool]] = []
        arrived: list[_Slot] = []
        for address, src, dst in sorted(sends):  # ordered by senders, as they are written
            source, slot = self.slots[src, address], self._slot(dst, address)
            given, mine = source.given, slot.held
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
            slot.held = mine | given
            arrived.append(slot)
            if slot.step == step:  # it is still sent with its value from before the step
                aside = self._aside(dst, src, address)
                moving.append(self._move(src, source, dst, ("scratch", aside), adds=False))
                waiting.append((dst, slot, aside, adds))
                continue
            if adds:
                settling += self._settled(dst, slot)
            moving.append(self._move(src, source, dst, self._home(dst, slot), adds=adds))
            slot.is_home = True  # what else arrives in this step is from later senders, and so is written after it
        self._write(settling)
        self._write(moving if self.schedule.switched is None else _joined(moving, self.schedule.switched))
        for rank, slot, _, adds in waiting:
            self._write(self._settled(rank, slot) if adds else ())
        late: list[_Move] = []
        for rank, slot, aside, adds in waiting:
            buffer, index = self._home(rank, slot)
            late.append(_Move(rank, rank, adds, "scratch", buffer, (), aside, index, None))
        self._write(late)
        for slot in arrived:
            slot.is_home = True

    def _slot(self, rank: int, address: int) -> _Slot:
        slot = self.slots.get((rank, address))
        if slot is None:
            slot = self.slots[rank, address] = _Slot()
        return slot

    def _home(self, rank: int, slot: _Slot) -> tuple[str, int]:
        if slot.home is None:
            slot.home = "scratch", self._scratch(rank)
        return slot.home

    def _settled(self, rank: int, slot: _Slot) -> list[_Move]:
        """Returns the move of a slot's own input to its home, once."""
        if slot.is_home:
            return []
        move = self._move(rank, slot, rank, self._home(rank, slot), adds=False)
        slot.is_home = True
        return [move]

    def _move(self, src: int, source: _Slot, dst: int, to: tuple[str, int], *, adds: bool) -> _Move:
        src_buffer, src_index = self._home(src, source) if source.is_home else ("in", source.input)
        channel = self.channel if src != dst else None
        return _Move(src, dst, adds, src_buffer, to[0], (), src_index, to[1], channel)

    def _aside(self, rank: int, src: int, address: int) -> int:
        """Chooses where a rank keeps the data from `src` while its own data still has to be sent."""
        key = (rank, src, address)
        if key not in self.aside:
            self.aside[key] = self._scratch(rank)
        return self.aside[key]

    def _scratch(self, rank: int) -> int:
        self.used[rank] += 1
        return self.used[rank] - 1

    def _write(self, moves: Iterable[_Move]) -> None:
        """Writes moves that do not depend on each other; adjacent ones become one."""
        first, count = None, 0
        for move in sorted(moves):
            if first is not None and move.follows(first, count):
                count += 1
                continue
            if first is not None:
                first.write(count, self.schedule.channel_of, self.schedule.parts_of)
            first, count = move, 1
        if first is not None:
            first.write(count, self.schedule.channel_of, self.schedule.parts_of)
