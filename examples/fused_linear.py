"""The two linear layers of an MLP with sequence parallelism as one program: AllGather, x w1, GELU, h w2, ReduceScatter.

    python examples/fused_linear.py --ranks 2 --check
    python examples/fused_linear.py --ranks 2 --vs      # also with Gloo, if PyTorch can be imported

Rank r has its rows of x and gets its rows of y; rank q has a part of the columns of w1 and of the rows of w2. A tile of
rows is sent to the ranks, computed there as soon as it has come, and its sum goes back while others are on their way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import beside
import numpy as np
from beside import Array, Calls

import gc3
from gc3 import chunk, collectives

up, down = gc3.op("up"), gc3.op("down")


def linear(R: int, tiles: int) -> collectives.Collective:
    """Each rank gets the sum over the ranks of what their parts of the weights make of its rows."""

    def expect(v: Callable[..., Any], rank: int, _: str, t: int) -> Any:
        return sum(down(up(v(rank, "x", t), v(q, "w1", 0)), v(q, "w2", 0)) for q in range(R))

    inputs = {"x": tiles, "w1": 1, "w2": 1}
    return collectives.custom("linear", ranks=R, inputs=inputs, outputs={"y": tiles}, expect=expect)


@gc3.algorithm(linear, scratch=["all", "h", "part"])
def fused_linear(R: int, tiles: int) -> None:
    """The owner of a tile adds its own part last."""
    for t in range(tiles):
        for owner in range(R):
            x, parts = chunk(owner, "x", t), []
            for step in range(1, R + 1):
                q, place = (owner + step) % R, owner * tiles + t
                here = x if q == owner else x.copy(q, "all", place)
                h = up(here, chunk(q, "w1", 0), out=(q, "h", place))
                parts.append(down(h, chunk(q, "w2", 0), out=(q, "part", place)))
            total = parts[0]
            for part in parts[1:]:
                total = part.reduce(total)
            total.copy(owner, "y", t)


def do_up(x: Array, w1: Array, out: Array) -> None:
    """GELU(x w1), by its approximation with tanh."""
    z = x @ w1
    np.multiply(z, z, out=out)
    out *= 0.044715
    out += 1
    out *= z
    out *= 0.7978845608
    np.tanh(out, out=out)
    out += 1
    out *= z
    out *= 0.5


class Layers:
    """A rank's part, and the same layers in several ways. Each returns y."""

    def __init__(self, comm: gc3.Communicator, given: argparse.Namespace) -> None:
        """Draws the data."""
        R, rows, width, hidden = comm.size, given.rows, given.width, given.hidden
        if hidden % R or rows % (R * given.tiles):
            raise SystemExit("the hidden width must be a multiple of the ranks, and the rows one of ranks x tiles")
        random = np.random.default_rng(6 + comm.rank)
        self.comm, self.tiles = comm, given.tiles
        self.x = random.standard_normal((rows // R, width), np.float32)
        self.w1 = random.standard_normal((width, hidden // R), np.float32) / np.float32(np.sqrt(width))
        self.w2 = random.standard_normal((hidden // R, width), np.float32) / np.float32(np.sqrt(hidden))
        self.h = np.empty((rows, hidden // R), np.float32)
        self.part = np.empty((R, rows // R, width), np.float32)
        self.program = gc3.compile(fused_linear, R=R, tiles=given.tiles)
        self.bound = self.program.bind({"up": do_up, "down": np.matmul})

    def one_program(self, _: Calls) -> list[Array]:
        """As the program."""
        rows = len(self.x) // self.tiles
        given = {"x": self.x, "w1": self.w1, "w2": self.w2}
        shapes = {"h": (rows, self.h.shape[1]), "y": (rows, self.x.shape[1])}
        return [self.bound.run_rank(self.comm, given, shapes=shapes)["y"]]

    def in_turn(self, calls: Calls) -> list[Array]:
        """Call after call."""
        do_up(calls.all_gather(self.x).reshape(-1, self.x.shape[1]), self.w1, self.h)
        np.matmul(self.h, self.w2, out=self.part.reshape(-1, self.x.shape[1]))
        return [calls.reduce_scatter(self.part)]

    def by_hand(self, _: Calls) -> list[Array]:
        """In as many tiles, whose calls are made in another thread."""
        rows, width = len(self.x) // self.tiles, self.x.shape[1]
        each = [slice(t * rows, (t + 1) * rows) for t in range(self.tiles)]
        gathered = [self.comm.all_gather_async(self.x[at]) for at in each]
        summed = []
        for handle in gathered:
            x = handle.wait().reshape(-1, width)
            h = np.empty((len(x), self.h.shape[1]), np.float32)
            do_up(x, self.w1, h)
            summed.append(self.comm.reduce_scatter_async(h @ self.w2))
        return [np.concatenate([handle.wait().reshape(rows, width) for handle in summed])]

    def messages(self, calls: Calls) -> list[Array]:
        """Without what is computed."""
        return [calls.all_gather(self.x), calls.reduce_scatter(self.part)]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    layers = Layers(comm, given)
    about = {"name": "fused_linear", "of": given.rows, "unit": "rows", "tiles": given.tiles}
    return beside.one_program(comm, given, "allgather", layers, **about)


def main() -> int:
    """Runs the example."""
    return beside.start(run, beside.fused_parser(__doc__, rows=1024, width=1024, hidden=1024, tiles=8).parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
