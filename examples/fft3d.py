"""A 3-D FFT distributed over ranks, whose transposition is an AllToAll (004 section IV-C).

    python examples/fft3d.py --ranks 4 --vs
    python examples/fft3d.py --ranks 4 --algorithm direct_alltoall two_step_alltoall --shape 128 96 64
    OMP_NUM_THREADS=1 mpirun -n 4 python examples/fft3d.py --vs         # or torchrun, srun

Each rank begins with a slab of the grid: some of its x planes. The transforms over y and z are local. The transform
over x needs whole lines of x, which are distributed over all ranks. So every rank divides its slab by y into one block
for each rank, and an AllToAll exchanges the blocks. Then each rank has all of x for some of y. The result stays
distributed by y.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import beside
import numpy as np
import numpy.typing as npt
from beside import Calls

import gc3

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


def transform(slab: Complex, layout: Layout, calls: Calls) -> Complex:
    """Returns this rank's y planes of the transform, (all of x, y, z), from its x planes of the grid."""
    blocks = layout.pack(np.fft.fftn(slab, axes=(1, 2)))
    received = calls.all_to_all(blocks.view(np.float64)).view(np.complex128)  # an exchange only moves data
    return np.fft.fft(layout.unpack(received, calls.comm.rank), axis=0)


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    numbers = np.random.default_rng(1)
    grid = numbers.standard_normal(given.shape) + 1j * numbers.standard_normal(given.shape)
    layout = Layout(grid.shape, comm.size)
    slab = layout.slab(grid, comm.rank)
    expected = np.fft.fftn(grid)[:, comm.rank * layout.y : (comm.rank + 1) * layout.y]
    variants = beside.libraries(comm, given, "alltoall")
    for calls in variants:
        # Rounding differs in the last digits: the transforms come in another order.
        part = transform(slab, layout, calls)
        close = np.allclose(part, expected, rtol=0, atol=1e-12 * np.abs(expected).max(initial=1))
        if not beside.agreed(comm, close):
            raise SystemExit(f"{calls.name}: NOT equal to numpy.fft.fftn")
    block = layout.x * layout.y * grid.shape[2]
    if comm.rank == 0:
        print(f"{' x '.join(map(str, grid.shape))} points on {comm.size} ranks; blocks of {16 * block} bytes.")
        print("equal to numpy.fft.fftn")
        print(beside.first_line(comm.explain("alltoall", 2 * block, "float64")))
    about = {"name": "fft3d", "of": 1, "unit": "transforms", "shape": given.shape, "block_bytes": 16 * block}
    beside.compare(comm, variants, lambda calls: transform(slab, layout, calls), given, **about)
    return 0


def main() -> int:
    """Runs the example."""
    parser = beside.parser(__doc__)
    parser.add_argument("--shape", type=beside.positive, nargs=3, default=(64, 64, 64), metavar=("X", "Y", "Z"))
    return beside.start(run, parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
