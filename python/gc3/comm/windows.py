"""How the processes of a communicator reach each other's devices: by CUDA IPC, or through windows of NCCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gc3 import _core, errors
from gc3.cuda import nccl, runtime
from gc3.support import knobs

_JOINING = 60.0  # seconds that ranks wait for each other to join
_ID = 128  # bytes of the data that they join with
_MOST_SAID = 400  # bytes of a rank's problem text


@dataclass(frozen=True, slots=True)
class Reach:
    """The way that the ranks have agreed on."""

    how: str  # the way, and why it is not the other one, as text
    windows: _core.CudaWindows | None = None  # the object that makes windows; None: CUDA IPC


def agree(
    rank: int, size: int, device: int, exchange: Callable[[bytes], list[bytes]], *, several_hosts: bool = False
) -> Reach:
    """Returns a way that all ranks support. Collective; `exchange` returns the data that all ranks have given it.

    Windows reach ranks of one host only. There they are used if every rank asks for them and can make one. Each rank
    tries it, so that all of them find a missing requirement here, and not one of them in the middle of a call.
    """
    library: _core.Nccl | None = None
    problem = ""
    if knobs.read().cuda_windows == 0:
        problem = "GC3_CUDA_WINDOWS is 0"
    elif several_hosts:
        problem = "the ranks are on several hosts"
    else:
        try:
            library = nccl()
        except errors.Gc3Error as found:
            problem = found.diagnostics[0].message
    identity = b""
    if library is not None and rank == 0:
        try:
            identity = library.new_id()
        except errors.Gc3Error as found:
            problem = found.diagnostics[0].message
    missing = first_problem(problem, exchange)
    if missing is not None:
        return Reach(f"CUDA IPC ({missing})")
    identity = exchange(identity or bytes(_ID))[0]
    windows: _core.CudaWindows | None = None
    if library is not None:
        try:
            windows = _core.CudaWindows(library, runtime(), device, identity, rank, size, _JOINING)
            windows.probe()
        except errors.Gc3Error as found:
            problem = found.diagnostics[0].message
    missing = first_problem(problem, exchange)
    if missing is not None or library is None:
        return Reach(f"CUDA IPC ({missing})")
    version = library.version
    switch = ", which a switch reaches at once" if windows is not None and windows.has_switch else ""
    return Reach(f"windows of NCCL {version // 10000}.{version // 100 % 100}.{version % 100}{switch}", windows)


def first_problem(own: str, exchange: Callable[[bytes], list[bytes]]) -> str | None:
    """Returns the text of the first rank that has a problem. Collective; `own`: this rank's, or ""."""
    everyone = exchange(own.encode()[:_MOST_SAID].ljust(_MOST_SAID, b"\0"))
    said = [text.rstrip(b"\0").decode(errors="replace") for text in everyone]
    return next((f"rank {rank}: {text}" for rank, text in enumerate(said) if text), None)
