"""The program that a table has for a call whose ranks are threads of this process: `gc3.select`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gc3 import _core, collectives, errors
from gc3.comm import kept
from gc3.comm.selection import Table
from gc3.runtime.options import EngineOptions
from gc3.runtime.program import Program
from gc3.support.public import public

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from gc3.datatypes import Array

_MOST = 2**63 - 1
_MOST_RANKS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Selected:
    """The program for a call, proven, and how to run it.

    Attributes:
        program: The program.
        options: The FIFOs to run it with.
        explanation: Which row of which table was chosen, and why no earlier one; as text with `str`.
        thresholds: Those that the row sets for the engine of processes.
    """

    program: Program
    options: EngineOptions
    explanation: _core.Explanation
    thresholds: tuple[tuple[str, int | None], ...] = ()

    def __repr__(self) -> str:
        """Describes it in one line."""
        return f"<gc3.Selected {str(self.explanation).splitlines()[0]}>"

    def run(self, inputs: Sequence[npt.ArrayLike | None], **given: Any) -> list[Array | None]:
        """Runs the program with ranks as threads, and returns each rank's output: see `gc3.Program.run`."""
        fifos: dict[str, Any] = {"slots": self.options.slots, "slot_bytes": self.options.slot_bytes}
        return self.program.run(inputs, **{**fifos, **given})


def select(
    collective: str | collectives.Collective,
    *,
    ranks: int,
    size: int,
    in_place: bool = False,
    root: int = 0,
    table: str | os.PathLike[str] | None = None,
) -> Selected:
    """Returns the program for calls on the engine of threads, chosen as `gc3.init` chooses for processes.

    The result can run any number of calls. A table is read at each call of this function.

    >>> total = select("allreduce", ranks=2, size=8).run([[1.0], [2.0]])
    >>> [float(x[0]) for x in total]
    [3.0, 3.0]

    Args:
        collective: The name of a built-in collective, or a custom one, for which the table must have a row.
        ranks: The number of ranks.
        size: S in bytes: the largest buffer of a rank.
        in_place: Whether input and output of a rank share memory.
        root: The root, if the collective has one.
        table: A selection table whose rows come before the default ones; None: the table that
            `gc3 tune --engine threads` has kept for this machine.

    Raises:
        gc3.UserError: There is no such collective or rank, or the table is invalid.
    """
    return selected("threads", collective, ranks=ranks, size=size, in_place=in_place, root=root, table=table)


def selected(
    engine: str,
    collective: str | collectives.Collective,
    *,
    ranks: int,
    size: int,
    in_place: bool,
    root: int,
    table: str | os.PathLike[str] | None = None,
) -> Selected:
    """Returns the program for calls on an engine, "threads" or "processes": see `select`."""
    own = collectives.condition(collective) if isinstance(collective, collectives.Collective) else ""
    name = collective.name if isinstance(collective, collectives.Collective) else collectives.get(collective).name
    ranks = errors.whole(ranks, "ranks", 1, _MOST_RANKS)
    size = errors.whole(size, "size", 0, _MOST)
    root = errors.whole(root, "root", 0, ranks - 1, name="RankOutOfRange")
    rows = kept.in_force(engine) if table is None else Table.read(table)
    choice = rows.choose(name, ranks=ranks, size=size, in_place=bool(in_place), root=root, condition=own)
    spec = choice.row.spec
    program = spec.compile(ranks, root=root, in_place=bool(in_place))
    if (program.collective.name, program.collective.condition) != (name, own):
        raise errors.error("BadTable", f"{choice.row.source}: {spec} is not for this '{name}': its condition differs")
    return Selected(program, EngineOptions(spec.slots, spec.slot_bytes), choice.explanation, spec.thresholds)


public(Selected)
