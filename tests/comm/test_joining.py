"""Who may join a job: launches with the same name, processes left by a crash, secrets, names of this host."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import ranks
from gc3 import errors

pytestmark = pytest.mark.waits

PACKAGE = str(Path(errors.__file__).parent)


def core_file() -> str:
    spec = importlib.util.find_spec("gc3._core")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def name() -> dict[str, str]:
    """The variables that identify a job."""
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": str(uuid.uuid4()), "GC3_JOIN_TIMEOUT": "40"}


def command(rank: int, size: int, launch: int, around: str = "") -> str:
    """The command of a shell that runs a rank."""
    variables = f"RANK={rank} WORLD_SIZE={size} LAUNCH={launch}"
    return f'{variables} {around} "$PYTHON" "$PROGRAM" "$CORE" "$PACKAGE" >"$OUT.{launch}.{rank}" &'


class Launch:
    """A shell that starts ranks and waits for them, or ends at once and leaves them behind."""

    def __init__(
        self,
        folder: Path,
        commands: Sequence[str],
        variables: Mapping[str, str],
        *,
        waits: bool = True,
        own_session: bool = False,
        around: Sequence[str] = (),
    ) -> None:
        """Starts the shell, prefixed by the command `around`."""
        more = {
            "PYTHON": sys.executable,
            "PROGRAM": str(ranks.program("join_only")),
            "CORE": core_file(),
            "PACKAGE": PACKAGE,
            "OUT": str(folder / "said"),
        }
        script = "\n".join([*commands, "wait" if waits else ""])
        self._folder = folder
        self._shell = subprocess.Popen(
            [*around, "/bin/sh", "-c", script], env={**os.environ, **more, **variables}, start_new_session=own_session
        )

    def wait(self) -> None:
        """Waits until the shell has ended."""
        try:
            self._shell.wait(ranks.LONGEST)
        finally:
            self._shell.kill()
            self._shell.wait()


def own(folder: Path, number: int) -> Path:
    """A new folder for the launch of that number."""
    (made := folder / str(number)).mkdir()
    return made


def said(folder: Path) -> dict[str, str]:
    """The output of every rank, by launch and rank."""
    return {path.name.removeprefix("said."): path.read_text() for path in sorted(folder.glob("said.*"))}


def ended(file: Path) -> str:
    """The final output of a rank that no process waits for."""
    # Its shell may end before the rank has made the file, and the rank writes a line in pieces.
    ranks.until(lambda: file.exists() and file.read_text().endswith("\n"))
    return file.read_text() if file.exists() else ""


# So many rounds of launches that meet at the same moments: a fixed share, and the whole by `make nightly`.
def rounds(share: int, whole: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rounds", [share, pytest.param(whole, marks=pytest.mark.nightly)])


@pytest.mark.python_only
@rounds(4, 50)
def test_two_launches_of_one_name_at_once_keep_to_themselves(rounds: int, tmp_path: Path) -> None:
    for round_ in range(rounds):
        folder = tmp_path / str(round_)
        folder.mkdir()
        variables = name()
        launches = [Launch(folder, [command(r, 2, number) for r in (0, 1)], variables) for number in (1, 2)]
        for launch in launches:
            launch.wait()
        assert list(said(folder).values()) == ["met\n"] * 4, said(folder)


@pytest.mark.python_only
@rounds(1, 3)
def test_two_launches_by_one_process_are_distinguished_or_refused(rounds: int, tmp_path: Path) -> None:
    """Only the start time distinguishes these ranks."""
    starts = [[(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 1), (1, 2), (0, 2), (1, 1)], [(1, 2), (1, 1), (0, 1), (0, 2)]]
    for round_ in range(rounds):
        launches: list[Launch] = []
        folders: list[Path] = []
        for number in range(6):
            folder = tmp_path / f"{round_}.{number}"
            folder.mkdir()
            order = starts[number % len(starts)]
            variables = name() | {"GC3_JOIN_TIMEOUT": "6"}  # some of them wait so long
            launches.append(Launch(folder, [command(rank, 2, launch) for rank, launch in order], variables))
            folders.append(folder)
        for launch, folder in zip(launches, folders, strict=True):
            launch.wait()
            answers = said(folder)
            assert len(answers) == 4
            for answer in answers.values():
                assert answer.startswith("refused:"), answers
            text = "".join(answers.values())
            assert "were both told to be rank" in text or "two processes say they are rank" in text, answers


@pytest.mark.python_only
@rounds(1, 2)
def test_a_rank_left_over_from_a_crash_joins_no_other_launch(rounds: int, tmp_path: Path) -> None:
    for round_ in range(rounds):
        waiting: list[tuple[Launch, Path]] = []
        for number in range(6):
            folder = tmp_path / f"{round_}.{number}"
            folder.mkdir()
            variables = name()
            left = variables | {"GC3_JOIN_TIMEOUT": "6"}
            Launch(folder, [command(1, 2, 1)], left, waits=False).wait()
            waiting.append((Launch(folder, [command(r, 2, 2) for r in (0, 1)], variables), folder))
        for launch, folder in waiting:
            launch.wait()
            last = ended(folder / "said.1.1")
            answers = said(folder)
            assert answers["2.0"] == answers["2.1"] == "met\n", answers
            assert "refused:" in last
            assert "rank 0 has not called gc3.init()" in last


@pytest.mark.python_only
def test_a_rank_left_over_from_a_crash_does_not_join_a_slow_launch(tmp_path: Path) -> None:
    """When it could join, nothing shows yet that the next launch will have a rank of that number."""
    variables = name()
    Launch(tmp_path, [command(1, 2, 1)], variables | {"GC3_JOIN_TIMEOUT": "8"}, waits=False).wait()
    Launch(tmp_path, [command(0, 2, 2), "sleep 3", command(1, 2, 2)], variables).wait()
    assert "refused:" in ended(tmp_path / "said.1.1")
    assert [text for rank, text in said(tmp_path).items() if rank != "1.1"] == ["met\n"] * 2


def left_behind(rank: int, size: int, launch: int, around: str = "") -> str:
    """A shell command: another shell that starts a rank and ends, so that the rank gets another parent."""
    return f"sh -c '{command(rank, size, launch, around)}'"


IN_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")  # the shell is process 1, in the session of whoever calls


@pytest.mark.python_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_ranks_that_process_1_adopted_do_not_join_its_own(tmp_path: Path) -> None:
    launches: list[Launch] = []
    for rank in (0, 1):  # both at once, since they mostly wait
        commands = [left_behind(rank, 2, 1), "sleep 3", command(0, 2, 2), "sleep 1", command(1, 2, 2)]
        launches.append(Launch(own(tmp_path, rank), commands, name(), around=IN_CONTAINER))
    for rank, launch in enumerate(launches):
        launch.wait()
        answers = said(tmp_path / str(rank))
        assert answers["2.0"] == answers["2.1"] == "met\n", answers
        assert "met" not in answers[f"1.{rank}"]
        assert "mixed" not in answers[f"1.{rank}"]


@pytest.mark.python_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_ranks_that_process_1_starts_seconds_apart_get_the_reason(tmp_path: Path) -> None:
    # Rank 1 need not wait for longer than rank 0.
    commands = [command(0, 2, 1), "sleep 4", f"GC3_JOIN_TIMEOUT=6 {command(1, 2, 1)}"]
    Launch(tmp_path, commands, name() | {"GC3_JOIN_TIMEOUT": "10"}, around=IN_CONTAINER).wait()
    for answer in said(tmp_path).values():
        assert re.search(r"was started by process 1 \d+ s later", answer), answer
        assert "must start within 2 s" in answer


@pytest.mark.python_only
def test_ranks_of_two_launches_whose_launchers_have_ended_do_not_meet(tmp_path: Path) -> None:
    """Rank 1 of a crashed launch, and rank 0 of a later one in the same session, before its rank 1 comes."""
    launches: list[Launch] = []
    for number, around in enumerate(("", "setsid")):
        starts = [left_behind(1, 2, 1, around), "sleep 3", left_behind(0, 2, 2, around)]
        variables = name() | {"GC3_JOIN_TIMEOUT": "6"}
        launches.append(Launch(own(tmp_path, number), starts, variables, waits=False, own_session=True))
    for number, launch in enumerate(launches):
        launch.wait()
        for which in ("1.1", "2.0"):
            assert ended(tmp_path / str(number) / f"said.{which}").startswith("refused:")


@pytest.mark.python_only
def test_a_secret_does_not_admit_a_rank_left_over_from_a_crash(tmp_path: Path) -> None:
    """A rank with its own session, as torchrun starts them, before a launch that starts slowly."""
    variables = name() | {"GC3_SECRET": "of the ranks of one test"}
    left = variables | {"GC3_JOIN_TIMEOUT": "7"}
    Launch(tmp_path, [command(1, 2, 1, "setsid")], left, waits=False).wait()
    time.sleep(2.5)
    Launch(tmp_path, [command(0, 2, 2), "sleep 2", command(1, 2, 2)], variables).wait()
    assert ended(tmp_path / "said.1.1").startswith("refused:")
    assert [text for rank, text in said(tmp_path).items() if rank != "1.1"] == ["met\n"] * 2


def test_ranks_whose_launcher_ends_at_once_meet(tmp_path: Path) -> None:
    Launch(tmp_path, [command(r, 3, 1) for r in range(3)], name(), waits=False).wait()
    assert [ended(tmp_path / f"said.1.{r}") for r in range(3)] == ["met\n"] * 3


@pytest.mark.python_only
def test_ranks_left_over_from_a_launch_do_not_complete_another(tmp_path: Path) -> None:
    variables = name() | {"GC3_JOIN_TIMEOUT": "8"}
    Launch(tmp_path, [command(2, 3, 1)], variables, waits=False).wait()
    Launch(tmp_path, [command(r, 3, 2) for r in (0, 1)], variables).wait()
    answers = said(tmp_path)
    assert "these have not joined within 8 s: 2" in answers["2.0"]
    assert "these have not joined within 8 s: 2" in answers["2.1"]
    assert "refused:" in ended(tmp_path / "said.1.2")


@pytest.mark.python_only
@pytest.mark.parametrize("around", ["timeout 60", "sh -c '\"$@\"; true' -", "setsid"])
def test_ranks_started_by_wrappers_belong_to_their_launch(around: str, tmp_path: Path) -> None:
    variables = name()
    launches = [Launch(tmp_path, [command(r, 2, n, around) for r in (0, 1)], variables) for n in (1, 2)]
    for launch in launches:
        launch.wait()
    assert list(said(tmp_path).values()) == ["met\n"] * 4


def test_ranks_that_were_started_one_by_one_meet(tmp_path: Path) -> None:
    """As with the subshells of a script."""
    variables = name()
    for launch in [Launch(tmp_path, [command(r, 3, 1)], variables) for r in (2, 0, 1)]:
        launch.wait()
    assert list(said(tmp_path).values()) == ["met\n"] * 3


def test_ranks_of_several_terminals_meet_with_a_secret(tmp_path: Path) -> None:
    variables = name() | {"GC3_SECRET": "of the ranks of one test"}
    for launch in [Launch(tmp_path, [command(r, 3, 1)], variables, own_session=True) for r in (2, 0, 1)]:
        launch.wait()
    assert list(said(tmp_path).values()) == ["met\n"] * 3


@pytest.mark.python_only
def test_ranks_of_several_terminals_are_told_to_use_a_secret(tmp_path: Path) -> None:
    """Ranks of two launches come in any order, seconds apart, so that nothing else distinguishes the launches."""
    variables = name() | {"GC3_JOIN_TIMEOUT": "8"}
    starts = [(0, 1), (1, 2), (1, 1), (0, 2)]
    launches = [
        Launch(tmp_path, [f"sleep {i % 2}", command(rank, 2, launch)], variables, own_session=True)
        for i, (rank, launch) in enumerate(starts)
    ]
    for launch in launches:
        launch.wait()
    for answer in said(tmp_path).values():
        assert answer.startswith("refused:"), answer
        assert "ranks started in several terminals need the same GC3_SECRET" in answer


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, and read what that has told a process")
def test_environments_of_other_users_are_ignored(tmp_path: Path) -> None:
    """As above, beside a process of another user with the variables of the same job."""
    variables = name()
    told = {"RANK": "1", "WORLD_SIZE": "2", **variables}
    foreign = subprocess.Popen(
        ["/bin/sh", "-c", "exec sleep 60"], env={**os.environ, **told}, user=65534, extra_groups=[]
    )
    try:
        for launch in [Launch(tmp_path, [command(r, 2, 1)], variables) for r in (0, 1)]:
            launch.wait()
    finally:
        foreign.kill()
        foreign.wait()
    assert list(said(tmp_path).values()) == ["met\n"] * 2


@pytest.mark.python_only
def test_one_of_two_that_say_to_be_a_rank_is_not_picked(tmp_path: Path) -> None:
    variables = name() | {"GC3_JOIN_TIMEOUT": "5"}
    for launch in [Launch(tmp_path, [command(r, 2, n)], variables) for r, n in ((0, 1), (1, 1), (1, 2))]:
        launch.wait()
    for answer in said(tmp_path).values():
        assert "refused:" in answer, said(tmp_path)


def test_names_of_this_host(tmp_path: Path) -> None:
    names = ["localhost", "127.0.0.1", "::1"]
    common = name()
    commands = [f"MASTER_ADDR={names[r]} {command(r, 3, 1)}" for r in range(3)]
    Launch(tmp_path, commands, common).wait()
    assert list(said(tmp_path).values()) == ["met\n"] * 3


@pytest.mark.python_only
def test_ranks_with_different_job_names_get_both_names(tmp_path: Path) -> None:
    addresses = ["node1", "10.0.0.3"]
    commands = [f"MASTER_ADDR={addresses[r]} GC3_JOIN_TIMEOUT={2 + 4 * r} {command(r, 2, 1)}" for r in (0, 1)]
    Launch(tmp_path, commands, name()).wait()
    answers = said(tmp_path)
    assert "is rank 1 of a job with MASTER_ADDR=10.0.0.3;" in answers["1.0"]
    assert "this one with MASTER_ADDR=node1;" in answers["1.0"]


@pytest.mark.parametrize("size", [1, 2])
def test_ranks_that_are_told_only_where_rank_0_is(size: int) -> None:
    """Each counts as the only one of its host, where another process starts it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    told = {
        "WORLD_SIZE": str(size),
        "GC3_RENDEZVOUS": place,
        "GC3_JOIN_TIMEOUT": "20",
        "GC3_SECRET": "0123456789abcdef",
    }
    program = "import gc3\nwith gc3.init() as comm: comm.barrier()\nprint('met', comm.size)"
    started = [
        subprocess.Popen(
            ["/bin/sh", "-c", '"$@"; exit $?', "-", sys.executable, "-c", program],
            env={**os.environ, **told, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    assert ranks.World(started).finish() == [(0, f"met {size}\n")] * size


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    assert ranks.run(ranks.program("join"), 2, {"GC3_SECRET_FILE": str(file)}) == ["2.0\n"] * 2
    file.chmod(0o644)
    for text in ranks.run(ranks.program("join"), 2, {"GC3_SECRET_FILE": str(file)}):
        assert text.startswith("GC3-R021 unusable secret")
        assert "is open to other users: `chmod 600` closes it" in text
    for text in ranks.run(ranks.program("join"), 2, {"GC3_SECRET": "short"}):
        assert text.startswith("GC3-R021 unusable secret: GC3_SECRET has 5 bytes")
        assert "short" not in text
    for text in ranks.run(ranks.program("join"), 2, {"GC3_SECRET": ""}):
        assert text.startswith("GC3-R021 unusable secret: GC3_SECRET is set and empty")


@pytest.mark.python_only
def test_ranks_with_different_secrets_get_the_reason() -> None:
    first, second = ranks.run(ranks.program("join"), 2, arguments=["own-secrets"])
    assert second.startswith("GC3-R008")
    assert "has another GC3_SECRET than this rank" in second
    assert "turned away: 1 with another GC3_SECRET" in first


@pytest.mark.python_only
def test_a_report_of_a_defect_does_not_show_the_secret() -> None:
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "gc3", "env", *options],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GC3_SECRET": "not-to-be-shown"},
        )
        assert "to-be-shown" not in done.stdout
        assert "(set, not shown)" in done.stdout
