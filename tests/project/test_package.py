"""The package: its names, and pickling."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gc3
from gc3 import errors
from gc3.algorithms import load
from gc3.runtime.program import Report

pytestmark = pytest.mark.python_only


def test_every_public_name_is_there() -> None:
    fresh = importlib.reload(gc3)
    for name in fresh.__all__:
        assert getattr(fresh, name) is not None
    assert dir(fresh) == fresh.__all__ == sorted(fresh.__all__)
    assert fresh.lang.Cost is importlib.import_module("gc3.lang").Cost
    homes = getattr(fresh, "_HOMES")  # noqa: B009  private
    modules = {name for name in fresh.__all__ if isinstance(getattr(fresh, name), ModuleType)}
    assert {"algorithms", "sim", "synth", "topologies"} <= modules
    assert {name for names in homes.values() for name in names} == {*fresh.__all__} - {"__version__"} - modules


@pytest.mark.parametrize("name", [name for name in gc3.__all__ if callable(getattr(gc3, name))])
def test_signatures_can_be_read(name: str) -> None:
    assert inspect.signature(getattr(gc3, name)).parameters is not None
    assert getattr(gc3, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gc3' has no attribute 'allreduce'"):
        _ = gc3.allreduce  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(gc3, "__wrapped__")
    with pytest.raises(ImportError):
        exec("from gc3 import nonsense")  # noqa: S102  an import statement, not a function


def test_importing_the_package_loads_no_numpy() -> None:
    script = "import sys, gc3; sys.exit('numpy' in sys.modules or 'gc3._core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_the_core_shows_no_names_but_python_s() -> None:
    # With a C++ library within, names that others see would meet those of PyTorch's.
    core = importlib.import_module("gc3._core")
    names = ["nm", "-D", "--defined-only", core.__file__]
    found = subprocess.run(names, capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in found.stdout.splitlines()] == ["PyInit__core"]


def test_programs_are_pickled_and_copied() -> None:
    program = gc3.compile(load("ring_allreduce"), R=3)
    inputs = [np.arange(6, dtype=np.int32) + rank for rank in range(3)]
    expected = program.run(inputs)
    for other in (pickle.loads(pickle.dumps(program)), copy.copy(program), copy.deepcopy(program)):  # noqa: S301
        assert other == program
        assert other.use is None
        np.testing.assert_array_equal(other.run(inputs), expected)
    assert pickle.loads(pickle.dumps(program.core)) == program.core  # noqa: S301


def test_programs_keep_what_their_file_said(tmp_path: object) -> None:
    path = f"{tmp_path}/ring.xml"
    gc3.compile(load("ring_allreduce"), R=2).save(path, dialect="rccl", min_bytes=8, max_bytes=64)
    program = gc3.Program.load(path)
    assert pickle.loads(pickle.dumps(program)).use == program.use  # noqa: S301
    assert program.use is not None


def test_a_file_for_no_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gc3.UserError, match="for no size: 64 B to 8 B"):
        gc3.compile(load("ring_allreduce"), R=2).save(tmp_path / "ring.xml", min_bytes=64, max_bytes=8)
    assert not any(tmp_path.iterdir())


def test_damaged_pickles_are_errors() -> None:
    broken = pickle.dumps(gc3.compile(load("ring_allreduce"), R=2)).replace(b"allreduce", b"allreducf")
    with pytest.raises(gc3.UserError, match="GC3-I"):
        pickle.loads(broken)  # noqa: S301


def stale() -> None:
    """Raises an error with places and notes."""

    @gc3.algorithm("allreduce")
    def twice(R: int) -> None:
        old = gc3.chunk(0, "in", 0).copy(1, "out", 0)
        gc3.chunk(1, "in", 0).copy(1, "out", 0)
        old.copy(0, "out", 0)

    gc3.compile(twice, R=2)


def test_errors_are_pickled_with_all_they_say() -> None:
    with pytest.raises(gc3.UserError) as caught:
        stale()
    problem = caught.value
    again = pickle.loads(pickle.dumps(problem))  # noqa: S301
    assert type(again) is gc3.UserError
    assert str(again) == str(problem)
    assert (again.code, again.message, again.hint) == (problem.code, problem.message, problem.hint)
    assert (again.file, again.line) == (problem.file, problem.line) != ("", 0)
    assert problem.diagnostics[0].notes
    for one, other in zip(again.diagnostics[0].notes, problem.diagnostics[0].notes, strict=True):
        assert (one.text, one.where.file, one.where.line) == (other.text, other.where.file, other.where.line)
    assert str(copy.deepcopy(problem)) == str(problem)


@pytest.mark.parametrize("name", ["BadBuffer", "Internal", "Timeout"])
def test_errors_of_every_kind_keep_their_class_and_remarks(name: str) -> None:
    problem = errors.error(name, "what", file="mine.py", line=3, notes=["why"])
    problem.__notes__ = ["added by the caller"]
    again = pickle.loads(pickle.dumps(problem))  # noqa: S301
    assert type(again) is type(problem)
    assert str(again) == str(problem)
    assert again.__notes__ == problem.__notes__


def test_reports_are_pickled() -> None:
    program = gc3.compile(load("ring_allreduce"), R=3)
    report = gc3.verify(program, max_threadblocks=1, max_channels=0, check=False)
    again: Report = pickle.loads(pickle.dumps(report))  # noqa: S301
    assert [str(d) for d in again.diagnostics] == [str(d) for d in report.diagnostics]
    assert (again.slots, again.transfers) == (report.slots, report.transfers)


@pytest.mark.slow
def test_a_worker_of_a_pool_hands_its_error_over() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(gc3.UserError, match="GC3-L"):
        pool.submit(stale).result()


def test_a_communicator_that_is_still_referenced_at_exit_gives_no_warning() -> None:
    script = """
import threading
import gc3
comm = gc3.init(0, 1, job="still referenced")
threading.Thread(target=lambda: (comm, threading.Event().wait()), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
