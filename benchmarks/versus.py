"""gc3 beside Open MPI, MPICH, Gloo and mpi4py: prints a comparison, or records it for docs/performance.md.

python benchmarks/versus.py [--ranks N,...] [--collectives NAME,...] [--turns N] [--record]

With --record each point goes into benchmarks/results/processes-PROCESSOR.json as soon as it is measured. It replaces an
earlier one of the same kind, so that a part can be done again, and an interrupted run keeps what it has done. `make
generated-docs` makes the tables and pictures of the page of them.
"""

from __future__ import annotations

from typing import Any

import click
from peers import PEERS, Plan, record
from peers.compare import compare
from peers.points import COLLECTIVES, CONDITIONS, MESSAGES, OURS, PATTERNS, REUSED, has_messages
from peers.summary import FROM_PYTHON

from gc3.cli import options, output
from gc3.cli.main import Script
from gc3.cli.sizes import Size
from gc3.runtime import measure


def sizes_between(smallest: int, largest: int, factor: int) -> tuple[int, ...]:
    """Returns the sizes of a comparison, from the smallest on, each `factor` times the one before."""
    if largest < smallest:
        raise click.UsageError(f"the largest size, {largest} B, is below the smallest, {smallest} B")
    return tuple(measure.sizes(smallest, largest, factor=factor, step=0))


@click.command(
    "versus",
    cls=Script,
    examples=[
        "make bench-vs",
        "python benchmarks/versus.py",
        "python benchmarks/versus.py --vs openmpi,gloo --collectives allreduce --ranks 2 -e 1MiB",
        "python benchmarks/versus.py --collectives oneway,window --ranks 2 -b 8 -e 16MiB -f 8",
    ],
)
@click.option(
    "--vs",
    "libraries",
    type=options.Names(PEERS),
    default=PEERS,
    metavar="LIBRARY,...",
    help=f"The libraries to compare with: {', '.join(PEERS)}.  [default: all]",
)
@click.option(
    "--collectives",
    type=options.Names((*COLLECTIVES, *MESSAGES)),
    default=COLLECTIVES,
    metavar="NAME,...",
    help=f"Of {', '.join(COLLECTIVES)}.  [default: all]  Or of {', '.join(MESSAGES)}: messages of two ranks, there and "
    "back or 64 under way.",
)
@click.option("--ranks", type=options.Counts(2), default=(2, 4, 8), metavar="N,...", help="[default: 2,4,8]")
@click.option("-b", "--min-size", type=Size(), default="1KiB", show_default=True, help="Smallest size.")
@click.option("-e", "--max-size", type=Size(), default="64MiB", show_default=True, help="Largest size.")
@click.option(
    "-f", "--factor", type=click.IntRange(min=2), default=4, show_default=True, help="Factor from size to size."
)
@click.option(
    "--turns", "rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each at a point."
)
@click.option("--table", metavar="FILE", help="A selection table for gc3, before the default one.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Shorten the turns so that all is done in this time.")
@click.option(
    "--patterns",
    type=options.Names(PATTERNS),
    default=PATTERNS,
    metavar="NAME,...",
    help=f"How calls follow each other: {', '.join(PATTERNS)}.  [default: all; 'reused' is always measured]",
)
@click.option(
    "--conditions",
    type=click.Choice(CONDITIONS),
    default="quiet",
    show_default=True,
    help="sessions: each rank in a session of its own, bound to no core; loaded: beside two busy processes as well.",
)
@click.option("--record", "recorded", is_flag=True, help="Put the points into the results, of which the docs are made.")
@options.json_option
def versus(
    libraries: tuple[str, ...],
    collectives: tuple[str, ...],
    ranks: tuple[int, ...],
    min_size: int,
    max_size: int,
    factor: int,
    rounds: int,
    table: str | None,
    minutes: float | None,
    patterns: tuple[str, ...],
    conditions: str,
    recorded: bool,
    as_json: bool,
) -> int:
    """Compare gc3 with Open MPI, MPICH, Gloo and mpi4py on this machine.

    What `gc3.init()` makes of each call (its selection table) stands side by side with the other libraries that are
    found, all measured in turn in one run, and with the machine's memory bound: see docs/performance.md.
    """
    found_sizes = sizes_between(min_size, max_size, factor)
    if conditions != "quiet":
        patterns = (REUSED,)
    if has_messages(collectives):
        if not set(collectives) <= set(MESSAGES) or ranks != (2,):
            raise click.UsageError(f"{' and '.join(MESSAGES)} are measured without others, and with --ranks 2")
        libraries = tuple(name for name in libraries if name not in FROM_PYTHON)
        patterns = (REUSED,)
    more = {"table": table, "minutes": minutes, "patterns": patterns, "conditions": conditions}
    plan = Plan(collectives, ranks, found_sizes, libraries, rounds, **more)

    def keep(document: Any) -> None:
        if recorded:
            path = record.path_of(document)
            record.write(record.merged(record.read(path), document), path)

    found = compare(plan, printing=not as_json, keep=keep)
    if as_json:
        output.emit(found)
    return int(any(name.startswith(f"{OURS} ") for name in found["failed"]))


if __name__ == "__main__":
    versus()
