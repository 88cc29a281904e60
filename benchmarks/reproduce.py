"""Runs the papers' claims through the simulator, and writes docs/reproduction.md: `make reproduce`.

python benchmarks/reproduce.py [CLAIM]... [--kind A|B] [--list] [--json] [-o FILE.md]
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click
from claims import OUT_OF_REACH, PAPERS, Verdict, catalogue
from claims import reproduce as check

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
        "python benchmarks/reproduce.py -o docs/reproduction.md",
    ],
)
@click.argument("names", metavar="[CLAIM]...", nargs=-1)
@click.option("--kind", type=click.Choice(["A", "B"]), help="A: counting decides; B: rates, protocols and launches.")
@click.option("--list", "listing", is_flag=True, help="Only list the claims.")
@click.option("-o", "--output", "path", type=OutputFile(), metavar="FILE.md", help="Write the results there as a page.")
@options.json_option
def reproduce(names: Sequence[str], kind: str | None, listing: bool, path: str | None, as_json: bool) -> int:
    """Run the papers' claims in the simulator; prints for each whether it is reproduced, with both numbers.

    A CLAIM is a name of --list or its beginning, as 002 or 002-7.1. Parameters come from the presets. A speed-up
    counts as reproduced if it is within 25 % of the paper's and its gain is between half and twice the paper's; a
    size within a factor of 2; what can be counted, exactly. The exit code is 1 if a claim is not reproduced.
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
        write_text(path, page(verdicts))
    reproduced = sum(v.outcome.reproduced for v in verdicts)
    if as_json:
        output.emit(_data(verdicts))
    else:
        click.echo(f"# {reproduced} of {len(verdicts)} claims reproduced")
    return 0 if reproduced == len(verdicts) else 1


def _print(verdict: Verdict, paper: str) -> str:
    """Prints a verdict, after the paper's name if that changes."""
    claim, outcome = verdict.claim, verdict.outcome
    if claim.paper != paper:
        click.secho(f"{claim.paper}: {PAPERS[claim.paper]}", bold=True)
    mark = click.style("reproduced    ", fg="green") if outcome.reproduced else click.style("not reproduced", fg="red")
    click.echo(f"  {mark}  {claim.name}: {claim.text}")
    detail = f" ({outcome.detail})" if outcome.detail else ""
    click.echo(f"      paper: {outcome.expected}; simulated: {outcome.found}{detail}")
    if not outcome.reproduced and claim.why_not:
        indent = " " * 6
        click.echo(textwrap.fill(claim.why_not, _WIDTH, initial_indent=indent, subsequent_indent=indent))
    return claim.paper


def _data(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "reproduced": sum(v.outcome.reproduced for v in verdicts),
        "claims": [
            {
                "name": v.claim.name,
                "paper": v.claim.paper,
                "section": v.claim.section,
                "kind": v.claim.kind,
                "text": v.claim.text,
                "reproduced": v.outcome.reproduced,
                "expected": v.outcome.expected,
                "found": v.outcome.found,
                "detail": v.outcome.detail,
                "why_not": None if v.outcome.reproduced else v.claim.why_not,
            }
            for v in verdicts
        ],
        "out_of_reach": [{"where": where, "what": what} for where, what in OUT_OF_REACH],
    }


def page(verdicts: Sequence[Verdict]) -> str:
    """Returns the results as a page of the documentation."""
    kinds = {
        kind: (
            sum(v.outcome.reproduced for v in verdicts if v.claim.kind == kind),
            sum(v.claim.kind == kind for v in verdicts),
        )
        for kind in ("A", "B")
    }
    text = (
        "<!-- Written by `make reproduce`. Do not edit. -->\n"
        "# What of the papers is reproduced\n\n"
        "`make reproduce` runs the papers' claims through the [simulator](simulator.md). Nothing here was run on GPUs. "
        "The parameters are those of the presets; none was chosen with a claim in view, and claims that fail stay "
        "here with the reason.\n\n"
        "The rules are the same for all claims. What can be counted must be met exactly. A speed-up is reproduced if "
        "it is within 25 % of the paper's and its gain, the part above 1, between half and twice the paper's. A size "
        'from which on something holds may differ by a factor of 2. "Faster" means by 2 % or more, in the geometric '
        'mean over a range of sizes. "Up to" is the greatest over powers of two of the range, with the best of the '
        "schedules that the paper names.\n\n"
        "| Kind | Reproduced | Of | |\n| --- | --- | --- | --- |\n"
        f"| A | {kinds['A'][0]} | {kinds['A'][1]} | counting and alpha-beta costs decide |\n"
        f"| B | {kinds['B'][0]} | {kinds['B'][1]} | rates, protocols, FIFOs and launches decide |\n"
    )
    for paper, group in groupby(verdicts, key=lambda v: v.claim.paper):
        some = list(group)
        text += f"\n## {paper}: {PAPERS[paper]}\n\n"
        text += "| Section | Claim | Paper | Simulated | |\n| --- | --- | --- | --- | --- |\n"
        for v in some:
            detail = f" ({v.outcome.detail})" if v.outcome.detail else ""
            mark = "reproduced" if v.outcome.reproduced else "**not reproduced**"
            cells = (
                v.claim.section,
                f"{v.claim.text} (`{v.claim.name}`, {v.claim.kind})",
                v.outcome.expected,
                f"{v.outcome.found}{detail}",
                mark,
            )
            text += f"| {' | '.join(cells)} |\n"
        failed = [v for v in some if not v.outcome.reproduced]
        if failed:
            text += "\nWhy not:\n\n"
            text += "".join(f"- `{v.claim.name}`: {v.claim.why_not}\n" for v in failed)
    text += "\n## Not attempted\n\n"
    text += "".join(f"- {where}: {what}.\n" for where, what in OUT_OF_REACH)
    return text


if __name__ == "__main__":
    reproduce()
