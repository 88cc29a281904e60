"""What --baseline names: NCCL with its own choice of algorithm, or a log of nccl-tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3 import errors
from gc3.cli import output, what_if
from gc3.sim.nccl import Nccl, log
from gc3.sim.read import nccl_tests
from gc3.sim.trust import NCCL, OTHER_LAUNCH, Expected, expected, summary
from gc3.sim.trust import told as described
from gc3.support.sizes import format_size

if TYPE_CHECKING:
    from gc3.sim import Disturbance, Platform
    from gc3.sim.sweep import Cell
    from gc3.sim.trust import Core

option = click.option(
    "--baseline",
    "baselines",
    metavar="WHAT",
    multiple=True,
    help="What to compare with: nccl (its own choice, simulated with its own rates), nccl:VERSION, or FILE, a log of "
    "nccl-tests. Speed-ups are over the first.",
)


log_option = click.option(
    "--nccl-log",
    "nccl_log",
    type=click.Path(),
    metavar="FILE",
    help="For --baseline nccl and --mode nccl: what NCCL logged of its graphs and choices on this machine, with "
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING, in place of what it would find and choose.",
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A column of the table."""

    label: str  # its name in tables
    about: str  # the source of its times, as text
    short: str  # the same in a line
    data: dict[str, Any]  # the same as plain data
    cell: Callable[[int], Cell | None]  # returns the cell of a size, with what its time is worth unless it was measured


def of_nccl(nccl: Nccl, size: int, beyond: Sequence[str] = ()) -> Expected:
    """Returns what NCCL's simulated time at a size is worth, with what differs from any measurement."""
    as_measured = [] if OTHER_LAUNCH in beyond and what_if.nccl_shift_s(nccl.on) else [OTHER_LAUNCH]
    others = [] if nccl.simulates(size) else ["NCCL's own model, not simulated"]
    others += [*(each for each in beyond if each not in as_measured), *(["these GPUs"] if nccl.graph.notes else [])]
    return expected(nccl.on, nccl.collective, NCCL, size, others, nccl.version)


def make(
    spec: str,
    on: Platform,
    programs: Sequence[Core],
    asked: Sequence[int],
    disturbance: Disturbance,
    beyond: Sequence[str] = (),
    log_path: str | None = None,
) -> Baseline:
    """Returns the baseline that a spec names, for the collective of the programs at sizes; `beyond`: see `of_nccl`.

    `log_path` is what NCCL logged of its graphs.

    Raises:
        gc3.UserError: The log is invalid, or NCCL's choice is not known.
    """
    model = _only(programs)
    name, _, version = spec.partition(":")
    if name.lower() == "nccl" and not Path(spec).exists():
        nccl = nccl_of(on, model.name, version or None, log_path)
        shift = what_if.nccl_shift_s(on)
        worth = {size: of_nccl(nccl, size, beyond) for size in asked}

        def cell(size: int) -> Cell:
            return replace(nccl(size, disturbance=disturbance).later(shift), expected=worth[size])

        modelled = [size for size in asked if not nccl.simulates(size)]
        how = "simulated" if len(modelled) < len(asked) else "by its own model"
        if 0 < len(modelled) < len(asked):
            how += f", by its own model at {', '.join(map(format_size, modelled))}"
        about = "; ".join((f"its own choice, {how}", *described(worth.items()), *nccl.notes))
        data = {"kind": "nccl", "version": nccl.version, "notes": list(nccl.notes)}
        return Baseline(nccl.label, about, f"its own choice, {how}; error: {summary(worth.items())}", data, cell)
    if not Path(spec).exists():
        meant = ": did you mean nccl?" if difflib.get_close_matches(name.lower(), ["nccl"]) else ""
        told = f"--baseline '{spec}' is neither nccl, nccl:VERSION, nor a file with a log{meant}"
        raise errors.error("BadArgument", told)
    table = nccl_tests.read(spec)
    table.check(model)
    in_place = all(p.collective.in_place for p in programs)
    mode = "in place" if in_place else "out of place"
    sizes = [row.size for row in table.rows]
    wrong = sum(t.wrong or 0 for row in table.rows for t in (row.out_of_place, row.in_place) if t is not None)
    if others := sum((row.in_place if in_place else row.out_of_place) is None for row in table.rows):
        mode += f", of {others} the other way, which is all that the log has"
    about = f"measured, {len(sizes)} sizes, times {mode}" + (f", NCCL {table.nccl}" if table.nccl else "")
    if wrong:
        about += f"; the log reports {wrong} wrong elements"
    data = {"kind": "log", "file": spec, "sizes": sizes, "in_place": in_place, "nccl": table.nccl, "wrong": wrong}
    return Baseline(table.label, about, about, data, lambda size: table.cell(size, model, in_place=in_place))


def show(
    on: Platform,
    programs: Sequence[Core],
    asked: Sequence[int],
    baselines: Sequence[str],
    log_path: str | None,
    *,
    as_json: bool,
) -> int:
    """Prints what NCCL finds on a machine, and its choices at sizes, in the lines of its log or as JSON."""
    name = _only(programs).name
    version = baselines[0].partition(":")[2] if baselines else ""
    nccl = nccl_of(on, name, version or None, log_path)
    graphs = list(log.lines(nccl.graph))
    choices = [
        {"size": size, "algorithm": c.algorithm, "protocol": c.protocol, "channels": c.channels}
        | {
            "model_us": 1e6 * c.time_s or None,
            "told": c.told,
            "line": log.choice(name, size, c.algorithm, c.protocol, c.channels),
        }
        for size, c in ((size, nccl.choice(size)) for size in asked)
        if c is not None
    ]
    if as_json:
        known = {"version": nccl.version, "notes": list(nccl.notes), "nodes": len(nccl.graph.nodes)}
        output.emit({"mode": "nccl", **known, "channels": nccl.graph.running, "graphs": graphs, "choices": choices})
        return 0
    for text in nccl.notes:
        click.echo(output.fitted(f"# {text}", "#   "))
    for text in graphs:
        click.echo(text)
    for row in choices:
        click.echo(f"{row['line']}  # {row['told']}")
    return 0


def _only(programs: Sequence[Core]) -> Any:
    """The collective of all programs."""
    model = programs[0].collective
    others = sorted({p.collective.name for p in programs} - {model.name})
    if others:
        raise click.UsageError(f"programs of {model.name} and of {', '.join(others)} have no common --baseline")
    return model


def nccl_of(on: Platform, collective: str, version: str | None, log_path: str | None) -> Nccl:
    """Returns NCCL by its rules, or as it logged."""
    if log_path is None:
        return Nccl(on, collective, version)
    return Nccl(on, collective, found=log.read(log_path, on.topology, collective, version))
