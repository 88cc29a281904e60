"""Reads the JSON form of algorithms of SCCL-style synthesizers: a list of steps, each a list of sends of addresses.

An address is a piece of data that has the same number on all ranks. The collective lists chunks, each with the ranks
that have it before (pre), those that must have it after (post), and its address. Chunks that share an address are
reduced when they meet. `instance.chunks` is the number of parts that every address is cut into. A step is a set of
sends (address, from, to), which read the data from before the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from gc3 import errors
from gc3.lang.stepwise import Chunk, Send, StepList
from gc3.support import files
from gc3.support.forms import looks_like

# A short file can describe much data; these limits bound the memory and time.
_MAX_BYTES = 32 << 20
_MAX_RANKS = 1 << 14
_MAX_CHUNKS = 1 << 20
_MAX_HOLDERS = 1 << 23  # pre and post of all chunks together


def read(path: str) -> StepList:
    """Returns the schedule in the file at `path`.

    Raises:
        gc3.UserError: The file cannot be read, or lacks required data.
    """
    return _Reader(path).schedule(files.read_json(path, "BadJson", _MAX_BYTES))


class _Reader:
    """Takes values out of parsed JSON; `where` names the value in messages, for example steps[2].sends[0]."""

    def __init__(self, file: str) -> None:
        self.file = file

    def schedule(self, parsed: Any) -> StepList:
        top = self.as_object(parsed, "the file")
        kind = top.get("msccl_type", top.get("sccl_type"))
        if kind != "algorithm":
            given = f"msccl_type is {_shown(kind)}, not 'algorithm'" if kind else "it has no msccl_type"
            self.fail(f"{given}, and algorithms of SCCL and MSCCL are read{'' if kind else looks_like(top)}")
        collective = self.as_object(self.member(top, "collective"), "collective")
        ranks = self.as_number(self.member(collective, "nodes", "collective"), "collective.nodes", 1, _MAX_RANKS)
        links = self.links(top.get("topology"), ranks)
        steps = tuple(
            self.step(step, f"steps[{i}]", ranks, links)
            for i, step in enumerate(self.as_list(self.member(top, "steps"), "steps"))
        )
        instance = self.as_object(self.member(top, "instance"), "instance")
        parts = self.as_number(self.member(instance, "chunks", "instance"), "instance.chunks", 1, _MAX_CHUNKS)
        base = self.chunks(self.member(collective, "chunks", "collective"), ranks)
        name = top.get("name")
        schedule = StepList(
            self.file,
            name if isinstance(name, str) and name else Path(self.file).stem,
            next((n for n in (collective.get("runtime_name"), collective.get("name")) if isinstance(n, str)), ""),
            ranks,
            self.cut(base, parts),
            steps,
        )
        self.check_map(top, "input_map", schedule.inputs())
        self.check_map(top, "output_map", schedule.outputs())
        return self.uncomposed(schedule, base)

    def chunks(self, value: Any, ranks: int) -> list[Chunk]:
        found: list[Chunk] = []
        seen: set[tuple[int, int]] = set()
        holders = 0
        for i, item in enumerate(self.as_list(value, "collective.chunks")):
            where = f"collective.chunks[{i}]"
            about = self.as_object(item, where)
            address = self.as_number(self.member(about, "addr", where), f"{where}.addr", 0, _MAX_CHUNKS - 1)
            pre = self.as_ranks(self.member(about, "pre", where), f"{where}.pre", ranks)
            post = self.as_ranks(self.member(about, "post", where), f"{where}.post", ranks)
            if len(pre) != 1:
                self.fail(f"{where} begins on {len(pre)} ranks; it must begin on one, whose input it is")
            chunk = Chunk(min(pre), post, address)
            if (chunk.owner, address) in seen:
                self.fail(f"{where} is the second chunk of address {address} that begins on rank {chunk.owner}")
            seen.add((chunk.owner, address))
            holders += len(post)
            found.append(chunk)
        if not found:
            self.fail("collective.chunks is empty")
        if holders > _MAX_HOLDERS:
            self.fail(f"collective.chunks names {holders} places, more than {_MAX_HOLDERS}")
        return found

    def cut(self, base: list[Chunk], parts: int) -> tuple[Chunk, ...]:
        places = parts * sum(1 + len(c.wanted) for c in base)
        addresses = parts * (1 + max(c.address for c in base))
        if places > _MAX_HOLDERS or addresses > _MAX_CHUNKS:
            self.fail(f"instance.chunks={parts} makes {addresses} addresses in {places} places, too many")
        return tuple(Chunk(c.owner, c.wanted, c.address * parts + i) for c in base for i in range(parts))

    def uncomposed(self, schedule: StepList, base: list[Chunk]) -> StepList:
        """Corrects a known defect of composed allreduces, and refuses addresses that are in no chunk.

        An allreduce composed of a reducescatter and an allgather keeps their addresses, one for each rank, but is
        written with the number of chunks of its parts. So most of its addresses are missing in its own maps.
        """
        known = {chunk.address for chunk in schedule.chunks}
        unknown = {address for step in schedule.steps for address, _, _ in step} - known
        if not unknown:
            return schedule
        everyone = frozenset(range(schedule.ranks))
        one = {chunk.address for chunk in base} == {0} and len(base) == schedule.ranks
        if one and all(chunk.wanted == everyone for chunk in base):
            parts = schedule.ranks * len(known)
            if max(unknown) < parts:
                return StepList(
                    schedule.file,
                    schedule.name,
                    schedule.purpose,
                    schedule.ranks,
                    self.cut(base, parts),
                    schedule.steps,
                )
        self.fail(f"address {min(unknown)} is sent, but is in no chunk of the collective")

    def step(self, value: Any, where: str, ranks: int, links: list[list[bool]] | None) -> tuple[Send, ...]:
        sends: list[Send] = []
        for i, item in enumerate(
            self.as_list(self.member(self.as_object(value, where), "sends", where), f"{where}.sends")
        ):
            at = f"{where}.sends[{i}]"
            parts = self.as_list(item, at)
            if len(parts) != 3:  # noqa: PLR2004
                timed = "; the times of TACCL's sends are not read" if len(parts) in (4, 5, 6) else ""
                self.fail(f"{at} has {len(parts)} numbers, not address, source and destination{timed}")
            address = self.as_number(parts[0], f"{at}[0]", 0, _MAX_CHUNKS - 1)
            src, dst = (self.as_number(parts[k], f"{at}[{k}]", 0, ranks - 1) for k in (1, 2))
            if src == dst:
                self.fail(f"{at} goes from rank {src} to itself")
            if links is not None and not links[dst][src]:
                self.fail(f"{at}: the topology has no link from rank {src} to rank {dst}")
            sends.append((address, src, dst))
        return tuple(sorted(set(sends)))  # a set: the order in the file has no meaning

    def links(self, topology: Any, ranks: int) -> list[list[bool]] | None:
        """Returns the links that exist, [to][from]; None if the file does not list them."""
        if topology is None:
            return None
        rows = self.as_list(self.member(self.as_object(topology, "topology"), "links", "topology"), "topology.links")
        if len(rows) != ranks:
            self.fail(f"topology.links has {len(rows)} rows for {ranks} ranks")
        found: list[list[bool]] = []
        for i, value in enumerate(rows):
            row = self.as_list(value, f"topology.links[{i}]")
            if len(row) != ranks or not all(type(link) in (int, float) for link in row):
                self.fail(f"topology.links[{i}] is not {ranks} numbers")
            found.append([link > 0 for link in row])
        return found

    def check_map(self, top: Mapping[str, Any], which: str, expected: list[list[int]]) -> None:
        if which not in top:
            return
        given = self.as_object(top[which], which)
        for rank, addresses in enumerate(expected):
            listed = self.as_list(given.get(str(rank), []), f"{which}[{rank}]")
            if not all(type(a) is int for a in listed) or sorted(set(listed)) != addresses:
                few = f"{', '.join(map(str, addresses[:8]))}{', ...' if len(addresses) > 8 else ''}"  # noqa: PLR2004
                self.fail(f"{which}[{rank}] does not match the collective's chunks: expected addresses {few or 'none'}")

    def as_ranks(self, value: Any, where: str, ranks: int) -> frozenset[int]:
        return frozenset(self.as_number(rank, where, 0, ranks - 1) for rank in self.as_list(value, where))

    def member(self, about: Mapping[str, Any], key: str, where: str = "the file") -> Any:
        if key not in about:
            self.fail(f"{where} has no '{key}'")
        return about[key]

    def as_object(self, value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self.fail(f"{where} is {_shown(value)}, not an object")
        return cast("Mapping[str, Any]", value)

    def as_list(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"{where} is {_shown(value)}, not a list")
        return cast("list[Any]", value)

    def as_number(self, value: Any, where: str, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(f"{where} is {_shown(value)}, not a whole number from {low} to {high}")
        return value

    def fail(self, message: str) -> NoReturn:
        raise errors.error("BadJson", message, file=self.file, line=1)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    most = 40
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
