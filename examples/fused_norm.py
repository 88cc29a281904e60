"""AllReduce, residual and RMSNorm as one program: each rank normalises its rows once, and all get them.

    python examples/fused_norm.py --ranks 4 --check
    python examples/fused_norm.py --ranks 4 --vs      # also with Gloo, if PyTorch can be imported

Call after call, every rank adds the residual to all rows, and normalises all of them.
"""

from __future__ import annotations

import argparse

import beside
import numpy as np
from beside import Array, Calls

import gc3
from gc3 import chunk, collectives

norm = gc3.op("rms_norm")


def add_norm(R: int) -> collectives.Collective:
    """Every rank gets norm(x_0 + ... + x_R-1 + residual); rank r has the residual of block r."""
    return collectives.custom(
        "add_norm",
        ranks=R,
        inputs={"x": R, "residual": 1, "gain": 1},
        outputs={"y": R},
        expect=lambda v, rank, output, i: norm(
            sum(v(q, "x", i) for q in range(R)) + v(i, "residual", 0), v(i, "gain", 0)
        ),
    )


@gc3.algorithm(add_norm, scratch=["total", "normed"])
def scatter_norm_gather(R: int) -> None:
    """A ReduceScatter, the residual once, the norm, and an AllGather of what it has made.

    That is made in scratch, where all ranks of a host read it: from an output it would be copied for each of them.
    """
    for own in range(R):
        total = chunk((own + 1) % R, "x", own).copy(own, "total", 0)
        for step in range(2, R + 1):
            total = total.reduce(chunk((own + step) % R, "x", own))
        total = total.reduce(chunk(own, "residual", 0))
        y = norm(total, chunk(own, "gain", 0), out=(own, "normed", 0))
        for step in range(1, R + 1):
            y.copy((own + step) % R, "y", own)


def rms_norm(x: Array, gain: Array, out: Array) -> None:
    """Divides each row by the root of the mean of its squares, and multiplies by `gain`."""
    scale = np.sqrt(np.einsum("ij,ij->i", x, x) / np.float32(x.shape[-1]) + np.float32(1e-6))
    np.divide(x, scale[:, None], out=out)
    out *= gain


class Norm:
    """A rank's part, and the same work in several ways. Each returns y."""

    def __init__(self, comm: gc3.Communicator, rows: int, width: int) -> None:
        """Draws the data."""
        self.comm, self.rows, ranks = comm, rows, comm.size
        self.x = np.random.default_rng(comm.rank).standard_normal((ranks * rows, width), np.float32)
        random = np.random.default_rng(1 + ranks)
        self.residual = random.standard_normal(self.x.shape, np.float32)
        self.gain = random.standard_normal((1, width), np.float32)
        self.own = self.residual[comm.rank * rows :][:rows]
        self.program = gc3.compile(scatter_norm_gather, R=ranks)
        self.bound = self.program.bind({"rms_norm": rms_norm})

    def one_program(self, _: Calls) -> list[Array]:
        """As the program."""
        given = {"x": self.x, "residual": self.own, "gain": self.gain}
        return [self.bound.run_rank(self.comm, given, shapes={"y": self.own.shape})["y"]]

    def in_turn(self, calls: Calls) -> list[Array]:
        """Call after call."""
        total = calls.all_reduce(self.x) + self.residual
        rms_norm(total, self.gain, total)
        return [total]

    def by_hand(self, calls: Calls) -> list[Array]:
        """Three calls instead of one: as much is computed as in the program."""
        total = calls.reduce_scatter(self.x.reshape(self.comm.size, *self.own.shape))
        total += self.own
        rms_norm(total, self.gain, total)
        return [calls.all_gather(total).reshape(self.x.shape)]

    def messages(self, calls: Calls) -> list[Array]:
        """Without what is computed."""
        return [calls.all_gather(calls.reduce_scatter(self.x.reshape(self.comm.size, *self.own.shape)))]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    norm = Norm(comm, given.rows, given.width)
    about = {"name": "fused_norm", "of": given.rows * comm.size, "unit": "rows", "width": given.width}
    return beside.one_program(comm, given, "allreduce", norm, **about)


def main() -> int:
    """Runs the example."""
    parser = beside.fused_parser(__doc__)
    parser.add_argument("--rows", type=beside.positive, default=16, help="of each rank's block (default: 16)")
    parser.add_argument("--width", type=beside.positive, default=4096, help="(default: 4096)")
    return beside.start(run, parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
