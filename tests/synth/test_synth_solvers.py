"""The solvers' child process: how it ends, and what it answers."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gc3 import synth
from gc3.errors import UserError
from gc3.synth import solvers
from ranks import LONGEST

pytestmark = pytest.mark.python_only


def test_solvers_end_with_their_process() -> None:
    """Also if that is killed in the middle of a long search."""
    code = """
import os, signal, threading
from gc3.synth import solvers
child = solvers.Solvers()
child.warm_up()
holes = 12
formula = solvers.Formula()
at = [[formula.variable() for _ in range(holes)] for _ in range(holes + 1)]
for pigeon in at:
    formula.clause(*pigeon)
for hole in zip(*at):
    for i, a in enumerate(hole):
        for b in hole[:i]:
            formula.clause(-a, -b)
print(child._process.pid, flush=True)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
child.sat(formula)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    status = Path(f"/proc/{int(killed.stdout)}/stat")
    deadline = time.monotonic() + LONGEST
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_solver_that_dies() -> None:
    """The kernel may kill the child process, for example for lack of memory; the next call starts another."""
    with synth.Solvers() as child:
        child.warm_up()
        process = getattr(child, "_process")  # noqa: B009
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        program = solvers.Linear()
        x = program.variable(1.0)
        program.row([(x, 1.0)], 2.0, math.inf)
        assert child.linear(program).cost == 2
        assert child.deaths == []  # it had no request
        process = getattr(child, "_process")  # noqa: B009
        os.kill(process.pid, signal.SIGKILL)
        process.poll = lambda: None  # it dies between the check and the request
        assert child.linear(program).status == "unknown"
        assert child.deaths == ["SIGKILL, possibly out of memory"]
        assert child.linear(program, 0.0).status == "unknown"
        formula = solvers.Formula()
        formula.clause(formula.variable())
        assert child.sat(formula).true == {1}
        formula.clause(-1)
        assert child.sat(formula).status == "unsat"


@pytest.mark.parametrize("name", ["SIGINT", "SIGALRM"])
def test_a_signal_while_the_solvers_start_leaves_no_process(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the process exists, but is not known yet. Otherwise this would warn of a process that is left."""

    class Disturbed(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.Signals[name])

    def ring(*_: object) -> None:
        raise synth.TimeUp

    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr("gc3.synth.solvers.subprocess.Popen", Disturbed)
    usual = signal.signal(signal.SIGALRM, ring)
    try:
        with synth.Solvers() as child, pytest.raises((KeyboardInterrupt, synth.TimeUp)):
            child.warm_up()
        assert [process.returncode for process in started] == [-signal.SIGKILL]
        assert signal.getsignal(signal.SIGALRM) is ring
    finally:
        signal.signal(signal.SIGALRM, usual)


def test_a_signal_while_the_solvers_end_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with synth.Solvers() as child:
        child.warm_up()
        process = getattr(child, "_process")  # noqa: B009

        def stopped() -> None:
            raise synth.TimeUp

        with monkeypatch.context() as patched:
            patched.setattr(process, "wait", stopped)
            with pytest.raises(synth.TimeUp):
                child.close()
    assert process.returncode == -signal.SIGKILL


def test_an_answer_that_nobody_took_is_not_that_of_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is told every second may come again as a process is about to be ended because of the first."""

    def limit(*_: object) -> None:
        raise synth.TimeUp

    with synth.Solvers() as child:
        child.warm_up()
        with monkeypatch.context() as patch:
            patch.setattr(solvers, "_read", limit)
            patch.setattr(child, "close", limit)
            with pytest.raises(synth.TimeUp):
                child.linear(at_least(1.0))
        values = child.linear(at_least(2.0, 3.0)).values
    assert values is not None
    assert values.tolist() == [2.0, 3.0]


def at_least(*least: float) -> solvers.Linear:
    """The smallest numbers above these."""
    program = solvers.Linear()
    for low in least:
        program.variable(1.0, low=low)
    return program


def test_literals_that_count_twice() -> None:
    formula = solvers.Formula()
    a, b = formula.variable(), formula.variable()
    formula.at_most([a, a, b], 2)
    formula.clause(a)
    with synth.Solvers() as child:
        assert child.sat(formula).true == {a}
        formula.clause(b)
        assert child.sat(formula).status == "unsat"


def test_solvers_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "highspy.py").write_text("raise ImportError('no module named highspy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with synth.Solvers() as child, pytest.raises(UserError, match="pip install highspy python-sat") as found:
        child.warm_up()
    assert found.value.code == "GC3-M010"
