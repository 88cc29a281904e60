"""Processes of Python that begin with their imports made: forked from one that has made them.

Importing NumPy and gc3 takes most of the processor's time of a short program, and PyTorch several times that.

A forked process is a child of the test, as one that `subprocess` starts: the one between them ends at once, while the
test adopts what it leaves (prctl(2), PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

_LONGEST = 1 << 17  # bytes of a request
_ADOPTS = 36  # PR_SET_CHILD_SUBREAPER
# Read when an interpreter or a library starts, so that another value takes another process to fork from.
_OF_THE_START = ("PYTHON", "LD_", "OMP_", "ASAN_", "UBSAN_")
# Not in /proc/PID/environ of those that are forked, where ranks look who was told to be which.
_OF_ONE = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

_lock = threading.Lock()
_servers: dict[tuple[object, ...], _Server] = {}


class Process:
    """What of `subprocess.Popen` tests of ranks use."""

    def __init__(self, pid: int, output: int) -> None:
        """Takes the process, and the end of a pipe that has both its streams."""
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(output)

    def poll(self) -> int | None:
        """Returns the exit status, or None."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.005)
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Reads what it writes until its end."""
        found: list[str] = []
        reader = threading.Thread(target=lambda: found.append(self.stdout.read()), daemon=True)
        begin = time.monotonic()
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        self.stdout.close()
        self.wait(None if timeout is None else max(begin + timeout - time.monotonic(), 0.1))
        return found[0], None


class _Server:
    def __init__(self, imports: Sequence[str], environment: Mapping[str, str]) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *imports],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            env={name: value for name, value in environment.items() if name not in _OF_ONE},
        )
        theirs.close()

    def start(self, request: bytes) -> Process:
        ours, theirs = os.pipe()
        adopt = ctypes.CDLL(None).prctl
        adopt(_ADOPTS, 1, 0, 0, 0)
        try:
            socket.send_fds(self.link, [request], [theirs])
            pid = int(self.link.recv(_LONGEST))
            assert self.link.recv(_LONGEST) == b"left"
        finally:
            adopt(_ADOPTS, 0, 0, 0, 0)
            os.close(theirs)
        return Process(pid, ours)


def start(file: Path, arguments: Sequence[str], environment: Mapping[str, str], imports: Sequence[str] = ()) -> Process:
    """Starts `python FILE ARGUMENTS` with these modules imported, and both streams in one pipe."""
    of_start = sorted((k, v) for k, v in environment.items() if k.startswith(_OF_THE_START))
    request = json.dumps([str(file), *arguments]) + "\0" + json.dumps({**environment}) + "\0" + str(Path.cwd())
    with _lock:
        key = (*imports, *of_start)
        server = _servers.get(key)
        if server is None or server.process.poll() is not None:
            server = _servers[key] = _Server(imports, environment)
        return server.start(request.encode())


def run(
    code: str, arguments: Sequence[str], environment: Mapping[str, str], imports: Sequence[str], timeout: float
) -> tuple[int, str]:
    """Runs a piece of Python to its end; returns its exit status and what it has written to both streams."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.py")
        file.write_text(code)
        process = start(file, arguments, environment, imports)
        try:
            text, _ = process.communicate(timeout)
        finally:
            process.kill()
        return process.wait(), text


def servers() -> set[int]:
    """The processes to fork from, which end with this one."""
    return {server.process.pid for server in _servers.values()}


def _serve(link: socket.socket) -> tuple[bytes, int]:
    """Forks for each request, and returns with it in the forked process."""
    while True:
        request, files, _, _ = socket.recv_fds(link, _LONGEST, 1)
        if not request:
            os._exit(0)
        between = os.fork()
        if between == 0:
            own = os.fork()
            if own == 0:
                link.close()
                return request, files[0]
            link.send(str(own).encode())
            os._exit(0)
        os.waitpid(between, 0)
        os.close(files[0])
        link.send(b"left")


def _become(request: bytes, output: int) -> tuple[str, types.ModuleType]:
    """Makes this process as the interpreter would have started it; returns the program and its module."""
    command, environment, folder = request.decode().split("\0")
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(json.loads(environment))
    os.chdir(folder)
    sys.argv = json.loads(command)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *filter(None, paths)]
    tempfile.tempdir = None
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    faulthandler.enable()
    main = types.ModuleType("__main__")
    main.__file__ = sys.argv[0]
    sys.modules["__main__"] = main
    return Path(sys.argv[0]).read_text(), main


def _main() -> None:
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as link:
        request = _serve(link)
    program, main = _become(*request)
    exec(compile(program, sys.argv[0], "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - of the tests


if __name__ == "__main__":
    _main()
