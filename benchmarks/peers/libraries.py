"""Finds the libraries to compare with, and starts their ranks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from gc3.runtime.measure import cores

# From an empty folder and a number of ranks to the command lines that start them: one, or one for each rank.
Start: TypeAlias = "Callable[[Path, int], list[list[str]]]"

_HERE = Path(__file__).resolve().parent

PEERS = ("openmpi", "mpich", "gloo")
_COMPILE_S = 60
_ASK_S = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of running a library: several compete, and the best counts.

    Attributes:
        name: "openmpi ucx", or only the library's name.
        peer: The library.
        start: The command lines of its ranks.
        crowded: Whether it only differs where there are more ranks than cores, and is left out elsewhere.
    """

    name: str
    peer: str
    start: Start
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library.

    Attributes:
        name: One of PEERS.
        version: Its own version text.
        settings: The ways of running it.
    """

    name: str
    version: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A library that is not installed.

    Attributes:
        name: One of PEERS.
        why: The missing part and how to get it.
    """

    name: str
    why: str


def find(name: str, folder: Path) -> Library | Missing:
    """Returns the library called `name`; compiles its benchmark into `folder` if needed."""
    return _FINDERS[name](folder)


def gc3_ranks(table: str | None) -> Start:
    """Returns a function that starts ranks of gc3, which choose programs by `table` before the default one."""
    more = [] if table is None else [table]
    return _python_ranks("gc3", more)


def _python_ranks(library: str, more: Sequence[str] = (), environment: Sequence[str] = ()) -> Start:
    def start(folder: Path, ranks: int) -> list[list[str]]:
        command = [sys.executable, str(_HERE / "rank.py"), library, str(folder)]
        prefix = ["env", *environment] if environment else []
        return [[*prefix, *command, str(rank), str(ranks), *more] for rank in range(ranks)]

    return start


def _openmpi(folder: Path) -> Library | Missing:
    tools = _mpi_tools(("mpirun.openmpi", "mpicc.openmpi"), ("mpirun", "mpicc"), says="open-mpi.org")
    if tools is None:
        return Missing("openmpi", "no mpirun and mpicc of Open MPI; Debian: apt-get install libopenmpi-dev openmpi-bin")
    mpirun, mpicc, version = tools
    program = _compiled(mpicc, folder / "mpi-openmpi")
    if isinstance(program, str):
        return Missing("openmpi", program)

    # gc3 assigns cores to ranks in turn. Open MPI is run both with that setting and with its default, which leaves it
    # to the system.
    unbound = ["--bind-to", "none"]
    bound = ["--map-by", "core", "--bind-to", "core:overload-allowed"]

    def start(*parameters: str, crowd: Sequence[str] = unbound) -> Start:
        def command(folder: Path, ranks: int) -> list[list[str]]:
            line = [mpirun, "-np", str(ranks)]
            if os.geteuid() == 0:
                line.append("--allow-run-as-root")
            if ranks > cores():
                line += ["--oversubscribe", *crowd, "--mca", "mpi_yield_when_idle", "1"]
            return [[*line, *parameters, str(program), str(folder)]]

        return command

    shared = "posix,sysv,self"
    ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
    ways = {
        "": ("--mca", "pml", "ob1"),
        " no single copy": ("--mca", "pml", "ob1", "--mca", "btl_vader_single_copy_mechanism", "none"),
        " ucx": (*ucx, "-x", f"UCX_TLS={shared},cma"),
        " ucx no single copy": (*ucx, "-x", f"UCX_TLS={shared}"),
    }
    settings = [Setting(f"openmpi{name}", "openmpi", start(*how)) for name, how in ways.items()]
    for name, how in ways.items():
        settings.append(Setting(f"openmpi bound{name}", "openmpi", start(*how, crowd=bound), crowded=True))
    return Library("openmpi", version, tuple(settings))


def _mpich(folder: Path) -> Library | Missing:
    tools = _mpi_tools(("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc"), ("mpirun", "mpicc"), says="HYDRA")
    if tools is None:
        return Missing("mpich", "no mpirun and mpicc of MPICH; Debian: apt-get install mpich libmpich-dev")
    mpirun, mpicc, version = tools
    program = _compiled(mpicc, folder / "mpi-mpich")
    if isinstance(program, str):
        return Missing("mpich", program)

    def start(folder: Path, ranks: int) -> list[list[str]]:
        bound = [] if ranks > cores() else ["-bind-to", "core"]
        return [[mpirun, *bound, "-n", str(ranks), str(program), str(folder)]]

    return Library("mpich", version, (Setting("mpich", "mpich", start),))


def _gloo(folder: Path) -> Library | Missing:
    del folder  # nothing to compile
    if importlib.util.find_spec("torch") is None:
        return Missing("gloo", "this Python cannot import torch; `pip install torch` beside gc3")
    # By default Gloo uses the interface of the host's own name, which may not work.
    start = _python_ranks("gloo", environment=["GLOO_SOCKET_IFNAME=lo"])
    asked = _output([sys.executable, "-c", "import torch; print(torch.__version__, torch.distributed.is_available())"])
    version, available = (asked or "? False").split()
    if available != "True":
        return Missing("gloo", "torch is here but without torch.distributed")
    return Library("gloo", f"PyTorch {version}", (Setting("gloo", "gloo", start),))


_FINDERS: Mapping[str, Callable[[Path], Library | Missing]] = MappingProxyType(
    {"openmpi": _openmpi, "mpich": _mpich, "gloo": _gloo}
)


def _mpi_tools(*pairs: tuple[str, str], says: str) -> tuple[str, str, str] | None:
    """The first launcher whose version names the library, the compiler beside it, and the version."""
    for launcher, compiler in pairs:
        mpirun = shutil.which(launcher)
        mpicc = None if mpirun is None else shutil.which(compiler)
        if mpirun is None or mpicc is None:
            continue
        told = _output([mpirun, "--version"])
        if told is not None and says in told:
            number = next((word for word in told.split() if word[:1].isdigit() and "." in word), "?")
            return mpirun, mpicc, ("Open MPI " if says == "open-mpi.org" else "MPICH ") + number
    return None


def _compiled(mpicc: str, program: Path) -> Path | str:
    """The compiled benchmark, or why it could not be compiled."""
    command = [mpicc, "-O2", "-o", str(program), str(_HERE / "mpi.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{mpicc} does not work: {problem}"
    if done.returncode != 0:
        return f"{mpicc} fails: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"
    return program


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
