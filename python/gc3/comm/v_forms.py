"""The calls of a communicator whose blocks differ in length."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from gc3 import _core, datatypes, errors
from gc3.support.public import of_all_ranks

Done = Callable[[], object] | None
Timeout = float | None
Self = TypeVar("Self", bound=_core.Communicator)
Given = ParamSpec("Given")
Result = TypeVar("Result")


def told(make: Callable[Concatenate[Self, Given], Result]) -> Callable[Concatenate[Self, Given], Result]:
    """Makes a call of all ranks: if its arguments are wrong on this one, the others, who wait for it, are told."""

    @functools.wraps(make)
    def made(comm: Self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return make(comm, *args, **kwargs)
        except errors.UserError as problem:
            _core.Joined.of(comm).refuse(problem.diagnostics[0])
            raise

    return of_all_ranks(made)


class VForms(_core.Communicator):
    """Collectives that move blocks of any lengths. Any program serves them if `gc3 verify` says so of it.

    A length is a number of rows, of entries along the first axis; rows have one shape and type on all ranks. A method
    whose name ends in ``_async`` returns a handle; where counts have to be exchanged, that is done before.
    """

    @of_all_ranks
    def all_to_all_v(
        self, x: Any, send_counts: Any = None, recv_counts: Any = None, *, out: Any = None, timeout: Timeout = None
    ) -> Any:
        """Returns what every rank has sent to this one, by rank, along the first axis.

        Args:
            x: What this rank sends: an array, by destination along the first axis, or a list of an array for each rank.
            send_counts: How many rows each rank gets, where `x` is an array. With two axes, what each rank (first axis)
                sends to each, the same on all ranks: then no rank has to ask another.
            recv_counts: How many rows this rank expects of each, to be compared with what they send; None: any.
            out: An array, or a list of an array for each rank, for the result. It may be `x` if any two ranks send each
                other equally much.
            timeout: Seconds without progress after which the call fails, and the communicator with it.

        Returns:
            `out`, or a new array; where `x` is a list, a list of an array from each rank.

        Raises:
            gc3.UserError: The counts do not fit the arrays; or, on every rank, two ranks disagree (GC3-R025).
            gc3.CommError: The ranks make different calls.
        """
        return _call(self, "alltoall", x, send_counts, out, timeout, expected=recv_counts)

    @of_all_ranks
    def all_gather_v(self, x: Any, counts: Any = None, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Returns all ranks' `x`, of any numbers of rows, joined along the first axis, on every rank.

        Args:
            x: What this rank gives; it may be this rank's part of `out`.
            counts: The rows of each rank's `x`, given on all ranks or on none; given, no rank has to ask another.
            out: An array for the result, or a list of an array for each rank.
            timeout: Seconds without progress after which the call fails, and the communicator with it.

        Raises:
            gc3.UserError: The counts do not fit the arrays; or, on every rank, two ranks disagree (GC3-R025).
            gc3.CommError: The ranks make different calls.
        """
        return _call(self, "allgather", x, counts, out, timeout)

    @of_all_ranks
    def reduce_scatter_v(
        self, x: Any, counts: Any = None, op: datatypes.Op = "sum", *, out: Any = None, timeout: Timeout = None
    ) -> Any:
        """Returns part r of the reduction of all ranks' `x` on rank r.

        Args:
            x: An array, by rank along the first axis, or a list of an array for each rank.
            counts: The rows of each part, the same on all ranks, where `x` is an array.
            op: The reduction; not PreMulSum.
            out: An array for the result; it may be this rank's part of `x`.
            timeout: Seconds without progress after which the call fails, and the communicator with it.

        Raises:
            gc3.UserError: The counts do not fit the arrays.
            gc3.CommError: The ranks make different calls, or give different counts.
        """
        return _call(self, "reducescatter", x, counts, out, timeout, op=op)

    @of_all_ranks
    def gather_v(self, x: Any, root: int = 0, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Returns all ranks' `x`, of any numbers of rows, joined along the first axis, on the root, None elsewhere.

        `out` is the root's: an array, or a list of an array for each rank. Raises what `all_gather_v` does.
        """
        return _call(self, "gather", x, None, out, timeout, root=root)

    @of_all_ranks
    def scatter_v(
        self, x: Any = None, counts: Any = None, root: int = 0, *, out: Any = None, timeout: Timeout = None
    ) -> Any:
        """Returns part r of the root's `x` on rank r.

        Args:
            x: The root's array, by rank along the first axis, or its list of an array for each rank.
            counts: The rows of each part, where the root's `x` is an array; only the root's count.
            root: The rank that has `x`.
            out: An array for the result, which other ranks than the root need.
            timeout: Seconds without progress after which the call fails, and the communicator with it.

        Raises:
            gc3.UserError: The counts do not fit the arrays; or, on every rank, an `out` is not as long as its part.
            gc3.CommError: The ranks make different calls.
        """
        return _call(self, "scatter", x, counts, out, timeout, root=root)

    @of_all_ranks
    def all_to_all_v_async(
        self,
        x: Any,
        send_counts: Any = None,
        recv_counts: Any = None,
        *,
        out: Any = None,
        done: Done = None,
        timeout: Timeout = None,
    ) -> _core.Handle[Any]:
        """Starts `all_to_all_v`."""
        return _call(self, "alltoall", x, send_counts, out, timeout, expected=recv_counts, later=True, done=done)

    @of_all_ranks
    def all_gather_v_async(
        self, x: Any, counts: Any = None, *, out: Any = None, done: Done = None, timeout: Timeout = None
    ) -> _core.Handle[Any]:
        """Starts `all_gather_v`."""
        return _call(self, "allgather", x, counts, out, timeout, later=True, done=done)

    @of_all_ranks
    def reduce_scatter_v_async(
        self,
        x: Any,
        counts: Any = None,
        op: datatypes.Op = "sum",
        *,
        out: Any = None,
        done: Done = None,
        timeout: Timeout = None,
    ) -> _core.Handle[Any]:
        """Starts `reduce_scatter_v`."""
        return _call(self, "reducescatter", x, counts, out, timeout, op=op, later=True, done=done)

    @of_all_ranks
    def gather_v_async(
        self, x: Any, root: int = 0, *, out: Any = None, done: Done = None, timeout: Timeout = None
    ) -> _core.Handle[Any]:
        """Starts `gather_v`."""
        return _call(self, "gather", x, None, out, timeout, root=root, later=True, done=done)

    @of_all_ranks
    def scatter_v_async(
        self,
        x: Any = None,
        counts: Any = None,
        root: int = 0,
        *,
        out: Any = None,
        done: Done = None,
        timeout: Timeout = None,
    ) -> _core.Handle[Any]:
        """Starts `scatter_v`."""
        return _call(self, "scatter", x, counts, out, timeout, root=root, later=True, done=done)


def _call(
    comm: VForms,
    collective: str,
    x: Any,
    counts: Any,
    out: Any,
    timeout: Timeout,
    *,
    expected: Any = None,
    op: datatypes.Op = "sum",
    root: Any = 0,
    later: bool = False,
    done: Done = None,
) -> Any:
    return _core.Joined.call_v(comm, collective, x, counts, expected, op, root, out, timeout, later, done)
