"""Turns a synthesizer's schedule (`_sccl_json`) into an algorithm of the language.

Every rank keeps an address in one place: where it lies in its output, or else in scratch. An input moves there when
something is first reduced into it. Where every address keeps its place when input and output share memory, as in all
but alltoall, the program is written in place and works on the input itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gc3 import collectives
from gc3.algorithms._sccl_json import Schedule, read
from gc3.lang import Algorithm, ChunkRef, chunk

Slot: TypeAlias = "tuple[int, int]"  # rank, address


def load(path: str) -> Algorithm:
    """Returns the algorithm in the JSON file at `path`.

    Raises:
        gc3.UserError: The file cannot be read or does not say what it must.
    """
    schedule = read(path)
    purpose = _Purpose(schedule)
    found = purpose.builtin()
    name, chunks, root = found if found is not None else ("", 1, 0)
    in_place = found is not None and purpose.fits_in_place(name, chunks, root)
    return Algorithm(
        name=schedule.name,
        function=lambda: _Writer(schedule, in_place=in_place).write(),
        collective=name or purpose.custom(),
        parameters=(),
        in_place=in_place,
        ranks=schedule.ranks,
        chunks=chunks,
        root=root,
        gpus_per_node=0,
        scratch=(),
        section="",
        summary=f"A synthesized schedule of {len(schedule.steps)} steps.",
        good_for="",
        cost=None,
        file=path,
        line=1,
    )


class _Purpose:
    """What a schedule computes, by its data: names are only believed where several collectives fit."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.inputs = schedule.inputs()
        self.outputs = schedule.outputs()
        self.expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
        place = [{address: i for i, address in enumerate(addresses)} for addresses in self.inputs]
        index = [{address: i for i, address in enumerate(addresses)} for addresses in self.outputs]
        for c in schedule.chunks:
            for rank in c.wanted:
                term = (c.owner, place[c.owner][c.address])
                self.expected.setdefault((rank, index[rank][c.address]), []).append(term)

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
        if any(sizes[r] != (model.input_chunks(r), model.output_chunks(r)) for r in range(len(sizes))):
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


class _Writer:
    """Writes the program. What a slot holds is a set of ranks, those whose data were reduced into it, as bits."""

    def __init__(self, schedule: Schedule, *, in_place: bool) -> None:
        self.schedule = schedule
        self.in_place = in_place
        self.inputs = _index(schedule.inputs())
        self.outputs = _index(schedule.outputs())
        self.with_output = {rank for rank, _ in self.outputs}
        self.scratch: dict[tuple[int, str, int], int] = {}
        self.used = [0] * schedule.ranks
        self.held: dict[Slot, int] = {(rank, address): 1 << rank for rank, address in self.inputs}
        self.refs: dict[Slot, ChunkRef] = {}

    def write(self) -> None:
        for step, sends in enumerate(self.schedule.steps):
            self._step(step, sends)
        for rank, address in self.outputs:
            if not self._at_home((rank, address)) and self.held.get((rank, address)):
                self._ref((rank, address)).copy(rank, *self._home((rank, address)))

    def _step(self, step: int, sends: tuple[tuple[int, int, int], ...]) -> None:
        sources = {(src, address) for address, src, _ in sends}
        before = {slot: self.held.get(slot, 0) for slot in sources}
        waiting: list[tuple[Slot, ChunkRef, bool]] = []
        for address, src, dst in sends:
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
                aside = self._ref((src, address)).copy(dst, "scratch", self._scratch(dst, "aside", address))
                waiting.append((slot, aside, adds))
            else:
                self._arrive(slot, self._ref((src, address)), adds=adds)
        for slot, ref, adds in waiting:
            self._arrive(slot, ref, adds=adds)

    def _arrive(self, slot: Slot, ref: ChunkRef, *, adds: bool) -> None:
        if not adds:
            self.refs[slot] = ref.copy(slot[0], *self._home(slot))
            return
        mine = self._ref(slot)
        if not self._at_home(slot):
            mine = mine.copy(slot[0], *self._home(slot))
        self.refs[slot] = mine.reduce(ref)

    def _ref(self, slot: Slot) -> ChunkRef:
        """What the slot holds; before anything arrived, its rank's input."""
        return self.refs.get(slot) or chunk(slot[0], "in", self.inputs[slot])

    def _at_home(self, slot: Slot) -> bool:
        return slot in self.refs or self._works_on_input(slot)

    def _works_on_input(self, slot: Slot) -> bool:
        # The input of a rank without output, as in a reduce, must stay as it is.
        return self.in_place and slot in self.inputs and slot[0] in self.with_output

    def _home(self, slot: Slot) -> tuple[str, int]:
        if self._works_on_input(slot):
            return "in", self.inputs[slot]
        if slot in self.outputs:
            return "out", self.outputs[slot]
        return "scratch", self._scratch(slot[0], "home", slot[1])

    def _scratch(self, rank: int, use: str, address: int) -> int:
        key = (rank, use, address)
        if key not in self.scratch:
            self.scratch[key] = self.used[rank]
            self.used[rank] += 1
        return self.scratch[key]


def _index(addresses: list[list[int]]) -> dict[Slot, int]:
    return {(rank, address): i for rank, held in enumerate(addresses) for i, address in enumerate(held)}
