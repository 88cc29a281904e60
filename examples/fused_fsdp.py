"""A step of fully sharded training as one program: weights are gathered ahead, and gradients scattered behind.

    python examples/fused_fsdp.py --ranks 2 --check
    python examples/fused_fsdp.py --ranks 2 --vs      # also with Gloo, if PyTorch can be imported

Each rank has its rows of the data, and a part of each layer's weights, by rows. Forward, the weights of a layer are
gathered (AllGather), used and dropped; backward, they are gathered again. The gradients of a layer's weights are
summed, and each rank gets those of its part (ReduceScatter). A layer is relu(x w); the last gradient is y - target.
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

layer, back, loss = gc3.op("layer"), gc3.op("back"), gc3.op("loss")


def fsdp(R: int, layers: int) -> collectives.Collective:
    """What the outputs are, by the sequential form."""
    # An operation takes parts of matrices that lie one after the other, so each part is an operand of its own.
    part = [gc3.op(f"gradient_{p}") for p in range(R)]

    def expect(v: Callable[..., Any], rank: int, output: str, at: int) -> Any:
        w = [[v(q, "w", k) for q in range(R)] for k in range(layers)]

        def forward(q: int) -> list[Any]:
            made = [v(q, "x", 0)]
            for weights in w:
                made.append(layer(made[-1], *weights))
            return made

        def gradient(q: int, k: int) -> tuple[Any, Any]:
            made = forward(q)
            dy = loss(made[-1], v(q, "target", 0))
            for j in range(layers - 1, k, -1):
                dy = back(dy, made[j + 1], *w[j])
            return made[k], (dy, made[k + 1])

        if output == "y":
            return forward(rank)[-1]
        found = [gradient(q, at) for q in range(R)]
        return sum(part[rank](x, *dy) for x, dy in found)

    inputs = {"x": 1, "target": 1, "w": layers}
    return collectives.custom("fsdp", ranks=R, inputs=inputs, outputs={"y": 1, "dw": layers}, expect=expect)


@gc3.algorithm(fsdp, scratch=["all", "again", "h", "g", "part"])
def fused_fsdp(R: int, layers: int) -> None:
    """The order of copies is that of use, so the weights of the next layers arrive while one computes."""
    ranks = range(R)
    parts = [gc3.op(f"gradient_{p}") for p in ranks]
    made = [[chunk(q, "x", 0)] for q in ranks]

    def gather(buffer: str, k: int, q: int) -> list[Any]:
        own = [chunk(p, "w", k) for p in ranks]
        return [own[p] if p == q else own[p].copy(q, buffer, k * R + p) for p in ranks]

    for k in range(layers):
        for q in ranks:
            place = (q, "y", 0) if k == layers - 1 else (q, "h", k)
            made[q].append(layer(made[q][-1], *gather("all", k, q), out=place))
    dy = [loss(made[q][-1], chunk(q, "target", 0), out=(q, "g", layers)) for q in ranks]
    for k in reversed(range(layers)):
        for owner in ranks:
            around = [(owner + step) % R for step in range(1, R + 1)]  # the owner adds its own part last
            mine = [parts[owner](made[q][k], dy[q], made[q][k + 1], out=(q, "part", k * R + owner)) for q in around]
            total = mine[0]
            for own in mine[1:]:
                total = own.reduce(total)
            total.copy(owner, "dw", k)
        if k > 0:
            dy = [back(dy[q], made[q][k + 1], *gather("again", k, q), out=(q, "g", k)) for q in ranks]


def do_layer(x: Array, *weights: Array, out: Array) -> None:
    """relu(x w)."""
    np.matmul(x, np.concatenate(weights), out=out)
    np.maximum(out, 0, out=out)


def do_back(dy: Array, y: Array, *weights: Array, out: Array) -> None:
    """The gradient of what the layer got."""
    np.matmul(dy * (y > 0), np.concatenate(weights).T, out=out)


class Model:
    """A rank's part of the model, and the same step in several ways. Each returns y, and dw of each layer."""

    def __init__(self, comm: gc3.Communicator, rows: int, width: int, layers: int) -> None:
        """Draws the data."""
        if width % comm.size:
            raise SystemExit("the width must be a multiple of the ranks")
        self.comm, self.layers, self.part = comm, layers, width // comm.size
        random = np.random.default_rng(5 + comm.rank)
        self.x = random.standard_normal((rows, width), np.float32)
        self.target = random.standard_normal((rows, width), np.float32)
        scale = np.float32(np.sqrt(2 / width))
        self.w = [random.standard_normal((self.part, width), np.float32) * scale for _ in range(layers)]
        self.program = gc3.compile(fused_fsdp, R=comm.size, layers=layers)
        functions: dict[str, Callable[..., Any]] = {"layer": do_layer, "back": do_back, "loss": np.subtract}
        functions |= {f"gradient_{p}": self.gradient_of(p) for p in range(comm.size)}
        if layers == 1:
            del functions["back"]
        self.bound = self.program.bind(functions)
        self.stacked = np.concatenate(self.w)
        self.whole = np.empty((comm.size, self.part, width), np.float32)

    def gradient_of(self, part: int) -> Callable[..., None]:
        """The gradient of the rows of a layer's weights that a rank has."""
        rows = slice(part * self.part, (part + 1) * self.part)

        def do_gradient(x: Array, dy: Array, y: Array, out: Array) -> None:
            np.matmul(x[:, rows].T, dy * (y > 0), out=out)

        return do_gradient

    def one_program(self, _: Calls) -> list[Array]:
        """As the program."""
        given = {"x": self.x, "target": self.target, "w": self.stacked}
        activations = dict.fromkeys(("y", "g", "h") if self.layers > 1 else ("y", "g"), self.x.shape)
        made = self.bound.run_rank(self.comm, given, shapes={**activations, "dw": self.w[0].shape})
        return [made["y"], *np.split(made["dw"], self.layers)]

    def in_turn(self, calls: Calls) -> list[Array]:
        """Call after call."""
        return self.step(lambda k: lambda: calls.all_gather(self.w[k]), lambda x: lambda: calls.reduce_scatter(x))

    def by_hand(self, _: Calls) -> list[Array]:
        """The next layer's weights are asked for before a layer computes; gradients are awaited at the end."""

        def gather(k: int) -> Callable[[], Array]:
            return self.comm.all_gather_async(self.w[k]).wait

        return self.step(gather, lambda x: self.comm.reduce_scatter_async(x).wait)

    def step(
        self, gather: Callable[[int], Callable[[], Array]], scatter: Callable[[Array], Callable[[], Array]]
    ) -> list[Array]:
        """A step, by calls that return what waits for their results."""
        made = [self.x]
        order = [*range(self.layers), *reversed(range(1, self.layers))]
        ahead = [gather(order[0])]
        following = iter(order[1:])

        def weights() -> Array:
            ahead.extend(gather(k) for k in [next(following, None)] if k is not None)
            return ahead.pop(0)().reshape(-1, self.x.shape[1])

        for _ in range(self.layers):
            made.append(np.maximum(made[-1] @ weights(), 0))
        dy: Array = made[-1] - self.target
        behind: list[Callable[[], Array]] = []
        for k in reversed(range(self.layers)):
            dz = dy * (made[k + 1] > 0)
            behind.append(scatter((made[k].T @ dz).reshape(self.whole.shape)))
            if k > 0:
                dy = dz @ weights().T
        return [made[-1], *(wait().reshape(self.w[0].shape) for wait in reversed(behind))]

    def messages(self, calls: Calls) -> list[Array]:
        """Without what is computed."""
        gathered = [calls.all_gather(self.w[0]) for _ in range(2 * self.layers - 1)]
        return gathered + [calls.reduce_scatter(self.whole) for _ in range(self.layers)]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    model = Model(comm, given.rows, given.width, given.layers)
    about = {"name": "fused_fsdp", "of": given.rows * comm.size, "unit": "rows", "layers": given.layers}
    return beside.one_program(comm, given, "allgather", model, **about)


def main() -> int:
    """Runs the example."""
    return beside.start(run, beside.fused_parser(__doc__, rows=512, width=1024, layers=8).parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
