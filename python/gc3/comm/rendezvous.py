"""How the hosts of a job find rank 0, which listens for their leaders."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from datetime import timedelta
from typing import Any

from gc3 import _core, errors
from gc3.comm import pmi
from gc3.support import knobs

_OPEN = (
    "this job of several hosts has no secret: whoever reaches the port of rank 0 can take part. In a network that "
    "others use, set GC3_SECRET or GC3_SECRET_FILE on all ranks; see docs/security.md"
)


def find_rank0(launch: _core.Launch, set_up: knobs.Knobs, job: str, ordinal: int) -> _core.Route:
    """Returns how this rank meets those of other hosts. Rank 0 listens, and publishes its address where needed.

    Args:
        launch: What the launcher says of this rank.
        set_up: The settings of gc3.
        job: The name of the job.
        ordinal: The number of earlier calls of `gc3.init` for this job.

    Raises:
        gc3.UserError: No network interface fits, or an address is invalid.
        gc3.CommError: Rank 0 cannot listen, or has not published its address in time.
    """
    if launch.rank == 0 and not (set_up.secret or set_up.secret_file):
        warnings.warn(_OPEN, stacklevel=3)
    route = _core.Route(launch, set_up.network)
    key = f"gc3/{job}/{ordinal}"
    if launch.way == _core.Way.pmi:
        own = route.listen("", 0) if launch.rank == 0 else None
        route.address = pmi.share(launch.pmi, key, own, set_up.join_timeout)
    elif launch.way == _core.Way.pmix:
        own = route.listen("", 0) if launch.rank == 0 else None
        route.address = pmi.share_by_pmix(launch.pmix_folder, key, own, set_up.join_timeout)
    elif launch.way == _core.Way.store and importlib.util.find_spec("torch") is not None:
        if launch.leads:  # the others need no address
            own = route.listen(launch.store, 0) if launch.rank == 0 else None
            route.address = _in_store(launch.store, key, own, set_up.join_timeout)
    elif launch.rank == 0:
        route.listen(launch.address, _port(launch.address))
    else:
        route.address = launch.address
    return route


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise errors.error("BadOption", f"the address of rank 0, {address!r}: expected a port of at most 65535")
    return int(port)


def _in_store(store: str, key: str, own: str | None, timeout: float) -> str:
    """Sets or gets a value of the store that torchrun serves."""
    distributed: Any = importlib.import_module("torch.distributed")
    host, _, port = store.rpartition(":")
    try:
        client = distributed.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout))
        if own is not None:
            client.set(key, own)
            return own
        return str(client.get(key).decode())
    except (RuntimeError, ValueError) as problem:
        told = str(problem).splitlines()[0]
        raise errors.error(
            "NotMet", f"rank 0 has not given its address in the store of torchrun, {store}: {told}"
        ) from None
