"""gc3 synth, its files, and its solvers when they are stopped, missing or wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gc3 import Program, algorithms, synth, topologies
from gc3.cli.command import Command
from gc3.cli.main import main
from gc3.cli.synth import synth_command
from gc3.errors import UserError
from gc3.synth import problem
from ranks import LOAD, LONGEST

pytestmark = pytest.mark.python_only


def gc3(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


def test_an_instance(tmp_path: Path) -> None:
    out = tmp_path / "ag.gc3"
    result = gc3(f"synth allgather --topology dgx1 --chunks 2 --steps 2 --rounds 3 -o {out} --run")
    assert result.exit_code == 0, result.output
    for part in (
        "found C=2 S=2 R=3",
        "steps: 2, the fewest",
        "rounds: 3, the fewest: what must leave ranks 0, 1, 2, 3, 4, 5, 6",
        "R/C = 3/2, the least in 2 steps: prices of links in 2 steps, checked exactly",
        "all equal to NumPy's",
        f"written to {out}",
    ):
        assert part in result.output
    assert Program.load(out).verify().ok
    assert gc3(f"run {out} --size 64KiB").exit_code == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("allgather", "-C 1 -S 2 -R 2"),
        ("allreduce", "-C 16 -S 4 -R 6"),
        ("reducescatter", "-C 8 --steps least"),
        ("alltoall", "--steps least"),
        ("scatter:root=3", "--steps least"),
        ("alltonext", "--steps least"),
    ],
)
def test_the_json_form_reads_back(tmp_path: Path, name: str, options: str) -> None:
    out = tmp_path / "x.json"
    assert gc3(f"synth {name} -t dgx1 {options} -o {out}").exit_code == 0
    assert algorithms.load(str(out)).collective_name == name.partition(":")[0]
    checked = gc3(f"run {out} --size 16KiB")
    assert checked.exit_code == 0, checked.output


def test_what_is_impossible_exits_with_1() -> None:
    result = gc3("synth broadcast:root=1 -t dgx1 -C 7 -S 3 -R 3")
    assert result.exit_code == 1
    assert "impossible: prices for what rank 7 needs in 3 steps, checked exactly: at least 4 rounds" in result.output
    data = json.loads(gc3("synth allgather -t dgx1 -C 2 -S 1 -R 9 --json").output)
    assert (data["status"], data["how"]) == ("impossible", "some data are 2 steps away")


def test_the_frontier(tmp_path: Path) -> None:
    result = gc3(f"synth allgather -t dgx1 --pareto 4 -o {tmp_path}/all --run")
    assert result.exit_code == 0, result.output
    assert "at least 2 steps, at least R/C = 7/6: what must leave ranks 0, 1, 2, 3, 4, 5, 6" in result.output
    ran = "ran, 131072 elements equal to NumPy's"
    by_prices = f"the least in 2 steps: prices of links in 2 steps, checked exactly; {ran}"
    assert f"C=2 S=2 R=3  R/C=3/2 [latency-optimal], {by_prices}" in result.output
    by_cut = f"the least in 3 steps: what must leave ranks 0, 1, 2, 3, 4, 5, 6; {ran}"
    assert f"C=6 S=3 R=7  R/C=7/6 [bandwidth-optimal], {by_cut}" in result.output
    assert "complete: the last point is bandwidth-optimal" in result.output
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [
        "allgather-dgx1-2-2-3.gc3",
        "allgather-dgx1-6-3-7.gc3",
    ]
    data = json.loads(gc3("synth broadcast -t z52 --pareto 1 --steps 5 --json").output)
    assert [(p["chunks"], p["steps"], p["rounds"]) for p in data["points"]] == [(2, 4, 4), (4, 5, 5)]
    assert all(p["optimal"] for p in data["points"])
    assert data["ended"] == "ended at 5 steps: raise --steps to continue"


def test_json_of_an_instance() -> None:
    data = json.loads(gc3("synth allgather -t z52 -C 2 -S 4 -R 7 --json").output)
    assert (data["chunks"], data["steps"], data["rounds"]) == (2, 4, 7)
    assert sum(data["rounds_of_steps"]) == 7
    assert len(data["use_of_steps"]) == 4
    assert all(0 < part <= 1 for part in data["use_of_steps"])
    assert data["least_ratio_in_steps"] == "7/2"
    assert data["program"]["collective"] == "allgather"


def test_units_and_shared_links() -> None:
    """A GPU of a DGX-2 sends one chunk a round over all its links together, or one over each."""
    result = gc3("synth alltoall -t dgx2 --unit 150 -S 1 -R 15")
    assert "found C=16 S=1 R=15" in result.output, result.output
    result = gc3("synth alltoall -t dgx2 -S 1 -R 3")
    assert "found C=16 S=1 R=3" in result.output, result.output


@pytest.mark.parametrize("name", ["allgather", "allreduce", "reducescatter", "broadcast"])
def test_pipelined(name: str) -> None:
    """Close to the minimum for any schedule, and correct."""
    data = json.loads(gc3(f"synth {name} -t dgx1 --pipelined --run --json").output)
    assert data["status"] == "found"
    assert data["checked_elements"] > 0
    assert data["rounds"] == data["steps"]
    assert data["rounds"] / data["chunks"] <= 1.15 * float(Fraction(data["least_ratio_in_steps"])) + 8 / data["chunks"]


def test_pipelined_between_nodes() -> None:
    result = gc3("synth allgather -t hierarchical:N=2,G=8,nics=8 --pipelined --chunks 26")
    assert result.exit_code == 0, result.output
    assert "above the bound: any takes at least 15/13, what must reach rank 0" in result.output
    above = float(result.output.partition("R/C = ")[2].partition(", ")[2].partition("%")[0])
    assert above < 4


@pytest.mark.parametrize(
    "spec",
    [
        "ndv2:N=2",
        "summit:N=2",
        pytest.param("dgx2:N=2", marks=pytest.mark.nightly),
        "lassen:N=2",
        "hierarchical:N=2,G=4,nics=1",
        "fat_tree:R=8,leaf=4,taper=2",
    ],
)
def test_pipelined_over_shared_links(spec: str) -> None:
    """Ranks that are images of each other share a NIC or an uplink: their sends cannot all take place in one round."""
    result = gc3(f"synth allgather -t {spec} --pipelined --chunks 4")
    assert result.exit_code == 0, result.output
    assert "found C=4" in result.output


@pytest.mark.parametrize("options", ["--pipelined -C 16384", "-S 3 -C 16384", "--pareto 100 --steps 400"])
def test_all_that_is_done_counts(options: str) -> None:
    """Everything that takes too long ends: search, trees of many chunks, and compiling the result."""
    command = [sys.executable, "-m", "gc3", "synth", "broadcast", "-t", "dgx1", *options.split(), "--time-limit", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    assert "the time limit was reached" in ended.stdout


def test_time_is_up_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is moved to the time when compiling has begun, so that the search always ends before."""

    def forever(*_: object, **_options: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while True:
            time.sleep(0.01)

    monkeypatch.setattr("gc3.synth.result.stepwise", forever)
    result = gc3("synth allgather -t dgx1 --pipelined -C 1 --time-limit 1000")
    assert result.exit_code == 1
    assert "open: the time limit was reached before the schedule was compiled to a program" in result.output


@pytest.mark.parametrize("mode", ["--pipelined", "--pareto 2", "--pipelined --json"])
def test_time_is_up_and_the_bound_takes_longer(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large machine the bound takes minutes: what is printed at the limit must not wait for it."""

    def forever(_task: synth.Task) -> synth.Bound:
        while True:
            time.sleep(0.01)

    def too_late(*_: object) -> None:
        raise synth.TimeUp

    monkeypatch.setattr(synth.Task, "pipelined", too_late)
    monkeypatch.setattr(synth.Task, "any_steps", forever)
    result = gc3(f"synth allgather -t dgx1 {mode} --time-limit 0.5")
    assert result.exit_code == 1, result.output
    if "json" in mode:
        assert json.loads(result.output)["least_ratio"] is None
    else:
        assert "open: the time limit was reached" in result.output
        assert "so far: no bound was computed in time" in result.output


GATHERV: dict[str, Any] = {"name": "gatherv", "nodes": 3, "chunks": [{"pre": [r], "post": [0]} for r in (0, 1, 1, 2)]}


def test_a_custom_collective(tmp_path: Path) -> None:
    file = tmp_path / "gatherv.json"
    file.write_text(json.dumps(GATHERV))
    result = gc3(f"synth {file} -t line:R=3 --steps least --run")
    assert result.exit_code == 0, result.output
    assert "found C=1 S=2 R=3" in result.output
    assert "gatherv of 3 ranks" in result.output
    assert "'gatherv' is for 3 ranks, 'line' has 4" in gc3(f"synth {file} -t line:R=4 --steps least").output
    assert "leave out root=1" in gc3(f"synth {file}:root=1 -t line:R=3 --steps least").output
    file.write_text(json.dumps({**GATHERV, "name": "../a b\0" + "c" * 300}))
    assert gc3(f"synth {file} -t line:R=3 --pareto 0 -o {tmp_path}/all").exit_code == 0
    assert {p.parent.name for p in tmp_path.rglob("*.gc3")} == {"all"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Expecting value"),
        ("[]", "the file is not an object"),
        ('{"nodes": 0}', "nodes is 0"),
        ('{"nodes": 2, "chunks": []}', "chunks is not a list"),
        ('{"nodes": 2, "chunks": [1]}', r"chunks\[0\] has no list 'pre'"),
        ('{"nodes": 2, "chunks": [{"pre": [0]}]}', r"chunks\[0\] has no list 'post'"),
        ('{"nodes": 2, "chunks": [{"pre": [], "post": [0]}]}', r"chunks\[0\] begins on no rank"),
        ('{"nodes": 2, "chunks": [{"pre": [0], "post": [2]}]}', r"chunks\[0\].post is not ranks from 0 to 1"),
        ('{"nodes": true, "chunks": [{"pre": [0], "post": []}]}', "nodes is True"),
        ('{"nodes": 2, "chunks": [{"pre": [false], "post": [1]}]}', r"chunks\[0\].pre is not ranks from 0 to 1"),
    ],
)
def test_invalid_collectives_are_refused(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(content)
    with pytest.raises(UserError, match=why) as found:
        problem.read(str(file))
    assert found.value.code == "GC3-M001"


def test_unreadable_collectives(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="GC3-I001"):
        problem.read(str(tmp_path / "none.json"))
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(UserError, match="larger than the 16 MiB"):
        problem.read(str(big))


def test_a_large_machine_of_one_node_is_told_before_its_network_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth.Network, "of", lambda *_: pytest.fail("this takes a minute"))
    result = gc3("synth allgather -t torus:X=64,Y=64 --hierarchical")
    assert result.exit_code == 1
    assert "'torus' is not made of several nodes: leave out --hierarchical" in result.output


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "synth allgather -t dgx1",
            "give one of --steps S, --steps least, --pareto K, --pipelined, --hierarchical and",
        ),
        ("synth allgather -t dgx1 --pipelined --for-size 1MiB", "give one of"),
        ("synth allgather -t dgx1 --for-size 0", "give a size above 0"),
        ("synth allgather -t dgx1 --steps least --pareto 2", "--pareto takes a number as --steps"),
        ("synth allgather -t dgx1 --steps least -R 3", "--rounds goes with --steps"),
        ("synth allgather -t dgx1 --pareto 2 -C 2", "leave out --chunks"),
        ("synth allgather -t dgx1 -S 3 -R 2", "--rounds cannot be less"),
        ("synth allgather:root=1 -t dgx1 --steps least", "allgather has no root: leave out root=1"),
        ("synth allgather -t dgx1 --steps least --unit nan", "nan is not a finite number"),
        ("synth allgather -t dgx1 --steps least --time-limit inf", "inf is not a finite number"),
        ("synth allgather -t dgx1 --pareto 101", "101 is not in the range"),
        ("synth allgather -t dgx1 --steps least -C 99999", "99999 is not in the range"),
        ("synth allgather:R=3 -t dgx1 --steps least", "may follow a collective"),
        ("synth allgather -t dgx1 --steps few", "neither a number of steps nor least"),
    ],
)
def test_usage(line: str, why: str) -> None:
    result = gc3(line)
    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("synth allgatherv -t dgx1 --steps least", "GC3-M001"),
        ("synth allgather -t nothing --steps least", "GC3-M004"),
        ("synth alltoall -t dgx1 -C 3 --steps least", "GC3-L017"),
        ("synth allgather -t z52 --unit 99 --steps least", "GC3-L017"),
        ("synth allgather -t dgx1 --unit 1e300 --pipelined", "cannot carry a chunk per round"),
        ("synth allgather -t dgx1 --unit 1e-300 --pipelined", "would carry more than 2^40 chunks per round"),
        ("synth none.json -t dgx1 --steps least", "GC3-I001"),
        ("synth allgather -t dgx1 --steps least -o /nowhere/x.json", "GC3-I002"),
        ("synth allgather -t dgx1 --pareto 1 -o /dev/null/x", "GC3-I002"),
        ("synth allgather -t dgx1 --steps least --cache /dev/null", "GC3-I002"),
    ],
)
def test_errors(line: str, code: str) -> None:
    result = gc3(line)
    assert result.exit_code == 1
    assert code in result.output


def test_the_cache_folder(tmp_path: Path) -> None:
    line = f"synth allgather -t dgx1 -C 1 -S 2 -R 2 --cache {tmp_path}/kept"
    assert "the cache" not in gc3(line).output
    assert "found C=1 S=2 R=2" in (again := gc3(line).output)
    assert ": the cache" in again
    (kept,) = (tmp_path / "kept").iterdir()
    for damage in ('{"rounds": [1, 1e400], "steps": [[], []]}', "[" * 100_000):
        kept.write_text(damage)
        found = gc3(line)
        assert found.exit_code == 0, found.output
        assert "the cache" not in found.output
    kept.unlink()
    kept.mkdir()  # cannot be replaced by a file
    found = gc3(line)
    assert (found.exit_code, "found C=1 S=2 R=2" in found.output) == (0, True), found.output
    assert "note: cannot keep results in the cache: " in found.output
    assert list((tmp_path / "kept").iterdir()) == [kept]
    kept.rmdir()
    os.mkfifo(kept)  # nobody writes to it
    assert "found C=1 S=2 R=2" in gc3(line).output


def test_output_is_checked_before_the_search() -> None:
    begun = time.monotonic()
    result = gc3("synth allgather -t dgx2 --unit 150 -C 2 -S 5 -R 30 --time-limit 250 -o /nowhere/x.json")
    assert "GC3-I002" in result.output
    assert time.monotonic() - begun < LONGEST


def test_a_frontier_in_time() -> None:
    begun = time.monotonic()
    result = gc3("synth broadcast -t dgx2 --pareto 100 --time-limit 1")
    assert "the time limit was reached: raise --time-limit to continue" in result.output
    assert time.monotonic() - begun < 1 + LOAD
    result = gc3("synth broadcast -t dgx1 --pareto 1 --steps 1")
    assert "no algorithm has only 1 step: give --steps 2 or more" in result.output
    result = gc3("synth allgather -t ring:R=1 --pareto 1")
    assert result.exit_code == 0
    assert "complete: nothing has to be sent" in result.output


def test_an_all_reduce_says_what_its_bounds_are_of() -> None:
    for options in ("--steps least", "--pareto 0 --steps 4"):
        assert "a reduce-scatter, then an all-gather" in gc3(f"synth allreduce -t dgx1 {options}").output


def test_the_time_limit() -> None:
    begun = time.monotonic()
    result = gc3("synth allgather -t dgx2 --unit 150 -C 2 -S 5 -R 30 --time-limit 0.2")
    assert result.exit_code in (0, 1)
    assert time.monotonic() - begun < 1 + LOAD
    assert "found" in result.output or "open: the time limit was reached" in result.output


def test_losses_add_up() -> None:
    result = gc3("synth allgather -t ring:R=6,without=0+5 --steps least")
    assert "of 4 ranks" in result.output, result.output


@pytest.mark.parametrize("slow", ["gc3.synth.problem.read", "gc3.topologies.load", "gc3.synth.Network.of"])
@pytest.mark.parametrize("options", ["", "--json"])
def test_the_time_limit_includes_all_that_precedes_the_search(
    monkeypatch: pytest.MonkeyPatch, slow: str, options: str
) -> None:
    def wait(*_: object) -> None:
        time.sleep(LONGEST)

    monkeypatch.setattr(slow, wait)
    begun = time.monotonic()
    wanted = "own.json" if "problem" in slow else "allgather"
    result = gc3(f"synth {wanted} -t dgx1 --pipelined --time-limit 0.1 {options}")
    assert result.exit_code == 1
    assert "the time limit was reached before the search began" in result.output, result.output
    assert time.monotonic() - begun < 1 + LOAD


def test_interrupted_with_the_results_so_far() -> None:
    """Ctrl-C during an endless frontier: the results so far are printed, and no process or file is left behind."""
    command = [sys.executable, "-m", "gc3", "synth", "broadcast", "-t", "dgx1", "--pareto", "2", "--steps", "400"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes started from it
        rest, problems = process.communicate(timeout=LONGEST)
    assert lines[1].startswith("C=2 S=2 R=2")
    assert "interrupted: there may be more" in rest
    assert "next: gc3 synth broadcast --topology dgx1 --chunks" in rest
    assert problems.strip() == "interrupted"
    assert process.returncode == 130


def test_interrupted_before_anything_was_found() -> None:
    line = "allgather -t dgx2 --unit 150 -C 2 -S 5 -R 30"
    command = [sys.executable, "-m", "gc3", "synth", *line.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text():
            time.sleep(0.05)  # until the solvers are started
        os.killpg(process.pid, signal.SIGINT)
        found, problems = process.communicate(timeout=LONGEST)
    assert process.returncode == 130
    assert "open: interrupted" in found
    assert "so far: at least 1 step, at least R/C = 15: what must reach rank 0" in found
    assert "--pipelined" in found
    assert problems.strip() == "interrupted"


def test_interrupted_while_better_points_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result for a number of steps counts, though a better one might be possible."""
    within = getattr(synth.Task, "_within")  # noqa: B009
    calls: list[tuple[int, int]] = []

    def stopping(self: synth.Task, seconds: float, chunks: int, steps: int, rounds: int) -> synth.Outcome:
        calls.append((chunks, rounds))
        if len(calls) == 1:
            return synth.Outcome(synth.OPEN, None, "the time limit was reached", None, 0.0)
        if calls.count((chunks, rounds)) > 1:
            raise KeyboardInterrupt
        return within(self, seconds, chunks, steps, rounds)

    monkeypatch.setattr(synth.Task, "_within", stopping)
    with synth.Solvers() as child:
        session = synth.Session(synth.Network.of(topologies.load("z52")), child)
        points = synth.Task(session, "allgather").frontier(4, 8)
        point = next(points)
        assert (point.chunks, point.steps, point.rounds) == (1, 4, 4)
        assert point.open == ((2, 7),)
        with pytest.raises(KeyboardInterrupt):
            next(points)


def test_solvers_that_are_missing_at_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "highspy.py").write_text("raise ImportError('no module named highspy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = gc3("synth allgather -t dgx1 -C 6 -S 3 -R 7")
    assert found.exit_code == 1
    assert "GC3-M010" in found.output
    assert "pip install highspy python-sat" in found.output
    data = json.loads(gc3("synth broadcast -t dgx1 --pareto 2 --json").output)  # one document, not two
    assert data["error"]["code"] == "GC3-M010"


def test_a_machine_in_two_halves(tmp_path: Path) -> None:
    machine = json.loads(gc3("topo show dgx1 --json").output)
    machine["links"] = [link for link in machine["links"] if link["src"] // 4 == link["dst"] // 4]
    machine["fabrics"] = []
    file = tmp_path / "halves.json"
    file.write_text(json.dumps(machine))
    for options in ("--steps least", "--pareto 2", "--pipelined", "--steps least --json", "-S 3 -R 5"):
        result = gc3(f"synth allgather -t {file} {options}")
        assert result.exit_code == 1
        assert "no data gets from rank 0 to rank 4 and 3 others" in result.output


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_smallest_machines(ranks: int) -> None:
    for name in ("alltoall", "allreduce"):
        result = gc3(f"synth {name} -t ring:R={ranks} --steps least --run")
        assert result.exit_code == 0, result.output
        assert "all equal to NumPy's" in result.output


def test_examples_of_the_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_gatherv.json").write_text(json.dumps({**GATHERV, "nodes": 2, "chunks": GATHERV["chunks"][:2]}))
    (tmp_path / "my_machine.json").write_text(gc3("topo show line:R=2 --json").output)
    (tmp_path / "rows.txt").write_text("allgather -t ring:R=4 --steps least")
    assert isinstance(synth_command, Command)
    for example in synth_command.examples:
        if "dgx2" in example:
            continue  # takes a while
        # The searches of `best` take what they may: so long as something is found on this machine.
        limits = [f" --time-limit {seconds}" for seconds in (3, 30, 90)] if " best " in example else [""]
        results = (gc3(example.removeprefix("gc3 ") + limit) for limit in limits)
        assert any(result.exit_code == 0 for result in results), example


def test_for_a_size_within_a_budget_of_threadblocks() -> None:
    many = gc3("synth allgather:protocol=LL -t dgx1 --for-size 64KiB --run")
    assert "trees by time: " in many.output
    assert "all equal to NumPy's" in many.output
    few = json.loads(gc3("synth allgather:max_threadblocks=5 -t dgx1 --for-size 64KiB --json").output)
    assert few["program"]["max_threadblocks_per_rank"] <= 5
    assert "us, of at least " in few["how"]
    none = gc3("synth allgather:max_threadblocks=1 -t dgx1 --for-size 64KiB")
    assert none.exit_code == 1
    assert "GC3-C001" in none.output
    # Shapes have no preset of a processor's; the topology's own numbers do.
    assert "trees by time" in gc3("synth broadcast -t ring:R=4 --for-size 1KiB").output
