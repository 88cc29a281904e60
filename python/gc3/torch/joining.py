"""How the ranks of a process group meet: through the store that PyTorch has given them."""

from __future__ import annotations

import os
import platform
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed import DistBackendError

from gc3.comm import init

if TYPE_CHECKING:
    from gc3.comm import Communicator


def join(store: Any, rank: int, size: int, timeout: float) -> Communicator:
    """Connects the ranks that share a store, which must be processes of one host.

    Raises:
        torch.distributed.DistBackendError: They are not.
        gc3.CommError: A rank does not join.
    """
    job = _job(store, rank, size, timeout)
    store.set(f"host {rank} {job}", host())
    hosts = [store.get(f"host {other} {job}").decode() for other in range(size)]
    elsewhere = next((other for other in range(size) if hosts[other] != hosts[0]), None)
    if elsewhere is not None:
        names = [hosts[at].split()[0] for at in (0, elsewhere)]
        raise DistBackendError(
            f"the backend gc3 connects processes of one host, but rank 0 is on {names[0]} and rank {elsewhere} on "
            f'{names[1]}, or in another container: use init_process_group("cpu:gloo")'
        )
    return init(rank, size, job=job, timeout=timeout)


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
