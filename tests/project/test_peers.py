"""gc3 compared with other libraries: real ones if installed, made-up ones for failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner
from peers import Contest, Missing, Plan, Point, contest, libraries, plot, record
from peers.bound import Bound, traffic
from peers.contest import OURS, PYTHON, Sample
from peers.libraries import Library, Setting, find
from peers.summary import geometric_mean, summarize, worst
from versus import versus

from gc3 import errors
from gc3.support import drawing

pytestmark = pytest.mark.python_only

VERSUS = str(Path(__file__).parents[2] / "benchmarks" / "versus.py")
SMALL = Plan(("allreduce", "broadcast"), (2,), (1000,), ("toy",), rounds=2, seconds=0.001)

# A rank of one process that answers like a library; the text in place of {} changes its behaviour.
TOY = """
import os, sys, time
commands = open(os.open(sys.argv[1] + "/command.0", os.O_RDONLY | os.O_NONBLOCK))
os.set_blocking(commands.fileno(), True)
others = [open(os.open(sys.argv[1] + "/command.1", os.O_RDONLY | os.O_NONBLOCK))]
for line in commands:
    name, size, warmup, iterations, check, mode = line.split()
    wrong = 0
    {}
    with open(sys.argv[1] + "/answer", "w") as answer:
        answer.write(str(wrong) + " 0.001" * int(iterations) + "\\n")
"""


def toys(monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Makes a library for each of the given settings: the toy with a line added."""

    def setting(name: str, body: str) -> Setting:
        command = [sys.executable, "-c", TOY.format(body)]
        return Setting(name, "toy", lambda folder, _: [[*command, str(folder)]], crowded=name == "crowded")

    library = Library("toy", "Toy 1", tuple(setting(name, body) for name, body in bodies.items()))
    monkeypatch.setattr(contest, "find", lambda _name, _folder: library)


def sample(us: float) -> Sample:
    return Sample(us, us, 1, (us,))


def point(collective: str, ranks: int, size: int, **us: float) -> Point:
    names = {"python": PYTHON, "ours": OURS}
    times = {names.get(name, name): sample(time) for name, time in us.items()}
    peers = {name: name.rstrip("12") for name in times if name not in (OURS, PYTHON)}
    return Point(collective, ranks, size, MappingProxyType(times), MappingProxyType(peers), 1.0, 100)


def test_the_best_setting_counts_and_all_worlds_end(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass", slow="time.sleep(0.01)")
    with Contest(SMALL) as running:
        points = list(running.points())
        assert running.failed == {}
    assert [(p.collective, p.ranks, p.size) for p in points] == [("allreduce", 2, 1000), ("broadcast", 2, 1000)]
    for found in points:
        assert set(found.times) == {OURS, PYTHON, "quick", "slow"}
        assert found.times["quick"].median_us == 1000
        assert len(found.times["quick"].rounds_us) == SMALL.rounds
        assert 0 < found.times[OURS].min_us <= found.times[OURS].median_us
        assert found.speedup() == 1000 / found.times[OURS].median_us
        assert found.bound_us > 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('no device')", "ended with status 1: no device"),
        ("wrong = 7", "7 wrong elements in allreduce"),
        ("time.sleep(60)", "no answer within 0.5 s: it printed nothing"),
        ("if name == 'broadcast': os._exit(3)", "broadcast of 1000 B on 2 ranks: it ended with status 3"),
    ],
)
def test_a_peer_that_fails_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch, body: str, why: str) -> None:
    toys(monkeypatch, bad=body, good="pass")
    world = contest.World
    # Impatient only with the toy, whose ranks are one process.
    short = 0.5 if "60" in body else 60
    monkeypatch.setattr(contest, "World", lambda c, *given: world(c, *given, patience=short if len(c) == 1 else 60))
    with Contest(SMALL) as running:
        points = list(running.points())
        assert why in running.failed["bad"]
        assert list(running.failed) == ["bad"]
    assert [p.best() for p in points] == (["good", "good"] if "broadcast" not in body else [points[0].best(), "good"])


def test_a_launcher_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Setting("nothing", "toy", lambda _folder, _ranks: [["/no/such/launcher"]])
    monkeypatch.setattr(contest, "find", lambda _name, _folder: Library("toy", "1", (nothing,)))
    with Contest(SMALL) as running:
        assert [p.best() for p in running.points()] == [None, None]
        assert running.failed == {"nothing": "/no/such/launcher: No such file or directory"}


def test_buffers_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass")
    huge = Plan(("allreduce",), (2,), (1 << 45,), ("toy",))
    with Contest(huge) as running, pytest.raises(errors.UserError, match="GC3-R006"):
        list(running.points())


def test_a_setting_for_ranks_that_share_cores_runs_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass", crowded="pass")
    monkeypatch.setattr(contest, "cores", lambda: 2)
    with Contest(Plan(("alltoall",), (2, 3), (64,), ("toy",), rounds=1)) as running:
        few, many = running.points()
    assert set(few.times) == {OURS, PYTHON, "quick"}
    assert set(many.times) == {OURS, PYTHON, "quick", "crowded"}


