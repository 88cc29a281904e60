"""How the default selection table was found: every candidate program of a collective, timed at every size.

    python benchmarks/selection.py allreduce --ranks 2 --sizes 1KiB 32KiB 1MiB [--only ring Simple] [--shared]

Prints, per size, the candidates from the fastest on: median and minimum of the slowest rank's time in microseconds.
Candidates take turns, so that a drift of the machine meets all of them alike. --shared: on arrays from gc3.empty().
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import gc3
from gc3 import _core, collectives
from gc3.cli.sizes import parse_size
from gc3.comm.selection import Spec

if TYPE_CHECKING:
    from gc3.datatypes import Array

ALGORITHMS = {
    "allreduce": (
        "direct_allreduce",
        "allpairs_allreduce",
        "ring_allreduce",
        "recursive_doubling_allreduce",
        "binomial_tree_allreduce",
        "recursive_halving_doubling_allreduce",
    ),
    "allgather": ("direct_allgather", "ring_allgather", "recursive_doubling_allgather", "bruck_allgather"),
    "reducescatter": ("direct_reducescatter", "ring_reducescatter", "recursive_halving_reducescatter"),
    "alltoall": ("direct_alltoall", "pairwise_alltoall", "bruck_alltoall"),
    "broadcast": ("flat_broadcast", "binomial_broadcast", "chain_broadcast", "scatter_allgather_broadcast"),
}
POWERS_ONLY = ("recursive_",)
SHAPES = (  # protocol, slots, bytes of a slot
    ("LL", 0, 32768),
    ("LL128", 0, 32768),
    ("Simple", 0, 8192),
    ("Simple", 4, 32768),
    ("Simple", 4, 65536),
    ("Simple", 4, 131072),
    ("Simple", 2, 1048576),
    ("Simple", 4, 262144),
)


def candidates(collective: str, ranks: int, only: list[str]) -> list[Spec]:
    """Returns the programs to try; those whose name in print contains every word of `only`."""
    found: list[Spec] = []
    for name in ALGORITHMS[collective]:
        if name.startswith(POWERS_ONLY) and ranks & (ranks - 1):
            continue
        parameters: tuple[tuple[str, int | str], ...] = (("R", "ranks"),)
        if collective == "broadcast":
            parameters += (("root", "root"),)
        for instances in (1, 2):
            found += [Spec(name, parameters, instances, *shape) for shape in SHAPES]
    return [spec for spec in found if all(word in str(spec) for word in only)]


def iterations_for(size: int, ranks: int) -> int:
    """Returns how often to time one candidate in one turn."""
    return max(3, min(40, (64 << 20) // (size * ranks + 1)))


def rank_main(settings: dict[str, Any]) -> None:
    """What each rank does: the results go to standard output of rank 0, as one line of JSON."""
    comm = gc3.init()
    core: _core.Communicator = comm._core  # it times programs that no table names
    name, sizes = settings["collective"], settings["sizes"]
    specs = candidates(name, comm.size, settings["only"])
    in_place = name == "broadcast"
    ready: list[_core.ProcessProgram] = []
    for spec in specs:
        program = spec.compile(comm.size, in_place=in_place)
        ready.append(core.prepare(program.core, spec.slots, spec.slot_bytes))
        core.load(ready[-1])
    model = collectives.get(name).model(comm.size, in_place=in_place)
    times: dict[int, list[list[float]]] = {}
    for size in sizes:
        count = collectives.count_for(model, size, 4)
        blocks = model.input_blocks(comm.rank), model.output_blocks(comm.rank)
        make: Callable[[int, Any], Array] = comm.empty if settings["shared"] else np.empty
        given, result = (make(number * count, np.float32) for number in blocks)
        given[:], result[:] = 1, 1
        if in_place:
            given = result if given.size else given
        data = [memory.view(np.uint8) if memory.size else None for memory in (given, result)]
        times[size] = [[] for _ in specs]
        repeat = iterations_for(size, comm.size)
        for turn in range(settings["turns"]):
            for found, program in zip(times[size], ready, strict=True):
                found.extend(core.time(program, data[0], data[1], count, "float32", "sum", 2 if turn else 5, repeat))
        slowest = comm.all_reduce(np.array(times[size]), op="max")
        times[size] = slowest.tolist()
    if comm.rank == 0:
        print(json.dumps({"specs": [str(s) for s in specs], "times": times}))


def run_ranks(ranks: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Starts the ranks and returns what rank 0 has found."""
    job = str(uuid.uuid4())
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank-settings", json.dumps(settings)],
            stdout=subprocess.PIPE if rank == 0 else None,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": job, "MASTER_PORT": "1"},
        )
        for rank in range(ranks)
    ]
    output = processes[0].communicate()[0]
    if any(process.wait() for process in processes):
        sys.exit("a rank has failed")
    return json.loads(output)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collective", nargs="?", choices=sorted(ALGORITHMS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[1 << k for k in (10, 15, 18, 20, 24, 26)])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--best", type=int, default=6, help="how many candidates to print")
    parser.add_argument("--shared", action="store_true", help="arrays from gc3.empty()")
    parser.add_argument("--rank-settings", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_settings:
        return rank_main(json.loads(given.rank_settings))
    settings = {name: getattr(given, name) for name in ("collective", "sizes", "only", "turns", "shared")}
    found = run_ranks(given.ranks, settings)
    for size in given.sizes:
        print(f"{given.collective} {given.ranks} ranks {size} B")
        rows = [
            (1e6 * statistics.median(times), 1e6 * min(times), spec)
            for spec, times in zip(found["specs"], found["times"][str(size)], strict=True)
        ]
        for median, least, spec in sorted(rows)[: given.best]:
            print(f"  {median:11.2f} {least:11.2f}  {spec}")


if __name__ == "__main__":
    main()
