"""gc3 gain."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gc3 import _core, errors, mscclpp, synth
from gc3.cli import options, output, sizes
from gc3.cli.baselines import nccl_of, of_nccl
from gc3.cli.command import Command, gathered
from gc3.cli.files import OutputFile
from gc3.cli.interrupt import INTERRUPTED
from gc3.cli.machine import machine_option, split_preset
from gc3.cli.parsed import Parsed
from gc3.cli.sim_step import Chooser
from gc3.cli.variants import load_platform
from gc3.comm import programs
from gc3.report import gain_page
from gc3.report.gain_page import Gain, Ratio, StepGain
from gc3.runtime import for_target, targets
from gc3.runtime.program import dialect_of
from gc3.sim import step, trust
from gc3.sim.nccl import graphs
from gc3.sim.nccl.system import idle
from gc3.sim.presets import PRESETS
from gc3.sim.read import chakra
from gc3.sim.step import Chosen
from gc3.support.files import write_text
from gc3.support.words import counted
from gc3.topologies.processors import IDEAL, PROCESSORS
from gc3.tune import Best, simulated

if TYPE_CHECKING:
    from gc3.comm.spec import Spec
    from gc3.sim import Platform
    from gc3.sim.nccl import Nccl
    from gc3.sim.read.chakra import Trace
    from gc3.sim.step import Step
    from gc3.topologies import Topology

# With the programs of nccl-tests that measure them.
_COLLECTIVES = {
    "allreduce": "all_reduce_perf",
    "allgather": "all_gather_perf",
    "reducescatter": "reduce_scatter_perf",
    "alltoall": "alltoall_perf",
    "broadcast": "broadcast_perf",
}
_SIZES = "1KiB,16KiB,256KiB,4MiB,64MiB,1GiB"
_SECONDS = 200.0  # for the search; proving and NCCL come on top
_OF_LIBRARY = 0.9  # of the time: the most that the library's programs take, so that each call has one
_OF_A_STEP = 6  # sizes of a collective for which programs are searched
# How the runtimes are told about a file: MSCCL's README (github.com/microsoft/msccl), and src/misc/msccl of RCCL.
_SETTINGS = {
    "msccl": "-x NCCL_ALGO=MSCCL,RING,TREE -x MSCCL_XML_FILES={file}",
    "azure": "-x NCCL_MSCCL_ENABLE=1 -x MSCCL_ALGO_DIR={folder}",
    "rccl": "-x RCCL_MSCCL_FORCE_ENABLE=1 -x MSCCL_ALGO_DIR={folder}",
}
_NAMES = {"msccl": "MSCCL", "azure": "MSCCL of Azure", "rccl": "RCCL"}


@dataclass(frozen=True, slots=True)
class _Given:
    """The command line."""

    machine: str
    wanted: tuple[int, ...]
    recorded: tuple[str, ...]
    file: str | None
    as_json: bool


class _Sizes(Parsed):
    """Sizes with commas between them."""

    name = "sizes"

    def parse(self, text: str) -> tuple[int, ...]:
        """Returns the bytes of each."""
        found = sorted({sizes.parse_size(each) for each in text.split(",")})
        if found[0] == 0:
            raise ValueError(f"'{text}': a size is 0: give ones above 0")
        return tuple(found)


@click.command(
    "gain",
    cls=Command,
    examples=[
        "gc3 gain -t ndv4",
        "gc3 gain -t ndv4:N=2 -o gain.html",
        "gc3 gain -t dgx1 --sizes 64KiB,16MiB --json",
        "gc3 gain -t ndv4 --from examples/transformer.et",
    ],
)
@machine_option(required=True)
@click.option("--sizes", "wanted", type=_Sizes(), default=_SIZES, show_default=True, metavar="SIZE,...",
              help="S of the calls.")  # fmt: skip
@click.option("--from", "recorded", metavar="FILE", multiple=True,
              help="What was recorded: a log of NCCL's graphs and choices, as gc3 sim --nccl-log reads it; a trace, as "
              "in gc3 sim step, for its calls and the whole step. Once for each.")  # fmt: skip
@click.option("-o", "--output", "file", type=OutputFile(".html"), metavar="FILE.html", help="Write a page, too.")
@options.json_option
@gathered(_Given)
def gain(given: _Given) -> int:
    """Say what programs would gain over NCCL on a machine, which need not exist.

    For AllReduce, AllGather, ReduceScatter, AllToAll and Broadcast at each size: what NCCL takes, what the best program
    takes, of the library or synthesized, and how they compare, within the errors of both predictions. With each program
    are the runtimes that execute it, the commands that write its file, and those that measure it and NCCL. They are on
    the page and in the JSON; the terminal shows those of programs whose gain exceeds the error.

    Ctrl-C shows what was found.
    """
    machine = _with_gpus(given.machine)
    on = load_platform(machine)
    if on.topology.rank_count == 1:
        raise click.UsageError(f"{on.topology.name} has one rank, which needs no program")
    with synth.Solvers(0) as solvers:  # before anything is searched: can all ranks reach each other?
        synth.Task(synth.Session(synth.Network.of(on.topology), solvers), "allgather").least_steps()
    traces = None
    wanted = {name: list(given.wanted) for name in _COLLECTIVES}
    log, trace = _recorded(given.recorded)
    if trace is not None:
        if click.get_current_context().get_parameter_source("wanted") is not ParameterSource.DEFAULT:
            raise click.UsageError(f"the sizes are those of '{trace}': leave out --sizes")
        with output.working("reading"):
            traces = chakra.read_all(trace, on.topology.rank_count)
    nccls = {name: _nccl(on, name, log) for name in _COLLECTIVES}
    for told in idle(on.topology) if on.topology.node_count > 1 else ():
        output.remark(told)
    before = None
    if traces is not None:
        with output.working("simulating the step with NCCL"):
            before = step.simulate(on, traces, Chooser(on, {}, None, ""))
        wanted = _calls(before, on, trace or "")
    searches = {name: Best(name, on) for name in wanted}
    interrupted = _search(on, searches, wanted, time.monotonic() + _SECONDS)
    with output.working("proving"):
        gains = [
            _gain(machine, searches[name], nccls[name], size, wanted[name]) for name in wanted for size in wanted[name]
        ]
    whole = None
    if traces is not None and before is not None:
        whole = _step(on, traces, before, gains, trace or "")
    nodes = f", {counted(on.topology.node_count, 'node')}" if on.topology.node_count > 1 else ""
    title = f"What programs would gain over NCCL on {on.topology.name}: {on.topology.rank_count} ranks{nodes}"
    unknown = _unknown(on, gains, nccls.values(), before)
    if machine != given.machine:
        unknown.insert(0, f"{on.topology.name} does not name its GPUs: they are taken for {on.parameters.name}. "
                          f"Another preset={', '.join(PROCESSORS)} may follow the machine.")  # fmt: skip
    if cut := sum(size not in searches[name].searched for name in wanted for size in wanted[name]):
        ended = "was interrupted" if interrupted else f"ended after {_SECONDS:.0f} s"
        unknown.append(f"The search {ended}, and was not through with {counted(cut, 'call')}: programs may be faster "
                       "than shown. Fewer --sizes leave more time for each.")  # fmt: skip
    if given.file is not None:
        write_text(given.file, gain_page.write(title, gains, whole, unknown))
    if given.as_json:
        shown = {"machine": on.topology.name, "ranks": on.topology.rank_count, "finished": not interrupted}
        found = [each.data() for each in gains]
        output.emit({**shown, "gains": found, "step": whole and whole.data(), "not_known": unknown})
    else:
        _show(title, gains, whole, unknown)
    return INTERRUPTED if interrupted else 0


def _with_gpus(machine: str) -> str:
    """A machine with the GPUs whose constants NCCL gets there, if it does not name them.

    Beside NCCL's times, which have launches and kernels, those of programs with links only would be no answer.

    >>> _with_gpus("ring:R=4"), _with_gpus("ndv4")
    ('ring:R=4,preset=a100', 'ndv4')
    """
    on = load_platform(machine)
    if on.parameters.name != IDEAL:
        return machine
    if split_preset(machine)[1] is not None:
        raise click.UsageError(f"preset={IDEAL} is links only, and NCCL's times are not: name a preset of GPUs")
    fits, _ = graphs.generation(on.topology)
    gpus = next(name for name, about in PROCESSORS.items() if about.generation == fits and name in PRESETS)
    return f"{machine}{',' if ':' in machine else ':'}preset={gpus}"


def _recorded(given: Sequence[str]) -> tuple[str | None, str | None]:
    """The log of NCCL and the trace among what was recorded."""
    traces = [each for each in given if each.endswith((".et", ".json")) or Path(f"{each}.0.et").is_file()]
    logs = [each for each in given if each not in traces]
    for what, some in (("traces", traces), ("logs of NCCL", logs)):
        if len(some) > 1:
            raise click.UsageError(f"--from names {len(some)} {what}, '{some[0]}' and '{some[1]}': give one")
    return next(iter(logs), None), next(iter(traces), None)


def _nccl(on: Platform, name: str, log: str | None) -> Nccl | errors.UserError:
    """NCCL for a collective, or why its time is not known."""
    try:
        return nccl_of(on, name, None, log)
    except errors.UserError as problem:
        if log is not None:
            raise
        return problem


def _calls(found: Step, on: Platform, trace: str) -> dict[str, list[int]]:
    """The sizes of a step's calls of all ranks, those that take the most time."""
    took: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for call in found.calls:
        if call.what in _COLLECTIVES and len(call.ranks) == on.topology.rank_count and call.size > 0:
            took[call.what][call.size] += call.end_s - call.last_s
    if not took:
        names = ", ".join(_COLLECTIVES)
        ranks = f"all {on.topology.rank_count} ranks of {on.topology.name}"
        raise errors.error("BadTrace", f"'{trace}' has no call of {ranks} that programs could speed up ({names})")
    return {name: sorted(sorted(each, key=lambda s: -each[s])[:_OF_A_STEP]) for name, each in took.items()}


