"""gc3 synth."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import click

from gc3 import collectives, datatypes, errors, synth, topologies
from gc3.cli import completion, options, output, sizes, synth_timed
from gc3.cli.command import WithFurther
from gc3.cli.files import OutputFile, OutputFolder
from gc3.cli.interrupt import alarm
from gc3.cli.machine import machine_option
from gc3.cli.synth_best import best
from gc3.cli.synth_delivery import Delivery, deliver, search_frontier, show_open, show_too_large
from gc3.collectives import Collective
from gc3.runtime.program import FORMS
from gc3.runtime.scratch import ScratchLimit
from gc3.support.files import read_bytes
from gc3.synth.problem import custom, demand

_GB = 1e9
_MOST_CHUNKS = 1 << 14
_PIPELINED = 16  # chunks for each required one, if none are given
_LARGEST_BATCH = 1 << 20  # bytes
_FOR_PARTS = 0.4  # of the time: for composing parts if the whole was too large
_ONE_OF = "--steps S, --least-steps, --pareto K, --pipelined, --hierarchical and --for-size S"
_GRACE = 0.1  # seconds beyond the limit for code that checks the time itself


@click.command(
    "synth",
    cls=WithFurther,
    further={"best": best},
    examples=[
        "gc3 synth allgather --topology dgx1 --chunks 6 --steps 3 --rounds 7 -o ag.gc3",
        "gc3 synth alltoall --topology dgx1 --least-steps --run",
        "gc3 synth broadcast --topology dgx1 --root 1 --pareto 4 --max-steps 8",
        "gc3 synth allreduce --topology dgx1 --chunks 48 --steps 6 --rounds 14 -o ar.json",
        "gc3 synth allgather --topology dgx2 --unit 150 --least-steps",
        "gc3 synth allgather --topology ndv4:N=2 --unit 25 --pipelined --chunks 26",
        "gc3 synth allreduce --topology ndv4:N=4 --unit 25 --hierarchical",
        "gc3 synth allreduce --topology ndv4:N=4 --unit 25 --hierarchical --pipelined",
        "gc3 synth allgather --topology summit:N=2 --for-size 64KiB --protocol LL128 --max-threadblocks 16",
        "gc3 synth alltoall --topology dgx1 --pipelined --max-scratch 16MiB/256MiB",
        "gc3 synth broadcast --topology ring:R=4 --least-steps --protocol LL --instances 2 --full",
        "gc3 synth allgather --topology dgx1 --without-link 0-1 --pipelined",
        "gc3 synth --batch rows.txt",
        "gc3 synth best allgather --topology dgx1 -b 1KiB -e 1GiB -o table.json",
        "gc3 synth my_gatherv.json --topology my_machine.json --least-steps --run",
    ],
    short_help="Find optimal algorithms for a topology, proven.",
)
@click.argument("collective", required=False, shell_complete=completion.problems)
@machine_option(
    "A machine: `gc3 topo list`, or FILE.json.",
    "spec",
)
@click.option("--without-link", "cut", multiple=True, metavar="A-B", help="The machine has lost what joins two ranks.")
@click.option("--without-rank", "gone", multiple=True, metavar="R", help="The machine has lost a rank.")
@click.option("--unit", type=options.Positive(), metavar="GB/S",
              help="The bandwidth that carries a chunk per round.  [default: that of the slowest lane]")  # fmt: skip
@click.option(
    "--root", type=click.IntRange(min=0), default=0, show_default=True, help="The root of a rooted collective."
)
@click.option("--chunks", "-C", type=click.IntRange(1, _MOST_CHUNKS), metavar="C",
              help="Number of chunks of a rank's input.  [default: as few as the collective allows]")  # fmt: skip
@click.option("--steps", "-S", type=click.IntRange(min=1), metavar="S", help="Steps.")
@click.option("--rounds", "-R", type=click.IntRange(min=1), metavar="R",
              help="Rounds of all steps together.  [default: the fewest]")  # fmt: skip
@click.option("--least-steps", is_flag=True, help="Find the fewest steps, and then the fewest rounds.")
@click.option("--pareto", type=click.IntRange(0, 100), metavar="K",
              help="Find the frontier of steps and R/C, with R <= S + K.")  # fmt: skip
@click.option("--pipelined", is_flag=True, help="Pipeline many chunks over trees, near the bound on R/C.")
@click.option("--hierarchical", is_flag=True,
              help="Compose schedules inside nodes and between them; with --pipelined, they overlap.")  # fmt: skip
@click.option("--for-size", type=sizes.Size(), help="Find a schedule that takes little time at this S.")
@click.option("--max-threadblocks", "budget", type=click.IntRange(min=1), metavar="N",
              help="Threadblocks of a rank, if fewer than its GPU holds.")  # fmt: skip
@click.option("--max-scratch", "memory", type=sizes.Scratch(), metavar="BYTES/S",
              help="Scratch memory that a rank may use in calls of S bytes: 64MiB/256MiB, or 1/4. With --for-size S, "
              "BYTES suffices.  [default: no limit]")  # fmt: skip
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="The largest number of steps for --pareto.",
)
@click.option(
    "--time-limit",
    type=options.Positive(),
    metavar="SECONDS",
    help="Seconds for the whole command.  [default: no limit]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices.")
@click.option("--cache", "folder", metavar="FOLDER", help="Keep results in this folder, and look there first.")
@click.option("--output", "-o", "path", metavar="FILE",
              help="Write the program: .gc3, .xml, or .json for the form of SCCL-style synthesizers. With --pareto: a "
              "folder for all points.")  # fmt: skip
@click.option("--run", is_flag=True, help="Run it on this machine's CPU and compare every element with NumPy.")
@click.option("--size", type=sizes.Size(), default="64KiB", show_default=True, help="S of the run of --run.")
@click.option("--full/--brief", default=False, help="Also print the sends, the topology and the use of links.")
@click.option("--protocol", type=click.Choice(datatypes.PROTOCOLS, case_sensitive=False),
              default="Simple", show_default=True, help="Of the program.")  # fmt: skip
@click.option("--instances", type=click.IntRange(1, 64), default=1, show_default=True, help="Of the program.")
@click.option("--batch", "listed", metavar="FILE",
              help="Run the searches in FILE in one process; each line has a collective and its options.")  # fmt: skip
@options.json_option
@click.pass_context
def synth_command(
    context: click.Context,
    collective: str | None,
    spec: str | None,
    cut: tuple[str, ...],
    gone: tuple[str, ...],
    unit: float | None,
    root: int,
    chunks: int | None,
    steps: int | None,
    rounds: int | None,
    least_steps: bool,
    pareto: int | None,
    pipelined: bool,
    hierarchical: bool,
    for_size: int | None,
    budget: int | None,
    memory: ScratchLimit | None,
    max_steps: int,
    time_limit: float | None,
    seed: int,
    folder: str | None,
    path: str | None,
    run: bool,
    size: int,
    full: bool,
    protocol: str,
    instances: int,
    listed: str | None,
    as_json: bool,
) -> int:
    """Synthesize a COLLECTIVE for a topology, or prove that no algorithm meets the limits.

    COLLECTIVE is one of allgather, alltoall, broadcast, gather, scatter, alltonext, reduce, reducescatter, allreduce,
    or a FILE.json with "chunks", each with the ranks that contribute to it ("pre") and those that must have the sum
    after ("post"); or "groups" of ranks with a collective each; or "counts" of an uneven all-to-all. See
    docs/synthesis.md.

    An algorithm of C chunks, S steps and R rounds takes S * alpha + R/C * L * beta for L bytes of input (001 section
    3.6). Every result is checked and compiled to a program, and the program is proven.

    `gc3 synth best COLLECTIVE -t MACHINE -o table.json` finds the fastest programs for all sizes: see gc3 synth best
    --help.

    Exit codes: 0 found; 1 proven impossible, or nothing found in time.
    """
    if listed is not None:
        return _batch(context, listed)
    if collective is None or spec is None:
        raise click.UsageError(f"give {'a COLLECTIVE' if collective is None else '--topology SPEC'}, or --batch FILE")
    spec = _left_of(spec, cut, gone)
    modes = (pareto is not None, least_steps, pipelined or hierarchical, for_size is not None, steps is not None)
    if sum(modes) != 1:
        raise click.UsageError(f"give one of {_ONE_OF}")
    if for_size == 0:
        raise click.UsageError("--for-size 0: give a size above 0")
    _check_numbers(pareto, chunks, steps, rounds)
    synth_timed.check_limit(memory, for_size)
    if path is not None:
        kind = OutputFile(*FORMS, ".json") if pareto is None else OutputFolder()
        kind.convert(path, None, None)
    begun = time.monotonic()
    deadline = math.inf if time_limit is None else begun + time_limit
    cache = None if folder is None else synth.Cache(folder)
    with alarm(deadline + _GRACE, synth.TimeUp), _solvers(context, seed) as solvers, _noting(cache):
        with output.watching(f"synthesizing {collective}") as tell:
            try:
                wanted = _wanted(collective, root)
                topology = topologies.load(spec)
                compiling: dict[str, Any] = {
                    "instances": instances,
                    "protocol": protocol,
                    "max_threadblocks": min((n for n in (budget, topology.threadblocks) if n), default=0),
                }
                network = replace(
                    synth.Network.of(topology, None if unit is None else unit * _GB),
                    threadblocks=compiling["max_threadblocks"],
                )
                session = synth.Session(network, solvers, deadline, seed, tell, cache)
                limit = None if memory is None else memory.share(for_size or 0)
                task = synth.task_within(session, wanted, root, most_scratch=limit, compiling=compiling)
            except synth.TimeUp:
                with tell.aside():
                    return show_too_large(collective, spec, as_json=as_json)
            again = _again(collective, spec, unit, root)
            delivery = Delivery(again, pipelined, shlex.quote(spec), path, run, size, not full, compiling, as_json)
            if pareto is not None:
                try:
                    return search_frontier(task, pareto, max_steps, delivery, tell)
                except synth.TimeUp:
                    with tell.aside():
                        show_open(task, _out_of_time(time.monotonic() - begun), delivery)
                    return 1
            count = chunks or (_PIPELINED if pipelined else 1) * task.unit
            search = _search(task, count, steps, rounds, hierarchical=hierarchical)
            if pipelined and network.ranks > 1:
                many = partial(_many, chunks=count, hierarchical=hierarchical)
                search = partial(synth_timed.in_time, task, topology, many, compiling)
            if for_size is not None and network.ranks > 1:
                search = partial(synth_timed.search, task, topology, count, for_size, compiling)
            outcome, bound = _stoppable(task, delivery, tell, search)
        try:
            return deliver(task, outcome, bound, delivery)
        except synth.TimeUp:
            outcome = replace(
                outcome,
                status=synth.OPEN,
                how="the time limit was reached before the schedule was compiled to a program",
            )
            show_open(task, outcome, delivery)
            return 1


def _wanted(collective: str, root: int) -> str | Collective:
    """The collective: a name, or the content of a file."""
    wanted: str | Collective = custom.read(collective) if collective.endswith(".json") else collective
    if root and (not isinstance(wanted, str) or (wanted in demand.NAMES and not collectives.get(wanted).rooted)):
        raise click.UsageError(f"{collective} has no root: leave out --root")
    return wanted


def _left_of(spec: str, cut: tuple[str, ...], gone: tuple[str, ...]) -> str:
    """The machine without what it has lost."""
    for link in cut:
        if "-" not in link:
            raise click.UsageError(f"--without-link {link}: give the two ranks that it joins, as in 0-1")
    for rank in gone:
        if not rank.isdecimal():
            raise click.UsageError(f"--without-rank {rank}: give the number of one rank, as in 3")
    lost = "+".join(cut + gone)
    return f"{spec}{'+' if ':without=' in spec else ':without='}{lost}" if lost else spec


def _again(collective: str, spec: str, unit: float | None, root: int) -> str:
    """The command for another search of the same problem, without its mode."""
    more = f"{f' --unit {unit:g}' if unit is not None else ''}{f' --root {root}' if root else ''}"
    return f"gc3 synth {shlex.quote(collective)} --topology {shlex.quote(spec)}{more}"


def _check_numbers(pareto: int | None, chunks: int | None, steps: int | None, rounds: int | None) -> None:
    if rounds is not None and steps is None:
        raise click.UsageError("--rounds goes with --steps")
    if pareto is not None and chunks is not None:
        raise click.UsageError("--pareto tries all numbers of chunks: leave out --chunks")
    if rounds is not None and steps is not None and rounds < steps:
        raise click.UsageError("every step has at least one round: --rounds cannot be less than --steps")


@contextmanager
def _solvers(context: click.Context, seed: int) -> Generator[synth.Solvers, None, None]:
    """The solvers of a batch, or new ones for this search alone; reports it if they have died."""
    shared = context.find_object(synth.Solvers)
    with synth.Solvers(seed) if shared is None else nullcontext(shared) as solvers:
        solvers.seed, known = seed, len(solvers.deaths)
        try:
            yield solvers
        finally:
            for how in solvers.deaths[known:]:
                output.remark(f"a solver died ({how}): its search counts as open")


@contextmanager
def _noting(cache: synth.Cache | None) -> Generator[None, None, None]:
    """Reports afterwards that schedules could not be kept in the cache."""
    try:
        yield
    finally:
        for why in [] if cache is None else cache.problems[:1]:
            output.remark(f"cannot keep results in the cache: {why}")


def _batch(context: click.Context, path: str) -> int:
    """Runs the searches in the lines of a file with solvers that are started once; returns the worst exit code."""
    worst = 0
    text = read_bytes(path, _LARGEST_BATCH).decode("utf-8", errors="replace")
    with synth.Solvers() as solvers:
        for number, line in enumerate(text.splitlines(), 1):
            words: list[str] = []
            try:
                words = shlex.split(line, comments=True)
                if not words:
                    continue
                if "--batch" in words or words[0] in synth_command.further:
                    raise click.UsageError("a batch cannot contain --batch or best")
                code = synth_command.main(words, context.info_name, standalone_mode=False, obj=solvers)
            except errors.Gc3Error as problem:
                output.report_error(problem, as_json="--json" in words)
                code = 1
            except (click.UsageError, ValueError) as problem:
                what = problem.message if isinstance(problem, click.UsageError) else str(problem)
                raise click.UsageError(f"line {number} of {path}: {what}") from problem
            worst = max(worst, int(code or 0))
    return worst


def _search(
    task: synth.Task, count: int, steps: int | None, rounds: int | None, *, hierarchical: bool
) -> Callable[[], tuple[synth.Outcome, synth.Bound | None]]:
    """The function that searches for a schedule and returns it with a bound for its steps, if there is one."""
    if task.network.ranks == 1:
        return lambda: (task.alone(count), None)
    if hierarchical:
        return lambda: (task.hierarchical(count), None)
    return lambda: _in_steps(task, count, steps, rounds)


def _many(task: synth.Task, *, chunks: int, hierarchical: bool) -> synth.Outcome:
    return task.hierarchical(chunks, overlapped=True) if hierarchical else task.pipelined(chunks)


def _stoppable(
    task: synth.Task,
    delivery: Delivery,
    tell: output.Watch,
    search: Callable[[], tuple[synth.Outcome, synth.Bound | None]],
) -> tuple[synth.Outcome, synth.Bound | None]:
    """The result of a search at the time limit; after Ctrl-C, the results so far are printed."""
    begun = time.monotonic()
    try:
        return search()
    except synth.TimeUp:
        return _out_of_time(time.monotonic() - begun), None
    except KeyboardInterrupt:
        with tell.aside():
            stopped = synth.Outcome(synth.OPEN, None, "interrupted", None, time.monotonic() - begun)
            show_open(task, stopped, delivery)
        raise


def _out_of_time(seconds: float) -> synth.Outcome:
    return synth.Outcome(synth.OPEN, None, "the time limit was reached", None, seconds)


def _in_steps(
    task: synth.Task, chunks: int, steps: int | None, rounds: int | None
) -> tuple[synth.Outcome, synth.Bound | None]:
    """Searches for a schedule of given steps and rounds, by default the fewest; also returns a bound for the steps."""
    asked = task.least_steps() if steps is None else steps
    if rounds is not None:
        outcome = task.solve(chunks, asked, rounds)
        return outcome, task.in_steps(asked) if outcome.result is not None else None
    with task.reserving(_FOR_PARTS if task.network.nodes else 0.0):
        outcome = task.least_rounds(chunks, asked)
    if outcome.status == synth.OPEN and task.network.nodes and task.session.left > 0:
        output.remark("the whole problem was too large for the time limit: composing parts, as with --hierarchical")
        return task.hierarchical(chunks), None
    return outcome, task.in_steps(asked) if outcome.result is not None else None
