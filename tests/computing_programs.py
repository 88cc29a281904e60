"""Programs that compute, for the tests: their collectives, algorithms, and what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import gc3
from gc3 import collectives, computing
from gc3.datatypes import Array

matmul = gc3.op("matmul")
norm = gc3.op("norm")
expert = gc3.op("expert")
stats = gc3.op("stats", results=2)


def gemm_rs(R: int) -> collectives.Collective:
    """Rank r gets block r of the sum of all products."""
    return collectives.custom(
        "gemm_rs",
        ranks=R,
        inputs={"x": R, "w": 1},
        outputs={"y": 1},
        expect=lambda v, rank, _, __: sum(matmul(v(q, "x", rank), v(q, "w", 0)) for q in range(R)),
    )


@gc3.algorithm(gemm_rs, scratch=["part"])
def gemm_ring(R: int) -> None:
    """A tile starts its way as soon as it is computed; its owner adds its own part last."""
    for tile in range(R):
        passing = None
        for step in range(1, R + 1):
            at = (tile + step) % R
            part = matmul(gc3.chunk(at, "x", tile), gc3.chunk(at, "w", 0), out=(at, "part", tile))
            passing = part if passing is None else part.reduce(passing)
        assert passing is not None
        passing.copy(tile, "y", 0)


def add_norm(R: int) -> collectives.Collective:
    """An all-reduce, whose result is added to a residual, which all ranks have, and normalised."""

    def expect(v: Callable[[int, str, int], computing.Term], rank: int, output: str, i: int) -> computing.Term:
        total = sum(v(q, "x", i) for q in range(R)) + v(i, "residual", i)
        return total if output == "sum" else norm(total, v(i, "gain", 0))

    return collectives.custom(
        "add_norm",
        ranks=R,
        inputs={"x": R, "residual": R, "gain": 1},
        outputs={"y": R, "sum": lambda _: R},
        expect=lambda v, rank, output, i: None if output == "sum" and i != rank else expect(v, rank, output, i),
    )


@gc3.algorithm(add_norm)
def scatter_norm_gather(R: int) -> None:
    """Each rank adds and normalises its rows, and all get them."""
    for own in range(R):
        total = gc3.chunk((own + 1) % R, "x", own).copy(own, "scratch", 0)
        for step in range(2, R + 1):
            total = total.reduce(gc3.chunk((own + step) % R, "x", own))
        total = total.reduce(gc3.chunk(own, "residual", own)).copy(own, "sum", own)
        y = norm(total, gc3.chunk(own, "gain", 0), out=(own, "y", own))
        for step in range(1, R):
            y.copy((own + step) % R, "y", own)


def moe(R: int) -> collectives.Collective:
    """Blocks go to an expert each, and come back with the answer."""
    return collectives.custom(
        "moe",
        ranks=R,
        inputs={"tokens": R, "weights": 1},
        outputs={"answers": R},
        expect=lambda v, rank, _, to: expert(v(rank, "tokens", to), v(to, "weights", 0)),
    )


@gc3.algorithm(moe, scratch=["arrived", "made"])
def experts(R: int) -> None:
    """Each expert starts with a block as soon as it has arrived."""
    for source in range(R):
        for to in range(R):
            block = gc3.chunk(source, "tokens", to).copy(to, "arrived", source)
            answer = expert(block, gc3.chunk(to, "weights", 0), out=(to, "made", source))
            answer.copy(source, "answers", to)


def statistics(R: int) -> collectives.Collective:
    """Statistics of each rank's part, summed: what a norm over columns of all ranks needs."""

    def expect(v: Callable[[int, str, int], computing.Term], rank: int, _: str, __: int) -> computing.Term:
        each = [stats(v(q, "x", 0)) for q in range(R)]
        return norm(v(rank, "x", 0), sum(a for a, _ in each), sum(b for _, b in each))

    return collectives.custom("statistics", ranks=R, inputs={"x": 1}, outputs={"y": 1}, expect=expect)


