"""gc3 sim step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

import gc3
from gc3 import algorithms, errors
from gc3.cli import completion, options, output, variants, what_if
from gc3.cli.baselines import of_nccl
from gc3.cli.command import Command
from gc3.cli.files import OutputFile
from gc3.cli.machine import machine_option
from gc3.comm.selection import Table
from gc3.sim import Simulation, fusion, step, trust
from gc3.sim.nccl import Nccl
from gc3.sim.read import chakra
from gc3.sim.step import MESSAGE, Chosen
from gc3.support.words import counted
from gc3.topologies.without import without as without_ranks

if TYPE_CHECKING:
    from gc3.runtime.program import Program
    from gc3.sim import Platform
    from gc3.sim.fusion import Pair
    from gc3.sim.step import Step
    from gc3.topologies import Topology

_MOST_GAINS = 10  # that are printed


def _uses(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, options.Asked]:
    found: dict[str, options.Asked] = {}
    for text in given:
        collective, equals, spec = text.partition("=")
        if not equals or not spec or collective not in chakra.COLLECTIVES.values():
            known = ", ".join(dict.fromkeys(chakra.COLLECTIVES.values()))
            raise click.BadParameter(f"'{text}' is not COLLECTIVE=PROGRAM; collectives are {known}")
        if collective in found:
            raise click.BadParameter(f"there are two programs for {collective}")
        found[collective] = options.Program(unproven=True).convert(spec, param, ctx)
    return found


@click.command(
    "step",
    cls=Command,
    short_help="Predict a training step from Chakra execution traces.",
    examples=[
        "gc3 sim step examples/transformer.et -t ndv4",
        "gc3 sim step examples/transformer.et -t ndv4 --use allreduce=ring_allreduce:channels=4,instances=8",
        "gc3 sim step examples/transformer.et -t ndv4:N=2 --what-if straggler=3:1.2",
        "gc3 sim step step.et -t ndv5 --groups groups.json --table tuned.json -o simulated",
    ],
)
@click.argument("path", metavar="TRACE", shell_complete=completion.programs)
@machine_option(required=True)
@click.option(
    "--use",
    "uses",
    metavar="COLLECTIVE=PROGRAM",
    multiple=True,
    callback=_uses,
    help="Execute a collective by this program, as in gc3 sim: allreduce=ring_allreduce:instances=8.",
)
@click.option("--table", "table_path", metavar="FILE", help="Choose programs of other collectives from this table.")
@click.option("--groups", "groups_path", metavar="FILE", help="JSON of the names of groups with their ranks.")
@click.option(
    "-o", "--output", "out", type=OutputFile(), metavar="PREFIX", help="Write PREFIX.RANK.et with simulated times."
)
@what_if.option
@options.json_option
def sim_step(
    path: str,
    machine: str,
    uses: dict[str, options.Asked],
    table_path: str | None,
    groups_path: str | None,
    out: str | None,
    changes: what_if.Changes,
    as_json: bool,
) -> int:
    """Predict the time of a training step, and how much of its communication is exposed.

    TRACE is a Chakra execution trace, FILE.et, that every rank executes; or the beginning of the names of one for each
    rank, TRACE.0.et, TRACE.1.et and so on. Compute takes the times of the traces.

    A collective is executed by the program of --use, or else of the table of --table; it is simulated, and shares links
    with what else is under way. Without either it takes NCCL's time, from the last rank's call on, as if it were alone.
    """
    on, changes = changes.on(machine)
    disturbance = changes.disturbance
    with output.working("reading"):
        traces = chakra.read_all(path, on.topology.rank_count)
        groups = None if groups_path is None else chakra.read_groups(groups_path)
    table = None if table_path is None else Table.read(table_path)
    choose = Chooser(on, uses, table)
    with output.working("simulating"):
        found = step.simulate(on, traces, choose, groups, disturbance=disturbance)
    changes.check_effect({program.protocol for program in choose.programs})
    for collective in uses.keys() - {c.what for c in found.calls}:
        output.remark(f"--use {collective} changes nothing: the traces have no {collective}")
    if out is not None:
        chakra.write_all(out, found.traces)
    asked = {(c.what, c.ranks, c.size) for c in found.calls}
    alone = {each: choose.alone_s(*each) if len(each[1]) > 1 else 0.0 for each in asked}
    rows = _rows(found, alone)
    gains = fusion.pairs(found, on.parameters.launch_s)
    beyond = changes.beyond()
    if as_json:
        worth = [*choose.trusted(found, beyond), *choose.trusted_nccl(found, beyond)]
        output.emit(_data(on, found, rows, gains) | {"expected": worth} | changes.data())
        return 0
    _print_head(on, choose, found, changes)
    _print(found, rows)
    _print_gains(found, gains)
    return 0


@dataclass
class Chooser:
    """Names what executes a collective: the program of the command line, of a table, or NCCL."""

    on: Platform  # the machine
    uses: dict[str, options.Asked]  # programs by collective
    table: Table | None  # programs of other collectives; None: NCCL's times
    hint: str = "; name a program: --use {}=PROGRAM, or --table FILE"  # what to do where NCCL's time is not known
    _made: dict[tuple[str, tuple[int, ...]], Simulation] = field(default_factory=dict[Any, Simulation])
    _nccl: dict[tuple[str, tuple[int, ...]], Nccl] = field(default_factory=dict[Any, Nccl])
    _chosen: dict[tuple[str, tuple[int, ...], int], Chosen] = field(default_factory=dict[Any, Chosen])

    def __call__(self, what: str, ranks: tuple[int, ...], size: int) -> Chosen:
        """Returns what executes a collective, the same for calls alike."""
        # A step has many calls alike, and NCCL's time is simulated.
        key = what, ranks, size
        if key not in self._chosen:
            self._chosen[key] = self._choose(*key)
        return self._chosen[key]

    def _choose(self, what: str, ranks: tuple[int, ...], size: int) -> Chosen:
        if what == MESSAGE:
            return Chosen("send and receive", self._simulation("send and receive", ranks, _message))
        if what in self.uses:
            asked = self.uses[what]
            simulation = self._simulation(asked.text, ranks, lambda machine: self._compiled(asked, machine))
            served = simulation.described.collective.name
            if served != what:
                raise click.UsageError(f"--use {what}={asked.text}: this is a program for {served}")
            return Chosen(asked.text, simulation)
        if self.table is not None:
            return self._of_table(what, ranks, size)
        try:
            if (what, ranks) not in self._nccl:
                self._nccl[what, ranks] = Nccl(replace(self.on, topology=_part(self.on.topology, ranks)), what)
            cell = self._nccl[what, ranks](size).later(what_if.nccl_shift_s(self._nccl[what, ranks].on))
        except errors.UserError as problem:
            raise errors.error(
                "BadTrace",
                f"NCCL's time of {what} on {len(ranks)} ranks is not known ({problem.message}){self.hint.format(what)}",
            ) from problem
        return Chosen(cell.program, None, cell.time_s)

    def alone_s(self, what: str, ranks: tuple[int, ...], size: int) -> float:
        """Returns the seconds that it takes if no other is under way and all ranks call it at once."""
        chosen = self(what, ranks, size)
        return chosen.time_s if chosen.simulation is None else chosen.simulation.run(size).time_s

    def trusted_nccl(self, found: Step, beyond: Sequence[str], *, short: bool = False) -> list[str]:
        """Returns what NCCL's times are worth, by collective and number of ranks."""
        told: dict[str, None] = {}
        for (what, ranks), nccl in self._nccl.items():
            asked = {c.size for c in found.calls if (c.what, c.ranks) == (what, ranks)}
            call = f"{what} on {counted(len(ranks), 'rank')}"
            worth = [(size, of_nccl(nccl, size, beyond)) for size in sorted(asked)]
            if short:
                told[f"{call}: {nccl.label}, simulated; error {trust.summary(worth)}"] = None
            else:
                told |= {
                    "; ".join((f"{call}: {nccl.label}, simulated; {text}", *nccl.notes)): None
                    for text in trust.told(worth)
                }
        return list(told)

    def trusted(self, found: Step, beyond: Sequence[str], *, short: bool = False) -> list[str]:
        """Returns what the times of programs are worth."""
        more = ["a step", *beyond]
        simulations = {
            (c.size, id(s)): s
            for c in found.calls
            if len(c.ranks) > 1 and (s := self(c.what, c.ranks, c.size).simulation)
        }
        worth = [(size, s.expected(size, *more)) for (size, _), s in sorted(simulations.items())]
        return [f"programs: error {trust.summary(worth)}"] if short and worth else trust.told(worth)

    @property
    def programs(self) -> list[Any]:
        """All programs that were simulated."""
        return [simulation.described for simulation in self._made.values()]

    def _of_table(self, what: str, ranks: tuple[int, ...], size: int) -> Chosen:
        assert self.table is not None  # noqa: S101  see the caller
        here = [self.on.topology.ranks[rank].node for rank in ranks]
        nodes = len(set(here))
        each = len(ranks) // nodes if len({here.count(node) for node in here}) == 1 else 0
        call: Any = {"ranks": len(ranks), "size": size, "in_place": False, "nodes": nodes, "ranks_per_node": each}
        spec = self.table.choose(what, **call).row.spec
        if spec.memory == "direct":  # of registered memory alone, which no trace names: as a call on other memory
            with suppress(errors.UserError):
                messages = Table(tuple(row for row in self.table.rows if row.spec.memory != "direct"))
                spec = messages.choose(what, **call).row.spec

        def compiled(_topology: Topology) -> Program:
            return spec.compile(len(ranks), nodes=nodes)

        on = self.on.with_fifos(spec.slots, spec.slot_bytes)
        return Chosen(f"{spec.algorithm} of the table", self._simulation(repr(spec), ranks, compiled, on))

    def _simulation(
        self, label: str, ranks: tuple[int, ...], make: Callable[[Topology], Any], on: Platform | None = None
    ) -> Simulation:
        key = label, ranks
        if key not in self._made:
            self._made[key] = Simulation(make(_part(self.on.topology, ranks)), on or self.on, ranks=ranks)
        return self._made[key]

    def _compiled(self, asked: options.Asked, topology: Topology) -> Program:
        return variants.proven(variants.limited(asked, self.on), topology)


