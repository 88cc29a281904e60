"""gc3 sim calibrate --engine: measures an engine on this machine, and keeps its preset."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from gc3 import errors
from gc3.cli import output, sizes
from gc3.comm.spec import Spec
from gc3.comm.world import WorldError
from gc3.runtime import kept_files
from gc3.runtime.measure import cores
from gc3.sim import preset_file, presets
from gc3.sim.fit import cpu
from gc3.sim.fit.cpu_samples import SECONDS, SIZES, TRAINING, TURNS, UNSEEN, Sample, Timed, Times, measure
from gc3.support.files import write_text
from gc3.support.words import counted
from gc3.tune.timers import RankTimer, ThreadTimer

_DISTURBED = 0.15  # the spread of turns from which other work is likely
LONGEST = 60.0  # seconds of a calibration; what has begun by then is finished

if TYPE_CHECKING:
    from collections.abc import Callable

    Ranks = Callable[[int], AbstractContextManager[Timed]]


@contextmanager
def _ranks(engine: str, count: int) -> Generator[Timed, None, None]:
    """Yields what times samples on so many ranks of an engine."""
    timer = ThreadTimer(count) if engine == "threads" else RankTimer(count)
    with timer:

        def timed(sample: Sample, size: int, warmup: int, iterations: int) -> Sequence[float]:
            spec = Spec(sample.algorithm, sample.parameters, sample.instances, sample.protocol)
            model = sample.compile().collective
            try:
                return timer.seconds(spec, model.name, size, warmup, iterations, in_place=model.in_place)
            except WorldError as problem:
                raise errors.error("RankFailed", f"'{sample.name}' of {size} B was not run: {problem}") from problem

        yield timed


class _Clock:
    """Says when no further step of a fit would end in time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._asked: float | None = None
        self.ended = False

    def ends(self) -> bool:
        """To be asked before each step; one is always made."""
        now = time.monotonic()
        # A step takes as long as the one before, and half of that follows the last one.
        self.ended = self._asked is not None and now + 1.5 * (now - self._asked) > self._end
        self._asked = now
        return self.ended


def calibrate_engine(engine: str, target: str | None, *, as_json: bool) -> int:
    """Measures an engine on this machine, fits its preset, and keeps that for later simulations."""
    clock = _Clock(LONGEST)
    with kept_files.alone(kept_files.BUSY, "BadMeasurements"):
        times = Times.kept(engine)
        if times.count:
            output.remark(
                f"{counted(times.count, 'measurement')} of an unfinished calibration are in '{times.path}': it goes on"
            )
        samples = (*TRAINING, *UNSEEN)
        all_run = run(engine, times, samples, partial(_ranks, engine))
        trained, unseen = times.cases(TRAINING), times.cases(UNSEEN)
        if not trained or not unseen:
            told = f"{_measured_only(times, samples)}, too few for a fit; {_rest(times)}"
            raise errors.error("BadMeasurements", told)
        thresholds = cpu.probed(4) if engine == "processes" else None
        with output.progress("fitting", cpu.STEPS, printing=False) as begin:
            first, shipped = cpu.start(engine, cores(), thresholds), presets.get(f"cpu-{engine}")
            fit = cpu.fit(engine, first, trained, unseen, shipped, begin=begin, ends=clock.ends)
        # Of few programs a fit can be worse than what there is; then simulations do not use it.
        good = all_run or fit.errors[-1].median <= fit.before[-1].median
        kept = cpu.keep(engine, fit.parameters) if good else None
        if all_run and not clock.ended:
            times.forget()
    if target is not None:
        write_text(target, preset_file.dumps(fit.parameters))
    if not all_run:
        not_kept = "" if good else "; it is not kept, because the preset that gc3 brings predicts the others better"
        output.remark(f"{_measured_only(times, samples)}, to which the preset is fitted{not_kept}; {_rest(times)}")
    elif clock.ended:
        output.remark(f"the fit was ended because {LONGEST:.0f} s were up; {_rest(times)}")
    _report(engine, fit, kept, times.spread(), complete=all_run and not clock.ended, as_json=as_json)
    return 0


def _measured_only(times: Times, samples: Sequence[Sample]) -> str:
    done = len(times.turns[0]) if times.turns else 0
    return f"in the time there was, {done} of {len(samples)} programs were measured"


def _rest(times: Times) -> str:
    return "the same command goes on" if times.path is not None else "with GC3_CACHE the same command would go on"


def run(engine: str, times: Times, samples: Sequence[Sample], ranks: Ranks) -> bool:
    """Measures what is missing; returns whether every sample is measured. Says on Ctrl-C what is kept."""
    with output.progress(f"measuring {engine}", TURNS * len(samples) - times.count, printing=False) as begin:
        try:
            return measure(samples, ranks, times, sizes=SIZES, seconds=SECONDS, begin=begin)
        except KeyboardInterrupt:
            if times.path is not None:
                output.remark(
                    f"{counted(times.count, 'measurement')} of {TURNS * len(samples)} are kept in '{times.path}'; the "
                    "same command goes on"
                )
            raise


def _report(engine: str, fit: cpu.CpuFit, kept: str | None, spread: float, *, complete: bool, as_json: bool) -> None:
    evidence = fit.parameters.evidence
    if spread > _DISTURBED:
        output.remark(
            f"the machine was busy: the same runs took {spread:.0%} longer in one turn than in the other (median); the "
            "same command measures again"
        )
    if as_json:
        output.emit(
            {
                "engine": engine,
                "cores": fit.parameters.cores,
                "cases": len(fit.trained),
                "unseen_cases": len(fit.unseen),
                "error_in_sample": evidence.in_sample,
                "error_held_out": evidence.held_out,
                "median_error_unseen": fit.errors[-1].median,
                "unseen": [asdict(x) for x in fit.errors],
                "unseen_before": [asdict(x) for x in fit.before],
                "spread_of_turns": spread,
                "complete": complete,
                "preset": fit.parameters.name,
                "kept": kept,
            }
        )
        return
    click.echo(
        f"{engine} on {counted(fit.parameters.cores, 'core')}: fitted to {counted(len(fit.trained), 'measurement')}. "
        f"{counted(len(fit.unseen), 'measurement')} of programs that were not fitted:"
    )
    click.echo(
        f"# {'size':>10} {'median error':>14} {'right order':>12} {'cpu-' + engine + ':':>18} {'right order':>12}"
    )
    for now, before in zip(fit.errors, fit.before, strict=True):
        size = sizes.format_size(now.size) if now.size else "all"
        rows = f"{now.median:>14.1%} {_part(now.ordered):>12} {before.median:>18.1%} {_part(before.ordered):>12}"
        click.echo(f"{size:>12} {rows}")
    if kept is None and kept_files.folder() is not None:
        return
    if kept is None:
        output.remark("GC3_CACHE is off, so this is not kept: give -o FILE.json")
        return
    uses = "gc3 sim -t cpu uses it; " if engine == "threads" else ""
    click.echo(f"kept for this machine: {uses}preset={fit.parameters.name} names it ({kept})")


def _part(ordered: float | None) -> str:
    return "-" if ordered is None else f"{ordered:.0%}"
