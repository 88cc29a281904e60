"""How commands describe programs, proofs and findings."""

from __future__ import annotations

from typing import Any

import click

from gc3.cli.output import diagnostic_data, print_diagnostic
from gc3.program import Program, Report


def describe(program: Program) -> str:
    """Returns the program in one line."""
    about = program.info()
    root = "" if about["root"] is None else f" from root {about['root']}"
    mode = "in place" if about["in_place"] else "out of place"
    totals = (counted(about[f"{what}s"], what) for what in ("instance", "threadblock", "instruction"))
    most = counted(about["max_threadblocks_per_rank"], "threadblock")
    return (
        f"{about['name']}: {about['collective']}{root} of {counted(about['ranks'], 'rank')}, {mode}, "
        f"{about['protocol']}, {', '.join(totals)}; at most {most} on a rank"
    )


def counted(number: int, what: str) -> str:
    """Returns "1 rank" or "2 ranks"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def proof_data(report: Report) -> dict[str, Any]:
    """Returns what the verifier found as plain data."""
    return {
        "ok": report.ok,
        "slots": report.slots,
        "transfers": report.transfers,
        "diagnostics": [diagnostic_data(d) for d in report.diagnostics],
    }


def proof_text(program: Program, report: Report) -> str:
    """Returns what a proof says, for people."""
    return (
        f"proven: it implements {program.collective.name}, every receive has its send "
        f"({counted(report.transfers, 'transfer')} per tile), no data races, "
        f"no deadlock with {counted(report.slots, 'FIFO slot')} or more per connection"
    )


def print_findings(report: Report) -> None:
    """Prints every finding of a failed proof."""
    for diagnostic in report.diagnostics:
        print_diagnostic(diagnostic)
    click.secho(f"not proven: {counted(len(report.diagnostics), 'finding')}", fg="red", bold=True, err=True)
