"""The backend in C++: built on this machine, kept in the user's cache folder, and used where it fits."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from importlib import machinery, metadata
from pathlib import Path
from typing import Any, cast

from gc3 import errors
from gc3.comm import kept
from gc3.support import files, knobs

SOURCES = Path(__file__).parent / "cpp"
_DIGITS = 16
_MOST_SECONDS = 600  # for the compiler
_told: set[str] = set()
_modules: dict[tuple[int, int], tuple[Any, int]] = {}  # with the descriptor of each, by device and number of its file
_unbuilt: dict[Path | None, Native] = {}  # what could not be built in this process, which does not try again
_NAME = "gc3_torch"
_log = logging.getLogger("gc3.torch")


@dataclass(frozen=True, slots=True)
class Native:
    """The library."""

    module: Any  # the library; None: it is not used, and the backend in Python is
    why: str  # which backend is used, and why, for people
    problem: str | None = None  # what went wrong, for people


def load(rank: int = 0) -> Native:
    """Returns the library if it is built for this PyTorch, or is to be built now; rank 0 tells what a failure was."""
    wish = knobs.read(tell=False).torch_build
    file = None if wish == "0" else path()
    if wish == "1" and file not in _unbuilt:
        try:
            build()
        except errors.Gc3Error as problem:
            why = f"in Python, because the one in C++ could not be built: {problem}"
            _unbuilt[file] = Native(None, why, str(problem))
    found = (_unbuilt.get(file) if wish == "1" else None) or _loaded(wish, file)
    if rank == 0 and found.problem is not None and found.problem not in _told:
        _told.add(found.problem)
        warnings.warn(f"the backend gc3 in Python is used: {found.problem}", stacklevel=2)
    return found


@lru_cache
def _loaded(wish: str, _: Path | None) -> Native:
    file, why = expected(wish)
    module: Any = None
    told: str | None = None
    if file is not None:
        try:
            module = _imported(file)
        except (ImportError, OSError) as problem:
            told = f"the one in C++ does not load: {problem}; `python -m gc3.torch build` makes it anew"
        why = f"in Python, because {told}" if module is None else f"{why}, built with {module.compiler}"
    _log.info("the backend gc3 is %s", why)
    return Native(module, why, told)


def _imported(file: Path) -> Any:
    """Loads the very file whose owner was checked."""
    _check_own(file.parent, file.parent.stat())
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    about = os.fstat(opened)
    which = about.st_dev, about.st_ino
    try:
        _check_own(file, about)
        if which not in _modules:
            loader = machinery.ExtensionFileLoader(_NAME, f"/proc/self/fd/{opened}")
            spec = importlib.util.spec_from_loader(_NAME, loader)
            module = importlib.util.module_from_spec(cast("machinery.ModuleSpec", spec))
            loader.exec_module(module)
            # The loader of the system knows libraries by their paths, so that this one must stay open.
            _modules[which] = module, opened
        return _modules[which][0]
    finally:
        if _modules.get(which, (None, None))[1] != opened:
            os.close(opened)


def expected(wish: str | None = None) -> tuple[Path | None, str]:
    """Returns the library that is used, and why; needs no PyTorch in this process.

    Raises:
        gc3.UserError: Other users can write to the library.
    """
    if (knobs.read(tell=False).torch_build if wish is None else wish) == "0":
        return None, "in Python, because GC3_TORCH_BUILD=0"
    file = path()
    if file is None:
        return None, "in Python, because GC3_CACHE=off keeps no backend in C++"
    if not file.is_file():
        return None, "in Python; `python -m gc3.torch build` makes the one in C++"
    _check_own(file, file.stat())
    return file, f"in C++, {file}"


def path() -> Path | None:
    """Returns the library for this PyTorch, gc3 and Python, which may not exist; None if none is kept."""
    folder = kept.folder()
    if folder is None:
        return None
    made_for = [metadata.version("gc3"), str(sysconfig.get_config_var("SOABI")), *platform.libc_ver()]
    digest = hashlib.sha256("\n".join(made_for).encode())
    digest.update(_torch())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return folder / f"torch-{digest.hexdigest()[:_DIGITS]}.so"


def build() -> Path:
    """Builds the library if it is not there, or does not load.

    Of several processes one builds, and the others wait; if it fails, it fails for all of these.

    Raises:
        gc3.UserError: There is no compiler, no folder to keep the library in, it does not compile or does not load, or
            other users can write to it.
    """
    file = path()
    if file is None:
        raise errors.error("BuildFailed", "GC3_CACHE=off: there is no folder to keep the library in")
    if _problem(file) is None:
        return file
    began = time.time()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_own(file.parent, file.parent.stat())
        with _locked(file.with_suffix(".lock")) as failure:
            _build_in_turn(file, failure, began)
    except OSError as problem:
        raise errors.error("BuildFailed", f"'{file}': {problem.strerror}") from problem
    _loaded.cache_clear()
    return file


def _build_in_turn(file: Path, failure: int, began: float) -> None:
    """Builds what no other process has built since `began`; the file `failure` has the reason if that has failed."""
    if _problem(file) is None:
        return
    about = os.fstat(failure)
    if about.st_size and about.st_mtime > began:
        raise errors.error("BuildFailed", os.pread(failure, about.st_size, 0).decode())
    os.ftruncate(failure, 0)
    told = _compile(file) or _problem(file)
    if told is not None:
        os.pwrite(failure, told.encode(), 0)
        raise errors.error("BuildFailed", told)


def _problem(file: Path) -> str | None:
    """Returns why a library cannot be used, for people."""
    if not file.is_file():
        return f"there is no '{file}'"
    try:
        _imported(file)
    except (ImportError, OSError) as problem:
        return f"what was built does not load: {problem}"
    return None


def _compile(file: Path) -> str | None:
    """Returns why it has failed, for people; None if it has not."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return "there is no C++ compiler: install g++ 11 or newer"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        return f"there is no {headers / 'Python.h'}: install the headers of Python"
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder) / file.name
        command = [compiler, *_arguments(headers, made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS)  # noqa: S603
        except subprocess.TimeoutExpired:
            return f"{compiler} has not ended after {_MOST_SECONDS} s"
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-500:])
            return f"{compiler} ended with {done.returncode}: {first}"
        made.chmod(0o600)
        os.replace(made, file)
    return None


