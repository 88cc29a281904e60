"""A layer of a mixture of experts as one program: an expert starts with a tile of tokens as soon as it has arrived.

    python examples/fused_moe.py --ranks 2 --check
    python examples/fused_moe.py --ranks 2 --skew 12 --vs      # also with Gloo, if PyTorch can be imported

Each rank has an expert, a network of two layers, and tokens for all experts, sorted by expert. Call after call, tokens
are dispatched (AllToAllV), computed, and the answers combined (AllToAllV with the counts transposed). The program sends
tiles, which are computed as they come, and whose answers leave at once. With --skew 12 expert e gets tokens in
proportion to (e + 1)^-1.2, in whole tiles: the program is made for these capacities.
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

expert = gc3.op("expert")


def capacities(R: int, tiles: int, skew: int) -> list[int]:
    """How many of a rank's tiles each expert gets, one or more."""
    popular = np.arange(1, R + 1) ** (-skew / 10)
    ends = np.rint(np.cumsum(popular) / popular.sum() * (tiles - R)).astype(int) + np.arange(1, R + 1)
    return np.diff(ends, prepend=0).tolist()


def moe(R: int, tiles: int, skew: int) -> collectives.Collective:
    """Every tile comes back with its expert's answers."""
    owner = np.repeat(np.arange(R), capacities(R, tiles, skew)).tolist()

    def expect(v: Callable[..., Any], rank: int, _: str, i: int) -> Any:
        return expert(v(rank, "tokens", i), v(owner[i], "up", 0), v(owner[i], "down", 0))

    inputs = {"tokens": tiles, "up": 1, "down": 1}
    return collectives.custom("moe", ranks=R, inputs=inputs, outputs={"answers": tiles}, expect=expect)


@gc3.algorithm(moe, scratch=["arrived", "made"])
def fused_moe(R: int, tiles: int, skew: int) -> None:
    """Tiles of other ranks come before a rank's own, whose answers have no way to go."""
    counts = capacities(R, tiles, skew)
    for step in [*range(1, R), 0]:
        for to in range(R):
            source, first = (to + step) % R, sum(counts[:to])
            for tile in range(first, first + counts[to]):
                tokens, place = chunk(source, "tokens", tile), source * counts[to] + tile - first
                weights = chunk(to, "up", 0), chunk(to, "down", 0)
                if source == to:
                    expert(tokens, *weights, out=(to, "answers", tile))
                else:
                    made = expert(tokens.copy(to, "arrived", place), *weights, out=(to, "made", place))
                    made.copy(source, "answers", tile)


def do_expert(tokens: Array, up: Array, down: Array, out: Array) -> None:
    """A network of two layers."""
    np.matmul(np.maximum(tokens @ up, 0), down, out=out)


class Layer:
    """A rank's tokens and expert, and the same layer in several ways. Each returns the answers."""

    def __init__(self, comm: gc3.Communicator, given: argparse.Namespace) -> None:
        """Draws the data."""
        if given.tokens % given.tiles or given.tiles < comm.size:
            raise SystemExit("the tokens must be a multiple of the tiles, and each expert needs a tile")
        self.comm, self.tiles, width = comm, given.tiles, given.width
        self.rows = given.tokens // given.tiles
        self.capacity = capacities(comm.size, given.tiles, given.skew)
        self.counts = np.array([self.capacity] * comm.size) * self.rows  # of source and expert
        random = np.random.default_rng(4 + comm.rank)
        self.tokens = random.standard_normal((given.tokens, width), np.float32)
        self.up = random.standard_normal((width, 2 * width), np.float32) / np.float32(np.sqrt(width))
        self.down = random.standard_normal((2 * width, width), np.float32) / np.float32(np.sqrt(2 * width))
        self.program = gc3.compile(fused_moe, R=comm.size, tiles=given.tiles, skew=given.skew)
        self.bound = self.program.bind({"expert": do_expert})

    def one_program(self, _: Calls) -> list[Array]:
        """As the program."""
        given = {"tokens": self.tokens, "up": self.up, "down": self.down}
        shape = (self.rows, self.tokens.shape[1])
        return [self.bound.run_rank(self.comm, given, shapes={"answers": shape})["answers"]]

    def in_turn(self, calls: Calls) -> list[Array]:
        """Call after call."""
        arrived = calls.all_to_all_v(self.tokens, self.counts)
        answers = np.empty_like(arrived)
        do_expert(arrived, self.up, self.down, answers)
        return [calls.all_to_all_v(answers, np.ascontiguousarray(self.counts.T))]

    def by_hand(self, _: Calls) -> list[Array]:
        """In as many calls as the least popular expert has tiles; the next ones move while one is computed."""
        parts = min(self.capacity)
        cuts = [[len(share) for share in np.array_split(np.arange(n), parts)] for n in self.capacity]
        sent: list[tuple[Array, Any]] = []
        back: list[Any] = []
        places: list[list[slice]] = []
        for part in range(parts):
            rows: list[slice] = []
            for to, cut in enumerate(cuts):
                begin = (sum(self.capacity[:to]) + sum(cut[:part])) * self.rows
                rows.append(slice(begin, begin + cut[part] * self.rows))
            counts = np.array([[cut[part] for cut in cuts]] * self.comm.size) * self.rows
            tokens = np.concatenate([self.tokens[at] for at in rows])
            places.append(rows)
            sent.append((counts, self.comm.all_to_all_v_async(tokens, counts)))
        for counts, handle in sent:
            arrived = handle.wait()
            made = np.empty_like(arrived)
            do_expert(arrived, self.up, self.down, made)
            back.append(self.comm.all_to_all_v_async(made, np.ascontiguousarray(counts.T)))
        answers = np.empty_like(self.tokens)
        for rows, handle in zip(places, back, strict=True):
            found, begin = handle.wait(), 0
            for at in rows:
                answers[at] = found[begin : begin + at.stop - at.start]
                begin += at.stop - at.start
        return [answers]

    def messages(self, calls: Calls) -> list[Array]:
        """Without what is computed."""
        arrived = calls.all_to_all_v(self.tokens, self.counts)
        return [calls.all_to_all_v(arrived, np.ascontiguousarray(self.counts.T))]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    layer = Layer(comm, given)
    about = {"name": "fused_moe", "of": given.tokens * comm.size, "unit": "tokens", "skew": given.skew / 10}
    return beside.one_program(comm, given, "alltoall", layer, **about)


def main() -> int:
    """Runs the example."""
    parser = beside.fused_parser(__doc__, tokens=4096, width=512, tiles=16)
    parser.add_argument("--skew", type=int, default=0, help="of the experts' popularity, in tenths (default: 0)")
    return beside.start(run, parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
