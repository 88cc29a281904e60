"""GC3 behind NCCL's API: a library that takes the place of NCCL's in a program, and what it needs.

Calls that a given program serves are executed by GC3's CUDA engine, and all others by NCCL. See docs/nccl.md.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gc3 import _core, errors
from gc3.comm.export import export
from gc3.comm.selection import Table, read_rows
from gc3.cuda.driver import compilers, nccl_libraries
from gc3.support import files, knobs, schema
from gc3.support.public import public_names

__all__ = [
    "Log",
    "Served",
    "below",
    "environment",
    "exported",
    "library",
    "load",
    "read_logs",
    "tuner_library",
    "unknown",
]

_LOG = "gc3-nccl-log-2"
PATHS = ("LD_PRELOAD", "LD_LIBRARY_PATH")
_RANKS = (2, 3, 4, 5, 6, 7, 8)
_SECTION_DYNSYM = 11


def library() -> Path:
    """Returns the library that takes NCCL's place.

    Raises:
        gc3.UserError: This installation has none: a checkout builds it by `make nccl`.
    """
    return _built("libgc3_nccl.so")


def tuner_library() -> Path:
    """Returns the tuner plugin of NCCL that reads what `gc3 tune --nccl-tuner` writes.

    Raises:
        gc3.UserError: This installation has none: a checkout builds it by `make nccl`.
    """
    return _built("libgc3_nccl_tuner.so")


def _built(name: str) -> Path:
    path = Path(_core.__file__).parent / "lib" / name
    if path.exists():
        return path
    raise errors.error("FileUnreadable", f"{path} is not there: `make nccl` builds it in a checkout; wheels have it")


def below() -> Path:
    """Returns NCCL's own library, as the CUDA engine finds it: GC3_NCCL, a pip package, the system's.

    Raises:
        gc3.UserError: There is none.
    """
    tried = nccl_libraries()
    for name in tried:
        found = Path(name) if "/" in name else _loaded(name)
        if found is not None and found.exists() and not found.samefile(library()):
            return found.absolute()
    raise errors.error(
        "FileUnreadable",
        f"NCCL's own library, tried {', '.join(tried)}: pip install nvidia-nccl-cu12, or name it in GC3_NCCL",
    )


def environment(
    programs: str | os.PathLike[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    tuner: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Returns the variables that put the library in front of a program. Uninstalling it is unsetting them.

    Those of `PATHS` are lists with colons between the paths; put these before what they have.

    Args:
        programs: A folder of `gc3 table export`, or one program; None: NCCL serves all calls.
        log: The folder for what `gc3 nccl explain` shows; None: none is written.
        folder: Make this folder with a `libnccl.so.2`, for programs that name a folder instead of being preloaded, and
            return LD_LIBRARY_PATH instead of LD_PRELOAD.
        tuner: A file of `gc3 tune --nccl-tuner`, for the calls that NCCL serves; None: NCCL chooses by itself.

    Raises:
        gc3.UserError: There is no NCCL, or a file or folder cannot be used.
    """
    real = below()
    made: dict[str, str] = {}
    if folder is None:
        preloaded = [str(library())]
        if unknown(real):
            preloaded.append(str(real))  # functions that are newer than the library are found there
        made["LD_PRELOAD"] = ":".join(preloaded)
    else:
        place = Path(folder).absolute()
        files.make_folder(place)
        link = place / "libnccl.so.2"
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(library())
        except OSError as problem:
            raise errors.error("FileUnwritable", f"'{link}': {problem.strerror}") from problem
        made["LD_LIBRARY_PATH"] = str(place)
    made["GC3_NCCL"] = str(real)
    wheels = [name for name in compilers() if "/" in name]
    if wheels and not knobs.read().nvrtc:
        made["GC3_NVRTC"] = wheels[0]  # the library in front of NCCL knows no pip packages
    if programs is not None:
        if not Path(programs).exists():
            raise errors.error("FileUnreadable", f"'{os.fspath(programs)}': no such file or folder")
        made["GC3_NCCL_PROGRAMS"] = str(Path(programs).absolute())
    if tuner is not None:
        if not Path(tuner).is_file():
            raise errors.error("FileUnreadable", f"'{os.fspath(tuner)}': no such file")
        made |= {"NCCL_TUNER_PLUGIN": str(tuner_library()), "GC3_NCCL_TUNER": str(Path(tuner).absolute())}
    if log is not None:
        files.make_folder(Path(log))
        made["GC3_NCCL_LOG"] = str(Path(log).absolute())
    return made


