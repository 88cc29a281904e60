"""One small interface to the solvers, which run in a child process, so that a call can always be stopped.

There are two kinds of problem: a `Linear` program, in which some variables may be whole numbers, and a `Formula` of
clauses and at-most constraints. The worker chooses the package that solves them.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gc3 import errors
from gc3.support.starting import starting

_WORKER = Path(__file__).with_name("worker.py")
_GRACE = 0.3  # seconds beyond its limit after which a solver is killed
_START = 60.0
_REAPED = 0.05  # seconds until a process whose pipe has ended is gone


@dataclass
class Linear:
    """A program to be minimized: variables with bounds and costs, and rows with bounds, in the order they are added."""

    cost: list[float] = field(default_factory=list[float])
    low: list[float] = field(default_factory=list[float])
    high: list[float] = field(default_factory=list[float])
    integral: list[bool] = field(default_factory=list[bool])
    row_low: list[float] = field(default_factory=list[float])
    row_high: list[float] = field(default_factory=list[float])
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list[int])
    value: list[float] = field(default_factory=list[float])
    hint: npt.NDArray[np.float64] | None = None
    method: str = "auto"  # of real variables: "auto", "interior" (any solution), "vertex" (from the interior)

    def variable(self, cost: float = 0.0, high: float = math.inf, *, whole: bool = False, low: float = 0.0) -> int:
        """Adds a variable and returns its number."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.integral.append(whole)
        return len(self.cost) - 1

    def row(self, terms: Iterable[tuple[int, float]], low: float, high: float) -> int:
        """Adds low <= sum of coefficient * variable <= high and returns its number."""
        for index, value in terms:
            self.index.append(index)
            self.value.append(value)
        self.start.append(len(self.index))
        self.row_low.append(low)
        self.row_high.append(high)
        return len(self.row_low) - 1


@dataclass(frozen=True, slots=True)
class LinearResult:
    """The answer of a solver."""

    status: str  # "optimal", "infeasible" or "unknown"
    cost: float | None  # the cost of the best solution found, None if none was found
    values: npt.NDArray[np.float64] | None  # the values of that solution
    # The duals of the rows, if all variables are real and the solution is optimal.
    duals: npt.NDArray[np.float64] | None


@dataclass
class Formula:
    """Clauses and at-most constraints over variables 1, 2, ...; a negative literal is a negated variable."""

    variables: int = 0
    clauses: array[int] = field(default_factory=lambda: array("i"))
    limits: list[tuple[list[int], int]] = field(default_factory=list[tuple[list[int], int]])

    def variable(self) -> int:
        """Adds a variable."""
        self.variables += 1
        return self.variables

    def clause(self, *literals: int) -> None:
        """At least one of the literals holds."""
        self.clauses.extend(literals)
        self.clauses.append(0)

    def at_most(self, literals: Sequence[int], most: int) -> None:
        """At most this many of the literals hold; a literal that is listed twice counts twice."""
        if most == 0:
            for literal in literals:
                self.clause(-literal)
        elif len(literals) > most:
            self.limits.append((list(literals), most))


@dataclass(frozen=True, slots=True)
class SatResult:
    """The answer of a solver: "sat" with the true variables, "unsat", or "unknown" if the time limit was reached."""

    status: str
    true: frozenset[int] = frozenset()


