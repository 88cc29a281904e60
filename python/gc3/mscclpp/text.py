"""Writes the text form of what a plan has beside its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gc3 import _core


def title(plan: dict[str, Any], collective: _core.Collective | None, parts: int) -> Iterator[str]:
    """Yields the first lines; without a collective, any result is right.

    Args:
        plan: The plan.
        collective: What it computes.
        parts: Into how many parts its chunks are cut.
    """
    chunks = parts * (1 if collective is None else collective.chunks)
    counts = f"ranks {len(plan['gpus'])} chunks {chunks}" + (f" split {parts}" if parts != 1 else "")
    name = f"custom {_quoted(plan['collective'])}" if collective is None else collective.name
    yield f"direct {_quoted(plan['name'])} version 1"
    yield f"collective {name} {counts}" + (" in place" if plan["inplace"] else "")
    if collective is None:
        for rank, gpu in enumerate(plan["gpus"]):
            # In place means equal addresses.
            offset = 0 if gpu["output_chunks"] <= gpu["input_chunks"] else -1
            alias = f" alias {offset}" if plan["inplace"] else ""
            yield f"  rank {rank} in {gpu['input_chunks']} out {gpu['output_chunks']}{alias}"
    halves = 2 if plan.get("use_double_scratch_buffer") else 1
    yield f"halves {halves}" + (" shared scratch" if plan.get("reuse_resources") else "")


def objects(
    channels: Mapping[tuple[int, int, bool, int], int],
    semaphores: Sequence[tuple[int, int]],
    barriers: Mapping[tuple[int, int], tuple[int, int]],
    groups: Mapping[tuple[int, ...], int],
) -> Iterator[str]:
    """Yields the lines of what the steps name by number."""
    for (sender, receiver, port, _), number in channels.items():
        yield f"channel {number} from {sender} to {receiver}" + (" port" if port else "")
    for number, (rank, initial) in enumerate(semaphores):
        yield f"semaphore {number} rank {rank} initial {initial}"
    for (rank, _), (number, threadblocks) in barriers.items():
        yield f"barrier {number} rank {rank} threadblocks {threadblocks}"
    for members, number in groups.items():
        yield f"group {number} ranks {' '.join(map(str, members))}"


def _quoted(name: str) -> str:
    escaped = (f"\\{c}" if c in '"\\' else c if c.isprintable() else _bytes(c) for c in name)
    return f'"{"".join(escaped)}"'


def _bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "backslashreplace"))
