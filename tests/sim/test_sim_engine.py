"""The CPU engines: what is measured on this machine, the fit, and who uses it."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import _core, algorithms, sim
from gc3.cli import calibrate_engine
from gc3.cli.main import main
from gc3.comm.world import WorldError
from gc3.runtime import kept_files
from gc3.sim import preset_file, presets, settings
from gc3.sim.fit import calibrate, cpu, cpu_samples
from gc3.sim.fit.calibrate import Case
from gc3.sim.fit.cpu_samples import Sample, Timed, Times, measure
from gc3.sim.fit.least_squares import least_squares
from gc3.sim.parameters import Parameters

pytestmark = pytest.mark.python_only

KIB, MIB = 1 << 10, 1 << 20
FEW = tuple(Sample("ring_allreduce", p, (("R", ranks),)) for ranks in (4, 2) for p in ("Simple", "LL", "LL128"))
OTHERS = tuple(Sample("allpairs_allreduce", p, (("R", 4),)) for p in ("Simple", "LL", "LL128"))
SIZES = (4 * KIB, 256 * KIB, 4 * MIB)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GC3_CACHE", str(tmp_path))
    return tmp_path


class _Fake:
    """An engine whose times are simulated, with parameters that a fit does not know."""

    def __init__(self, truth: Parameters, fail_at: int = -1) -> None:
        """With Ctrl-C at a call."""
        self.truth = cpu.platform(cpu.MOST_RANKS, truth)
        self.started: list[int] = []
        self.calls: list[tuple[str, int, int, int]] = []
        self.fail_at = fail_at

    @contextmanager
    def ranks(self, count: int) -> Generator[Timed, None, None]:
        """Starts ranks."""
        self.started.append(count)
        yield self.timed

    def timed(self, sample: Sample, size: int, warmup: int, iterations: int) -> Sequence[float]:
        """Simulates."""
        if len(self.calls) == self.fail_at:
            raise KeyboardInterrupt
        self.calls.append((sample.name, size, warmup, iterations))
        time = sim.Simulation(sample.compile(), self.truth).run(size).time_s
        return [time * (1 + k / 10) for k in range(iterations)]


def truth(engine: str = "threads") -> Parameters:
    on = cpu.platform(cpu.MOST_RANKS, cpu.start(engine, 2))
    changes = ["launch=2us", "Simple.rate=12GB/s", "LL.rate=6GB/s", "*.hop=1us", "Simple.op=50ns"]
    return settings.apply(on, [settings.parse(text) for text in changes]).parameters


def engine_of_fakes(monkeypatch: pytest.MonkeyPatch, fake: _Fake) -> None:
    monkeypatch.setattr(calibrate_engine, "cores", lambda: 2)  # as the engine of `truth` has
    monkeypatch.setattr(calibrate_engine, "_ranks", lambda _engine, count: fake.ranks(count))
    monkeypatch.setattr(calibrate_engine, "TRAINING", FEW)
    monkeypatch.setattr(calibrate_engine, "UNSEEN", OTHERS)
    monkeypatch.setattr(calibrate_engine, "SIZES", SIZES)


def command(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["sim", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_turns_go_through_all_samples_and_the_fastest_run_counts() -> None:
    fake, times, names = _Fake(truth()), Times("threads"), list[str]()
    measure(FEW, fake.ranks, times, sizes=SIZES, begin=names.append)
    assert fake.started == [2, 4, 2, 4]
    assert names == 2 * [s.name for s in (*FEW[3:], *FEW[:3])]
    assert FEW[0].name == "ring_allreduce:R=4,protocol=Simple"
    assert {(warmup, iterations) for _, _, warmup, iterations in fake.calls[::2]} == {(1, 2)}
    assert {warmup for _, _, warmup, _ in fake.calls[1::2]} == {0}
    assert {iterations for _, size, _, iterations in fake.calls[1::2] if size == SIZES[0]} == {40}
    for case in times.cases(FEW):
        assert case.seconds == sim.Simulation(case.program, fake.truth).run(case.size).time_s  # type: ignore[arg-type]
    assert len(times.cases(FEW)) == len(FEW) * len(SIZES)
    assert times.cases(OTHERS) == []


class _Hours:
    """A clock of an hour a call, of an engine's calls and of who asks it."""

    def __init__(self, fake: _Fake) -> None:
        """Counts the calls of an engine."""
        self.fake = fake

    def monotonic(self) -> float:
        """The time."""
        return 3600.0 * len(self.fake.calls)


