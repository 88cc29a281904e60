"""gc3 compared with other libraries: real ones if installed, made-up ones for failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from peers import Contest, Plan, Point, Sample, contest, record
from peers.bound import Bound, caches, traffic
from peers.libraries import Library, Setting
from peers.points import COLLECTIVES, OURS, PYTHON
from peers.rank import Rank, Request, pauses
from peers.summary import geometric_mean, summarize, worst
from versus import versus

import ranks
from gc3 import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from gc3.datatypes import Array

pytestmark = pytest.mark.python_only

VERSUS = str(Path(__file__).parents[2] / "benchmarks" / "versus.py")
SMALL = Plan(("allreduce", "broadcast"), (2,), (1000,), ("toy",), rounds=2, seconds=0.001, working_set=1 << 20)

# A rank of one process that answers like a library; the text in place of {} changes its behaviour.
TOY = """
import os, sys, time
commands = open(os.open(sys.argv[1] + "/command.0", os.O_RDONLY | os.O_NONBLOCK))
os.set_blocking(commands.fileno(), True)
others = [open(os.open(sys.argv[1] + "/command.1", os.O_RDONLY | os.O_NONBLOCK))]
for line in commands:
    name, size, warmup, iterations, check, language, pattern, pairs = line.split()
    wrong = 0
    {}
    with open(sys.argv[1] + "/answer", "w") as answer:
        answer.write(str(wrong) + " 0.001" * int(iterations) + " 0.002" * (pattern == "waits") + "\\n")
"""


def toy(name: str, body: str = "pass", peer: str = "toy", follows: str = "") -> Setting:
    """A setting whose ranks are one process that runs the given line for each request."""
    command = [sys.executable, "-c", TOY.format(body)]
    return Setting(name, peer, lambda folder, _: [[*command, str(folder)]], name == "crowded", follows)


def toys(monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Makes a library for each of the given settings: the toy with a line added."""
    library = Library("toy", "Toy 1", tuple(toy(name, body) for name, body in bodies.items()))
    monkeypatch.setattr(contest, "find", lambda _name, _folder, **_: library)


@pytest.fixture
def without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the ranks of gc3 in Python, which take most of the time, where the others are what is looked at."""
    monkeypatch.setattr(contest, "_OWN", {OURS: contest._OWN[OURS]})


def sample(us: float, p99: float | None = None) -> Sample:
    return Sample(us, us, 1, (us,), p99, p99)


def point(collective: str, ranks: int, size: int, **us: float) -> Point:
    names = {"python": PYTHON, "ours": OURS}
    times = {names.get(name, name): sample(time) for name, time in us.items()}
    peers = {name: name.rstrip("12") for name in times if name not in (OURS, PYTHON)}
    return Point(collective, ranks, size, times, peers, 1.0, 100)


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
        assert found.times[OURS].median_us <= (found.times[OURS].p95_us or 0) <= (found.times[OURS].p99_us or 0)
        assert found.speedup() == 1000 / found.times[OURS].median_us
        assert found.bound_us > 0
        assert set(found.rotated) == set(found.times)
        assert set(found.rows) == set(found.times)
        assert found.rows[PYTHON].median_us > 0
        assert set(found.waits) == {PYTHON, found.best()}
        assert found.waits[found.best() or ""].cpu_us == 2000
        assert found.waits[PYTHON].cpu_us


class _Alone(Rank):
    """A rank without others, each call of which takes 5 us of a clock that only calls and sleeps move."""

    now = 0.0
    used = 0.0

    def call(self, collective: str, given: Array, result: Array) -> Callable[[], object]:
        return self.work

    def work(self) -> None:
        self.now += 5e-6
        self.used += 5e-6

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def barrier(self) -> None:
        pass

    def over_ranks(self, numbers: list[float], *, largest: bool = False) -> list[float]:
        return numbers


def test_sleeps_before_calls_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as time of the call nor as processor time."""
    alone = _Alone(0, 1)
    monkeypatch.setattr(time, "sleep", alone.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: alone.now)
    monkeypatch.setattr(time, "process_time", lambda: alone.used)
    measured = alone.answer(Request.read("allreduce 1024 2 10 0 python waits 1"))
    monkeypatch.undo()
    assert alone.now > 1e-3
    assert measured == pytest.approx([0.0, *[5e-6] * 10, 5e-6])


