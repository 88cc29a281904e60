"""A world of rank processes that sleep until a measurement is requested.

Several libraries have worlds at the same time, so that they can be measured in turn within one run. Activity of a world
between two requests would disturb the others, so every rank of each library blocks in a read of its own FIFO. That read
also ends the rank when this process has ended, in any way.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.1  # between checks whether the processes still live
_EXIT_TIMEOUT_S = 3.0
_SAID = 3  # last lines of the output of a failed world


class WorldError(Exception):
    """A world has ended or does not answer; the message has its output in one line."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a measurement."""

    collective: str
    size: int  # bytes of the largest buffer of a rank
    warmup: int  # calls before the timed ones
    iterations: int  # timed calls
    check: bool  # whether the result of one more call is checked
    mode: str  # for worlds that can be measured in several ways

    def line(self) -> bytes:
        """Returns it in the form that ranks read."""
        words = self.collective, self.size, self.warmup, self.iterations, int(self.check), self.mode
        return (" ".join(map(str, words)) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a measurement: seconds of each iteration on the slowest rank, wrong elements, seconds in all."""

    seconds: tuple[float, ...]
    wrong: int
    took: float


class World:
    """The processes of one library, and the FIFOs for requests to them."""

    def __init__(self, commands: Sequence[Sequence[str]], ranks: int, folder: Path, timeout: float = 60) -> None:
        """Starts the processes.

        Args:
            commands: The command line of a launcher, or of each rank. A world is always one session, as it is for a
                user of a launcher: Linux may schedule every session as a group (sched_autogroup), and ranks that yield
                do so only within their group.
            ranks: The number of ranks that they start.
            folder: An empty folder for the FIFOs.
            timeout: Seconds after which a world that does not answer has failed.
        """
        self._timeout = timeout
        self._idle = True
        self._folder = folder
        self._log = folder / "log"
        paths = [folder / f"command.{rank}" for rank in range(ranks)]
        for path in (*paths, folder / "answer"):
            os.mkfifo(path, 0o600)
        # A FIFO that is open for both directions neither waits for its other end nor breaks when a rank dies; processes
        # are watched.
        self._commands = [os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for path in paths]
        self._answer = os.open(folder / "answer", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with self._log.open("wb") as log:
                # A separate session: this process handles Ctrl-C, and ends the world.
                self._process = subprocess.Popen(  # noqa: S603
                    _together(commands), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as problem:
            self.close()
            raise WorldError(f"{commands[0][0]}: {problem.strerror}") from problem
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request) -> Answer:
        """Returns the measurements of the world.

        Raises:
            WorldError: It has ended, or has not answered in time.
        """
        start = time.monotonic()
        self._idle = False
        for command in self._commands:
            os.write(command, request.line())
        words = self._line(start + self._timeout).split()
        self._idle = True
        return Answer(tuple(map(float, words[1:])), int(words[0]), time.monotonic() - start)

    def close(self) -> None:
        """Ends the processes: by closing their FIFOs if they are idle, else by force."""
        answer, self._answer = self._answer, -1
        self._commands += [answer] * (answer >= 0)
        while self._commands:
            os.close(self._commands.pop())  # forgotten first: Ctrl-C may come, and this be called again
        if self._process is None:
            return
        for how in (None, signal.SIGTERM, signal.SIGKILL):
            if how is None and not self._idle:
                continue  # it would first finish the request, if it can
            if how is not None:
                for process in self._members():
                    _send(process, how)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_TIMEOUT_S)
                break
        for process in self._members():  # processes that a launcher has left
            _send(process, signal.SIGKILL)

    def _members(self) -> list[int]:
        """The processes of the world's session, and those in sessions of their own whose arguments name its folder."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                named = os.fsencode(self._folder) in (path / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            mine = self._process is not None and int(fields[3]) == self._process.pid
            if (mine or named) and fields[0] != "Z" and int(path.name) != os.getpid():
                found.append(int(path.name))
        return found

    def _line(self, deadline: float) -> str:
        text = b""
        while not text.endswith(b"\n"):
            if select.select([self._answer], [], [], _LOOK_S)[0]:
                text += os.read(self._answer, 1 << 16)
                continue
            status = None if self._process is None else self._process.poll()
            if status is not None:
                raise WorldError(f"it ended with status {status}: {self._said()}")
            if time.monotonic() > deadline:
                raise WorldError(f"no answer within {self._timeout:g} s: {self._said()}")
        return text.decode()

    def _said(self) -> str:
        lines = [" ".join(line.split()) for line in self._log.read_text(errors="replace").splitlines()]
        told = [line for line in lines if line.strip("-= ")]
        return " / ".join(told[-_SAID:]) or "it printed nothing"


def _together(commands: Sequence[Sequence[str]]) -> list[str]:
    """One command line that lasts until all of these have ended, or one of them has failed."""
    if len(commands) == 1:
        return list(commands[0])
    each = " & ".join(f"{shlex.join(command)} || kill $$" for command in commands)
    return ["/bin/sh", "-c", f"{each} & wait"]


def _send(process: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, how)