def _part(topology: Topology, ranks: tuple[int, ...]) -> Topology:
    """The machine that some ranks would be alone."""
    others = set(range(topology.rank_count)) - set(ranks)
    return without_ranks(topology, ranks=others) if others else topology


def _message(_topology: Topology) -> Any:
    """A message from rank 0 to rank 1."""
    return gc3.compile(algorithms.load("alltonext"), N=1, G=2)


def _rows(found: Step, alone: dict[Any, float]) -> list[dict[str, Any]]:
    """Calls alike as one row, in the order of the first; those of ranks that lie apart take another time alone."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for c in found.calls:
        key = c.what, len(c.ranks), c.size, c.program, round(1e12 * alone[c.what, c.ranks, c.size])
        row = rows.setdefault(
            key,
            {
                "collective": c.what,
                "ranks": len(c.ranks),
                "size": c.size,
                "program": c.program,
                "calls": 0,
                "alone_us": 1e6 * alone[c.what, c.ranks, c.size],
                "mean_us": 0.0,
                "exposed_us": 0.0,
            },
        )
        row["calls"] += 1
        row["mean_us"] += (1e6 * (c.end_s - c.last_s) - row["mean_us"]) / row["calls"]
        row["exposed_us"] += 1e6 * c.exposed_s * len(c.ranks) / len(found.ranks)  # the mean over all ranks
    return list(rows.values())


def _print_head(on: Platform, choose: Chooser, found: Step, changes: what_if.Changes) -> None:
    times = trust.preset(on, short=True) if choose.programs else "collectives take NCCL's times, simulated"
    worth = (
        *choose.trusted(found, changes.beyond(), short=True),
        *choose.trusted_nccl(found, changes.beyond(), short=True),
    )
    output.comment(f"{on.topology.name}: {on.topology.rank_count} ranks, {times}", *changes.told(), *worth)


def _print(found: Step, rows: Sequence[dict[str, Any]]) -> None:
    total = found.time_s or 1.0
    count = len(found.ranks)
    click.secho(f"# step: {1e6 * found.time_s:.2f} us", bold=True)
    for text, seconds in (
        ("compute", sum(rank.compute_s for rank in found.ranks) / count),
        ("communication", sum(rank.communication_s for rank in found.ranks) / count),
        ("  exposed", found.exposed_s),
    ):
        click.echo(f"#   {text:<16} {1e6 * seconds:>12.2f} us {100 * seconds / total:>5.1f}%, mean over {count} ranks")
    click.echo(f"# {'size':>10} {'ranks':>6} {'calls':>6} {'alone':>10} {'mean':>10} {'exposed':>10}")
    click.echo(f"# {'(B)':>10} {'':>6} {'':>6} {'(us)':>10} {'(us)':>10} {'(us)':>10}  collective, program")
    for row in rows:
        click.echo(
            f"{row['size']:>12} {row['ranks']:>6} {row['calls']:>6} {row['alone_us']:>10.2f} {row['mean_us']:>10.2f} "
            f"{row['exposed_us']:>10.2f}  {row['collective']}, {row['program']}"
        )
    if found.untimed:
        output.remark(f"{found.untimed} nodes that compute have no duration in the traces, and take no time")


def _print_gains(found: Step, gains: Sequence[Pair]) -> None:
    if not gains:
        return
    output.comment("what the step gains at most if a call and the computation beside it are one program")
    click.echo(f"# {'size':>10} {'ranks':>6} {'calls':>6} {'gain':>10} {'of step':>8}")
    click.echo(f"# {'(B)':>10} {'':>6} {'':>6} {'(us)':>10} {'':>8}  collective and computation, form")
    for pair in gains[:_MOST_GAINS]:
        share = f"{100 * pair.gain_s / found.time_s:.1f}%"
        both = (pair.computation, pair.collective) if pair.before else (pair.collective, pair.computation)
        click.echo(
            f"{pair.size:>12} {pair.ranks:>6} {pair.calls:>6} {1e6 * pair.gain_s:>10.2f} {share:>8}  "
            f"{errors.shown(both[0])}, then {errors.shown(both[1])}: {pair.form or 'a program of your own'}"
        )
    if len(gains) > _MOST_GAINS:
        output.remark(f"{len(gains) - _MOST_GAINS} further pairs gain less; --json has them")


def _data(on: Platform, found: Step, rows: Sequence[dict[str, Any]], gains: Sequence[Pair]) -> dict[str, Any]:
    return {
        "topology": on.topology.name,
        "preset": {"name": on.parameters.name, "status": on.parameters.evidence.status},
        "time_us": 1e6 * found.time_s,
        "exposed_us": 1e6 * found.exposed_s,
        "untimed_nodes": found.untimed,
        "collectives": list(rows),
        "fusion": [
            {
                "collective": pair.collective,
                "ranks": pair.ranks,
                "size": pair.size,
                "computation": pair.computation,
                "side": "before" if pair.before else "after",
                "calls": pair.calls,
                "form": pair.form,
                "gain_us": 1e6 * pair.gain_s,
                "of_step": pair.gain_s / found.time_s,
            }
            for pair in gains
        ],
        "ranks": [
            {
                "end_us": 1e6 * r.end_s,
                "compute_us": 1e6 * r.compute_s,
                "communication_us": 1e6 * r.communication_s,
                "exposed_us": 1e6 * r.exposed_s,
            }
            for r in found.ranks
        ],
        "calls": [
            {
                "name": c.name,
                "collective": c.what,
                "ranks": list(c.ranks),
                "size": c.size,
                "program": c.program,
                "first_call_us": 1e6 * c.first_s,
                "last_call_us": 1e6 * c.last_s,
                "end_us": 1e6 * c.end_s,
                "exposed_us": 1e6 * c.exposed_s,
            }
            for c in found.calls
        ],
    }
