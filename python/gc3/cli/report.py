"""How commands describe programs, proofs and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from gc3.cli.output import diagnostic_data, print_diagnostics, shown
from gc3.cli.sizes import format_size
from gc3.program import Program, Report
from gc3.words import counted

_MOST_OF_A_NAME = 60


def use_data(program: Program) -> dict[str, Any] | None:
    """Returns what the file of the program allows it for as plain data; None where it was compiled."""
    return None if program.use is None else asdict(program.use)


def use_text(program: Program) -> str:
    """Returns what the file allows the program for beyond its own mode and any size, or nothing."""
    use = program.use
    if use is None:
        return ""
    parts = ["in place and out of place"] if use.in_place and use.out_of_place else []
    if use.min_bytes or use.max_bytes:
        upper = f"to {format_size(use.max_bytes)}" if use.max_bytes else "on"
        parts.append(f"buffers from {format_size(use.min_bytes)} {upper}")
    return f"the file allows it for {', '.join(parts)}" if parts else ""


def outside_use(program: Program, size: int) -> str | None:
    """Returns a remark if the file does not want the program used for S = `size`."""
    use = program.use
    if use is None or (use.min_bytes <= size and (size <= use.max_bytes or not use.max_bytes)):
        return None
    return f"the file is not meant for {format_size(size)}: {use_text(program)}"


def describe(program: Program) -> str:
    """Returns the program in one line, and in another what its file says about its use."""
    about = program.info()
    root = "" if about["root"] is None else f" from root {about['root']}"
    mode = "in place" if about["in_place"] else "out of place"
    totals = (counted(about[f"{what}s"], what) for what in ("instance", "threadblock", "instruction"))
    most = counted(about["max_threadblocks_per_rank"], "threadblock")
    name, collective = (shown(about[key], _MOST_OF_A_NAME) for key in ("name", "collective"))
    lines = (
        f"{name}: {collective}{root} of {counted(about['ranks'], 'rank')}, {mode}, "
        f"{about['protocol']}, {', '.join(totals)}; at most {most} on a rank",
        use_text(program),
    )
    return "\n".join(line for line in lines if line)


def causes(seconds: Mapping[str, float]) -> str:
    """Returns times by cause, with their parts of the whole."""
    total = sum(seconds.values())
    return ", ".join(f"{cause} {1e6 * s:.2f} us ({100 * s / total:.0f}%)" for cause, s in seconds.items()) or "nothing"


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


def print_findings(report: Report, most: int) -> None:
    """Prints the findings of a failed proof, of each kind at most `most`."""
    print_diagnostics(report.diagnostics)
    number = counted(len(report.diagnostics), "finding")
    more = " or more: see --max-findings" if len(report.diagnostics) >= most else ""
    click.secho(f"not proven: {number}{more}", fg="red", bold=True, err=True)
