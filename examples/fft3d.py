"""A 3-D FFT distributed over ranks, whose transposition is an AllToAll (004 section IV-C).

    python examples/fft3d.py
    python examples/fft3d.py --algorithm eager_pairwise_alltoall -N 2 -G 4 --shape 128 96 64 --protocol LL128
    python examples/fft3d.py --algorithm all
    mpirun -n 4 python examples/fft3d.py --processes        # or torchrun, srun: every rank a process

Each rank begins with a slab of the grid: some of its x planes. The transforms over y and z are local. The transform
over x needs whole lines of x, which are distributed over all ranks. So every rank divides its slab by y into one block
for each rank, and an AllToAll exchanges the blocks. Then each rank has all of x for some of y. The result stays
distributed by y.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import gc3
from gc3.algorithms import catalogue, load

Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class Layout:
    """Which part of a grid a rank has: x planes before the exchange, y planes after it.

    Sizes that the ranks do not divide are rounded up: the last parts are smaller, and filled up with zeros to be sent.

    Attributes:
        shape: Points in x, y and z.
        ranks: Number of ranks.
    """

    shape: tuple[int, int, int]
    ranks: int

    @property
    def x(self) -> int:
        """Planes of x per rank."""
        return -(-self.shape[0] // self.ranks)

    @property
    def y(self) -> int:
        """Planes of y per rank."""
        return -(-self.shape[1] // self.ranks)

    def slab(self, grid: Complex, rank: int) -> Complex:
        """Returns what `rank` has in the beginning: up to `x` planes of the grid."""
        return grid[rank * self.x : (rank + 1) * self.x]

    def pack(self, slab: Complex) -> Complex:
        """Returns the blocks of a slab for each rank: (ranks, x, y, z)."""
        filled = np.zeros((self.x, self.ranks * self.y, self.shape[2]), complex)
        filled[: slab.shape[0], : slab.shape[1]] = slab
        return np.ascontiguousarray(filled.reshape(self.x, self.ranks, self.y, -1).swapaxes(0, 1))

    def unpack(self, blocks: Complex, rank: int) -> Complex:
        """Returns what `rank` has made of the blocks from all ranks: (all of x, up to `y` planes, z)."""
        lines = blocks.reshape(self.ranks * self.x, self.y, -1)
        return lines[: self.shape[0], : max(0, self.shape[1] - rank * self.y)]


@dataclass(frozen=True)
class Times:
    """Seconds of a transform: computing, on all ranks together, and the exchange between them."""

    compute: float
    exchange: float


def transform(grid: Complex, program: gc3.Program) -> tuple[Complex, Times]:
    """Returns the 3-D FFT of `grid`, and where the time went.

    Ranks are threads of this process during the exchange; what each computes for itself is done one rank after another.

    Args:
        grid: Any shape of three dimensions.
        program: An AllToAll, out of place, which says how many ranks there are.
    """
    layout = Layout(grid.shape, program.ranks)
    start = time.perf_counter()
    blocks = [layout.pack(before_exchange(layout.slab(grid, rank))) for rank in range(program.ranks)]
    packed = time.perf_counter()
    received = exchange(program, blocks)
    exchanged = time.perf_counter()
    parts = [after_exchange(layout.unpack(part, rank)) for rank, part in enumerate(received)]
    whole = np.concatenate(parts, axis=1)
    computing = time.perf_counter() - exchanged + packed - start
    return whole, Times(compute=computing, exchange=exchanged - packed)


def transform_part(grid: Complex, comm: gc3.Communicator) -> tuple[Complex, Times]:
    """What one rank does where every rank is a process: returns its y planes of the transform, (all of x, y, z).

    Args:
        grid: The whole of it, of which only this rank's slab is looked at.
        comm: Its all_to_all calls are served by the program that was loaded last.
    """
    layout = Layout(grid.shape, comm.size)
    start = time.perf_counter()
    blocks = layout.pack(before_exchange(layout.slab(grid, comm.rank)))
    packed = time.perf_counter()
    received = comm.all_to_all(blocks.view(np.float64)).view(np.complex128)
    exchanged = time.perf_counter()
    part = after_exchange(layout.unpack(received, comm.rank))
    return part, Times(compute=time.perf_counter() - exchanged + packed - start, exchange=exchanged - packed)


def before_exchange(slab: Complex) -> Complex:
    """Transforms over y and z."""
    return np.fft.fftn(slab, axes=(1, 2))


def after_exchange(lines: Complex) -> Complex:
    """Transforms over x."""
    return np.fft.fft(lines, axis=0)


def exchange(program: gc3.Program, blocks: list[Complex]) -> list[Complex]:
    """Runs the AllToAll. A complex number travels as two real ones: an exchange only moves data."""
    received = program.run([part.view(np.float64) for part in blocks])
    return [np.asarray(part).view(np.complex128) for part in received]


def equal(part: Complex, right: Complex) -> bool:
    """Whether a result is numpy's. Rounding differs in the last digits: the transforms come in another order."""
    return np.allclose(part, right, rtol=0, atol=1e-12 * np.abs(right).max(initial=1))