@pytest.mark.parametrize("name", libraries.PEERS)
def test_real_libraries_give_right_results(name: str, tmp_path: Path) -> None:
    found = find(name, tmp_path)
    if isinstance(found, Missing):
        pytest.skip(found.why)
    run = CliRunner().invoke(
        versus, ["--vs", name, "--ranks", "2", "-b", "4KiB", "-e", "4KiB", "--turns", "1", "--json"]
    )
    assert run.exit_code == 0, run.output
    data = json.loads(run.output)
    assert data["libraries"] == {name: found.version}
    assert not data["failed"]
    assert len(data["points"]) == 5
    for measured in data["points"]:
        assert set(measured["times"]) == {OURS, PYTHON, *(s.name for s in found.settings if not s.crowded)}
    assert data["summary"]["speedup"] > 0
    assert record.points(data)[0].collective == "allreduce"


@pytest.mark.parametrize("name", libraries.PEERS)
def test_a_library_that_is_not_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = find(name, tmp_path)
    assert isinstance(found, Missing)
    assert "install" in found.why


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool, text in (("mpirun", "echo www.open-mpi.org 4.1"), ("mpicc", "echo no header >&2; exit 1")):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find("openmpi", tmp_path)
    assert isinstance(found, Missing)
    assert found.why.endswith("fails: no header")


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toys(monkeypatch, quick="pass", bad="sys.exit(2)")
    drawing = tmp_path / "vs.svg"
    base = ["--vs", "gloo", "--ranks", "2,3", "--collectives", "alltoall,allgather", "-b", "64B", "-e", "1KiB"]
    run = CliRunner().invoke(versus, [*base, "-f", "16", "--turns", "1", "--plot", str(drawing)])
    assert run.exit_code == 0, run.output
    assert "# toy: Toy 1, 2 settings, the best of which counts" in run.output
    assert "# allgather of float32, 3 ranks" in run.output
    assert "geometric mean over 8 points" in run.output
    assert "bad was left out: allgather of 64 B on 2 ranks: it ended with status 2" in run.output
    assert drawing.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vs", "nccl"], "'nccl' is unknown; expected openmpi, mpich, gloo or all"),
        (["--ranks", "1"], "not a list of numbers from 2"),
        (["--ranks", "2,x"], "not a list of numbers from 2"),
        (["-b", "16B"], "8 ranks need at least 32 B"),
        (["-b", "1MiB", "-e", "1KiB"], "is below the smallest"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(versus, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_a_drawing_that_cannot_be_made_is_told_first(tmp_path: Path) -> None:
    with pytest.raises(errors.UserError, match=r"GC3-L017.*\.png"):
        drawing.check("vs.txt")
    with pytest.raises(errors.UserError, match="GC3-I002"):
        plot.plot([point("allreduce", 2, 1024, ours=1, mpich=2)], str(tmp_path / "no" / "vs.png"))


def test_ctrl_c_ends_every_world(tmp_path: Path) -> None:
    command = [sys.executable, VERSUS, "--vs", "openmpi,mpich", "--ranks", "2", "-b", "16MiB"]
    tool = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("gc3-vs-*/*/answer")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    tool.send_signal(signal.SIGINT)
    _, said = tool.communicate(timeout=60)
    assert tool.returncode == 130, said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
    assert not with_argument(str(tmp_path))


def with_argument(text: str) -> list[str]:
    """The running processes whose command line contains `text`."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_what_points_say_together() -> None:
    points = [
        point("allreduce", 2, 1024, ours=1, python=6, mpich=2, openmpi1=4, openmpi2=3),
        point("allreduce", 4, 32 << 20, ours=2, python=6, mpich=16),
        point("broadcast", 2, 1024, ours=4, python=9, mpich=2),
    ]
    assert [p.speedup() for p in points] == [2, 8, 0.5]
    assert points[0].best("openmpi") == "openmpi2"
    assert points[1].speedup("openmpi") is None
    found = summarize(points)
    assert found.speedup == pytest.approx(2)
    assert found.by_ranks == pytest.approx({2: 1, 4: 8})
    assert found.by_collective == pytest.approx({"allreduce": 4, "broadcast": 0.5})
    assert found.by_peer == pytest.approx({"mpich": 2, "openmpi": 3})
    assert (found.points, found.lost, found.slowest, found.share) == (3, 1, 0.5, pytest.approx(0.5))
    assert found.python_cost_us == 5
    assert worst(points) == [points[2]]
    assert geometric_mean([]) is None
    assert summarize([]).speedup is None


def test_what_memory_must_bear() -> None:
    moved = {name: traffic(name, 4, 100).moved for name in contest.COLLECTIVES}
    assert moved == {"allreduce": 800, "allgather": 500, "reducescatter": 500, "alltoall": 800, "broadcast": 400}
    bound = Bound(traffic("allreduce", 2, 1 << 20), 2)
    assert bound.moved / 1e12 < bound.seconds() < 1
