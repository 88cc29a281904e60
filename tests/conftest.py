"""Shared by the tests: golden files, the markers `gpu` and `nightly`, and a check for leftovers of a test."""

from __future__ import annotations

import difflib
import multiprocessing.resource_tracker
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forked

GOLDEN = Path("golden")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - watched, not used
# Shared memory of gc3 has its name; that of other programs may come and go.
SHARED_MEMORY_PATTERN = "*gc3*"
# A process that was killed, or told to end, ends when the system gives it a core. Only a test that fails waits so long.
GRACE_SECONDS = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --update-golden, --nightly, and options for the number of random tests."""
    parser.addoption("--update-golden", action="store_true", help="accept the texts of this run as golden files")
    parser.addoption("--nightly", action="store_true", help="also run the tests marked nightly")
    parser.addoption("--random-machines", type=int, help="so many machines for tests/synth/test_synth_random.py")


def pytest_configure() -> None:
    """Enables Ctrl-C: a shell that starts the tests in the background makes them and their children ignore it.

    Enables bytecode, which containers often switch off: without it each of some thousand processes compiles gc3 anew.
    No process starts threads for products of matrices: NumPy's spin at its import, for a third of a rank's start.
    A worker has a session of its own, since Linux schedules sessions as groups: its ranks then yield their cores to
    each other, not for milliseconds to the tests of other workers, which made many short calls a hundred times as long.
    """
    if "PYTEST_XDIST_WORKER" in os.environ and os.getpid() != os.getpgrp():
        os.setsid()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out those of the night, whatever -m selects, and skips those that need a GPU if there is none."""
    nightly = [] if config.getoption("--nightly") else [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares a text with golden/<test file>/<name>.txt beside the tests; the name is the test's by default.

    A missing golden file fails the test. `pytest --update-golden` writes the texts of the run instead.
    """
    accept = request.config.getoption("--update-golden")
    test_file = request.path
    folder = Path(__file__).parent / GOLDEN / test_file.stem
    default = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")

    def compare(text: str, name: str = default) -> None:
        path = folder / f"{name}.txt"
        if accept:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        if not path.exists():
            pytest.fail(f"{path} is missing; look at the text, then accept it with --update-golden:\n{text}")
        expected = path.read_text()
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(keepends=True), text.splitlines(keepends=True), str(path), "this run"
            )
            pytest.fail(f"not as in the golden file (--update-golden accepts it):\n{''.join(diff)}")

    return compare


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Gives the session, and every process it starts, a separate folder for temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("GC3_CACHE", "off")  # the same programs, whatever this user has tuned
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # a line of a rank is one write, which no other rank's divides
        patch.setattr(tempfile, "tempdir", None)  # so that tempfile reads TMPDIR again
        yield folder


@pytest.fixture(scope="session")
def lasting_children() -> list[Callable[[], int | None]]:
    """What tells the process of each fixture that several tests share.

    Such a fixture may start its process anew within a test, for example after a time limit: the new one is not left
    behind.
    """
    return []


@pytest.fixture(autouse=True)
def leaves_nothing_behind(
    own_temporary_folder: Path, lasting_children: list[Callable[[], int | None]]
) -> Iterator[None]:
    """Fails a test that leaves child processes, shared memory or temporary files behind."""

    def left() -> set[str]:
        children = {f"process {pid}" for pid in _children() - {tell() for tell in lasting_children}}
        memory = {str(p) for p in SHARED_MEMORY.glob(SHARED_MEMORY_PATTERN)}
        return children | memory | {str(p) for p in own_temporary_folder.iterdir()}

    before = left()
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    while (more := left() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    if more:
        pytest.fail(f"left behind: {', '.join(sorted(more))}")


def _children() -> set[int]:
    """Returns the processes that this one has started and not yet collected, except those of Python itself."""
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker")._pid  # noqa: B009
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # a thread that has just ended
    return found - {tracker} - forked.servers()