class Solvers:
    """The child process, started on first use. Use it with `with`, which ends it."""

    def __init__(self, seed: int = 0) -> None:
        """Sets the seed of the solvers, for reproducible results.

        It may be changed. `deaths` lists how the child process died during a request, if it did.
        """
        self.seed = seed
        self.deaths: list[str] = []  # how the child process died during a request, if it did
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False  # something whose answer has not been read

    def __enter__(self) -> Solvers:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the child process."""
        self.close()

    def close(self) -> None:
        """Ends the child process; the next call starts another."""
        process = self._process
        if process is None:
            return
        with _undisturbed():  # an alarm just then would leave a process that nobody waits for
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # the data of an unfinished write
                        pipe.close()
            self._process = None

    def warm_up(self) -> None:
        """Starts the child process and imports the solvers, which takes a moment.

        Raises:
            gc3.UserError: The solvers are not installed.
        """
        self._ask("ready", {}, _START)

    def linear(self, program: Linear, seconds: float = math.inf, *, whole_cost: bool = False) -> LinearResult:
        """Solves a linear program.

        Args:
            program: The program.
            seconds: The time limit.
            whole_cost: The cost of every solution is a whole number, which lets a search stop earlier.

        Raises:
            gc3.UserError: The solver is not installed.
        """
        task = {
            "cost": np.array(program.cost, float),
            "low": np.array(program.low, float),
            "high": np.array(program.high, float),
            "integral": np.array(program.integral, bool),
            "row_low": np.array(program.row_low, float),
            "row_high": np.array(program.row_high, float),
            "start": np.array(program.start[:-1], np.int32),
            "index": np.array(program.index, np.int32),
            "value": np.array(program.value, float),
            "hint": program.hint,
            "method": program.method,
            "seconds": min(max(seconds, 0.01), 1e7),
            "seed": self.seed,
            "whole_cost": whole_cost,
        }
        answer = self._ask("linear", task, seconds)
        if answer is None:
            return LinearResult("unknown", None, None, None)
        return LinearResult(answer["status"], answer["cost"], answer["values"], answer["duals"])

    def sat(self, formula: Formula, seconds: float = math.inf) -> SatResult:
        """Decides a formula.

        Raises:
            gc3.UserError: The solver is not installed.
        """
        task = {
            "variables": formula.variables,
            "clauses": np.frombuffer(formula.clauses, np.int32),
            "limits": formula.limits,
        }
        answer = self._ask("sat", task, seconds)
        if answer is None:
            return SatResult("unknown")
        model = cast("list[int]", answer.get("model") or [])
        return SatResult(answer["status"], frozenset(v for v in model if 0 < v <= formula.variables))

    def _ask(self, kind: str, task: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The worker's answer; None if the time limit was reached or the worker has died, e.g. for lack of memory."""
        if seconds <= 0:
            return None
        process = self._started()
        self._asked = True
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - as it was started
        try:
            pickle.dump((kind, task), process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            answer = _read(process.stdout.fileno(), time.monotonic() + seconds + _GRACE)
        except BrokenPipeError:
            answer = None
        except BaseException:
            self.close()
            raise
        if answer is None:
            self._note_death(process)
            self.close()
            return None
        self._asked = False
        if answer["status"] == "missing":
            message = f"highspy or python-sat ({answer['why']}): pip install highspy python-sat"
            raise errors.error("MissingPackage", message)
        return answer

    def _note_death(self, process: subprocess.Popen[bytes]) -> None:
        """Records how the child died, if it did."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_REAPED)
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self.deaths.append(f"{name}{', possibly out of memory' if code == -signal.SIGKILL else ''}")

    def _started(self) -> subprocess.Popen[bytes]:
        # An alarm may come before close() has ended a process that still answers what nobody waits for any more.
        if self._process is None or self._asked or self._process.poll() is not None:
            self.close()
            # A separate session: Ctrl-C on a terminal must reach only this process, because some solvers handle it
            # themselves.
            with _undisturbed(), starting("the process of a solver"):
                self._process = subprocess.Popen(  # noqa: S603 - this Python, our own file
                    [sys.executable, str(_WORKER), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=-1,
                    start_new_session=True,
                )
        return self._process


@contextlib.contextmanager
def _undisturbed() -> Generator[None, None, None]:
    """Delays Ctrl-C and alarms: what they raise while a process is started would leave one that nobody knows."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread
        return
    came: list[int] = []
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    delayed = {number: handler for number, handler in usual.items() if callable(handler)}
    try:
        for number in delayed:
            signal.signal(number, lambda which, _frame: came.append(which))
        yield
    finally:
        for number, handler in delayed.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _read(pipe: int, deadline: float) -> dict[str, Any] | None:
    """The next pickle from a pipe; None if it ends or the deadline passes first."""
    data = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], min(left, 1e6))[0]:
            return None
        part = os.read(pipe, 1 << 20)
        if not part:
            return None
        data += part
        if data.endswith(pickle.STOP):
            try:
                return pickle.loads(data)  # noqa: S301 - from our own child
            except (EOFError, pickle.UnpicklingError):
                continue  # a full stop in the middle