def _search(on: Platform, searches: dict[str, Best], wanted: dict[str, list[int]], deadline: float) -> bool:
    """Looks for the best programs, the library's of all collectives first; whether Ctrl-C has ended that."""
    now, library = "", deadline - (1 - _OF_LIBRARY) * _SECONDS

    def tell(part: str) -> None:
        nonlocal now
        now = part
        watch(part)

    try:
        with synth.Solvers(0) as solvers, output.never_silent(lambda: now), output.watching("searching") as watch:
            for number, (name, search) in enumerate(searches.items()):
                at = f"{number + 1} of {2 * len(searches)}, {name}, "
                share = (library - time.monotonic()) / (len(searches) - number)
                search.library(wanted[name], lambda part, at=at: tell(at + part), time.monotonic() + share)
            for number, (name, search) in enumerate(searches.items()):
                share = (deadline - time.monotonic()) / (len(searches) - number)
                at = f"{len(searches) + number + 1} of {2 * len(searches)}, "
                search.run(solvers, 0, wanted[name], share, lambda part, at=at: tell(at + part), library=False)
    except KeyboardInterrupt:
        return True
    return False


def _gain(machine: str, search: Best, nccl: Nccl | errors.UserError, size: int, every: Sequence[int]) -> Gain:
    """A call with all that is told of it."""
    on, name = search.platform, search.collective
    measure_nccl = f"mpirun -np {on.topology.rank_count} {_COLLECTIVES[name]} -b {size} -e {size}"
    try:
        if isinstance(nccl, errors.UserError):
            raise nccl
        cell = nccl(size)
        told = f"{cell.program}: {cell.cause}"
        beside = Gain(name, size, told, cell.time_s, of_nccl(nccl, size), measure_nccl)
    except errors.UserError as problem:
        beside = Gain(name, size, f"not known: {problem.diagnostics[0].message}", 0.0, None, measure_nccl)
    if not search.has(size):
        return beside
    found = search.found[size]
    spec, took = found.best
    made, runtimes, worth = spec != found.default, _runtimes(search, spec), simulated.worth(on, found, spec)
    xml = next((runtime for runtime in targets.NAMES if _NAMES[runtime] in runtimes), None)
    deploy, measure = _commands(machine, search, spec, size, every, xml, synthesized=made)
    return replace(beside, program=search.describe(spec), synthesized=made, own_s=1e-6 * took, own=worth,
                   runtimes=runtimes, deploy=deploy, measure=measure)  # fmt: skip


