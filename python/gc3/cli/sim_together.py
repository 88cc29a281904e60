"""gc3 sim together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from gc3.cli import options, output, sizes, variants, what_if
from gc3.cli.command import Command
from gc3.cli.machine import machine_option
from gc3.sim import Part, Simulation, Together, trust
from gc3.sim import together as simulated
from gc3.topologies.without import without

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.topologies import Topology

_OWN = ("ranks", "start", "size")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Call:
    """A program on the command line: what it is, and its ranks, start and size (None: that of the row)."""

    spec: options.Asked
    label: str
    ranks: Sequence[int] | None
    start_s: float
    size: int | None


@click.command(
    "together",
    cls=Command,
    short_help="Predict the times of programs that run at once.",
    examples=[
        "gc3 sim together ring_allreduce two_step_alltoall -t ndv4:N=2 -b 1MiB -e 64MiB",
        "gc3 sim together ring_allreduce:instances=8 direct_alltoall:start=20us,size=16MiB -t ndv4 -b 64MiB -e 64MiB",
        "gc3 sim together ring_allreduce:ranks=0-3 ring_allreduce:ranks=2-5 -t mi300x -b 1MiB -e 1MiB --json",
        "gc3 sim together direct_allgather ring_allreduce -t ndv4 -b 64MiB -e 64MiB --what-if background=0-1:20GB/s",
    ],
)
@options.program_argument("specs", "PROGRAM", _OWN, many=True, unproven=True)
@machine_option(required=True)
@sizes.range_options()
@what_if.option
@options.dtype_option
@options.json_option
def together(
    specs: Sequence[options.Asked],
    machine: str,
    min_size: int,
    max_size: int,
    factor: int,
    dtype: str,
    changes: what_if.Changes,
    as_json: bool,
) -> int:
    """Predict the time of each PROGRAM while all of them run at once, and of each alone.

    A PROGRAM is as in gc3 sim. It may be followed by :key=value,... with ranks=0-3+6 (the ranks of the machine that
    run it; all unless given), start=20us (when they call it) and size=16MiB (instead of that of the row), besides the
    parameters of an algorithm.

    Programs share links and NICs. A GPU holds only so many threadblocks: a rank begins a program when the others
    running on it leave room.
    """
    on, changes = changes.on(machine)
    disturbance = changes.disturbance
    wanted = sizes.in_range(min_size, max_size, factor)
    calls = _calls(specs, on.topology)
    simulations = [_simulation(call, on) for call in calls]
    changes.check_effect({s.program.protocol for s in simulations})
    beyond = ["several programs at once", *changes.beyond()]
    if not as_json:
        asked = [(s, size) for call, s in zip(calls, simulations, strict=True) for size in _sizes(call, wanted)]
        _print_head(on, trust.summary((size, s.expected(size, *beyond)) for s, size in asked), changes.told())
    rows: list[tuple[int, Together]] = []
    for size in wanted:
        parts = [
            Part(s, size if c.size is None else c.size, c.start_s) for s, c in zip(simulations, calls, strict=True)
        ]
        rows.append((size, simulated(on, parts, dtype=dtype, disturbance=disturbance)))
        if not as_json:
            _print_row(calls, rows[-1][1])
    if as_json:
        output.emit(_data(on, calls, simulations, rows, beyond) | changes.data())
    return 0


def _calls(specs: Sequence[options.Asked], topology: Topology) -> list[_Call]:
    texts = [spec.text for spec in specs]
    labels, uses, seen = variants.labels(texts), Counter(texts), Counter[str]()
    found: list[_Call] = []
    for spec in specs:
        seen[spec.text] += 1
        label = labels[spec.text] if uses[spec.text] == 1 else f"{labels[spec.text]} #{seen[spec.text]}"
        found.append(
            _Call(
                spec,
                label,
                _ranks(spec.own["ranks"], topology) if "ranks" in spec.own else None,
                what_if.time(spec.own["start"]) if "start" in spec.own else 0.0,
                sizes.Size().convert(spec.own["size"], None, None) if "size" in spec.own else None,
            )
        )
    return found


def _ranks(text: str, topology: Topology) -> list[int]:
    found: list[int] = []
    for part in text.split("+"):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise click.UsageError(f"'ranks={text}' is not a list of ranks, such as ranks=0-3+6")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < topology.rank_count:
            raise click.UsageError(
                f"'ranks={text}': '{topology.name}' has ranks 0 to {topology.rank_count - 1}, and a range rises"
            )
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise click.UsageError(f"'ranks={text}' names a rank twice")
    return found


def _simulation(call: _Call, on: Platform) -> Simulation:
    topology = on.topology
    if call.ranks is not None:
        # R, N and G are those of the machine that these ranks would be alone.
        topology = without(topology, ranks=set(range(topology.rank_count)) - set(call.ranks))
    return Simulation(variants.proven(variants.limited(call.spec, on), topology), on, ranks=call.ranks)


def _sizes(call: _Call, wanted: Sequence[int]) -> Sequence[int]:
    return wanted if call.size is None else [call.size]


def _print_head(on: Platform, worth: str, changed: Sequence[str]) -> None:
    first = f"{on.topology.name}: {on.topology.rank_count} ranks, {trust.preset(on, short=True)}"
    output.comment(first, *changed, f"error: {worth}; why: --json")
    click.echo(f"# {'size':>10}  {'start':>10} {'alone':>10} {'together':>10} {'longer':>7}")
    click.echo(f"# {'(B)':>10}  {'(us)':>10} {'(us)':>10} {'(us)':>10} {'(x)':>7}  program")


def _print_row(calls: Sequence[_Call], row: Together) -> None:
    for call, part in zip(calls, row.parts, strict=True):
        click.echo(
            f"{part.size:>12}  {1e6 * part.start_s:>10.2f} {1e6 * part.alone_s:>10.2f} "
            f"{1e6 * part.together_s:>10.2f} {part.factor:>7.2f}  {call.label}"
        )
    name, busy = row.busiest
    used = f"; busiest: {name}, {100 * busy / row.time_s:.0f}% of it" if busy else ""
    click.echo(f"#   all done after {1e6 * row.time_s:.2f} us{used}")


def _data(
    on: Platform,
    calls: Sequence[_Call],
    simulations: Sequence[Simulation],
    rows: Sequence[tuple[int, Together]],
    beyond: Sequence[str],
) -> dict[str, Any]:
    return {
        "topology": on.topology.name,
        "ranks": on.topology.rank_count,
        "preset": {"name": on.parameters.name, "status": on.parameters.evidence.status}
        | asdict(on.parameters.evidence),
        "rows": [
            {
                "size": size,
                "time_us": 1e6 * row.time_s,
                "busiest": {"resource": row.busiest[0], "busy_us": 1e6 * row.busiest[1]},
                "programs": [
                    {
                        "program": call.label,
                        "ranks": list(simulation.ranks),
                        "size": part.size,
                        "start_us": 1e6 * part.start_s,
                        "alone_us": 1e6 * part.alone_s,
                        "together_us": 1e6 * part.together_s,
                        "factor": part.factor,
                        "expected": simulation.expected(part.size, *beyond).data(),
                    }
                    for call, simulation, part in zip(calls, simulations, row.parts, strict=True)
                ],
            }
            for size, row in rows
        ],
    }