def load(table: str | os.PathLike[str], ranks: Sequence[int] = _RANKS) -> None:
    """Gives the rows of a selection table to the library in this process, as `gc3 nccl run` has started it.

    Communicators that are used for the first time afterwards have them; so call it before, on every rank.

    Args:
        table: A selection table, whose rows alone count: NCCL serves what they do not. Or a folder of
            `gc3 table export`, or one program.
        ranks: The numbers of ranks to compile the rows for.

    Raises:
        gc3.UserError: The table is invalid, or the library is not in this process.
    """
    function = getattr(ctypes.CDLL(None), "gc3NcclLoad", None)
    if function is None:
        raise errors.error("BadOption", "NCCL's library is not GC3's in this process: start it with `gc3 nccl run`")
    if Path(table).suffix != ".json":
        _given(function, Path(table))
        return
    with tempfile.TemporaryDirectory(prefix="gc3-nccl-") as folder:
        export(Table(read_rows(table)), ranks, Path(folder))
        _given(function, Path(folder))


def _given(function: Any, path: Path) -> None:
    if function(os.fsencode(path)) == 0:
        return
    last = ctypes.CDLL(None).ncclGetLastError
    last.restype = ctypes.c_char_p
    said = cast("bytes | None", last(None)) or b"no reason given"
    raise errors.error("BadTable", said.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Served:
    """Calls of one kind in one process.

    Attributes:
        function: NCCL's name for it.
        counts: The smallest and the largest number of elements that they may have had.
        by: The program, or "NCCL".
        calls: How many there were.
        host_ns: The host's time for them in nanoseconds; 0 if NCCL served them.
    """

    function: str
    counts: tuple[int, int]
    by: str
    calls: int
    host_ns: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """What served the calls of a process.

    Attributes:
        host: The name of its host.
        process: Its number there.
        nccl: The library of NCCL.
        served: The calls.
        reasons: Function, reason and number of calls that NCCL served although there were programs.
    """

    host: str
    process: int
    nccl: str
    served: tuple[Served, ...]
    reasons: tuple[tuple[str, str, int], ...]


def read_logs(folder: str | os.PathLike[str]) -> list[Log]:
    """Reads the logs that the processes of a job have written.

    Raises:
        gc3.UserError: There is none, or one is damaged.
    """
    found = sorted(Path(folder).glob("gc3-nccl-*.json"))
    if not found:
        raise errors.error("FileUnreadable", f"'{os.fspath(folder)}': no log of a process; see GC3_NCCL_LOG")
    return [_log(files.read_json(path, "FileUnreadable"), path) for path in found]


_CALL = {"function": schema.TEXT, "calls": {**schema.COUNT, "minimum": 1}}
_COUNTS = {"from": schema.COUNT, "to": schema.COUNT}
_SCHEMA = schema.record(
    format={"const": _LOG},
    host=schema.TEXT,
    process=schema.COUNT,
    nccl=schema.TEXT,
    served=schema.array(schema.record(**_CALL, **_COUNTS, program=schema.TEXT, host_ns=schema.COUNT)),
    left=schema.array(schema.record(**_CALL, **_COUNTS)),
    reasons=schema.array(schema.record(**_CALL, why=schema.TEXT)),
)


def _log(data: Any, path: Path) -> Log:
    schema.check(data, _SCHEMA, "FileUnreadable", file=str(path), what="a log of NCCL's API")
    served = [
        Served(s["function"], (s["from"], s["to"]), s["program"], s["calls"], s["host_ns"]) for s in data["served"]
    ]
    served += [Served(s["function"], (s["from"], s["to"]), "NCCL", s["calls"]) for s in data["left"]]
    reasons = tuple((r["function"], r["why"], r["calls"]) for r in data["reasons"])
    return Log(data["host"], data["process"], data["nccl"], tuple(served), reasons)


def unknown(path: Path) -> list[str]:
    """Returns the functions of an NCCL that the library in front of it does not have, because it is older."""
    own = set(exported(library()))
    return [name for name in exported(path) if name not in own]


def exported(path: Path) -> list[str]:
    """Returns the names beginning with nccl and pnccl that a library defines; they are read from its file.

    Raises:
        gc3.UserError: It is not a 64-bit little-endian ELF library.
    """
    try:
        with path.open("rb") as file:
            return [name for name in _symbols(file) if name.startswith(("nccl", "pnccl"))]
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{path}': {problem.strerror}") from problem
    except (struct.error, ValueError, UnicodeDecodeError) as problem:
        raise errors.error("FileUnreadable", f"'{path}': not a library for this machine") from problem


def _symbols(file: Any) -> Iterator[str]:
    """The names of the defined dynamic symbols, from the sections of an ELF file."""
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError
    (at,) = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<HH", header, 58)
    file.seek(at)
    sections = [struct.unpack_from("<IIQQQQIIQQ", file.read(size)) for _ in range(count)]
    for _, kind, _, _, offset, length, link, _, _, each in sections:
        if kind != _SECTION_DYNSYM:
            continue
        file.seek(sections[link][4])
        names = file.read(sections[link][5])
        file.seek(offset)
        table = file.read(length)
        for begin in range(0, length, each):
            name, _, _, defined = struct.unpack_from("<IBBH", table, begin)
            if defined:
                yield names[name : names.index(b"\0", name)].decode()


def _loaded(name: str) -> Path | None:
    """The path of a library that the loader finds by its name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and Path(path[0]).name.startswith(name):
            return Path(path[0])
    return None


public_names(__name__)