def _amd(topology: Topology) -> bool:
    processor = PROCESSORS.get(topology.processor or "")
    return processor is not None and processor.generation.startswith(("cdna", "gcn"))


def _runtimes(search: Best, spec: Spec) -> tuple[str, ...]:
    """Who executes a program correctly, by a proof of what it executes."""
    program, topology = search.program(spec), search.platform.topology
    found: list[str] = []
    for runtime in ("rccl",) if _amd(topology) else ("msccl", "azure"):
        try:
            for_target.prove(program.core, runtime, dialect_of(runtime))
            found.append(_NAMES[runtime])
        except errors.UserError:
            continue
    if topology.node_count == 1 and spec.protocol == "Simple":
        try:
            mscclpp.plan_of(_core.lower(program.core))
            found.append("MSCCL++ plan")
        except errors.UserError:
            pass
    return (*found, *([] if _amd(topology) else ["GC3"]))


def _text(spec: Spec, topology: Topology, in_place: bool) -> str:
    """A program of the library for the command line."""
    ranks, nodes = topology.rank_count, topology.node_count
    known = {"ranks": ranks, "root": 0, "nodes": nodes, "ranks_per_node": ranks // nodes}
    given = {name: known[value] if isinstance(value, str) else value for name, value in spec.parameters}
    how = {"instances": spec.instances, "protocol": spec.protocol, **({"in_place": "yes"} if in_place else {})}
    how |= {"max_threadblocks": spec.threadblocks} if spec.threadblocks else {}
    return f"{spec.algorithm}:" + ",".join(f"{key}={value}" for key, value in {**given, **how}.items())


def _commands(
    machine: str, search: Best, spec: Spec, size: int, every: Sequence[int], xml: str | None, *, synthesized: bool
) -> tuple[tuple[str, ...], str]:
    """The commands that write a program's file, and the one that measures it."""
    topology, name = search.platform.topology, search.collective
    file, later = f"{name}_{size}", every[every.index(size) + 1 :]
    gpus = f"mpirun -np {topology.rank_count} {{}} {_COLLECTIVES[name]} -b {size} -e {size}"
    bench = f"gc3 bench {{}} --engine cuda -b {size} -e {size}" if topology.node_count == 1 else ""
    bench = "" if _amd(topology) else bench
    if synthesized or spec.order:  # no name of the command line stands for it
        table = f"{file}.json"
        made = join(["gc3", "synth", "best", name, "-t", machine, "-b", str(size), "-e", str(size), "-o", table])
        if xml is None:
            return (made,), bench.format(f"{programs.folder(table).name}/*.gc3") if synthesized else ""
        wrote = join(["gc3", "export", table, "-o", file, "--target", xml, "--ranks", str(topology.rank_count)])
        return (f"{made} --target {xml}", wrote), gpus.format(
            _SETTINGS[xml].format(file=f"$(ls {file}/*.xml | paste -sd:)", folder=file)
        )
    text = _text(spec, topology, search.in_place)
    if xml is None:
        return (join(["gc3", "compile", text, "-o", f"{file}.gc3"]),), bench.format(f"{file}.gc3")
    folder = "." if xml == "msccl" else file
    path = f"{file}.xml" if xml == "msccl" else f"{file}/{file}.xml"
    limits = [*(["--min-bytes", str(size)] if size != every[0] else []),
              *(["--max-bytes", str(later[0] - 1)] if later else [])]  # fmt: skip
    wrote = join(["gc3", "export", text, "-o", path, "--target", xml, *limits])
    before = () if folder == "." else (join(["mkdir", "-p", folder]),)
    return (*before, wrote), gpus.format(_SETTINGS[xml].format(file=path, folder=folder))


def _step(on: Platform, traces: Sequence[Trace], before: Step, gains: Sequence[Gain], trace: str) -> StepGain:
    """The whole step with programs where they are predicted to be faster, each in its time alone, as NCCL's are."""
    faster = {(g.collective, g.size): g for g in gains if g.ratio is not None and g.ratio.value > 1}
    nccl = Chooser(on, {}, None, "")

    def choose(what: str, ranks: tuple[int, ...], size: int) -> Chosen:
        found = faster.get((what, size)) if len(ranks) == on.topology.rank_count else None
        return nccl(what, ranks, size) if found is None else Chosen(found.program, None, found.own_s)

    with output.working("simulating the step with programs"):
        after = step.simulate(on, traces, choose)
    used = [faster[c.what, c.size] for c in after.calls
            if len(c.ranks) == on.topology.rank_count and (c.what, c.size) in faster]  # fmt: skip
    error = max((each.error for each in used), default=0.0)

    def ratio(spread: float) -> float:
        """With exposed communication that takes longer by a factor."""
        return before.time_s / (after.time_s + after.exposed_s * (spread - 1)) if after.time_s > 0 else 1.0

    e = math.exp(error)
    whole = Ratio(before.time_s, after.time_s, ratio(e), ratio(1 / e))
    exposed = before.exposed_s, after.exposed_s
    return StepGain(Path(trace).name, whole, exposed, len(used), len(before.calls))


def _unknown(
    on: Platform, gains: Sequence[Gain], nccls: Iterable[Nccl | errors.UserError], before: Step | None
) -> list[str]:
    """What a reader has to know besides the numbers."""
    told: dict[str, None] = {f"Predicted, not measured: {trust.preset(on)}.": None}
    for what, known in (
        ("programs", [(g.collective, g.size, g.own) for g in gains if g.own is not None]),
        ("NCCL", [(g.collective, g.size, g.theirs) for g in gains if g.theirs is not None]),
    ):
        by: dict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys(name for name, *_ in known):
            by[trust.summary((s, w) for n, s, w in known if n == name)].append(name)
        told |= {f"Errors of {what}, {', '.join(names)}: {text}.": None for text, names in by.items()}
    told |= {f"{gain.collective}: NCCL's time is {gain.nccl.rstrip('.')}.": None for gain in gains if not gain.nccl_s}
    for nccl in nccls:
        if not isinstance(nccl, errors.UserError):
            told |= dict.fromkeys([f"The library is {nccl.label}.", *(f"{nccl.label}: {note}." for note in nccl.notes)])
    if missing := [g for g in gains if not g.program]:
        told[f"{counted(len(missing), 'call')}: no program was found in time; ask for fewer --sizes."] = None
    told["Runtimes other than GC3 have FIFOs of their own: times are with those that a program names."] = None
    if any("GC3" in gain.runtimes for gain in gains) and on.topology.node_count > 1:
        told["GC3 itself moves data between hosts through pinned memory, which the times do not have."] = None
    if before is not None:
        told["In the step each collective takes its time alone: what shares links with others takes longer."] = None
        if before.untimed:
            nodes = counted(before.untimed, "node")
            told[f"{nodes} of the trace compute and have no duration: they take no time."] = None
    return list(told)


def _show(title: str, gains: Sequence[Gain], whole: StepGain | None, unknown: Sequence[str]) -> None:
    click.secho(f"# {title}", bold=True)
    output.comment(*gain_page.answer(gains, whole))
    rows = [gain_page.HEADS, *(each.cells for each in gains)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, each in zip(rows, [None, *gains], strict=True):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        click.secho(output.fitted(line, "    "), bold=each is not None and each.wins)
    if any(each.wins for each in gains):
        output.comment("of each that is faster by more than the error: write it, measure it, and measure NCCL")
    for each in gains:
        for text in each.commands if each.wins else ():
            click.echo(f"{'' if text is not each.commands[0] else chr(10)}    {text}")
    for text in unknown:
        output.remark(text)
