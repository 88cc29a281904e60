"""gc3 synth."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from gc3 import collectives, errors, synth, topologies
from gc3.cli import completion, options, output, sizes, synth_one_rank, synth_timed
from gc3.cli.command import WithFurther
from gc3.cli.files import OutputFile, OutputFolder
from gc3.cli.machine import machine_option
from gc3.cli.synth_best import best
from gc3.cli.synth_delivery import Delivery, deliver, search_frontier, show_open, show_too_large
from gc3.collectives import Collective
from gc3.runtime.program import FORMS
from gc3.runtime.scratch import ScratchLimit
from gc3.support.alarm import alarm
from gc3.support.files import read_bytes
from gc3.synth import problem
from gc3.synth.compose.rails import one_node
from gc3.synth.problem import demand

_GB = 1e9
_MOST_CHUNKS = 1 << 14
_PIPELINED = 16  # chunks for each required one, if none are given
_LARGEST_BATCH = 1 << 20  # bytes
_FOR_PARTS = 0.4  # of the time: for composing parts if the whole was too large
_ONE_OF = "--steps S, --steps least, --pareto K, --pipelined, --hierarchical and --for-size S"
_MOST_STEPS = 16  # of --pareto, if none are given
_GRACE = 0.1  # seconds beyond the limit for code that checks the time itself


def _steps(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """A number, or 0 for the fewest."""
    if given is None or given == "least":
        return None if given is None else 0
    if not given.isdecimal() or int(given) == 0:
        raise click.BadParameter(f"'{given}' is neither a number of steps nor least")
    return int(given)


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    collective: options.Asked
    spec: str | None
    unit: float | None
    chunks: int | None
    steps: int | None  # 0: the fewest
    rounds: int | None
    pareto: int | None
    pipelined: bool
    hierarchical: bool
    for_size: int | None
    memory: ScratchLimit | None
    time_limit: float | None
    seed: int
    folder: str | None
    path: str | None
    run: int | None  # S of the run, if any
    as_json: bool

    @property
    def name(self) -> str:
        """The collective, or its file."""
        return self.collective.name

    @property
    def root(self) -> int:
        """Of a rooted collective."""
        return self.collective.how.parameters.get("root", 0)

    def check(self) -> None:
        """Refuses what does not go together."""
        how = self.collective.how
        others = [key for key in how.parameters if key != "root"]
        others += [
            key for key in ("in_place", "fuse", "window", "slots", "collective") if getattr(how, key) is not None
        ]
        if others or self.root < 0:
            keys = "root, protocol, instances and max_threadblocks"
            raise click.UsageError(f"'{self.collective.text}': {keys} may follow a collective")
        searches = self.pipelined or self.hierarchical
        modes = (self.pareto is not None, searches, self.for_size is not None)
        if sum(modes) + (self.steps is not None and self.pareto is None) != 1:
            raise click.UsageError(f"give one of {_ONE_OF}")
        if self.for_size == 0:
            raise click.UsageError("--for-size 0: give a size above 0")
        if self.pareto is not None and self.steps == 0:
            raise click.UsageError("--pareto takes a number as --steps, the most")
        if self.rounds is not None and (not self.steps or self.pareto is not None):
            raise click.UsageError("--rounds goes with --steps")
        if self.pareto is not None and self.chunks is not None:
            raise click.UsageError("--pareto tries all numbers of chunks: leave out --chunks")
        if self.rounds is not None and self.rounds < (self.steps or 0):
            raise click.UsageError("every step has at least one round: --rounds cannot be less than --steps")
        synth_timed.check_limit(self.memory, self.for_size)
        if self.path is not None:
            kind = OutputFile(*FORMS, ".json") if self.pareto is None else OutputFolder()
            kind.convert(self.path, None, None)

    def check_large(self, ranks: int) -> float | None:
        """Refuses what a schedule that one rank stands for lacks; returns its bytes/s for a chunk per round."""
        more = {
            "--pipelined": self.pipelined,
            "--max-scratch": self.memory is not None,
            "--run": self.run is not None,
            "instances": (self.collective.how.instances or 1) > 1,
            "a FILE.json": self.name.endswith(".json") or (self.path or "").endswith(".json"),
        }
        for what, asked in more.items():
            if asked:
                raise click.UsageError(f"one rank stands for all {ranks} of so large a machine: leave out {what}")
        return None if self.unit is None else self.unit * _GB

    def wanted(self) -> str | Collective:
        """The collective: a name, or the content of a file."""
        wanted: str | Collective = problem.read(self.name) if self.name.endswith(".json") else self.name
        if self.root and (
            not isinstance(wanted, str) or (wanted in demand.NAMES and not collectives.get(wanted).rooted)
        ):
            raise click.UsageError(f"{self.name} has no root: leave out root={self.root}")
        return wanted

    def again(self, spec: str) -> str:
        """The command for another search of the same problem, without its mode."""
        more = f" --unit {self.unit:g}" if self.unit is not None else ""
        what = f"{self.name}:root={self.root}" if self.root else self.name
        return f"gc3 synth {shlex.quote(what)} --topology {shlex.quote(spec)}{more}"


@click.command(
    "synth",
    cls=WithFurther,
    further={"best": best},
    examples=[
        "gc3 synth allgather --topology dgx1 --chunks 6 --steps 3 --rounds 7 -o ag.gc3",
        "gc3 synth alltoall --topology dgx1 --steps least --run",
        "gc3 synth broadcast:root=1 --topology dgx1 --pareto 4 --steps 8",
        "gc3 synth allreduce --topology dgx1 --chunks 48 --steps 6 --rounds 14 -o ar.json",
        "gc3 synth allgather --topology dgx2 --unit 150 --steps least",
        "gc3 synth allgather --topology ndv4:N=2 --unit 25 --pipelined --chunks 26",
        "gc3 synth allreduce --topology ndv4:N=4 --unit 25 --hierarchical",
        "gc3 synth allreduce --topology ndv4:N=4 --unit 25 --hierarchical --pipelined",
        "gc3 synth allgather:protocol=LL128,max_threadblocks=16 --topology summit:N=2 --for-size 64KiB",
        "gc3 synth alltoall --topology dgx1 --pipelined --max-scratch 16MiB/256MiB",
        "gc3 synth broadcast:protocol=LL,instances=2 --topology ring:R=4 --steps least",
        "gc3 synth allgather --topology dgx1:without=0-1 --pipelined",
        "gc3 synth rows.txt",
        "gc3 synth best allgather --topology dgx1 -b 1KiB -e 1GiB -o table.json",
        "gc3 synth my_gatherv.json --topology my_machine.json --steps least --run",
    ],
    short_help="Find optimal algorithms for a topology, proven.",
)
@click.argument("collective", type=options.Program(), shell_complete=completion.problems)
@machine_option(
    "A machine: `gc3 topo list`, NAME:N=2, NAME:without=0-1+3 with lost links and ranks, or FILE.json.",
    "spec",
)
@click.option("--unit", type=options.Positive(), metavar="GB/S",
              help="The bandwidth that carries a chunk per round.  [default: that of the slowest lane]")  # fmt: skip
@click.option("--chunks", "-C", type=click.IntRange(1, _MOST_CHUNKS), metavar="C",
              help="Number of chunks of a rank's input.  [default: as few as the collective allows]")  # fmt: skip
@click.option("--steps", "-S", callback=_steps, metavar="S|least",
              help="Steps; least: the fewest. Of --pareto, the most: 16, or S.")  # fmt: skip
@click.option("--rounds", "-R", type=click.IntRange(min=1), metavar="R",
              help="Rounds of all steps together.  [default: the fewest]")  # fmt: skip
@click.option("--pareto", type=click.IntRange(0, 100), metavar="K",
              help="Find the frontier of steps and R/C, with R <= S + K.")  # fmt: skip
@click.option("--pipelined", is_flag=True, help="Pipeline many chunks over trees, near the bound on R/C.")
@click.option("--hierarchical", is_flag=True,
              help="Compose schedules inside nodes and between them; with --pipelined, they overlap.")  # fmt: skip
@click.option("--for-size", type=sizes.Size(), help="Find a schedule that takes little time at this S.")
@click.option("--max-scratch", "memory", type=sizes.Scratch(), metavar="BYTES/S",
              help="Scratch memory that a rank may use in calls of S bytes: 64MiB/256MiB, or 1/4. With --for-size S, "
              "BYTES suffices.  [default: no limit]")  # fmt: skip
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
@click.option("--run", type=sizes.Size(), is_flag=False, flag_value="64KiB", metavar="[S]",
              help="Run it on this machine's CPU and compare with NumPy.  [default: S=64KiB]")  # fmt: skip
@options.json_option
@click.pass_context
def synth_command(context: click.Context, **given: Any) -> int:
    """Synthesize a COLLECTIVE for a topology, or prove that no algorithm meets the limits.

    COLLECTIVE is one of allgather, alltoall, broadcast, gather, scatter, alltonext, reduce, reducescatter, allreduce,
    or a FILE.json with "chunks", each with the ranks that contribute to it ("pre") and those that must have the sum
    after ("post"); or "groups" of ranks with a collective each; or "counts" of an uneven all-to-all. See
    docs/synthesis.md. After it may follow root=R, and of the program protocol, instances and max_threadblocks (if a
    rank shall have fewer than its GPU holds): broadcast:root=1,protocol=LL. Or a file of searches FILE.txt: each line
    has a collective and its options, and all run in one process.

    An algorithm of C chunks, S steps and R rounds takes S * alpha + R/C * L * beta for L bytes of input (001 section
    3.6). Every result is checked and compiled to a program, and the program is proven.

    `gc3 synth best COLLECTIVE -t MACHINE -o table.json` finds the fastest programs for all sizes: see gc3 synth best
    --help.

    Exit codes: 0 found; 1 proven impossible, or nothing found in time.
    """
    line = _Given(**given)
    if line.name.endswith(".txt"):
        return _batch(context, line.name)
    if line.spec is None:
        raise click.UsageError("give --topology SPEC")
    line.check()
    return _one(context, line, line.spec)


def _one(context: click.Context, given: _Given, spec: str) -> int:
    """Searches, and delivers what was found."""
    how, root, pareto, pipelined = given.collective.how, given.root, given.pareto, given.pipelined
    begun = time.monotonic()
    deadline = math.inf if given.time_limit is None else begun + given.time_limit
    cache = None if given.folder is None else synth.Cache(given.folder)
    with alarm(deadline + _GRACE, synth.TimeUp), _solvers(context, given.seed) as solvers, _noting(cache):
        with output.watching(f"synthesizing {given.name}") as tell:
            try:
                wanted = given.wanted()
                topology = topologies.load(spec)
                compiling: dict[str, Any] = {
                    "instances": how.instances or 1,
                    "protocol": how.protocol or "Simple",
                    "max_threadblocks": min((n for n in (how.max_threadblocks, topology.threadblocks) if n), default=0),
                }
                if given.hierarchical and topology.node_count == 1 < topology.rank_count:
                    raise one_node(topology.name)
                if given.hierarchical and topology.most_pairs > synth.MOST_PAIRS:
                    unit = given.check_large(topology.rank_count)
                    found = synth_one_rank.find(topology, given.name, given.chunks, unit, compiling)
                    with tell.aside():
                        at = shlex.quote(spec)
                        return synth_one_rank.show(topology, *found, unit, given.path, at, as_json=given.as_json)
                network = replace(
                    synth.Network.of(topology, None if given.unit is None else given.unit * _GB),
                    threadblocks=compiling["max_threadblocks"],
                )
                session = synth.Session(network, solvers, deadline, given.seed, tell, cache)
                limit = None if given.memory is None else given.memory.share(given.for_size or 0)
                task = synth.task_within(session, wanted, root, most_scratch=limit, compiling=compiling)
            except synth.TimeUp:
                with tell.aside():
                    return show_too_large(given.name, spec, as_json=given.as_json)
            delivery = Delivery(
                given.again(spec), pipelined, shlex.quote(spec), given.path, given.run, compiling, given.as_json
            )
            if pareto is not None:
                try:
                    return search_frontier(task, pareto, given.steps or _MOST_STEPS, delivery, tell)
                except synth.TimeUp:
                    with tell.aside():
                        show_open(task, _out_of_time(time.monotonic() - begun), delivery)
                    return 1
            count = given.chunks or (_PIPELINED if pipelined else 1) * task.unit
            search = _search(task, count, given.steps or None, given.rounds, hierarchical=given.hierarchical)
            if pipelined and network.ranks > 1:
                many = partial(_many, chunks=count, hierarchical=given.hierarchical)
                search = partial(synth_timed.in_time, task, topology, many, compiling)
            if given.for_size is not None and network.ranks > 1:
                search = partial(synth_timed.search, task, topology, count, given.for_size, compiling)
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
                if words[0].endswith(".txt") or words[0] in synth_command.further:
                    raise click.UsageError("such a file cannot contain best or another file")
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
