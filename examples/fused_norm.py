"""AllReduce, residual and RMSNorm as one program: each rank normalises its rows once, and all get them.

``python examples/fused_norm.py --ranks 4 --check`` proves it, runs it on ranks that are processes, and compares the
result with NumPy. Without ``--check`` it prints what is proven.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import gc3
from gc3 import chunk, collectives

TOLERANCE = 1e-4  # of float32, whose sums depend on their order

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


@gc3.algorithm(add_norm, scratch=["total"])
def scatter_norm_gather(R: int) -> None:
    """A ReduceScatter, the residual once, the norm, and an AllGather of what it has made."""
    for own in range(R):
        total = chunk((own + 1) % R, "x", own).copy(own, "total", 0)
        for step in range(2, R + 1):
            total = total.reduce(chunk((own + step) % R, "x", own))
        total = total.reduce(chunk(own, "residual", 0))
        y = norm(total, chunk(own, "gain", 0), out=(own, "y", own))
        for step in range(1, R):
            y.copy((own + step) % R, "y", own)


def rms_norm(x: Any, gain: Any, out: Any) -> None:
    """Divides each row by the root of the mean of its squares, and multiplies by `gain`."""
    np.divide(x, np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6), out=out)
    out *= gain


def run_rank(comm: gc3.Communicator, rows: int, width: int) -> float:
    """Runs the program on this rank; returns the largest difference from NumPy on one process."""
    ranks, me = comm.size, comm.rank
    random = np.random.default_rng(7)
    x = random.standard_normal((ranks, ranks * rows, width), np.float32)
    residual = random.standard_normal((ranks * rows, width), np.float32)
    gain = random.standard_normal((1, width), np.float32)
    run = gc3.compile(scatter_norm_gather, R=ranks).bind({"rms_norm": rms_norm})
    mine = {"x": x[me], "residual": residual[me * rows : (me + 1) * rows], "gain": gain}
    got = run.run_rank(comm, mine, shapes={"y": (rows, width)})["y"]
    wanted = np.empty_like(residual)
    rms_norm(x.sum(axis=0) + residual, gain, wanted)
    return float(np.abs(got - wanted).max())


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=16, help="of each rank's block")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--check", action="store_true", help="run it, and compare with NumPy")
    args = parser.parse_args()
    gc3.compile(scatter_norm_gather, R=args.ranks).verify()
    print(f"proven: scatter_norm_gather on {args.ranks} ranks")
    if args.check:
        worst = max(gc3.spawn(run_rank, args.ranks, args.rows, args.width))
        print(f"{'right' if worst < TOLERANCE else 'WRONG'}: differs from NumPy by at most {worst:.1e}")


if __name__ == "__main__":
    main()
