"""What the applications of this folder share: how ranks start, whose collectives they call, and how they are timed.

Without a launcher a script starts its ranks itself (--ranks); under torchrun, mpirun or srun it is one of them. --vs
does the same work with the default libraries, in the same processes and in turn: with Gloo if PyTorch can be imported,
with MPI if mpi4py can be and mpirun has started the ranks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import gc3
from gc3.algorithms import catalogue, load
from gc3.sim import simulate

Array = npt.NDArray[Any]
STEPS = 3  # timed steps of a turn, after one that is not timed: caches and sleeping threads are those of its library
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # set by mpirun


class Calls:
    """Collectives on contiguous NumPy arrays, made by gc3, and the seconds spent in them since `seconds` was set."""

    def __init__(self, name: str, comm: gc3.Communicator) -> None:
        """Names the calls of a communicator."""
        self.name, self.comm, self.seconds = name, comm, 0.0

    def all_reduce(self, x: Array) -> Array:
        """Returns the sum of all ranks' `x`."""
        return self.timed(self.comm.all_reduce, x)

    def all_gather(self, x: Array) -> Array:
        """Returns all ranks' `x`, by rank along a new first axis."""
        return self.timed(self.comm.all_gather, x).reshape(self.comm.size, *x.shape)

    def reduce_scatter(self, x: Array) -> Array:
        """Returns the sum of all ranks' `x[rank]`."""
        return self.timed(self.comm.reduce_scatter, x).reshape(x.shape[1:])

    def all_to_all(self, x: Array) -> Array:
        """Returns row r of `x` of every rank on rank r, by rank; in the shape of `x`."""
        return self.timed(self.comm.all_to_all, x)

    def all_to_all_v(self, x: Array, counts: Array) -> Array:
        """Moves counts[s, d] rows from rank s to rank d; `x` has rows by destination, the result by source."""
        return self.timed(self.comm.all_to_all_v, x, counts)

    def timed(self, call: Callable[..., Array], *given: Any) -> Array:
        """Makes a call, and adds its time."""
        began = time.perf_counter()
        result = call(*given)
        self.seconds += time.perf_counter() - began
        return result


class Gloo(Calls):
    """The same, made by Gloo under torch.distributed, with which it shares the arrays' memory."""

    def __init__(self, comm: gc3.Communicator) -> None:
        """Makes the default process group."""
        import torch.distributed as dist  # noqa: PLC0415

        super().__init__("gloo", comm)
        several = len(comm.hosts) > 1
        if not several:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        place, store, wait = "localhost", None, timedelta(seconds=60)
        if comm.rank == 0:
            place = socket.gethostname() if several else place
            store = dist.TCPStore(place, 0, is_master=True, wait_for_workers=False, timeout=wait)
        place, port = comm.broadcast_object(store and (place, store.port))
        store = store or dist.TCPStore(place, port, timeout=wait)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=wait)

    def all_reduce(self, x: Array) -> Array:  # noqa: D102
        return self._run("all_reduce", x.copy())

    def all_gather(self, x: Array) -> Array:  # noqa: D102
        gathered = self._run("all_gather_into_tensor", np.empty(self.comm.size * x.size, x.dtype), x.ravel())
        return gathered.reshape(self.comm.size, *x.shape)

    def reduce_scatter(self, x: Array) -> Array:  # noqa: D102
        return self._run("reduce_scatter_tensor", np.empty(x[0].size, x.dtype), x.ravel()).reshape(x.shape[1:])

    def all_to_all(self, x: Array) -> Array:  # noqa: D102
        return self._run("all_to_all_single", np.empty_like(x), x)

    def all_to_all_v(self, x: Array, counts: Array) -> Array:  # noqa: D102
        there, here = counts[self.comm.rank].tolist(), counts[:, self.comm.rank].tolist()
        return self._run("all_to_all_single", np.empty((sum(here), *x.shape[1:]), x.dtype), x, here, there)

    def _run(self, what: str, out: Array, x: Array | None = None, *splits: list[int]) -> Array:
        import torch  # noqa: PLC0415

        def call() -> Array:
            arrays = [torch.from_numpy(a) for a in (out, x) if a is not None]
            getattr(torch.distributed, what)(*arrays, *splits)
            return out

        return self.timed(call)


