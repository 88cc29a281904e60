"""Runs the papers' claims through the simulator, and writes benchmarks/results/papers.json: `make reproduce`.

python benchmarks/reproduce.py [CLAIM]... [--kind A|B] [--list] [--json] [-o FILE.json]
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from datetime import date
from typing import Any

import click
from claims import GIVEN, OUT_OF_REACH, PAPERS, Verdict, catalogue
from claims import reproduce as check
from peers import record

from gc3.cli import options, output
from gc3.cli.files import OutputFile
from gc3.cli.main import Script
from gc3.support.files import write_text

_WIDTH = 100


@click.command(
    "reproduce",
    cls=Script,
    short_help="What the papers claim, and what the simulator makes of it.",
    examples=[
        "python benchmarks/reproduce.py",
        "python benchmarks/reproduce.py 002-7.1 001",
        "python benchmarks/reproduce.py --kind A --json",
        "python benchmarks/reproduce.py -o benchmarks/results/papers.json",
    ],
)
@click.argument("names", metavar="[CLAIM]...", nargs=-1)
@click.option("--kind", type=click.Choice(["A", "B"]), help="A: counting decides; B: rates, protocols and launches.")
@click.option("--list", "listing", is_flag=True, help="Only list the claims.")
@click.option("-o", "--output", "path", type=OutputFile(), metavar="FILE.json", help="Write the results there.")
@options.json_option
def reproduce(names: Sequence[str], kind: str | None, listing: bool, path: str | None, as_json: bool) -> int:
    """Run the papers' claims in the simulator; prints for each whether it is reproduced, with both numbers.

    A CLAIM is a name of --list or its beginning, as 002 or 002-7.1. Parameters come from the presets. A speed-up
    counts as reproduced if it is within 25 % of the paper's and its gain is between half and twice the paper's; a
    size within a factor of 2; what can be counted, exactly. Formulas and constants, which nothing computes, are listed
    by themselves and do not count. The exit code is 1 if a claim is not reproduced.
    """
    chosen = [
        c
        for c in catalogue()
        if kind in (None, c.kind) and (not names or any(c.name.startswith(name) for name in names))
    ]
    if not chosen:
        raise click.UsageError(f"no claim's name begins with {' or '.join(names) or 'that'}: see --list")
    if listing:
        if as_json:
            output.emit({"claims": [{"name": c.name, "kind": c.kind, "text": c.text} for c in chosen]})
        else:
            for c in chosen:
                click.echo(f"{c.name:<28} {c.kind}  {c.text}")
        return 0
    verdicts: list[Verdict] = []
    paper = ""
    with output.progress("checking", len(chosen), printing=not as_json) as begin:
        results = check(chosen)
        for c in chosen:
            begin(c.name)
            verdicts.append(next(results))
            if not as_json:
                paper = _print(verdicts[-1], paper)
    if path is not None:
        facts = {"date": f"{date.today()}", "command": "make reproduce", "version": record.version()}
        write_text(path, json.dumps({**facts, **_data(verdicts)}, indent=1) + "\n")
    if as_json:
        output.emit(_data(verdicts))
    else:
        computed = [v.outcome.reproduced for v in verdicts if v.claim.name not in GIVEN]
        given = len(verdicts) - len(computed)
        click.echo(
            f"# {sum(computed)} of {len(computed)} computed claims reproduced"
            + (f"; besides, {given} formulas and constants" if given else "")
        )
    return 0 if all(v.outcome.reproduced for v in verdicts) else 1


def _print(verdict: Verdict, paper: str) -> str:
    """Prints a verdict, after the name of its section if that is another one than `paper`."""
    claim, outcome = verdict.claim, verdict.outcome
    given = GIVEN.get(claim.name)
    section = "formulas and constants, which nothing computes" if given else f"{claim.paper}: {PAPERS[claim.paper]}"
    if section != paper:
        click.secho(section, bold=True)
    mark = click.style("reproduced    ", fg="green") if outcome.reproduced else click.style("not reproduced", fg="red")
    click.echo(f"  {mark}  {claim.name}: {claim.text}")
    about = "; ".join(filter(None, (outcome.detail, given)))
    detail = f" ({about})" if about else ""
    click.echo(f"      paper: {outcome.expected}; simulated: {outcome.found}{detail}")
    if not outcome.reproduced and claim.why_not:
        indent = " " * 6
        click.echo(textwrap.fill(claim.why_not, _WIDTH, initial_indent=indent, subsequent_indent=indent))
    return section


def _data(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "reproduced": sum(v.outcome.reproduced for v in verdicts if v.claim.name not in GIVEN),
        "computed": sum(v.claim.name not in GIVEN for v in verdicts),
        "claims": [
            {
                "name": v.claim.name,
                "paper": v.claim.paper,
                "section": v.claim.section,
                "kind": v.claim.kind,
                "text": v.claim.text,
                "reproduced": v.outcome.reproduced,
                "given": GIVEN.get(v.claim.name),
                "expected": v.outcome.expected,
                "found": v.outcome.found,
                "detail": v.outcome.detail,
                "why_not": None if v.outcome.reproduced else v.claim.why_not,
            }
            for v in verdicts
        ],
        "out_of_reach": [{"where": where, "what": what} for where, what in OUT_OF_REACH],
    }


if __name__ == "__main__":
    reproduce()
