"""The backend: each operation of ``torch.distributed`` on CPU tensors as calls of a communicator."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DistBackendError

from gc3 import datatypes, errors
from gc3.torch.joining import join
from gc3.torch.tensors import Target, array, contiguous, flat, operation
from gc3.torch.work import All, Done, Moving, Started, as_torch

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.comm import Communicator

Tensors = Sequence[torch.Tensor]

# PyTorch keeps the part of a backend that is in C++, and needs the Python object at every call.
_open: set[Gc3Backend] = set()
_world: Communicator | None = None  # of the default group; groups of some of its ranks are made from it


def create(options: Any, backend_options: object) -> Gc3Backend:
    """Returns the backend of a new process group. PyTorch calls it on the ranks of the group."""
    global _world  # noqa: PLW0603 - PyTorch passes the default group's backend to no other group's
    rank, size, timeout = options.group_rank, options.group_size, options.timeout.total_seconds()
    members = list(options.global_ranks_in_group)
    try:
        if members and _world is not None and _world.usable:
            comm = _world.group(members, name=options.group_id, timeout=timeout)
        else:
            comm = join(options.store, rank, size, timeout)
            if not members:
                _world = comm
    except errors.Gc3Error as problem:
        raise as_torch(problem) from problem
    return Gc3Backend(comm, options.store, timeout)


def _forget(comm: Communicator | None) -> None:
    """Makes no more groups from a communicator that is closed."""
    global _world  # noqa: PLW0603 - as in `create`
    if comm is _world:
        _world = None


class Gc3Backend(c10d.Backend):
    """A process group whose calls are programs of GC3.

    A call whose caller waits for it at once is made by the caller's thread, any other by one thread of the group, in
    the order of the calls. Errors are ``torch.distributed.DistBackendError`` with the text of gc3's error; after one of
    a lost or late rank the group cannot be used any more.
    """

    def __init__(self, comm: Communicator, store: Any, timeout: float) -> None:
        """To be called only by `create` and `split`."""
        super().__init__(comm.rank, comm.size)
        self._comm: Communicator | None = comm
        self._store = store
        self._timeout = timeout
        self._lane: futures.ThreadPoolExecutor | None = None
        self._last: futures.Future[None] | None = None  # the call that was given to the thread last
        self._calls = 0
        self._barriers = itertools.count()
        _open.add(self)

    @property
    def communicator(self) -> Communicator:
        """The communicator; raises `DistBackendError` after `shutdown`."""
        if self._comm is None:
            raise DistBackendError("the process group has been destroyed")
        return self._comm

    # What PyTorch asks of a backend.

    def getBackendName(self) -> str:  # noqa: N802 - the name in PyTorch
        """Returns the name under which scripts ask for it."""
        return "gc3"

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
        return c10d.Backend.Options("gc3", timedelta(seconds=self._timeout))

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> Gc3Backend:
        """Returns the backend of a group of some of the ranks, of which this rank is one."""
        if self.rank() not in ranks:  # PyTorch crashes if a backend in Python returns None here
            raise DistBackendError(
                f"split_group: rank {self.rank()} is in none of split_ranks, which the backend gc3 does not support: "
                "give it a group of its own, or call new_group"
            )
        name = getattr(options, "group_name", "")
        try:
            comm = self.communicator.group(list(ranks), name=name, timeout=self._timeout)
        except errors.Gc3Error as problem:
            raise as_torch(problem) from problem
        return Gc3Backend(comm, store, self._timeout)

    def shutdown(self) -> None:
        """Waits for started calls, and leaves."""
        comm, self._comm = self._comm, None
        _open.discard(self)
        _forget(comm)
        if self._lane is not None:
            self._lane.shutdown()
        if comm is not None:
            comm.close()

    def abort(self) -> None:
        """Makes running calls and all later ones fail, on all ranks."""
        if self._comm is not None:
            self._comm.abort()

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 on all ranks, so they are not exchanged."""

    # Collectives. Each is a function without arguments, which `_call` or `_into` runs here or in the group's thread.

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Reduces a tensor, dense or sparse, in place on all ranks."""
        tensor = _only(tensors, "all_reduce")
        if tensor.layout == torch.sparse_coo:
            return self.allreduce_sparse(tensors, options)
        return self._all_reduce([tensor], options)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Reduces tensors in place on all ranks, those of a type in one call."""
        return self._all_reduce(tensors, options)

    def _all_reduce(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        target, op = Target(tensors), operation(options.reduceOp)
        arrays = [flat(memory) for memory in target.memory]

        def run() -> None:
            comm = self.communicator
            for dtype in dict.fromkeys(a.dtype for a in arrays):
                same = [a for a in arrays if a.dtype == dtype]
                together = same[0] if len(same) == 1 else np.concatenate(same)
                comm.all_reduce(together, op, together)
                if len(same) > 1:
                    for a, part in zip(same, np.split(together, np.cumsum([a.size for a in same])[:-1]), strict=True):
                        a[...] = part

        return self._into(target, "all_reduce", run, options)

    def allreduce_sparse(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Sums a sparse tensor in place on all ranks, which may have different elements."""
        tensor = _only(tensors, "all_reduce")
        if operation(options.reduceOp) != "sum":
            raise as_torch(errors.error("BadReduceOp", "a sparse tensor; only the sum of sparse tensors is supported"))

        def run() -> None:
            own = tensor.detach().coalesce()
            values = own.values().contiguous()
            counts = self.communicator.all_gather(np.array([values.shape[0]])).tolist()
            places = self.communicator.all_gather_v(array(own.indices().t().contiguous()), counts)
            everyone = values.new_empty((sum(counts), *values.shape[1:]))
            self.communicator.all_gather_v(array(values), counts, out=array(everyone))
            total = torch.sparse_coo_tensor(torch.from_numpy(places).t(), everyone, own.shape, check_invariants=True)
            with torch.no_grad():
                tensor.copy_(total.coalesce())

        return self._call("all_reduce", run, options, tensors)

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Overwrites a tensor with the root's."""
        target = Target(tensors)
        memory = flat(_only(target.memory, "broadcast"))

        return self._into(target, "broadcast", lambda: self.communicator.broadcast(memory, options.rootRank), options)

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Overwrites the root's tensor with the reduction."""
        target, op, root = Target(tensors), operation(options.reduceOp), options.rootRank
        memory = flat(_only(target.memory, "reduce"))
        out = memory if self.rank() == root else None
        return self._into(target, "reduce", lambda: self.communicator.reduce(memory, op, root, out), options)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any
    ) -> torch.distributed.Work:
        """Copies all ranks' tensors, which may differ in size, to a list on every rank."""
        given = flat(contiguous(_only(inputs, "all_gather")))
        target = Target(_only(outputs, "all_gather"))
        arrays = [flat(memory) for memory in target.memory]
        counts = [a.size for a in arrays]
        return self._into(
            target, "all_gather", lambda: self.communicator.all_gather_v(given, counts, out=arrays), options
        )

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> torch.distributed.Work:
        """Copies all ranks' tensors, of one size, to one tensor on every rank."""
        target, source = Target([output]), flat(contiguous(given))
        out = flat(target.memory[0])
        return self._into(target, "all_gather_into_tensor", lambda: self.communicator.all_gather(source, out), options)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any
    ) -> torch.distributed.Work:
        """Does `all_gather_single` with each pair of tensors."""
        return All([self.all_gather_single(o, i, options) for o, i in zip(outputs, inputs, strict=True)])

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any
    ) -> torch.distributed.Work:
        """Does `allgather` with each tensor; ``outputs[r]`` is what rank r gives."""
        each = zip(*outputs, strict=True)
        return All([self.allgather([list(of)], [i], options) for of, i in zip(each, inputs, strict=True)])

    def gather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any
    ) -> torch.distributed.Work:
        """Copies all ranks' tensors to a list on the root."""
        given, root = flat(contiguous(_only(inputs, "gather"))), options.rootRank
        target = Target(_only(outputs, "gather") if self.rank() == root else [])
        arrays = [flat(memory) for memory in target.memory] or None
        return self._into(target, "gather", lambda: self.communicator.gather_v(given, root, out=arrays), options)

    def scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any
    ) -> torch.distributed.Work:
        """Copies tensor r of the root's list to rank r."""
        target, root = Target([_only(outputs, "scatter")]), options.rootRank
        out, given = flat(target.memory[0]), None
        if self.rank() == root:
            given = [flat(contiguous(tensor)) for tensor in _only(inputs, "scatter")]
        return self._into(target, "scatter", lambda: self.communicator.scatter_v(given, root=root, out=out), options)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any
    ) -> torch.distributed.Work:
        """Leaves the reduction of all ranks' tensors r on rank r."""
        target, op = Target([_only(outputs, "reduce_scatter")]), operation(options.reduceOp)
        given = [flat(contiguous(tensor)) for tensor in _only(inputs, "reduce_scatter")]
        if isinstance(op, datatypes.PreMulSum):  # which calls with blocks of any lengths do not have
            given, op = [a * a.dtype.type(op.factor) for a in given], "sum"
        out = flat(target.memory[0])
        return self._into(
            target, "reduce_scatter", lambda: self.communicator.reduce_scatter_v(given, None, op, out=out), options
        )

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> torch.distributed.Work:
        """Leaves part r of the reduction of all ranks' tensors on rank r."""
        target, source, op = Target([output]), flat(contiguous(given)), operation(options.reduceOp)
        out = flat(target.memory[0])
        return self._into(
            target, "reduce_scatter_tensor", lambda: self.communicator.reduce_scatter(source, op, out), options
        )

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any
    ) -> torch.distributed.Work:
        """Does `reduce_scatter_single` with each pair of tensors."""
        return All([self.reduce_scatter_single(o, i, options) for o, i in zip(outputs, inputs, strict=True)])

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        options: Any,
    ) -> torch.distributed.Work:
        """Sends part r of a tensor to rank r; parts are equal, or as long as the splits say, along the first axis."""
        target, source = Target([output]), array(contiguous(given))

        def run() -> None:
            out = array(target.memory[0])
            if output_splits or input_splits:
                sent = input_splits or _equal(source, self.size())
                expected = output_splits or _equal(out, self.size())
                self.communicator.all_to_all_v(source, sent, expected, out=out)
            else:
                self.communicator.all_to_all(source.reshape(-1), out.reshape(-1))

        return self._into(target, "all_to_all", run, options)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any) -> torch.distributed.Work:
        """Sends tensor r of a list to rank r; they may differ in size."""
        target, given = Target(outputs), [flat(contiguous(tensor)) for tensor in inputs]
        arrays = [flat(memory) for memory in target.memory]
        counts = [a.size for a in arrays]
        return self._into(
            target,
            "all_to_all",
            lambda: self.communicator.all_to_all_v(given, recv_counts=counts, out=arrays),
            options,
        )

    def barrier(self, options: Any) -> torch.distributed.Work:
        """Ends when all ranks have called it."""
        return self._call("barrier", self.communicator.barrier, options, [])

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """Returns when all ranks have called it; else raises an error that names those that have not, on rank 0.

        Unlike any other call, it leaves the group usable when ranks are late.
        """
        seconds = options.timeout.total_seconds()
        seconds = self._timeout if seconds < 0 else seconds  # negative: none was given
        if self._last is not None:
            futures.wait([self._last])
        name, deadline = f"monitored barrier {next(self._barriers)}", time.monotonic() + seconds
        if self.rank() > 0:
            self._store.set(f"{name} {self.rank()}", "")
            if not self._appears(name, deadline) or self._store.get(name) != b"all":
                raise DistBackendError(
                    f"[Rank {self.rank()}]: Rank {self.rank()} successfully reached monitoredBarrier, but received "
                    f"errors while waiting for send/recv from rank 0: it has not answered in {_text(seconds)}, or has "
                    "given up"
                )
            return
        if seconds == 0:
            raise DistBackendError("[Rank 0]: Rank 0 timed out in monitoredBarrier: its timeout is 0")
        late: list[int] = []
        for other in range(1, self.size()):
            if not self._appears(f"{name} {other}", deadline):
                late.append(other)
                if not wait_all_ranks:
                    break
        if late:
            self._store.set(name, "late")
            ranks = f"Rank{'s' * wait_all_ranks} {', '.join(map(str, late))}"
            raise DistBackendError(f"[Rank 0]: {ranks} failed to pass monitoredBarrier in {_text(seconds)}")
        self._store.set(name, "all")

    def _appears(self, key: str, deadline: float) -> bool:
        """Whether a rank has set a key of the store before the deadline; looks once at least."""
        try:
            self._store.wait([key], timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
        except RuntimeError as problem:  # the stores of PyTorch have no error type in common for this
            if "timeout" not in str(problem).lower():
                raise
            return False
        return True

    # Messages between two ranks. They do not take turns with the collectives.

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> torch.distributed.Work:
        """Sends a tensor."""
        memory = flat(contiguous(_only(tensors, "send")))
        try:
            return Moving(self.communicator.isend(memory, to, tag), lambda _: None)
        except errors.Gc3Error as problem:
            raise as_torch(problem) from problem

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> torch.distributed.Work:
        """Receives a tensor of the same size from a rank."""
        target = Target(tensors)
        memory = flat(_only(target.memory, "recv"))

        def end(status: _core.Status | None) -> None:
            if status is not None and status.count != memory.size:
                raise DistBackendError(
                    f"rank {status.source} has sent {status.count} elements with tag {status.tag} where rank "
                    f"{self.rank()} receives {memory.size}: send and recv must have tensors of one size"
                )
            target.finish()

        try:
            return Moving(self.communicator.irecv(memory, source, tag), end)
        except errors.Gc3Error as problem:
            raise as_torch(problem) from problem

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> torch.distributed.Work:
        """Refuses: PyTorch does not ask a backend in Python from whom a message came, so the caller could not know."""
        raise DistBackendError(
            "recv from any rank is not supported by the backend gc3 on CPU tensors: name the source in src="
        )

    # How calls are made.

    def _into(self, target: Target, name: str, run: Callable[[], object], options: Any) -> torch.distributed.Work:
        """Makes a call whose results are those of `target`."""

        def finished() -> None:
            run()
            target.finish()

        return self._call(name, finished, options, target.tensors)

    def _call(self, name: str, run: Callable[[], None], options: Any, outputs: Tensors) -> torch.distributed.Work:
        """Makes a call: here if the caller waits for it and no other is waiting, else in the group's thread."""
        self._calls += 1
        if not options.asyncOp and (self._last is None or self._last.done()):
            self._made(name, run)
            return Done(outputs)
        if self._lane is None:
            self._lane = futures.ThreadPoolExecutor(1, thread_name_prefix="gc3 calls")
        self._last = self._lane.submit(self._made, name, run)
        return Started(self._last, outputs)

    def _made(self, name: str, run: Callable[[], None]) -> None:
        try:
            if torch.autograd._profiler_enabled():
                with torch.profiler.record_function(f"{self.getBackendName()}:{name}"):
                    run()
            else:
                run()
        except errors.Gc3Error as problem:
            raise as_torch(problem) from problem


def _only(given: Sequence[Any], call: str) -> Any:
    """Returns the one element of a list: PyTorch passes one tensor for each device, and a rank has one device."""
    if len(given) != 1:
        raise as_torch(errors.error("BadBuffer", f"{call} with {len(given)} tensors; expected one"))
    return given[0]


def _equal(a: datatypes.Array, parts: int) -> list[int]:
    rows, rest = divmod(a.shape[0], parts)
    if rest:
        raise errors.error("BadBuffer", f"{a.shape[0]} rows cannot be divided among {parts} ranks: pass the splits")
    return [rows] * parts


def _text(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"
