"""How messages move between processes on this machine: what ranks have measured when they joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gc3 import _core
from gc3.comm import kept
from gc3.comm.spawn import spawn

if TYPE_CHECKING:
    from gc3.comm.communicator import Communicator


def probe() -> str:
    """Returns the measurements that two ranks use as text; with GC3_PROBE=anew they are new.

    Raises:
        gc3.CommError: The ranks do not meet.
    """
    return spawn(_measured, 2)[0]


def kept_probes() -> list[str]:
    """Returns a line for each measurement that is kept in the user's cache folder, and may be used by later jobs."""
    folder = kept.folder()
    return [] if folder is None else _core.kept_probes(str(folder))


def _measured(comm: Communicator) -> str:
    return comm.explain("allreduce", 0).processes
