"""The backend: what PyTorch makes of a process group, in C++ if that is built for this PyTorch, else in Python."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DistBackendError

from gc3 import _core
from gc3.support.starting import starting
from gc3.torch import native
from gc3.torch.joining import join
from gc3.torch.lane import Lane
from gc3.torch.operations import Operations, Tensors, compare_descriptions, only
from gc3.torch.tensors import Target, flat
from gc3.torch.work import All, Done, Moving, Started, destroyed_error, fork_error, size_error, told

if TYPE_CHECKING:
    from gc3.comm import Communicator

NAME = "gc3"  # of the backend, and of its events in the profiler

# The backend of each process group. PyTorch keeps the part that is in C++, and needs the Python object at every call.
_open: dict[Operations, Any] = {}
_world: Operations | None = None  # of the default group; groups of some of its ranks are made from it


def create(options: Any, backend_options: object) -> Any:
    """Returns the backend of a new process group. PyTorch calls it on the ranks of the group."""
    global _world  # noqa: PLW0603 - PyTorch passes the default group's backend to no other group's
    rank, size, timeout = options.group_rank, options.group_size, options.timeout.total_seconds()
    members = list(options.global_ranks_in_group)
    with told:
        built = native.load(rank)  # before the ranks wait for each other, because it may take a minute
        if members and _world is not None and _world.communicator.usable:
            comm, store = _world.part(members, options.store, options.group_id, timeout)
        else:
            comm, store = join(options.store, rank, size, timeout), options.store
            if members:
                compare_descriptions(comm)
    made = _made(comm, store, timeout, built.module, options.group_id)
    if not members:
        _world = next(reversed(_open))
    return made


def _made(comm: Communicator, store: Any, timeout: float, module: Any, group: str) -> Any:
    made: Any
    if module is None:
        made = operations = Gc3Backend(comm, store, timeout)
    else:
        operations = Described(comm, store, timeout, module)
        made = module.Backend(operations, _core.Joined.of(comm).calls(), comm.rank, comm.size, timeout, NAME)
    operations.group = group
    _open[operations] = made
    atexit.unregister(_end)
    atexit.register(_end, os.getpid())  # to be called before what was registered for the communicator, which closes it
    return made


def _end(process: int) -> None:
    """Waits for started calls when the process ends; after an exception, makes the calls of all ranks fail.

    No thread may want the interpreter after that. In a fork it does nothing.
    """
    if os.getpid() != process:
        return
    raised = getattr(sys, "last_value", None) is not None
    each = list(_open.items())
    for operations, backend in each:
        if raised and not backend.is_idle():
            operations.abort()
        backend.end_calls()
    for operations, backend in reversed(each):
        _leave(operations)
        backend.end_messages()


def _leave(operations: Operations) -> None:
    """Closes the communicator, and makes no more groups from it."""
    global _world  # noqa: PLW0603 - as in `create`
    _open.pop(operations, None)
    operations.leave()
    if operations is _world:
        _world = None


def communicator(group: str) -> Communicator | None:
    """Returns that of the process group of this name, after the calls that were started; None if gc3 has none.

    What PyTorch returns for a backend in C++ does not lead to it.
    """
    for operations, backend in reversed(_open.items()):
        if operations.group == group:
            backend.settle()
            return operations.communicator
    return None


class Described(Operations):
    """The operations of a backend in C++, which makes a call that this class has described, and all plain ones."""

    def __init__(self, comm: Communicator, store: Any, timeout: float, module: Any) -> None:
        """To be called only by `_made`."""
        super().__init__(comm, store, timeout)
        self._module = module

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> Any:
        """Returns the backend of a group of some of the ranks, of which this rank is one."""
        comm, store = self.part(ranks, store, options.group_name, self._timeout)
        return _made(comm, store, self._timeout, self._module, options.group_name)

    def shutdown(self) -> None:
        """Leaves; no call is running any more."""
        _leave(self)

    def _call(
        self, name: str, run: Callable[[], None], options: Any, outputs: Tensors
    ) -> tuple[str, Callable[[], None], list[torch.Tensor]]:
        def made() -> None:
            with told:
                run()

        return name, made, list(outputs)

    def _together(self, calls: Sequence[Any]) -> tuple[str, Callable[[], None], list[torch.Tensor]]:
        def run() -> None:
            for _, one, _ in calls:
                one()

        return calls[0][0] if calls else "nothing", run, [tensor for call in calls for tensor in call[2]]


class Gc3Backend(Operations, c10d.Backend):
    """A process group whose calls are programs of GC3.

    A call whose caller waits for it at once is made by the caller's thread, any other by one thread of the group, in
    the order of the calls. Errors are ``torch.distributed.DistBackendError`` with the text of gc3's error; after one of
    a lost or late rank the group cannot be used any more.
    """

    def __init__(self, comm: Communicator, store: Any, timeout: float) -> None:
        """To be called only by `_made`."""
        c10d.Backend.__init__(self, comm.rank, comm.size)
        Operations.__init__(self, comm, store, timeout)
        self._lane = Lane()
        self._followers: set[threading.Thread] = set()  # of messages

    rank = c10d.Backend.rank
    size = c10d.Backend.size

    # What PyTorch asks of a backend.

    def getBackendName(self) -> str:  # noqa: N802 - the name in PyTorch
        """Returns the name under which scripts ask for it."""
        return NAME

    # PyTorch reads the base's properties through this class, so that one that is not here would ask itself without end.
    supports_splitting = True
    supports_coalescing = False  # calls on the CPU need not be collected to be started together
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    @property
    def options(self) -> Any:
        """The name and the time-out."""
        return c10d.Backend.Options(NAME, timedelta(seconds=self._timeout))

    def supports_tensor_alloc(self, device: object) -> bool:
        """Returns True: `allocate_tensor` gives memory that all ranks can read."""
        return True

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> Any:
        """Returns the backend of a group of some of the ranks, of which this rank is one."""
        if self.rank() not in ranks:  # PyTorch crashes if a backend in Python returns None here
            raise DistBackendError(
                f"split_group: rank {self.rank()} is in none of split_ranks, which the backend gc3 in Python does not "
                "support: give it a group of its own, or call new_group, or run `python -m gc3.torch build`"
            )
        comm, store = self.part(ranks, store, options.group_name, self._timeout)
        return _made(comm, store, self._timeout, None, options.group_name)

    def shutdown(self) -> None:
        """Waits for started calls, and leaves."""
        self._lane.stop()
        _leave(self)

    # As the backend in C++ has them.

    def settle(self) -> None:
        """Waits for the calls that were started."""
        self._lane.settle()

    def is_idle(self) -> bool:
        """Returns whether no call is running or waiting."""
        return self._lane.idle

    def end_calls(self) -> None:
        """Waits for started calls; there may be no more."""
        self._lane.stop()

    def end_messages(self) -> None:
        """Waits for the threads that follow messages."""
        for thread in list(self._followers):
            thread.join()

    def _get_sequence_number_for_group(self) -> int:
        return self.calls

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 on all ranks, so they are not exchanged."""

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """Does as `Operations.monitored_barrier`, after the calls that were started."""
        self._lane.settle()
        super().monitored_barrier(options, wait_all_ranks)

    # Messages between two ranks. They do not take turns with the collectives.

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> torch.distributed.Work:
        """Sends a tensor."""
        memory = flat(self.memory_of(tensors, "send"))
        with told:
            return Moving(self.communicator.isend(memory, to, tag), lambda _: None, self._follow)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> torch.distributed.Work:
        """Receives a tensor of the same size from a rank."""
        target = Target(tensors)
        memory = flat(only(target.memory, "recv"))

        def end(status: _core.Status | None) -> None:
            if status is not None and status.count != memory.size:
                raise size_error(self.rank(), status.source, status.count, status.tag, memory.size)
            target.finish()

        with told:
            return Moving(self.communicator.irecv(memory, source, tag), end, self._follow)

    def _follow(self, run: Callable[[], None]) -> None:
        """Runs a function in a thread."""

        def follow() -> None:
            run()
            self._followers.discard(threading.current_thread())

        thread = threading.Thread(target=follow, daemon=True, name="gc3 message")
        self._followers.add(thread)
        try:
            with told, starting("a thread that waits for a message"):
                thread.start()
        except DistBackendError:
            self._followers.discard(thread)
            raise

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> torch.distributed.Work:
        """Refuses: PyTorch does not ask a backend in Python from whom a message came, so the caller could not know."""
        raise DistBackendError(
            "recv from any rank is not supported by the backend gc3 in Python: name the source in src=, or run "
            "`python -m gc3.torch build`"
        )

    # How calls are made.

    def _together(self, calls: Sequence[Any]) -> torch.distributed.Work:
        return All(calls)

    def _call(self, name: str, run: Callable[[], None], options: Any, outputs: Tensors) -> torch.distributed.Work:
        """Makes a call: here if the caller waits for it and no other is waiting, else in the group's thread.

        A call that is made by the end of another one, as by `then` of its future, comes right after it.
        """
        self.calls += 1
        if self._lane.inside or (not options.asyncOp and self._lane.idle):
            self._run(name, run)
            return Done(outputs)
        if self._lane.is_fork:
            raise fork_error()
        if self._lane.stopped:
            raise destroyed_error()
        with told:
            return Started(self._lane, self._lane.put(lambda: self._run(name, run)), outputs, self.abort)

    def _run(self, name: str, run: Callable[[], None]) -> None:
        with told:
            if torch.autograd._profiler_enabled():
                with torch.profiler.record_function(f"{NAME}:{name}"):
                    run()
            else:
                run()