class Alone(Calls):
    """No calls: what a rank computes takes as long without them, with other results."""

    def all_reduce(self, x: Array) -> Array:  # noqa: D102
        return x

    def all_gather(self, x: Array) -> Array:  # noqa: D102
        return np.broadcast_to(x, (self.comm.size, *x.shape)).reshape(-1, *x.shape)

    def reduce_scatter(self, x: Array) -> Array:  # noqa: D102
        return x[0]

    def all_to_all_v(self, x: Array, counts: Array) -> Array:  # noqa: D102
        return np.resize(x, (counts[:, self.comm.rank].sum(), *x.shape[1:]))


class Mpi(Calls):
    """The same, made by the MPI of mpirun through mpi4py."""

    def __init__(self, comm: gc3.Communicator) -> None:
        """Uses the ranks of mpirun, which are those of `comm`."""
        from mpi4py import MPI  # noqa: PLC0415

        super().__init__("mpi4py", comm)
        self.world = MPI.COMM_WORLD

    def all_reduce(self, x: Array) -> Array:  # noqa: D102
        return self._run(self.world.Allreduce, x, np.empty_like(x))

    def all_gather(self, x: Array) -> Array:  # noqa: D102
        return self._run(self.world.Allgather, x, np.empty((self.comm.size, *x.shape), x.dtype))

    def reduce_scatter(self, x: Array) -> Array:  # noqa: D102
        return self._run(self.world.Reduce_scatter_block, x, np.empty(x.shape[1:], x.dtype))

    def all_to_all(self, x: Array) -> Array:  # noqa: D102
        return self._run(self.world.Alltoall, x, np.empty_like(x))

    def all_to_all_v(self, x: Array, counts: Array) -> Array:  # noqa: D102
        width = int(np.prod(x.shape[1:]))
        there, here = counts[self.comm.rank], counts[:, self.comm.rank]
        out = np.empty((here.sum(), *x.shape[1:]), x.dtype)
        return self._run(lambda a, b: self.world.Alltoallv([a, there * width], [b, here * width]), x, out)

    def _run(self, call: Callable[[Array, Array], object], x: Array, out: Array) -> Array:
        def both() -> Array:
            call(x, out)
            return out

        return self.timed(both)


def libraries(comm: gc3.Communicator, given: argparse.Namespace, collective: str) -> list[Calls]:
    """Whose calls are compared: with --vs other libraries'; gc3's with its table, and with each --algorithm."""
    found: list[Calls] = []
    if given.vs:
        if importlib.util.find_spec("torch") is not None:
            found.append(Gloo(comm))
        if importlib.util.find_spec("mpi4py") is not None and any(name in os.environ for name in MPI_SIZES):
            found.append(Mpi(comm))
        if not found:
            raise SystemExit(
                "--vs: there is no default library. Install torch, or start the ranks with mpirun and mpi4py"
            )
    found.append(Calls("gc3", comm))
    for name in given.algorithm:
        own = comm.group(range(comm.size))
        own.load(program(name, comm, collective))
        found.append(Calls(f"gc3 {name}", own))
    return found