def test_a_library_that_follows_another_one_runs_with_its_best_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str, _folder: Path, **_: bool) -> Library:
        settings = {
            "openmpi": (toy("openmpi", "time.sleep(0.003)", name), toy("openmpi ucx", peer=name)),
            "mpi4py": tuple(toy(f"mpi4py{way}", "pass", name, f"openmpi{way}") for way in ("", " ucx")),
        }
        return Library(name, "1", settings[name])

    # Each iteration of the slow setting takes longer, too.
    monkeypatch.setattr(contest, "find", found)
    slow = TOY.replace("0.001", "0.005")
    plan = Plan(("allgather",), (2,), (4096,), ("openmpi", "mpi4py"), rounds=1, seconds=0.001, working_set=1 << 16)
    with Contest(plan) as running:
        running._settings[0] = replace(
            running._settings[0], start=lambda f, _: [[sys.executable, "-c", slow.format("pass"), str(f)]]
        )
        (measured,) = running.points()
    assert set(measured.times) == {OURS, PYTHON, "openmpi", "openmpi ucx", "mpi4py ucx"} == set(measured.rotated)
    assert measured.best() == "openmpi ucx"
    assert measured.best("mpi4py") == "mpi4py ucx"
    assert set(measured.waits) == {PYTHON, "openmpi ucx", "mpi4py ucx"}
    found_all = summarize([measured])
    assert set(found_all.from_python) == {"mpi4py"}


@pytest.mark.usefixtures("without_python")
def test_buffers_that_fill_the_caches_are_not_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass")
    plan = Plan(("broadcast",), (2,), (1 << 10, 1 << 21), ("toy",), rounds=1, seconds=0.001, working_set=1 << 20)
    assert plan.pairs(2, 1 << 10) == 256
    with Contest(plan) as running:
        small, large = running.points()
    assert small.rotated
    assert not large.rotated
    assert not large.waits
    assert large.of("rotated").times == large.times


@pytest.mark.usefixtures("without_python")
def test_a_hopeless_setting_is_not_measured_with_rotated_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [sys.executable, "-c", TOY.replace("0.001", "0.5").format("pass")]
    hopeless = Setting("slow", "toy", lambda folder, _: [[*slow, str(folder)]])
    monkeypatch.setattr(contest, "find", lambda _name, _folder, **_: Library("toy", "1", (toy("quick"), hopeless)))
    with Contest(replace(SMALL, collectives=("alltoall",))) as running:
        (measured,) = running.points()
    assert set(measured.times) == {OURS, "quick", "slow"}
    assert set(measured.rotated) == {OURS, "quick"}


def test_a_world_ends_its_ranks_in_other_sessions(tmp_path: Path) -> None:
    rank = ["setsid", "-w", sys.executable, "-c", "import time; time.sleep(300)", str(tmp_path)]
    world = contest.World([rank, rank], 2, tmp_path, timeout=1)
    with pytest.raises(contest.WorldError, match="no answer within 1 s"):
        world.ask(contest.Request("allreduce", 4, 1, 1, False, "c++ reused 1"))
    assert len(with_argument(f"300) {tmp_path}")) >= 2
    world.close()
    # A process that was killed is there until the system has ended it.
    ranks.until(lambda: not with_argument(f"300) {tmp_path}"))
    assert not with_argument(f"300) {tmp_path}")


