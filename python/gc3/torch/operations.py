"""What each operation of ``torch.distributed`` does on CPU tensors, as calls of a communicator.

Both backends use it: the one in Python for every operation, the one in C++ for those that are not plain.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np
import torch
from torch.distributed import DistBackendError, PrefixStore, distributed_c10d

from gc3 import _core, datatypes, errors
from gc3.torch.tensors import Target, array, as_nccl, contiguous, empty, flat, operation
from gc3.torch.work import as_torch, destroyed_error, told

if TYPE_CHECKING:
    from gc3.comm import Communicator

Tensors = Sequence[torch.Tensor]
Given = ParamSpec("Given")


def refusing(describe: Callable[Concatenate[Any, Given], Any]) -> Callable[Concatenate[Any, Given], Any]:
    """Describes a call: if its arguments are wrong on this rank, a call that tells the others, who wait for it."""

    @functools.wraps(describe)
    def described(self: Operations, *args: Given.args, **kwargs: Given.kwargs) -> Any:
        before = self.calls
        try:
            return describe(self, *args, **kwargs)
        except Exception as problem:
            if self.calls != before:
                raise  # in the call, which was made at once
            wrong = problem  # the name above ends with its block
        return self.refused(describe.__name__, wrong, args[-1])

    return described


class Operations:
    """The operations of a process group. How a call is made, in which thread and when, is up to the class below."""

    def __init__(self, comm: Communicator, store: Any, timeout: float) -> None:
        """Holds the communicator, the store of the group, and its time-out in seconds."""
        self._comm: Communicator | None = comm
        self._store = store
        self._timeout = timeout
        self._numbers = comm.rank, comm.size
        self.group = ""  # the name of the process group
        self.calls = 0
        self._barriers = itertools.count()
        self._parts: Counter[tuple[Any, ...]] = Counter()  # how many groups have a description and ranks

    @property
    def communicator(self) -> Communicator:
        """The communicator; raises `DistBackendError` after `leave`."""
        if self._comm is None:
            raise destroyed_error()
        return self._comm

    def rank(self) -> int:
        """Returns this process's rank in the group."""
        return self._numbers[0]

    def size(self) -> int:
        """Returns the number of ranks."""
        return self._numbers[1]

    def _call(self, name: str, run: Callable[[], None], options: Any, outputs: Tensors) -> Any:
        """Makes a call that is a function without arguments, and writes `outputs`."""
        raise NotImplementedError

    def _together(self, calls: Sequence[Any]) -> Any:
        """Makes several calls one."""
        raise NotImplementedError

    def _into(self, target: Target, name: str, run: Callable[[], object], options: Any) -> Any:
        """Makes a call whose results are those of `target`."""

        def finished() -> None:
            run()
            target.finish()

        return self._call(name, finished, options, target.tensors)

    def _at_once(self, name: str, target: Target, method: str, calls: Sequence[Any], options: Any) -> Any:
        """Makes calls of one method of the communicator, each by its arguments; several are coalesced."""

        def run() -> None:
            if len(calls) == 1:
                getattr(self.communicator, method)(*calls[0])
                return
            with self.communicator.coalesce() as coalesced:
                for each in calls:
                    getattr(coalesced, method)(*each)

        return self._into(target, name, run, options)

    def leave(self) -> None:
        """Closes the communicator."""
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.close()

    def refused(self, name: str, problem: Exception, options: Any) -> Any:
        """In place of a call: tells the other ranks that its arguments are wrong here, and raises `problem`."""
        found = problem.__cause__
        made = found if isinstance(found, errors.Gc3Error) else errors.error("BadArgument", str(problem))

        def refuse() -> None:
            _core.Joined.of(self.communicator).refuse(made.diagnostics[0])
            raise problem

        return self._call(name, refuse, options, [])

    def part(self, ranks: Sequence[int], store: Any, name: str, timeout: float) -> tuple[Communicator, Any]:
        """Returns a communicator of some of the ranks, of which this rank is one, and the store of these ranks.

        PyTorch's names of groups only count them, so ranks that make groups in other orders would mix them up. The
        script's descriptions tell them apart. Between hosts, where the ranks meet now, they have to be the same.
        """
        comm, described = self.communicator, _description()
        with told:
            if described and not comm.transport:
                alike = (described, *ranks)
                self._parts[alike] += 1
                name = f"{described} {self._parts[alike]}"
                return comm.group(ranks, name=name, timeout=timeout), PrefixStore(f"{name} of {ranks}", self._store)
            made = comm.group(ranks, name=name, timeout=timeout)
            compare_descriptions(made)
        return made, store

    def abort(self) -> None:
        """Makes running calls and all later ones fail, on all ranks."""
        if self._comm is not None:
            self._comm.abort()

    def allocate_tensor(self, size: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        """Returns a tensor in memory that all ranks can read, so that large calls on it need fewer copies."""
        if device is not None and torch.device(device).type != "cpu":
            raise as_torch(errors.error("BadBuffer", f"allocate_tensor on {device}; the backend gc3 serves the CPU"))
        with told:
            return empty(self.communicator, [size], dtype)

    # Collectives.

    @refusing
    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Reduces a tensor, dense or sparse, in place on all ranks."""
        tensor = only(tensors, "all_reduce")
        if tensor.layout == torch.sparse_coo:
            return self.allreduce_sparse(tensors, options)
        return self.allreduce_coalesced(tensors, options)

    @refusing
    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Reduces tensors in place on all ranks, those of a type in one call."""
        target, op = Target(tensors), operation(options.reduceOp, tensors)
        each = [as_nccl(op, self.size(), flat(memory)) for memory in target.memory]
        return self._at_once("all_reduce", target, "all_reduce", [(a, how, a) for how, [a] in each], options)

    @refusing
    def allreduce_sparse(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Sums a sparse tensor in place on all ranks, which may have different elements."""
        tensor = only(tensors, "all_reduce")
        if operation(options.reduceOp, tensors) != "sum":
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

    @refusing
    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Overwrites a tensor with the root's."""
        target = Target(tensors)
        memory = flat(only(target.memory, "broadcast"))

        return self._into(target, "broadcast", lambda: self.communicator.broadcast(memory, options.rootRank), options)

    @refusing
    def reduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Overwrites the root's tensor with the reduction."""
        target, op, root = Target(tensors), operation(options.reduceOp, tensors), options.rootRank
        op, [memory] = as_nccl(op, self.size(), flat(only(target.memory, "reduce")))
        out = memory if self.rank() == root else None
        return self._into(target, "reduce", lambda: self.communicator.reduce(memory, op, root, out), options)

    @refusing
    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> Any:
        """Copies all ranks' tensors, which may differ in size, to a list on every rank."""
        given = flat(contiguous(only(inputs, "all_gather")))
        target = Target(only(outputs, "all_gather"))
        arrays = [flat(memory) for memory in target.memory]
        counts = [a.size for a in arrays]
        return self._into(
            target, "all_gather", lambda: self.communicator.all_gather_v(given, counts, out=arrays), options
        )

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> Any:
        """Copies all ranks' tensors, of one size, to one tensor on every rank."""
        return self.all_gather_single_coalesced([output], [given], options)

    @refusing
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any) -> Any:
        """Does `all_gather_single` with each pair of tensors, those of a type in one call."""
        target, given = Target(outputs), [flat(contiguous(tensor)) for tensor in inputs]
        each = zip(given, map(flat, target.memory), strict=True)
        return self._at_once("all_gather_into_tensor", target, "all_gather", list(each), options)

    @refusing
    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> Any:
        """Does `allgather` with each tensor; ``outputs[r]`` is what rank r gives."""
        each = zip(*outputs, strict=True)
        return self._together([self.allgather([list(of)], [i], options) for of, i in zip(each, inputs, strict=True)])

    @refusing
    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> Any:
        """Copies all ranks' tensors to a list on the root."""
        given, root = flat(contiguous(only(inputs, "gather"))), options.rootRank
        target = Target(only(outputs, "gather") if self.rank() == root else [])
        arrays = [flat(memory) for memory in target.memory] or None
        return self._into(target, "gather", lambda: self.communicator.gather_v(given, root, out=arrays), options)

    @refusing
    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any) -> Any:
        """Copies tensor r of the root's list to rank r."""
        target, root = Target([only(outputs, "scatter")]), options.rootRank
        out, given = flat(target.memory[0]), None
        if self.rank() == root:
            given = [flat(contiguous(tensor)) for tensor in only(inputs, "scatter")]
        return self._into(target, "scatter", lambda: self.communicator.scatter_v(given, root=root, out=out), options)

    @refusing
    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], options: Any) -> Any:
        """Leaves the reduction of all ranks' tensors r on rank r."""
        target, op = Target([only(outputs, "reduce_scatter")]), operation(options.reduceOp, outputs)
        arrays = [flat(contiguous(tensor)) for tensor in only(inputs, "reduce_scatter")]
        op, [out, *given] = as_nccl(op, self.size(), flat(target.memory[0]), *arrays)

        def run() -> None:
            if isinstance(op, datatypes.PreMulSum):  # which calls with blocks of any lengths do not have
                self.communicator.reduce_scatter_v([op.times(a) for a in given], None, "sum", out=out)
            else:
                self.communicator.reduce_scatter_v(given, None, op, out=out)

        return self._into(target, "reduce_scatter", run, options)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> Any:
        """Leaves part r of the reduction of all ranks' tensors on rank r."""
        return self.reduce_scatter_single_coalesced([output], [given], options)

    @refusing
    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any
    ) -> Any:
        """Does `reduce_scatter_single` with each pair of tensors, those of a type in one call."""
        target, op = Target(outputs), operation(options.reduceOp, outputs)
        given = [flat(contiguous(tensor)) for tensor in inputs]
        pairs = zip(map(flat, target.memory), given, strict=True)
        each = [as_nccl(op, self.size(), *pair) for pair in pairs]
        calls = [(source, how, out) for how, [out, source] in each]
        return self._at_once("reduce_scatter_tensor", target, "reduce_scatter", calls, options)

    @refusing
    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        options: Any,
    ) -> Any:
        """Sends part r of a tensor to rank r; parts are equal, or as long as the splits say, along the first axis."""
        target, source = Target([output]), array(contiguous(given))
        out, splits = array(target.memory[0]), output_splits or input_splits
        sent = input_splits or (_equal(source, self.size()) if splits else [])
        expected = output_splits or (_equal(out, self.size()) if splits else [])

        def run() -> None:
            if splits:
                self.communicator.all_to_all_v(source, sent, expected, out=out)
            else:
                self.communicator.all_to_all(source.reshape(-1), out.reshape(-1))

        return self._into(target, "all_to_all", run, options)

    @refusing
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], options: Any) -> Any:
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

    def barrier(self, options: Any) -> Any:
        """Ends when all ranks have called it."""
        return self._call("barrier", self.communicator.barrier, options, [])

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """Returns when all ranks have called it; else raises an error that names those that have not, on rank 0.

        Unlike any other call, it leaves the group usable when ranks are late.
        """
        seconds = options.timeout.total_seconds()
        seconds = self._timeout if seconds < 0 else seconds  # negative: none was given
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

    # Messages between two ranks.

    def memory_of(self, tensors: Tensors, call: str) -> torch.Tensor:
        """Returns the contiguous memory of the one tensor of a send or receive."""
        tensor = only(tensors, call)
        return contiguous(tensor) if call == "send" else Target([tensor]).memory[0]

    def number_of(self, tensor: torch.Tensor) -> int:
        """Returns the number of the type of contiguous memory in a message, if it is not the runtime's own."""
        return datatypes.element(flat(tensor).dtype)[2]


def _description() -> str:
    """Returns how the script describes the group that PyTorch is making; PyTorch itself tells that when it is made."""
    frame = inspect.currentframe()
    while frame and not (frame.f_globals is vars(distributed_c10d) and "group_desc" in frame.f_locals):
        frame = frame.f_back
    found = frame and frame.f_locals["group_desc"]
    return "" if found in (None, "undefined") else str(found)


def compare_descriptions(made: Communicator) -> None:
    """Compares the script's descriptions of a group whose ranks meet now; a difference is an error on all of them."""
    if described := _description():
        _core.Joined.of(made).describe(described)
        made.barrier()


def only(given: Sequence[Any], call: str) -> Any:
    """Returns the one element of a list: PyTorch passes one tensor for each device, and a rank has one device."""
    if len(given) != 1:
        raise as_torch(errors.error("BadBuffer", f"{call} with {len(given)} tensors; expected one"))
    return given[0]


def _equal(a: datatypes.Array, parts: int) -> list[int]:
    rows, rest = divmod(a.shape[0], parts)
    if rest:
        told = f"{a.shape[0]} rows cannot be divided among {parts} ranks: pass the splits"
        raise as_torch(errors.error("BadBuffer", told))
    return [rows] * parts


def _text(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"