def test_measurements_do_not_take_longer_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, times = _Fake(truth()), Times("threads")
    monkeypatch.setattr(cpu_samples, "time", _Hours(fake))
    calls = 2 * len(SIZES)  # of a sample
    assert not measure(FEW, fake.ranks, times, sizes=SIZES, seconds=3600 * (2 * calls + 1))
    assert fake.started == [2]
    assert times.count == 2  # the third one's first size was run, and is not kept
    assert len(fake.calls) == 2 * calls + 2
    assert measure(FEW, fake.ranks, times, sizes=SIZES, seconds=3600 * 4 * calls)
    assert fake.started == [2, 2, 4]  # a second turn would take as long
    assert times.count == len(FEW)
    assert measure(FEW, fake.ranks, times, sizes=SIZES, seconds=3600 * (calls + 1))
    assert times.count == len(FEW) + 1  # a second turn is made as far as the time goes
    monkeypatch.undo()
    slow = _Fake(settings.apply(fake.truth, [settings.parse("launch=0.2s")]).parameters)
    measure(FEW, slow.ranks, once := Times("threads"), sizes=SIZES, turns=1)
    assert {size for _, size, _, _ in slow.calls} == {SIZES[0]}  # larger ones would take even longer
    assert {iterations for _, _, _, iterations in slow.calls} == {2, 3}
    assert once.count == len(FEW)


def test_what_an_interrupted_calibration_has_measured_is_kept(cache: Path) -> None:
    first = _Fake(truth(), fail_at=2 * len(SIZES) * 8 + 1)  # in the second turn
    with pytest.raises(KeyboardInterrupt):
        measure(FEW, first.ranks, Times.kept("threads"), sizes=SIZES)
    kept = Times.kept("threads")
    assert kept.count == 8
    assert Times.kept("processes").count == 0
    second = _Fake(truth())
    measure(FEW, second.ranks, kept, sizes=SIZES)
    assert len(first.calls) + len(second.calls) == 2 * len(SIZES) * 2 * len(FEW) + 1  # one was begun twice
    whole = Times("threads")
    measure(FEW, _Fake(truth()).ranks, whole, sizes=SIZES)
    assert kept.turns == whole.turns == Times.kept("threads").turns
    kept.forget()
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("cache")
def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, busy, again = Times("threads"), Times("threads"), _Fake(truth())
    measure(FEW, again.ranks, quiet, sizes=SIZES)
    assert quiet.spread() == Times("threads").spread() == 0
    slower = settings.apply(again.truth, [settings.parse("*.rate=*0.5"), settings.parse("launch=*2")]).parameters
    measure(FEW, again.ranks, busy, sizes=SIZES, turns=1)
    for sample, row in zip(FEW, quiet.turns[0].values(), strict=True):
        busy.add(1, sample, {size: 1.5 * s for size, s in busy.turns[0][sample.name].items()})
        assert len(row) == len(SIZES)
    assert busy.spread() == pytest.approx(0.5)
    engine_of_fakes(monkeypatch, first := _Fake(truth(), fail_at=2 * len(SIZES) * 9))  # after a turn
    command("calibrate", "--engine", "threads", code=130)
    assert len(first.calls) == first.fail_at
    engine_of_fakes(monkeypatch, _Fake(slower))
    assert "the machine was busy: the same runs took" in command("calibrate", "--engine", "threads").stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"gc3_cpu_times": 1}', '{"gc3_cpu_times": [{"a": {"8": -1}}]}'])
@pytest.mark.usefixtures("cache")
def test_damaged_measurements_are_named(text: str) -> None:
    file = Times.kept("threads").path
    assert file is not None
    file.write_text(text)
    with pytest.raises(gc3.UserError, match=r"GC3-S004[\s\S]*measured-threads"):
        Times.kept("threads")


