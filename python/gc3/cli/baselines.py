"""What --baseline names: NCCL with its own choice of algorithm, or a log of nccl-tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3 import errors
from gc3.sim.nccl import Nccl
from gc3.sim.read import nccl_tests

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.sim import Disturbance, Platform
    from gc3.sim.sweep import Cell

option = click.option(
    "--baseline",
    "baselines",
    metavar="WHAT",
    multiple=True,
    help="What to compare with: nccl (its own choice, simulated with its own rates), nccl:VERSION, or FILE, a log of "
    "nccl-tests. Speed-ups are over the first.",
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A column of the table.

    Attributes:
        label: Its name in tables.
        about: The source of its times, as text.
        data: The same as plain data.
        cell: Returns the cell of a size.
        error: Expected |log(predicted / measured)|; 0: it was measured.
    """

    label: str
    about: str
    data: dict[str, Any]
    cell: Callable[[int], Cell | None]
    error: float = 0.0


def make(
    spec: str,
    on: Platform,
    programs: Sequence[_core.Program],
    asked: Sequence[int],
    disturbance: Disturbance,
    changed: str,
) -> Baseline:
    """Returns the baseline that a spec names, for the collective of the programs at sizes, on a changed machine.

    Raises:
        gc3.UserError: The log is invalid, or NCCL's choice is not known.
    """
    model = programs[0].collective
    others = sorted({p.collective.name for p in programs} - {model.name})
    if others:
        raise click.UsageError(f"programs of {model.name} and of {', '.join(others)} have no common --baseline")
    name, _, version = spec.partition(":")
    if name.lower() == "nccl" and not Path(spec).exists():
        nccl = Nccl(on, model.name, version or None)
        evidence, *_ = nccl.rates.compared(model.name, len(nccl.graph.nodes))
        worth = nccl.trust(asked, changed)
        data: dict[str, Any] = {"kind": "nccl", "version": nccl.version, "notes": list(nccl.notes)}
        data |= {"calibrated": worth.calibrated, "expected_error": worth.error}
        return Baseline(
            nccl.label,
            "; ".join((f"its own choice, simulated {worth.text}", *nccl.notes)),
            data | asdict(evidence),
            partial(nccl, disturbance=disturbance),
            worth.error or 0.0,
        )
    if not Path(spec).exists():
        meant = ": did you mean nccl?" if difflib.get_close_matches(name.lower(), ["nccl"]) else ""
        told = f"--baseline '{spec}' is neither nccl, nccl:VERSION, nor a file with a log{meant}"
        raise errors.error("BadArgument", told)
    log = nccl_tests.read(spec)
    log.check(model)
    in_place = all(p.collective.in_place for p in programs)
    mode = "in place" if in_place else "out of place"
    sizes = [row.size for row in log.rows]
    wrong = sum(t.wrong or 0 for row in log.rows for t in (row.out_of_place, row.in_place) if t is not None)
    about = f"measured, {len(sizes)} sizes, times {mode}" + (f", NCCL {log.nccl}" if log.nccl else "")
    if wrong:
        about += f"; the log reports {wrong} wrong elements"
    data = {"kind": "log", "file": spec, "sizes": sizes, "in_place": in_place, "nccl": log.nccl, "wrong": wrong}
    return Baseline(log.label, about, data, lambda size: log.cell(size, model, in_place=in_place))
