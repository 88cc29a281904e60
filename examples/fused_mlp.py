"""A tensor-parallel MLP, forward and backward, as one program: its two AllReduces run beside what is computed.

    python examples/fused_mlp.py --ranks 2 --check
    python examples/fused_mlp.py --ranks 2 --vs       # also with Gloo, if PyTorch can be imported

All ranks have the rows x; rank q has a part of the columns of w1 and of the rows of w2. Forward, y is the sum over the
ranks of relu(x w1) w2. The gradient of the loss |y - target|^2 / 2 is y - target. Backward, dx is a sum over the ranks;
each rank has the gradients of its own weights. Rows are cut into tiles: while one is summed, the next is computed.
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

up, down, loss = gc3.op("up"), gc3.op("down"), gc3.op("loss")
back_down, back_up, gradient = gc3.op("back_down"), gc3.op("back_up"), gc3.op("gradient")


def mlp(R: int, tiles: int) -> collectives.Collective:
    """What the outputs are, by the sequential form."""

    def expect(v: Callable[..., Any], rank: int, output: str, i: int) -> Any:
        def h(q: int, t: int) -> Any:
            return up(v(q, "x", t), v(q, "w1", 0))

        def y(t: int) -> Any:
            return sum(down(h(q, t), v(q, "w2", 0)) for q in range(R))

        def dy(q: int, t: int) -> Any:
            return loss(y(t), v(q, "target", t))

        def dz(q: int, t: int) -> Any:
            return back_down(dy(q, t), v(q, "w2", 0), h(q, t))

        each = range(tiles)
        if output == "y":
            return y(i)
        if output == "dx":
            return sum(back_up(dz(q, i), v(q, "w1", 0)) for q in range(R))
        if output == "dw1":
            return gradient(*(v(rank, "x", t) for t in each), *(dz(rank, t) for t in each))
        return gradient(*(h(rank, t) for t in each), *(dy(rank, t) for t in each))

    inputs = {"x": tiles, "target": tiles, "w1": 1, "w2": 1}
    outputs = {"y": tiles, "dx": tiles, "dw1": 1, "dw2": 1}
    return collectives.custom("mlp", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


def all_reduce(parts: list[Any], tile: int, to: str) -> list[Any]:
    """Adds a tile up around the ring, and passes the sum on; returns it on each rank. Tiles end on different ranks."""
    R = len(parts)
    total = parts[(tile + 1) % R]
    for step in range(2, R + 1):
        total = parts[(tile + step) % R].reduce(total)
    sums = [total.copy(tile % R, to, tile)]
    for step in range(1, R):
        sums.append(sums[-1].copy((tile + step) % R, to, tile))
    return [sums[(rank - tile) % R] for rank in range(R)]


@gc3.algorithm(mlp, scratch=["h", "part", "dy", "dz", "back"])
def fused_mlp(R: int, tiles: int) -> None:
    """All tiles forward, then all backward, then the gradients of the weights, which nobody waits for."""
    ranks, each = range(R), range(tiles)
    for t in each:
        h = [up(chunk(q, "x", t), chunk(q, "w1", 0), out=(q, "h", t)) for q in ranks]
        all_reduce([down(h[q], chunk(q, "w2", 0), out=(q, "part", t)) for q in ranks], t, "y")
    for t in each:
        dy = [loss(chunk(q, "y", t), chunk(q, "target", t), out=(q, "dy", t)) for q in ranks]
        dz = [back_down(dy[q], chunk(q, "w2", 0), chunk(q, "h", t), out=(q, "dz", t)) for q in ranks]
        all_reduce([back_up(dz[q], chunk(q, "w1", 0), out=(q, "back", t)) for q in ranks], t, "dx")
    for q in ranks:
        for left, right, made in (("x", "dz", "dw1"), ("h", "dy", "dw2")):
            operands = [chunk(q, buffer, t) for buffer in (left, right) for t in each]
            gradient(*operands, out=(q, made, 0))


def do_up(x: Array, w1: Array, out: Array) -> None:
    """relu(x w1)."""
    np.matmul(x, w1, out=out)
    np.maximum(out, 0, out=out)


def do_back_down(dy: Array, w2: Array, h: Array, out: Array) -> None:
    """Through w2 and the relu."""
    np.matmul(dy, w2.T, out=out)
    out *= h > 0


def do_back_up(dz: Array, w1: Array, out: Array) -> None:
    """Through w1."""
    np.matmul(dz, w1.T, out=out)


def do_gradient(*tiles: Array, out: Array) -> None:
    """The sum over all rows of the products of what a layer got and the gradient of what it gave."""
    half = len(tiles) // 2
    np.matmul(beside.stacked(tiles[:half]).T, beside.stacked(tiles[half:]), out=out)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "up": do_up,
    "down": np.matmul,
    "loss": np.subtract,
    "back_down": do_back_down,
    "back_up": do_back_up,
    "gradient": do_gradient,
}


class Layer:
    """A rank's part of the layer, and the same step in several ways. Each returns y, dx, dw1, dw2."""

    def __init__(self, comm: gc3.Communicator, rows: int, width: int, hidden: int, tiles: int) -> None:
        """Draws the data."""
        if hidden % comm.size or rows % tiles:
            raise SystemExit("the hidden width must be a multiple of the ranks, and the rows one of the tiles")
        random = np.random.default_rng(3)
        own = slice(comm.rank * (hidden // comm.size), (comm.rank + 1) * (hidden // comm.size))
        x, target, w1, w2 = (
            random.standard_normal(shape, np.float32)
            for shape in ((rows, width), (rows, width), (width, hidden), (hidden, width))
        )
        self.comm, self.tiles = comm, tiles
        self.x, self.target = x, target
        self.w1 = np.ascontiguousarray(w1[:, own]) / np.float32(np.sqrt(width))
        self.w2 = np.ascontiguousarray(w2[own]) / np.float32(np.sqrt(hidden))
        self.h = np.empty((rows, hidden // comm.size), np.float32)
        self.dz = np.empty_like(self.h)
        self.parts = np.empty_like(x), np.empty_like(x)
        self.program = gc3.compile(fused_mlp, R=comm.size, tiles=tiles)
        self.bound = self.program.bind(FUNCTIONS)

    def one_program(self, _: Calls) -> list[Array]:
        """As the program."""
        rows = len(self.x) // self.tiles
        given = {"x": self.x, "target": self.target, "w1": self.w1, "w2": self.w2}
        shapes = {"dw1": self.w1.shape, "dw2": self.w2.shape}
        shapes |= dict.fromkeys(("h", "dz"), (rows, self.h.shape[1]))
        shapes |= dict.fromkeys(("y", "dy", "dx"), (rows, self.x.shape[1]))
        made = self.bound.run_rank(self.comm, given, shapes=shapes)
        return [made[name] for name in ("y", "dx", "dw1", "dw2")]

    def in_turn(self, calls: Calls) -> list[Array]:
        """Call after call."""
        do_up(self.x, self.w1, self.h)
        y = calls.all_reduce(np.matmul(self.h, self.w2, out=self.parts[0]))
        dy = y - self.target
        do_back_down(dy, self.w2, self.h, self.dz)
        dx = calls.all_reduce(np.matmul(self.dz, self.w1.T, out=self.parts[1]))
        return [y, dx, self.x.T @ self.dz, self.h.T @ dy]

    def by_hand(self, _: Calls) -> list[Array]:
        """In as many tiles, whose calls are made in another thread: what the program does, without its proof."""
        rows = len(self.x) // self.tiles
        each = [slice(t * rows, (t + 1) * rows) for t in range(self.tiles)]
        y, dx, dy = np.empty_like(self.x), np.empty_like(self.x), np.empty_like(self.x)
        pending = []
        for at in each:
            do_up(self.x[at], self.w1, self.h[at])
            np.matmul(self.h[at], self.w2, out=self.parts[0][at])
            pending.append(self.comm.all_reduce_async(self.parts[0][at], out=y[at]))
        for t, at in enumerate(each):
            pending[t].wait()
            np.subtract(y[at], self.target[at], out=dy[at])
            do_back_down(dy[at], self.w2, self.h[at], self.dz[at])
            np.matmul(self.dz[at], self.w1.T, out=self.parts[1][at])
            pending.append(self.comm.all_reduce_async(self.parts[1][at], out=dx[at]))
        weights = [self.x.T @ self.dz, self.h.T @ dy]
        for handle in pending[self.tiles :]:
            handle.wait()
        return [y, dx, *weights]

    def messages(self, calls: Calls) -> list[Array]:
        """Without what is computed."""
        return [calls.all_reduce(part) for part in self.parts]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    layer = Layer(comm, given.rows, given.width, given.hidden, given.tiles)
    about = {"name": "fused_mlp", "of": given.rows, "unit": "rows", "tiles": given.tiles}
    return beside.one_program(comm, given, "allreduce", layer, **about)


def main() -> int:
    """Runs the example."""
    return beside.start(run, beside.fused_parser(__doc__, rows=1024, width=1024, hidden=1024, tiles=8).parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