def _arguments(headers: Path, made: Path) -> list[str]:
    torch = sys.modules["torch"]
    root = Path(torch.__file__ or "").parent
    return [
        *("-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        "-Wl,--exclude-libs,ALL",  # of the C++ library, where the compiler adds it to each module
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-isystem", str(root / "include"), "-isystem", str(headers), "-I", str(SOURCES)),
        *(str(SOURCES / "backend.cc"), "-o", str(made)),
        *(f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"),
    ]


def _torch() -> bytes:
    """What tells builds of PyTorch apart, which need not be imported: versions, with the commit."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise errors.error("MissingPackage", "there is no PyTorch: pip install torch")
    return (Path(found.origin).parent / "version.py").read_bytes()


def _check_own(place: Path, about: os.stat_result) -> None:
    """Refuses a library, or a folder for it, that another user could have written."""
    told = f"other users can write to '{place}': remove it, or set GC3_CACHE to a folder of your own"
    files.check_own(about, told, "BuildFailed")


@contextlib.contextmanager
def _locked(place: Path) -> Generator[int, None, None]:
    """Holds a lock that the system releases when this process ends: the file that it yields."""
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + _MOST_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    told = f"another process has held '{place}' for {_MOST_SECONDS} s"
                    raise errors.error("BuildFailed", told) from None
                time.sleep(0.05)
        yield file
    finally:
        os.close(file)
