"""gc3 sim convert."""

from __future__ import annotations

import click

from gc3.cli import options, output
from gc3.cli.command import Command
from gc3.sim.read import chakra, pytorch_traces


@click.command(
    "convert",
    cls=Command,
    short_help="Convert what PyTorch recorded to a Chakra execution trace.",
    examples=[
        "gc3 sim convert operators.0.json profile.0.json -o step",
        "gc3 sim convert operators.1.json profile.1.json.gz -o step",
    ],
)
@click.argument("operators")
@click.argument("profile")
@click.option("-o", "--output", "out", metavar="PREFIX", required=True, help="Write PREFIX.RANK.et for gc3 sim step.")
@options.json_option
def convert(operators: str, profile: str, out: str, as_json: bool) -> int:
    """Convert a training step of one rank that PyTorch recorded to a Chakra execution trace.

    OPERATORS is the JSON of torch.profiler.ExecutionTraceObserver. PROFILE is the JSON of torch.profiler.profile, with
    the times of the same step or of an equal one; it names the rank. Either may be compressed by gzip. Inside a job,
    gc3.torch.record does all of this.
    """
    with output.working("converting"):
        found = pytorch_traces.read(operators, profile)
    path = f"{out}.{found.rank}.et"
    chakra.write(path, found.trace)
    kinds = [node.kind for node in found.trace]
    collectives = kinds.count(chakra.COLLECTIVE)
    messages = kinds.count(chakra.SEND) + kinds.count(chakra.RECEIVE)
    compute_us = 1e6 * sum(node.duration_s for node in found.trace)
    if as_json:
        output.emit(
            {
                "file": path,
                "rank": found.rank,
                "ranks": found.ranks,
                "nodes": len(found.trace),
                "collectives": collectives,
                "messages": messages,
                "compute_us": compute_us,
                "groups": found.groups,
            }
        )
        return 0
    click.echo(
        f"{path}: rank {found.rank} of {found.ranks}, {len(found.trace)} nodes, {collectives} collectives, "
        f"{messages} messages, {compute_us:.0f} us of compute"
    )
    return 0