def program(name: str, comm: gc3.Communicator, collective: str) -> gc3.Program:
    """Compiles an algorithm of the library for these ranks. Its nodes are the hosts; of one host the halves."""
    fitting = [a.name for a in catalogue().values() if a.collective_name == collective]
    if name not in fitting:
        raise SystemExit(f"--algorithm {name}: expected one of {', '.join(fitting)}")
    nodes = len(comm.hosts) if len(comm.hosts) > 1 else 2 - comm.size % 2
    sizes = {"R": comm.size, "N": nodes, "G": comm.size // nodes}
    algorithm = load(name)
    return gc3.compile(algorithm, **{p.name: sizes[p.name] for p in algorithm.parameters if p.name in sizes})


def parser(doc: str | None, **sizes: int) -> argparse.ArgumentParser:
    """The options that all applications have, and one for each of `sizes`, with its default."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ranks", type=positive, help="processes to start, if no launcher has started them (default: 2)")
    made.add_argument("--vs", action="store_true", help="do the same work with the default library in turn")
    made.add_argument("--algorithm", nargs="+", default=[], metavar="NAME", help="also with these programs of gc3")
    made.add_argument("--rounds", type=positive, default=10, help=f"turns of {STEPS} steps (default: 10)")
    made.add_argument("--check", action="store_true", help="compare the results only, and not the times")
    made.add_argument("--json", type=Path, metavar="FILE", help="add the result to a file, as a line of JSON")
    for name, size in sizes.items():
        made.add_argument(f"--{name}", type=positive, default=size, help=f"(default: {size})")
    return made


def fused_parser(doc: str | None, **sizes: int) -> argparse.ArgumentParser:
    """The same, for programs that compute."""
    made = parser(doc, **sizes)
    made.add_argument("--predict", metavar="MACHINE", help="also what gc3 sim says of the program there, by its costs")
    return made


def positive(text: str) -> int:
    """Reads a number of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def start(run: Callable[[gc3.Communicator, argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs `run` on the ranks of a launcher, or on new ones; returns the exit status."""
    if given.vs:
        os.environ.setdefault("GC3_PIN", "0")  # the threads of the other libraries would inherit the cores
    try:
        comm = gc3.init()
    except gc3.Gc3Error as problem:
        if problem.diagnostics[0].name != "NoLauncher":
            raise SystemExit(str(problem)) from None
        return _start_ranks(run, given)
    with comm:
        if given.ranks not in (None, comm.size):
            raise SystemExit(f"--ranks {given.ranks}, but the launcher has started {comm.size} ranks")
        return run(comm, given)


def _start_ranks(run: Callable[[gc3.Communicator, argparse.Namespace], int], given: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # else every rank takes all cores for each product of matrices
    try:
        return max(gc3.spawn(run, given.ranks or 2, given))
    except gc3.CommError as failed:
        if isinstance(failed.__cause__, SystemExit):
            raise failed.__cause__ from None
        raise


def start_torch(given: argparse.Namespace) -> gc3.Communicator:
    """Makes gc3 the default process group, under torchrun, which it starts if nobody did; returns its communicator."""
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("this example needs PyTorch: pip install torch")
    if "RANK" not in os.environ:
        ranks = ["--standalone", "--nproc-per-node", str(given.ranks or 2)]
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *ranks, *sys.argv])  # noqa: S606
    import torch  # noqa: PLC0415

    import gc3.torch  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gc3")
    return gc3.torch.communicator()


def torch_groups(
    comm: gc3.Communicator, given: argparse.Namespace, own: Sequence[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Returns the process groups that are compared, with their names; None is the default group.

    First Gloo's with --vs, then those in `own`, then one for each --algorithm.
    """
    import torch.distributed as dist  # noqa: PLC0415

    import gc3.torch  # noqa: PLC0415

    groups: list[tuple[str, Any]] = list(own)
    for name in given.algorithm:
        groups.append((f"gc3 {name}", dist.new_group(backend="gc3")))
        gc3.torch.load(program(name, comm, "allreduce"), groups[-1][1])
    return [("gloo", dist.new_group(backend="gloo")), *groups] if given.vs else groups


def first_line(explanation: object) -> str:
    """Which program serves a call."""
    return str(explanation).splitlines()[0]


class Fused(Protocol):
    """A rank's part of some work, and the same step in several ways, from calls to results."""

    program: gc3.Program
    bound: Any  # what `program.bind` has made

    def one_program(self, calls: Calls, /) -> Sequence[Array]:
        """As the program."""
        ...

    def in_turn(self, calls: Calls, /) -> Sequence[Array]:
        """Call after call."""
        ...

    def by_hand(self, calls: Calls, /) -> Sequence[Array]:
        """With `_async` calls."""
        ...

    def messages(self, calls: Calls, /) -> Sequence[Array]:
        """Without what is computed."""
        ...


def one_program(comm: gc3.Communicator, given: argparse.Namespace, collective: str, work: Fused, **about: Any) -> int:
    """Proves a program that computes, and compares it with what it stands for; returns the exit status.

    Args:
        comm: All ranks.
        given: The command line.
        collective: The first one of the work, for --algorithm.
        work: The program, and the other ways.
        about: As of `compare`.
    """
    program = work.program
    program.verify()
    forms = {"in turn": work.in_turn, "by hand": work.by_hand, "one program": work.one_program}
    forms |= {"messages": work.messages}
    variants = libraries(comm, given, collective)
    names = {each.name: "in turn" for each in variants}
    wanted = forms["in turn"](variants[-1])
    for name in ("by hand", "one program"):
        variants.append(Calls(f"gc3 {name}", comm))
        names[variants[-1].name] = name
    for each in variants:
        got = forms[names[each.name]](each)
        close = (np.allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max()) for a, b in zip(got, wanted, strict=True))
        if not agreed(comm, all(close)):
            raise SystemExit(f"{each.name}: NOT equal to call after call")
    if comm.rank == 0:
        print(f"proven: {program.name} on {comm.size} ranks\nequal to call after call")
    if not given.check:
        variants += [Alone("alone", comm), Calls("messages", comm)]
        names |= {"alone": "in turn", "messages": "messages"}
        if given.predict is not None:
            bound, on = work.bound, given.predict
            about["predicted_ms"] = lambda: 1e3 * simulate(program, on, bound.shapes, costs=bound.costs).time_s
        compare(comm, variants, lambda each: forms[names[each.name]](each), given, **about)
    return 0


def stacked(tiles: Sequence[Array]) -> Array:
    """Returns tiles of the same shape as one array: their own memory if they lie one after the other, else a copy."""
    first = tiles[0]
    places = [tile.__array_interface__["data"][0] for tile in tiles]
    if places != [places[0] + number * first.nbytes for number in range(len(tiles))]:
        return np.concatenate(tiles)
    shape = (len(tiles) * len(first), *first.shape[1:])
    return np.lib.stride_tricks.as_strided(first, shape, writeable=False)


def agreed(comm: gc3.Communicator, right: bool) -> bool:
    """Whether it is so on all ranks."""
    return bool(comm.all_reduce(np.array([right], np.uint8), "min")[0])


def compare(
    comm: gc3.Communicator,
    variants: Sequence[Any],
    step: Callable[[Any], object],
    given: argparse.Namespace,
    **about: Any,
) -> list[dict[str, Any]]:
    """Times steps with each variant in turn; prints a line of each, on rank 0.

    The time of a step is the slowest rank's. The share of communication is the ranks' average of the time in calls,
    with the waiting for other ranks in it; where there is a variant "alone", which does not communicate, it is the part
    of a step that is not this variant's.

    Args:
        comm: All ranks.
        variants: Each has a name, and adds up the `seconds` of its calls.
        step: Does the work with a variant.
        given: The command line.
        about: What is done: `name`, `of` units in a step, and their name, `unit`; and what else the record shall have.
            A function is called after all steps.
    """
    times: dict[str, list[tuple[float, float, float]]] = {each.name: [] for each in variants}
    for turn in range(given.rounds):
        for each in variants if turn % 2 else reversed(variants):
            for number in range(1 + STEPS):
                comm.barrier()
                each.seconds, used, began = 0.0, time.process_time(), time.perf_counter()
                step(each)
                took = time.perf_counter() - began
                if number > 0:
                    times[each.name].append((took, each.seconds, time.process_time() - used))
    medians: dict[str, float] = {}
    shares: dict[str, float] = {}
    processor: dict[str, float] = {}
    for name, found in times.items():
        took, called, used = np.array(found).T.copy()
        processor[name] = float(np.median(comm.all_reduce(used))) / comm.size
        share = np.median(comm.all_reduce(called / took)) / comm.size
        medians[name], shares[name] = float(np.median(comm.all_reduce(took, "max"))), float(share)
    first = next(iter(medians.values()))
    rows = [
        {
            "library": name,
            "ms": 1e3 * took,
            "processor_ms": 1e3 * processor[name],
            "per_second": about["of"] / took,
            "communication": 1 - medians["alone"] / took if "alone" in medians else shares[name],
            "ratio": first / took,
        }
        for name, took in medians.items()
    ]
    if comm.rank == 0:
        about |= {name: made() for name, made in about.items() if callable(made)}
        show(rows, about)
        if given.json is not None:
            where = {"ranks": comm.size, "hosts": max(1, len(comm.hosts))}
            with given.json.open("a") as file:
                file.write(json.dumps({**about, **where, "rounds": given.rounds, "rows": rows}) + "\n")
    return rows


def show(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """Prints the comparison."""
    print(
        f"{'':<32} {'ms a step':>10} {about['unit'] + '/s':>12} {'in calls':>9}   times as fast as {rows[0]['library']}"
    )
    for row in rows:
        rate, share = f"{row['per_second']:.0f}", f"{100 * row['communication']:.0f} %"
        print(f"{row['library']:<32} {row['ms']:>10.3f} {rate:>12} {share:>9}   {row['ratio']:.2f}", flush=True)
    if "predicted_ms" in about:
        print(f"{'one program, as predicted':<32} {about['predicted_ms']:>10.3f}")