def test_a_fit_finds_the_parameters_that_made_the_times() -> None:
    times = Times("threads")
    measure((*FEW, *OTHERS), _Fake(truth()).ranks, times, sizes=SIZES)
    steps: list[str] = []
    start = cpu.start("threads", 2)
    fit = cpu.fit("threads", start, times.cases(FEW), times.cases(OTHERS), start, begin=steps.append)
    assert 1 < len(steps) <= cpu.STEPS
    assert fit.parameters.name == "here-threads"
    evidence = fit.parameters.evidence
    assert evidence.status == "calibrated"
    assert evidence.source.startswith("threads on ")
    assert evidence.in_sample == calibrate.error(cpu.platform(8, fit.parameters), fit.trained)
    assert evidence.in_sample < 0.03
    assert evidence.held_out == calibrate.error(cpu.platform(8, fit.parameters), fit.unseen)
    assert evidence.scope is not None
    assert evidence.scope.ranks == (2, 4)
    assert evidence.scope.sizes == {"allreduce": (SIZES[0], SIZES[-1])}
    assert fit.errors[-1].cases == len(fit.unseen) == sum(x.cases for x in fit.errors[:-1])
    assert fit.errors[-1].median < fit.before[-1].median
    assert [x.size for x in fit.errors] == [*SIZES, 0]


def test_errors_and_order_by_size() -> None:
    programs = {s: s.compile() for s in (*FEW, *OTHERS)}
    on = cpu.platform(8, truth())
    exact = [
        Case(program, size, sim.Simulation(program, on).run(size).time_s)
        for program in programs.values()
        for size in SIZES
    ]
    perfect = cpu.quality(truth(), exact)
    assert [x.median for x in perfect] == [0, 0, 0, 0]
    assert {x.ordered for x in perfect} == {1.0}
    reversed_times = [Case(c.program, c.size, 1 / c.seconds) for c in exact]
    assert {x.ordered for x in cpu.quality(truth(), reversed_times)} == {0.0}
    alone = cpu.quality(truth(), exact[:1])
    assert (alone[0].cases, alone[0].ordered) == (1, None)


def test_by_itself_a_calibration_of_this_machine_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["ring_allreduce", "-t", "cpu:R=4", "-b", "64KiB", "-e", "64KiB"]
    before = command(*line).output
    assert "preset cpu-threads (estimated" in before
    hint = "`gc3 sim calibrate --engine threads` measures this one"
    assert hint in command(*line, "--mode", "explain").output
    assert (
        "`gc3 sim calibrate --engine threads` makes one"
        in command(*line[:2], "cpu:R=4,preset=here-threads", *line[3:], code=1).output
    )
    fake = _Fake(truth())
    engine_of_fakes(monkeypatch, fake)
    data = json.loads(command("calibrate", "--engine", "threads", "-o", str(cache / "p.json"), "--json").stdout)
    assert data["preset"] == "here-threads"
    assert (data["cases"], data["unseen_cases"]) == (len(FEW) * len(SIZES), len(OTHERS) * len(SIZES))
    assert data["unseen"][-1]["median"] == data["median_error_unseen"]
    kept = presets.kept("threads")
    assert (
        kept == preset_file.read(data["kept"]) == preset_file.read(str(cache / "p.json")) == presets.get("here-threads")
    )
    assert presets.for_topology(sim.platform("cpu:R=4").topology) == kept
    assert not list(cache.glob("measured-*"))
    after = command(*line).output
    assert "preset here-threads (calibrated)" in after
    assert " (held out)" in after
    explain = ("--mode", "explain")
    assert "not measured (6 ranks); taken as 100%" in command(*line[:2], "cpu:R=6", *line[3:], *explain).output
    assert "not measured (allreduce above " in command(*line[:-1], "64MiB", *explain).output
    assert "not measured (broadcast); taken as 25%" in command("chain_broadcast", *line[1:], *explain).output
    # The preset that gc3 brings, the other engine, another machine: this one is not used.
    assert "preset cpu-threads (estimated" in command(*line[:2], "cpu:R=4,preset=cpu-threads", *line[3:]).output
    assert presets.kept("processes") is None
    monkeypatch.setattr(kept_files, "_conditions", lambda: "0123")
    assert command(*line).output == before


@pytest.mark.usefixtures("cache")
def test_an_interrupted_command_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_of_fakes(monkeypatch, _Fake(truth(), fail_at=13))
    interrupted = command("calibrate", "--engine", "processes", code=130)
    assert "2 measurements of 18 are kept in" in interrupted.stderr
    rest = _Fake(truth())
    engine_of_fakes(monkeypatch, rest)
    done = command("calibrate", "--engine", "processes")
    assert "2 measurements of an unfinished calibration are in" in done.stderr
    assert len(rest.calls) == 2 * len(SIZES) * 16
    assert "kept for this machine: preset=here-processes names it" in done.stdout
    assert "all" in done.stdout


