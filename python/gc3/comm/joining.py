"""Joining the communicator of all ranks: `gc3.init`."""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gc3 import _core, errors
from gc3.comm import adapting, kept, rendezvous
from gc3.comm.communicator import Communicator, in_use, seconds
from gc3.comm.selection import Table
from gc3.support import knobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gc3.datatypes import Array

    # From what rank 0 gives, and the others do not, to what it has given.
    Share = Callable[[str | None], str]

_ordinals: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)  # calls of init() by job
_jobs = _core.Jobs()


def init(
    rank: int | None = None,
    size: int | None = None,
    *,
    job: str | None = None,
    timeout: float | None = None,
    pin: bool | None = None,
    wait: str | None = None,
    table: str | os.PathLike[str] | None = None,
    adapt: bool | str | None = None,
    adapt_share: float = 0.02,
) -> Communicator:
    """Connects to the other ranks, and returns the communicator of all ranks. All ranks must call it.

    Args:
        rank: The rank of this process. If it and `size` are None, both are from the launcher (see docs/processes.md).
        size: The number of ranks.
        job: The name of the job among others on this host; None: the name from the launcher.
        timeout: Seconds after which a call without progress fails, while all ranks live; None: GC3_COMM_TIMEOUT.
        pin: Whether this process, if it may run on every core, is pinned to its share of them, by the launcher's local
            rank; threads that it starts later inherit them. None: GC3_PIN.
        wait: How this rank waits for other ranks: "spin", "yield", "block", or "auto", which measures the best; None:
            GC3_WAIT.
        table: A selection table whose rows come before the default ones; None: the table that `gc3 tune` has kept for
            this machine or these hosts, if it is the same on all ranks.
        adapt: Whether the ranks learn while calls run which program is the fastest: True, False, or "exact", with
            programs that add in the same order only; None: GC3_ADAPT. The same on all ranks, or nothing is learned. See
            docs/selection.md.
        adapt_share: The part of the time that trials may cost then.

    Raises:
        gc3.UserError: The rank is not known, or a table is invalid.
        gc3.CommError: Other ranks do not join.
    """
    if (rank is None) != (size is None):
        raise errors.error("BadArgument", f"rank={rank!r}, size={size!r}: give both, or neither")
    launch = None
    if rank is None or size is None:
        launch = _core.read_launch()
        rank, size, job = launch.rank, launch.size, job or launch.job
    size = errors.whole(size, "size", 1)
    rank = errors.whole(rank, "rank", 0, size - 1, name="RankOutOfRange")
    set_up = knobs.read(tell=rank == 0)  # one rank warns for all
    several = launch is not None and launch.several
    # Without a name, the ranks that one process has started are a job; each host has a process of its own that does.
    name = str(job or ("unnamed" if several else f"started by {os.getppid()}"))
    ordinal = next(_ordinals[name])
    route = rendezvous.find_rank0(launch, set_up, name, ordinal) if launch is not None and several else None
    return _join(rank, size, name, ordinal, set_up, route, timeout, pin, wait, table, adapt, adapt_share)


def init_by_store(
    rank: int, size: int, hosts: Sequence[str], share: Share, *, store: str, job: str, timeout: float
) -> Communicator:
    """The same for ranks that have a store in common and know each other's hosts.

    Args:
        rank: The rank of this process.
        size: The number of ranks.
        hosts: The name of each rank's host.
        share: Gives what rank 0 has given it.
        store: Where it is, as host:port: rank 0 listens on the interface that leads there; empty: not known.
        job: The name of the job.
        timeout: Seconds after which a call without progress fails.

    Raises:
        gc3.CommError: Other ranks do not join.
    """
    set_up = knobs.read(tell=rank == 0)
    ordinal = next(_ordinals[job])
    route = None
    if len(set(hosts)) > 1:
        here = [other for other in range(size) if hosts[other] == hosts[rank]]
        route = _core.Route(here.index(rank), len(here), f"{job} on {hosts[rank]}", set_up.network)
        route.address = share(route.listen(store, 0) if rank == 0 else None)
    return _join(rank, size, job, ordinal, set_up, route, timeout, None, None, None)


def _join(
    rank: int,
    size: int,
    name: str,
    ordinal: int,
    set_up: knobs.Knobs,
    route: _core.Route | None,
    timeout: float | None,
    pin: bool | None,
    wait: str | None,
    table: str | os.PathLike[str] | None,
    adapt: bool | str | None = None,
    adapt_share: float = 0.02,
) -> Communicator:
    waits = set_up.comm_timeout if timeout is None else seconds(timeout)
    rows = Table.default() if table is None else Table.read(table)
    tuned = kept.for_job(several=route is not None) if table is None else None
    learning = adapting.prepare(adapt, adapt_share, set_up.adapt, tuned or rows, generate=bool(set_up.generate))
    joined = _core.join(
        rank,
        size,
        name,
        ordinal,
        set_up.join_timeout,
        waits,
        set_up.pin if pin is None else str(int(pin)),
        "torch" in sys.modules,
        set_up.wait if wait is None else wait,
        bool(set_up.single_copy),
        set_up.probe,
        set_up.cache,
        rows.core,
        None if tuned is None else tuned.core,
        learning.options,
        _jobs,
        route,
    )
    return Communicator(joined, waits, learning)


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
    """Returns a new array of zeros that all ranks can read: `Communicator.empty` of the communicator made first.

    Raises:
        gc3.UserError: There is no communicator.
    """
    usable = in_use()
    if not usable:
        raise errors.error(
            "CommunicatorClosed", "call gc3.init() first; an array that all ranks can read belongs to a job"
        )
    return usable[0].empty(shape, dtype)
