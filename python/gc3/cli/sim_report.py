"""--picture of gc3 sim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gc3.cli.files import DRAWN, PAGE, Picture
from gc3.report import page, picture
from gc3.report.style import Sweep
from gc3.sim import trust
from gc3.support.files import write_text

if TYPE_CHECKING:
    from gc3.cli.baselines import Baseline
    from gc3.sim import Platform
    from gc3.sim.sweep import Row
    from gc3.sim.trust import Core


option = click.option(
    "--picture",
    "pictures",
    type=Picture({**DRAWN, **PAGE}),
    multiple=True,
    metavar="FILE.png|svg|pdf|html",
    help="Draw the table to this file; .html is a self-contained page for a browser. Once for each.",
)


def described(
    on: Platform,
    mode: str,
    rows: Sequence[Row],
    compared: Sequence[Baseline],
    programs: Sequence[Core],
    told: Sequence[str],
) -> Sweep:
    """Returns the table with the source of its numbers, what they are worth, and what else is told of them."""
    topology = on.topology
    nodes = f" on {topology.node_count} nodes" if topology.node_count > 1 else ""
    notes = [
        "Alpha-beta costs: latencies and line rates only."
        if mode == "alphabeta"
        else f"Simulated with {trust.preset(on, short=True)}.",
        *(f"{text[0].upper()}{text[1:]}." for text in told),
    ]
    worth: dict[str, list[tuple[int, trust.Expected]]] = {}
    for row in rows:
        for cell in row.cells:
            worth.setdefault(cell.program, []).extend([(row.size, cell.expected)] if cell.expected else [])
    notes += [f"{label}: error {trust.summary(each)}." for label, each in worth.items() if each]
    notes += [f"{b.label}: {b.short}." for b in compared if not worth.get(b.label)]
    collectives = ", ".join(sorted({p.collective.name for p in programs}))
    title = f"{collectives} on {topology.name}, {topology.rank_count} ranks{nodes}"
    return Sweep(title, " ".join(notes), rows, [b.label for b in compared])


def draw(sweep: Sweep, paths: Sequence[str]) -> None:
    """Writes the pictures and pages that the user asked for."""
    for path in paths:
        if path.lower().endswith(".html"):
            write_text(path, page.write(sweep))
        else:
            picture.draw(sweep, path)