def report(grid: Complex, program: gc3.Program, repeat: int) -> bool:
    """Prints how the transform went, at its best of `repeat` times; returns whether the result is right."""
    whole, times = min((transform(grid, program) for _ in range(repeat)), key=lambda result: result[1].exchange)
    right = equal(whole, np.fft.fftn(grid))
    show(program, times, right)
    return right


def report_part(grid: Complex, program: gc3.Program, repeat: int, comm: gc3.Communicator) -> bool:
    """The same where every rank is a process: every rank compares its part, and rank 0 prints."""
    comm.load(program)
    part, times = min((transform_part(grid, comm) for _ in range(repeat)), key=lambda result: result[1].exchange)
    layout = Layout(grid.shape, comm.size)
    own = equal(part, np.fft.fftn(grid)[:, comm.rank * layout.y : (comm.rank + 1) * layout.y])
    right = bool(comm.all_reduce(np.array([own], np.uint8), "min")[0])
    if comm.rank == 0:
        show(program, times, right)
    return right


def show(program: gc3.Program, times: Times, right: bool) -> None:
    """Prints a line."""
    verdict = "equal to numpy.fft.fftn" if right else "NOT equal to numpy.fft.fftn"
    print(
        f"{program.name:<30} exchange {1e3 * times.exchange:8.3f} ms, "
        f"transforms {1e3 * times.compute:8.3f} ms: {verdict}"
    )


def positive(text: str) -> int:
    """Reads a number of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Runs the example; returns 0 if every result was right."""
    alltoalls = [a for a in catalogue().values() if a.collective_name == "alltoall"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [a.name for a in alltoalls]
    parser.add_argument("--algorithm", choices=[*names, "all"], default="two_step_alltoall", metavar="NAME",
                        help=f"one of {', '.join(names)}; or all")  # fmt: skip
    parser.add_argument("-N", type=positive, default=2, help="nodes (default: 2)")
    parser.add_argument("-G", type=positive, default=2, help="GPUs per node (default: 2)")
    parser.add_argument("--shape", type=positive, nargs=3, default=(64, 64, 64), metavar=("X", "Y", "Z"))
    parser.add_argument("--instances", type=positive, default=1, help="replicas of the program (default: 1)")
    parser.add_argument("--protocol", choices=("Simple", "LL", "LL128"), default="Simple")
    parser.add_argument("--repeat", type=positive, default=5, help="times to run; the fastest counts (default: 5)")
    parser.add_argument("--processes", action="store_true",
                        help="this process is one of N times G ranks that a launcher has started")  # fmt: skip
    given = parser.parse_args(arguments)
    ranks = given.N * given.G
    if not given.processes:
        return run(given, names)
    with gc3.init() as comm:
        if comm.size != ranks:
            parser.error(f"-N {given.N} -G {given.G} are {ranks} ranks, the launcher has started {comm.size}")
        return run(given, names, comm)


def run(given: argparse.Namespace, names: list[str], comm: gc3.Communicator | None = None) -> int:
    """Transforms a grid with each AllToAll asked for; ranks are threads where there is no communicator."""
    ranks = given.N * given.G
    numbers = np.random.default_rng(1)
    grid = numbers.standard_normal(given.shape) + 1j * numbers.standard_normal(given.shape)
    block = 16 * Layout(grid.shape, ranks).pack(grid[:1])[0].size
    if comm is None or comm.rank == 0:
        print(
            f"A grid of {' x '.join(map(str, grid.shape))} points on {ranks} ranks. Each transforms its x planes\n"
            f"over y and z, sends every other rank a block of {block} bytes, and transforms what it got over x."
        )
    right = True
    for name in names if given.algorithm == "all" else [given.algorithm]:
        algorithm = load(name)
        sizes = {"R": ranks, "N": given.N, "G": given.G}
        program = gc3.compile(
            algorithm,
            instances=given.instances,
            protocol=given.protocol,
            in_place=False,
            **{p.name: sizes[p.name] for p in algorithm.parameters},
        )
        program.verify()
        right &= report(grid, program, given.repeat) if comm is None else report_part(grid, program, given.repeat, comm)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
