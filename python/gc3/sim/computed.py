"""What the compute operations of a program cost on a machine, and the lengths of the chunks of its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gc3 import _core, computing, errors

if TYPE_CHECKING:
    from gc3.sim.parameters import Parameters


def seconds(
    program: _core.Program, costs: Mapping[str, computing.Cost | None], lengths: Sequence[int], on: Parameters
) -> list[float]:
    """Returns the seconds of each application, if the chunks of each length have so many elements.

    Raises:
        gc3.UserError: An operation has no cost, or the machine has no rate of FLOP.
    """
    known: dict[tuple[str, tuple[int, ...]], float] = {}
    found: list[float] = []
    for name, _, numbers in program.applications():
        elements = tuple(lengths[number] for number in numbers)
        if (name, elements) not in known:
            known[name, elements] = _seconds(name, costs.get(name), elements, on)
        found.append(known[name, elements])
    return found


def _seconds(name: str, cost: computing.Cost | None, elements: tuple[int, ...], on: Parameters) -> float:
    if cost is None:
        raise errors.error(
            "BadSimulation",
            f"the operation '{errors.shown(name)}' has no cost: give gc3.op(..., cost=), or costs= of a bound program "
            "that has run",
        )
    work = computing.work(name, cost, *elements)
    if not isinstance(work, tuple):
        return work
    flop, moved = work
    for amount, rate, what in ((flop, on.flop_rate, "flop.rate"), (moved, on.memory_rate, "memory.rate")):
        if amount and not rate:
            raise errors.error(
                "BadSimulation",
                f"the cost of '{errors.shown(name)}' needs {what}, which preset '{on.name}' has not: set it with "
                f"--what-if {what}=..., or give seconds",
            )
    return max(flop / on.flop_rate if flop else 0.0, moved / on.memory_rate if moved else 0.0)


def lengths(program: _core.Program, shapes: Mapping[str, Sequence[int]]) -> list[int]:
    """Returns the elements of the chunks of each length, from shapes by the names of tensors and scratch buffers.

    Raises:
        gc3.UserError: Some are missing, unknown or not equal.
    """
    names = {name: number for number, name in enumerate(program.lengths)}
    names |= {name: number for name, _, _, number in program.collective.tensors}
    found: dict[int, tuple[int, str]] = {}
    for name, shape in shapes.items():
        if name not in names:
            raise errors.error(
                "BadSimulation", f"shapes: there is no '{errors.shown(str(name))}', but {', '.join(names)}"
            )
        count = math.prod(errors.whole(size, f"shapes[{name!r}]", name="BadSimulation") for size in shape)
        known, first = found.setdefault(names[name], (count, name))
        if known != count:
            raise errors.error(
                "BadSimulation",
                f"a chunk of '{name}' has {count} elements, and one of '{first}' {known}: the program moves chunks "
                "from one to the other",
            )
    used = {number for _, _, _, number in program.collective.tensors}
    used |= {number for _, _, numbers in program.applications() for number in numbers}
    for number in sorted(used - found.keys()):
        raise errors.error("BadSimulation", f"shapes: the shape of a chunk of '{program.lengths[number]}' is missing")
    return [found.get(number, (0, ""))[0] for number in range(len(program.lengths))]


def size_of(model: _core.Collective, lengths_: Sequence[int]) -> int:
    """Returns the elements of the largest input or output of a rank."""
    totals = [
        sum(chunks[rank] * lengths_[number] for _, is_output, chunks, number in model.tensors if is_output == output)
        for output in (False, True)
        for rank in range(model.ranks)
    ]
    return max(totals, default=0)
