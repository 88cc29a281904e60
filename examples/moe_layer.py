"""A layer of a mixture of experts: a router sends each token to two experts, which are on different ranks, and back.

    python examples/moe_layer.py --ranks 4 --vs
    python examples/moe_layer.py --ranks 4 --algorithm direct_alltoall two_step_alltoall
    OMP_NUM_THREADS=1 mpirun -n 4 python examples/moe_layer.py --vs         # or torchrun, srun

Every rank has an expert, a network of two layers, and some tokens. Popular experts get more tokens than others, so the
AllToAll is uneven, and the counts are known only when the router has chosen: the ranks tell each other how many tokens
go where (AllGather), send them (AllToAllV), compute, and send the results back (AllToAllV with the counts transposed).
Each rank compares its tokens with what it computes alone, with all experts.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import beside
import numpy as np
from beside import Array, Calls

import gc3

CHOSEN = 2  # experts for each token


@dataclass(frozen=True)
class Layer:
    """The router, and the experts.

    Attributes:
        router: (width, experts)
        bias: Of each expert's score; makes some more popular than others.
        up: Of each expert, (experts, width, 2 width).
        down: (experts, 2 width, width)
    """

    router: Array
    bias: Array
    up: Array
    down: Array

    @staticmethod
    def of(experts: int, width: int) -> Layer:
        """Makes it, the same on all ranks."""
        numbers = np.random.default_rng(1)
        random = [numbers.standard_normal(s, np.float32) for s in
                  ((width, experts), (experts, width, 2 * width), (experts, 2 * width, width))]  # fmt: skip
        router, up, down = (matrix / np.float32(np.sqrt(matrix.shape[-2])) for matrix in random)
        return Layer(router, -np.log(np.arange(1, experts + 1, dtype=np.float32)), up, down)

    def route(self, tokens: Array) -> tuple[Array, Array]:
        """Returns each token's experts, and with which weights their answers are added: (tokens, chosen) both."""
        scores = tokens @ self.router + self.bias
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, :CHOSEN]
        weights = np.exp(np.take_along_axis(scores, chosen, 1))
        return chosen, weights / weights.sum(1, keepdims=True)

    def expert(self, number: int, tokens: Array) -> Array:
        """What an expert makes of tokens."""
        return np.maximum(tokens @ self.up[number], 0) @ self.down[number]


def forward(layer: Layer, tokens: Array, calls: Calls) -> Array:
    """The layer's output for this rank's tokens."""
    comm = calls.comm
    chosen, weights = layer.route(tokens)
    order = np.argsort(chosen.ravel(), kind="stable")  # by expert
    counts = calls.all_gather(np.bincount(chosen.ravel(), minlength=comm.size))
    arrived = calls.all_to_all_v(tokens[order // CHOSEN], counts)
    answers = layer.expert(comm.rank, arrived)
    back = calls.all_to_all_v(answers, np.ascontiguousarray(counts.T))
    result = np.empty((chosen.size, tokens.shape[1]), tokens.dtype)
    result[order] = back
    return (result.reshape(*chosen.shape, -1) * weights[..., None]).sum(1)


def alone(layer: Layer, tokens: Array) -> Array:
    """The same without other ranks."""
    chosen, weights = layer.route(tokens)
    answers = np.zeros_like(tokens)
    for number in range(len(layer.up)):
        token, place = np.nonzero(chosen == number)
        answers[token] += weights[token, place, None] * layer.expert(number, tokens[token])
    return answers


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    if comm.size < CHOSEN:
        raise SystemExit(f"a token goes to {CHOSEN} experts, so {CHOSEN} ranks or more are needed")
    layer = Layer.of(comm.size, given.width)
    tokens = np.random.default_rng(2 + comm.rank).standard_normal((given.tokens, given.width), np.float32)
    expected = alone(layer, tokens)
    variants = beside.libraries(comm, given, "alltoall")
    for calls in variants:
        close = np.allclose(forward(layer, tokens, calls), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        if not beside.agreed(comm, close):
            raise SystemExit(f"{calls.name}: NOT equal to one rank with all experts")
    counts = Calls("", comm).all_gather(np.bincount(layer.route(tokens)[0].ravel(), minlength=comm.size))
    if comm.rank == 0:
        load = ", ".join(map(str, counts.sum(0)))
        print(f"{comm.size} ranks, {given.tokens} tokens of {given.width} numbers each; tokens of the experts: {load}.")
        print("equal to one rank with all experts")
        print(beside.first_line(comm.explain("alltoall", 0, counts=counts * given.width)))
    about = {"name": "moe_layer", "of": comm.size * given.tokens, "unit": "tokens", "width": given.width}
    beside.compare(comm, variants, lambda calls: forward(layer, tokens, calls), given, **about)
    return 0


def main() -> int:
    """Runs the example."""
    parser = beside.parser(__doc__)
    parser.add_argument("--tokens", type=beside.positive, default=512, help="of each rank (default: 512)")
    parser.add_argument("--width", type=beside.positive, default=256, help="of a token (default: 256)")
    return beside.start(run, parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
