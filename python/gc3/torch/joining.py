"""How the ranks of a process group meet: through the store that PyTorch has given them."""

from __future__ import annotations

import os
import platform
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed import DistBackendError

from gc3.comm.joining import init_by_store

if TYPE_CHECKING:
    from gc3.comm import Communicator


def join(store: Any, rank: int, size: int, timeout: float) -> Communicator:
    """Connects the ranks that share a store, on one host or several.

    Raises:
        torch.distributed.DistBackendError: A rank has not set its host.
        gc3.CommError: A rank does not join.
    """
    job = _job(store, rank, size, timeout)
    store.set(f"host {rank} {job}", host())
    hosts = [store.get(f"host {other} {job}").decode() for other in range(size)]

    def share(own: str | None) -> str:
        if own is not None:
            store.set(f"rank 0 of {job}", own)
        return str(store.get(f"rank 0 of {job}").decode())

    return init_by_store(rank, size, hosts, share, store=_place(store), job=job, timeout=timeout)


def _place(store: Any) -> str:
    """Where a store is, as host:port; empty: it is not reached over a network."""
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    return f"{store.host}:{store.port}" if hasattr(store, "host") else ""


def _job(store: Any, rank: int, size: int, timeout: float) -> str:
    """Returns a name that rank 0 has chosen.

    After torchrun has started ranks again, the store still has what their predecessors have set. So rank 0 answers to
    a number that each other rank has drawn, until it has seen that this rank has the answer.
    """
    own = str(uuid.uuid4())
    if rank > 0:
        store.set(f"guest {rank}", own)
        job = store.get(f"job for {own}").decode()
        store.set(f"met {rank} {job}", "")
        return job
    job, deadline = f"torch {own}", time.monotonic() + timeout
    for other in range(1, size):
        while not store.check([f"met {other} {job}"]):
            if store.check([f"guest {other}"]):
                store.set(f"job for {store.get(f'guest {other}').decode()}", job)
            if time.monotonic() > deadline:
                raise DistBackendError(f"rank {other} has not joined the process group in {timeout:g} s")
            time.sleep(0.001)
    return job


def host() -> str:
    """Names what the processes of one job have in common: host, boot and network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()} {boot} {os.stat('/proc/self/ns/net').st_ino}"