def test_a_minute_that_is_over_keeps_what_was_measured(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ("calibrate", "--engine", "threads")
    monkeypatch.setattr(calibrate_engine, "LONGEST", 0.0)  # one step of the fit
    samples, calls = len(FEW) + len(OTHERS), 2 * len(SIZES)

    def limited(fake: _Fake, programs: int) -> None:
        engine_of_fakes(monkeypatch, fake)
        monkeypatch.setattr(cpu_samples, "time", _Hours(fake))
        monkeypatch.setattr(calibrate_engine, "SECONDS", 3600.0 * calls * programs - 1800)

    limited(_Fake(truth()), 2)
    few = command(*line, code=1).stderr
    assert f"in the time there was, 2 of {samples} programs were measured, too few for a fit; the same command" in few
    limited(_Fake(truth()), 5)  # two of four ranks that are not fitted are among them
    part = command(*line, "--json")
    assert f"7 of {samples} programs were measured, to which the preset is fitted" in part.stderr
    assert "the same command goes on" in part.stderr
    found = json.loads(part.stdout)
    assert (found["complete"], found["cases"]) == (False, len(SIZES) * 6)
    assert presets.get("here-threads").evidence.held_out == found["error_held_out"]
    limited(_Fake(presets.get("cpu-threads")), 1)  # the other programs take the times that were expected
    worse = command(*line)
    assert "it is not kept, because the preset that gc3 brings predicts the others better" in worse.stderr
    assert "kept for this machine" not in worse.stdout
    assert presets.get("here-threads").evidence.held_out == found["error_held_out"]
    limited(_Fake(truth()), 2)
    cut = command(*line, "--json")
    assert "the fit was ended because 0 s were up; the same command goes on" in cut.stderr
    assert list(cache.glob("measured-*"))
    monkeypatch.setattr(calibrate_engine, "LONGEST", 600.0)
    limited(_Fake(truth()), 2)
    whole = command(*line, "--json")
    assert json.loads(whole.stdout)["complete"]
    assert json.loads(whole.stdout)["error_in_sample"] < json.loads(cut.stdout)["error_in_sample"]
    assert not list(cache.glob("measured-*"))


@pytest.mark.usefixtures("cache")
def test_one_calibration_at_a_time_measures_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_of_fakes(monkeypatch, _Fake(truth()))
    with kept_files.alone("", "BadMeasurements"):
        refused = command("calibrate", "--engine", "threads", code=1)
    assert "GC3-S004" in refused.output
    assert "another calibration or tuner is measuring this machine" in refused.output
    command("calibrate", "--engine", "threads")


@pytest.mark.usefixtures("cache")
def test_ranks_that_fail_are_an_error_and_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dies:
        def seconds(self, *_: object, **__: object) -> tuple[float, ...]:
            raise WorldError("rank 1 was ended by a signal")

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(calibrate_engine, "RankTimer", lambda _ranks: Dies())
    failed = command("calibrate", "--engine", "processes", code=1)
    assert "GC3-R024" in failed.output
    assert "of 1024 B was not run: rank 1 was ended by a signal" in failed.output


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GC3_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(gc3.UserError, match=r"GC3-I002.*file/cache': Not a directory; GC3_CACHE names another folder"):
        cpu.keep("threads", cpu.start("threads", 2))


def test_without_a_cache_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_of_fakes(monkeypatch, _Fake(truth()))
    done = command("calibrate", "--engine", "threads")
    assert "GC3_CACHE is off, so this is not kept: give -o FILE.json" in done.stderr
    assert presets.kept("threads") is None


@pytest.mark.parametrize("engine", cpu.ENGINES)
def test_an_engine_of_this_machine(engine: str) -> None:
    """A small calibration end to end: what is measured is fitted, whatever this machine's times are."""
    few = [s for s in FEW if s.ranks == 2]
    times = Times(engine)
    measure(few, lambda count: calibrate_engine._ranks(engine, count), times, sizes=SIZES[:2], turns=1)
    cases = times.cases(few)
    assert len(cases) == 6
    start = cpu.start(engine, 2)
    fit = cpu.fit(engine, start, cases, cases, start, steps=3)

    def squares(of: Parameters) -> float:
        found = calibrate.predictions(cpu.platform(8, of), cases)
        large = [abs(math.log(t / case.seconds)) for t, case in zip(found, cases, strict=True)]
        return sum(x * x if x < 0.3 else 0.6 * x - 0.09 for x in large)

    # A fit makes this smaller. The mean error can become larger if times of few runs are far from the model.
    assert squares(fit.parameters) <= squares(start)
    assert fit.parameters.evidence.in_sample == calibrate.error(cpu.platform(8, fit.parameters), cases)


def test_processes_lend_what_the_machine_reads_faster() -> None:
    def limits(start: Parameters) -> dict[str, tuple[int, int]]:
        return {name: (p.lend_bytes, p.lend_combined_bytes) for name, p in start.protocols.items()}

    start = cpu.start("processes", 2)
    assert limits(start) == {"Simple": (32 * KIB, 32 * KIB), "LL": (0, 0), "LL128": (0, 0)}
    measured: dict[str, int | None] = {"read_moved": 8 * KIB, "read_combined": None}
    assert limits(cpu.start("processes", 2, measured))["Simple"] == (8 * KIB, 0)
    assert limits(cpu.start("threads", 2, measured))["Simple"] == (0, 0)
    never: dict[str, int | None] = {"read_moved": None, "read_combined": None}
    broadcast = gc3.compile(algorithms.load("chain_broadcast"), R=2)
    case = [Case(broadcast, MIB, 1e-4)]

    def fit(first: Parameters) -> Parameters:
        return cpu.fit("processes", first, case, case, first, steps=2).parameters

    assert fit(start).protocols["Simple"].lend_rate != 5e9
    assert fit(cpu.start("processes", 2, never)).protocols["Simple"].lend_rate == 5e9
    lent, fast = cpu.platform(2, start), settings.parse("Simple.lend_rate=*4")
    for size, faster in ((16 * KIB, False), (MIB, True)):
        times = [sim.Simulation(broadcast, on).run(size).time_s for on in (lent, settings.apply(lent, [fast]))]
        assert (times[1] < times[0]) == faster


def test_copies_of_buffers_take_time() -> None:
    """A rank that adds up in its input runs on a copy of it, because only the output may be written."""
    p = gc3.compile(algorithms.load("recursive_halving_reducescatter"), R=4)
    assert _core.blocks_copied(p.core) == ([5] * 4, [5] * 4)  # four blocks, and the result
    on = cpu.platform(4, cpu.start("threads", 2))
    assert sim.Simulation(p, on).call(MIB).copied == [5 * MIB // 4] * 4
    without = sim.Simulation(p, settings.apply(on, [settings.parse("*.copy=1000")])).run(MIB).time_s
    # Two ranks on each processor copy at 5 GB/s; other copies of the program are faster without them, too.
    assert sim.Simulation(p, on).run(MIB).time_s - without > 2 * 5 * MIB / 4 / 5e9
    ring = gc3.compile(algorithms.load("ring_allreduce"), R=4)
    assert sim.Simulation(ring, on).call(MIB).copied == []
    assert sim.Simulation(p, sim.platform("ndv4")).call(MIB).copied == []


def test_least_squares_goes_down_a_curved_valley() -> None:
    found = least_squares(lambda x: [10 * (x[1] - x[0] ** 2), 1 - x[0]], [-1.2, 1.0], prior=0, limit=99, steps=60)
    assert found == pytest.approx((1.0, 1.0), abs=0.02)


def test_few_disturbed_residuals_do_not_decide() -> None:
    places: list[str] = []
    data = [1.0] * 9 + [50.0]
    robust = least_squares(lambda x: [x[0] - d for d in data], [0.0], prior=0, limit=0.3, steps=40, begin=places.append)
    plain = least_squares(lambda x: [x[0] - d for d in data], [0.0], prior=0, limit=99, steps=40)
    assert robust[0] == pytest.approx(1.0, abs=0.1)
    assert plain[0] == pytest.approx(5.9, abs=0.1)
    assert places == [str(k + 1) for k in range(len(places))]
    kept = least_squares(lambda x: [x[0] - 1, 0 * x[1]], [0.0, 3.0], prior=1e-3, limit=9, steps=40)
    assert kept[1] == pytest.approx(3.0)


def test_half_of_the_drawn_algorithms_are_predicted() -> None:
    trained, unseen = ({s.algorithm for s in group} for group in (cpu_samples.TRAINING, cpu_samples.UNSEEN))
    assert not trained & unseen
    assert (
        {s.protocol for s in cpu_samples.TRAINING}
        == {s.protocol for s in cpu_samples.UNSEEN}
        == {"Simple", "LL", "LL128"}
    )
    assert len(cpu_samples.UNSEEN) == 24
    assert max(s.ranks for s in (*cpu_samples.TRAINING, *cpu_samples.UNSEEN)) == cpu.MOST_RANKS