@gc3.algorithm(statistics, scratch=["first", "second"])
def column_norm(R: int) -> None:
    """Two all-reduces of small chunks, by one rank, between two operations."""
    for rank in range(R):
        stats(gc3.chunk(rank, "x", 0), out=[(rank, "first", 0), (rank, "second", 0)])
    for buffer in ("first", "second"):
        total = gc3.chunk(0, buffer, 0)
        for rank in range(1, R):
            total = total.reduce(gc3.chunk(rank, buffer, 0))
        for rank in range(R):
            total = total.copy(rank, buffer, 1)
    for rank in range(R):
        norm(gc3.chunk(rank, "x", 0), gc3.chunk(rank, "first", 1), gc3.chunk(rank, "second", 1), out=(rank, "y", 0))


ALGORITHMS = (gemm_ring, scatter_norm_gather, experts, column_norm)


def whole(shape: tuple[int, ...], seed: int) -> Array:
    """Small whole numbers, whose sums and products are exact in float64."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def do_norm(x: Array, gain: Array, *more: Array, out: Array) -> None:
    """Stands for a norm: not linear, and exact."""
    np.multiply(x, x, out=out)
    out += gain * 3 + (more[0] * 5 if more else 0)


def do_stats(x: Array, out: tuple[Array, Array]) -> None:
    """Sums of rows, and of their squares."""
    out[0][...] = x.sum(axis=1, keepdims=True)
    out[1][...] = (x * x).sum(axis=1, keepdims=True)


def do_matmul(a: Array, b: Array, out: Array) -> None:
    """A product of matrices."""
    np.matmul(a, b, out=out)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "matmul": do_matmul,
    "norm": do_norm,
    "expert": do_matmul,
    "stats": do_stats,
}


class Case:
    """Inputs of a program for R ranks, and its outputs by NumPy."""

    def __init__(self, algorithm: gc3.Algorithm, R: int, rows: int = 3) -> None:
        """Draws the inputs. Chunks have `rows` rows."""
        self.program = gc3.compile(algorithm, R=R)
        self.shapes: dict[str, tuple[int, ...]] = {}
        names = {name for name, _, _ in self.program.core.applications()}
        self.functions = {name: FUNCTIONS[name] for name in names}
        x = [whole((R * rows, 4), rank) for rank in range(R)]
        w = [whole((4, 6), 100 + rank) for rank in range(R)]
        self.inputs: dict[str, list[Array]]
        self.outputs: dict[str, list[Array]]
        if algorithm is gemm_ring:
            total = sum(a @ b for a, b in zip(x, w, strict=True))
            self.inputs = {"x": x, "w": w}
            self.shapes = {"y": (rows, 6)}
            self.outputs = {"y": [np.asarray(total)[rank * rows : (rank + 1) * rows] for rank in range(R)]}
        elif algorithm is scatter_norm_gather:
            residual, gain = whole((R * rows, 4), 50), whole((rows, 4), 60)
            total = np.asarray(sum(x)) + residual
            y = np.empty_like(total)
            do_norm(total, np.tile(gain, (R, 1)), out=y)
            self.inputs = {"x": x, "residual": [residual] * R, "gain": [gain] * R}
            self.shapes = {"y": (rows, 4)}
            self.outputs = {"y": [y] * R}
            self.sum = total
        elif algorithm is experts:
            self.inputs = {"tokens": x, "weights": w}
            self.shapes = {"answers": (rows, 6)}
            blocks = [np.concatenate([x[r][to * rows : (to + 1) * rows] @ w[to] for to in range(R)]) for r in range(R)]
            self.outputs = {"answers": blocks}
        else:
            first = np.asarray(sum(part.sum(axis=1, keepdims=True) for part in x))
            second = np.asarray(sum((part * part).sum(axis=1, keepdims=True) for part in x))
            self.inputs = {"x": x}
            self.shapes = {"first": first.shape, "second": second.shape, "y": x[0].shape}
            self.outputs = {"y": [np.empty_like(part) for part in x]}
            for part, made in zip(x, self.outputs["y"], strict=True):
                do_norm(part, first, second, out=made)

    def check(self, got: dict[str, list[Array]]) -> None:
        """Compares what a run has computed."""
        for name, arrays in self.outputs.items():
            for rank, wanted in enumerate(arrays):
                assert np.array_equal(got[name][rank], wanted), (name, rank)

    def check_rank(self, got: dict[str, Array], rank: int) -> None:
        """Compares what a rank of a communicator has computed."""
        for name, arrays in self.outputs.items():
            assert np.array_equal(got[name], arrays[rank]), (name, rank)