def test_a_world_ends_again_if_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is closed twice: that would fail, or close one of another file."""
    world = contest.World([[sys.executable, "-c", "input()"]], 2, tmp_path, timeout=1)
    close, closed = os.close, list[int]()

    def interrupted(file: int) -> None:
        assert file not in closed
        closed.append(file)
        close(file)
        if len(closed) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.close()
        world.close()
    assert len(closed) >= 3  # none is left open either


def test_ranks_of_loaded_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass")
    seen: list[tuple[int, set[int]]] = []

    def look(_: str) -> None:
        ranks = [pid for pid in children() if "rank.py" in words(pid)]
        loops = [pid for pid in children() if "getppid" in words(pid)]
        seen.append((len({os.getsid(pid) for pid in ranks if words(pid).startswith(sys.executable)}), set(loops)))

    plan = replace(SMALL, collectives=("allreduce", "broadcast"), conditions="loaded", patterns=("reused",))
    with Contest(plan) as running:
        for _ in running.points(look):
            pass
    sessions, loops = seen[1]  # before the second point all ranks have started
    assert sessions == 2, seen
    assert len(loops) == 2
    assert not [pid for pid in children() if "getppid" in words(pid)]


def children() -> list[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, more = [], {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        found += more
    return found


def words(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_turns_become_shorter_so_that_the_plan_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(contest.time, "monotonic", lambda: now[0])
    plan = Plan(("allreduce",), (2, 4), (4, 8), ("toy",), seconds=0.5, minutes=0.2)  # 12 s for ranks 2, 2, 4, 4
    pace = contest.Pace(plan)
    assert pace.point(2, 4) == 0.5
    assert pace.point(2, 40) == pytest.approx(12 * 2 / 10 / 40)
    now[0] += 8
    assert pace.point(4, 10) == pytest.approx(4 * 4 / 8 / 10)
    now[0] += 100
    assert 0 < pace.point(4, 10) < 0.1
    assert contest.Pace(replace(plan, minutes=None)).point(2, 10**6) == 0.5


@pytest.mark.usefixtures("without_python")
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

    def impatient(commands: list[list[str]], *given: Any) -> contest.World:
        return world(commands, *given, timeout=0.5 if "time.sleep(60)" in str(commands) else 60)

    monkeypatch.setattr(contest, "World", impatient)
    with Contest(SMALL) as running:
        points = list(running.points())
        assert why in running.failed["bad"]
        assert list(running.failed) == ["bad"]
    assert [p.best() for p in points] == (["good", "good"] if "broadcast" not in body else [points[0].best(), "good"])


@pytest.mark.nightly
def test_gc3_that_fails_at_a_point_goes_on_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass")
    begun: list[str] = []

    def begin(what: str) -> None:
        begun.append(what)
        if "broadcast" in what:  # the ranks have started by now
            os.kill(
                next(
                    pid for pid in children() if words(pid).startswith(sys.executable + " ") and "rank.py" in words(pid)
                ),
                9,
            )

    plan = replace(SMALL, collectives=("allreduce", "broadcast", "allgather"), patterns=("reused",))
    with Contest(plan) as running:
        points = list(running.points(begin))
        assert [p.collective for p in points] == ["allreduce", "allgather"]
        assert len(begun) == 3
        (name,) = running.failed
        assert name == "gc3 itself, broadcast of 1000 B on 2 ranks"
        assert all(OURS in p.times and "quick" in p.times for p in points)
    assert name in record.document(running, points)["failed"]
    monkeypatch.setattr(contest, "_MOST_LOST", 0)
    with Contest(plan) as running, pytest.raises(errors.CommError, match=r"GC3-R009.*gc3 itself, again and again"):
        list(running.points(begin))


@pytest.mark.usefixtures("without_python")
def test_a_launcher_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Setting("nothing", "toy", lambda _folder, _ranks: [["/no/such/launcher"]])
    monkeypatch.setattr(contest, "find", lambda _name, _folder, **_: Library("toy", "1", (nothing,)))
    with Contest(SMALL) as running:
        assert [p.best() for p in running.points()] == [None, None]
        assert running.failed == {"nothing": "/no/such/launcher: No such file or directory"}


def test_buffers_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass")
    huge = Plan(("allreduce",), (2,), (1 << 45,), ("toy",))
    with Contest(huge) as running, pytest.raises(errors.UserError, match="GC3-R006"):
        list(running.points())


@pytest.mark.nightly
def test_a_setting_for_ranks_that_share_cores_runs_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass", crowded="pass")
    monkeypatch.setattr(contest, "cores", lambda: 2)
    with Contest(replace(SMALL, collectives=("alltoall",), ranks=(2, 3), sizes=(64,), patterns=("reused",))) as running:
        few, many = running.points()
    assert set(few.times) == {OURS, PYTHON, "quick"}
    assert set(many.times) == {OURS, PYTHON, "quick", "crowded"}


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    toys(monkeypatch, quick="pass", bad="sys.exit(2)")
    base = ["--vs", "gloo", "--ranks", "2,3", "--collectives", "alltoall,allgather", "-b", "64B", "-e", "1KiB"]
    run = CliRunner().invoke(versus, [*base, "-f", "16", "--turns", "1", "--patterns", "reused"])
    assert run.exit_code == 0, run.output
    assert "# toy: Toy 1, 2 settings, the best of which counts" in run.output
    assert "# allgather of float32, 3 ranks" in run.output
    assert "geometric mean over 8 points" in run.output
    assert "bad was left out: allgather of 64 B on 2 ranks: it ended with status 2" in run.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vs", "nccl"], "'nccl' is unknown; expected openmpi, mpich, gloo, mpi4py or all"),
        (["--ranks", "1"], "not a list of numbers from 2"),
        (["--ranks", "2,x"], "not a list of numbers from 2"),
        (["-b", "16B"], "8 ranks need at least 32 B"),
        (["-b", "1MiB", "-e", "1KiB"], "is below the smallest"),
        (["--conditions", "noisy"], "'noisy' is not one of 'quiet', 'sessions', 'loaded'"),
        (["--patterns", "cold"], "'cold' is unknown; expected reused, rotated, rows, waits or all"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(versus, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_ctrl_c_ends_every_world(tmp_path: Path) -> None:
    command = [sys.executable, VERSUS, "--vs", "openmpi,mpich", "--ranks", "2", "-b", "16MiB"]
    tool = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    ranks.until(lambda: list(tmp_path.glob("gc3-vs-*/*/answer")))
    time.sleep(1)
    tool.send_signal(signal.SIGINT)
    _, said = tool.communicate(timeout=60)
    assert tool.returncode == 130, said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
    ranks.until(lambda: not with_argument(str(tmp_path)))
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
    assert found.p99_kept is None
    assert found.python_cost_us == 5
    assert worst(points) == [points[2]]
    assert geometric_mean([]) is None
    assert summarize([]).speedup is None


def test_means_without_reducescatter_and_from_python() -> None:
    points = [
        point("allreduce", 2, 1024, ours=1, python=2, gloo=8, mpi4py=3),
        point("reducescatter", 2, 2 << 20, ours=1, python=4, gloo=2, mpi4py=1),
    ]
    found = summarize(points)
    assert found.speedup == pytest.approx(4)
    assert found.without_reducescatter == pytest.approx(8)
    assert found.from_python["gloo"] == pytest.approx((2**0.5, 4, 4))
    assert found.from_python["mpi4py"] == pytest.approx(((1.5 / 4) ** 0.5, 1.5, 1.5))
    assert [p.best() for p in points] == ["gloo", "gloo"]  # mpi4py is another peer, called from Python


def test_p99_is_compared_with_the_best_peer_and_with_all_settings() -> None:
    peers = {"a": "openmpi", "b": "mpich"}

    def one(ours: float, best: float, other: float) -> Point:
        times = {OURS: sample(1, ours), "a": sample(2, best), "b": sample(3, other)}
        return Point("allreduce", 2, 64, times, peers, 1.0, 1)

    points = [one(5, 5, 9), one(5, 7, 4), one(5, 4, 9), one(5, 6, 6)]
    assert [p.keeps_p99() for p in points] == [True, True, False, True]
    assert [p.keeps_p99(of_all=True) for p in points] == [True, False, False, True]
    assert (summarize(points).p99_kept, summarize(points).p99_least) == (0.75, 0.5)


def test_pauses_are_the_same_in_each_run_and_differ_between_ranks() -> None:
    lists = [[pause for pause, _ in zip(pauses(rank), range(1000), strict=False)] for rank in (0, 1, 0)]
    assert lists[0] == lists[2]
    assert not set(lists[0]) & set(lists[1])
    for pauses_of in lists:
        assert 0 <= min(pauses_of) < 0.00001
        assert 0.00099 < max(pauses_of) < 0.001
        assert sum(pauses_of) / 1000 == pytest.approx(0.0005, rel=0.05)
    # mpi.c has the same generator.
    source = (Path(VERSUS).parent / "peers" / "mpi.c").read_text()
    assert "6364136223846793005ULL" in source
    assert "1442695040888963407ULL" in source


def test_the_size_of_the_caches(tmp_path: Path) -> None:
    def put(cpu: int, index: int, kind: str, level: int, size: str, shared: str) -> None:
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("type", kind), ("level", level), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")

    assert caches(tmp_path) == 128 << 20
    for cpu in (0, 1):
        put(cpu, 0, "Data", 1, "48K", str(cpu))
        put(cpu, 1, "Instruction", 1, "32K", str(cpu))
        put(cpu, 2, "Unified", 2, "1M", str(cpu))
        put(cpu, 3, "Unified", 3, "32768K", "0-1")
    assert caches(tmp_path) == 2 * (48 << 10) + (2 << 20) + (32 << 20)


def test_the_memory_traffic_of_a_program() -> None:
    moved = {name: traffic(name, 4, 100).moved for name in COLLECTIVES}
    assert moved == {"allreduce": 800, "allgather": 500, "reducescatter": 500, "alltoall": 800, "broadcast": 400}
    bound = Bound(traffic("allreduce", 2, 1 << 20), 2)
    assert bound.moved / 1e12 < bound.seconds() < 1
