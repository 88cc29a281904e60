"""What the applications of examples/ compute, with every program of the library that fits, against one process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import beside
import fft3d
import kfac_step
import moe_layer

import gc3
from gc3.algorithms import catalogue

SHAPES = ((8, 12, 5), (7, 5, 3), (1, 1, 1), (2, 9, 4), (12, 1, 6))


def of_kind(collective: str) -> list[str]:
    return [a.name for a in catalogue().values() if a.collective_name == collective]


class Scrambled(beside.Calls):
    """Calls whose results are wrong."""

    def timed(self, call: Callable[..., np.ndarray], *given: Any) -> np.ndarray:
        """Makes a call."""
        return super().timed(call, *given)[::-1].copy()


def fft_is_numpys(calls: beside.Calls, shape: tuple[int, int, int]) -> bool:
    numbers = np.random.default_rng(3)
    grid = numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)
    layout = fft3d.Layout(shape, calls.comm.size)
    own = slice(calls.comm.rank * layout.y, (calls.comm.rank + 1) * layout.y)
    part = fft3d.transform(layout.slab(grid, calls.comm.rank), layout, calls)
    return np.allclose(part, np.fft.fftn(grid)[:, own], rtol=0, atol=1e-11)


def layer_is_that_of_one(calls: beside.Calls) -> bool:
    layer = moe_layer.Layer.of(calls.comm.size, 6)
    tokens = np.random.default_rng(calls.comm.rank).standard_normal((11, 6), np.float32)
    return np.allclose(moe_layer.forward(layer, tokens, calls), moe_layer.alone(layer, tokens), rtol=0, atol=1e-5)


def training_is_that_of_one(calls: beside.Calls) -> bool:
    weights, batch = kfac_step.problem(calls.comm.size, (6, 9, 4), 8)
    losses, right = kfac_step.train(calls, weights, batch, 6)
    return right and losses[-1] < losses[0] / 2


with gc3.init() as comm:
    exchanges = beside.libraries(comm, argparse.Namespace(vs=False, algorithm=of_kind("alltoall")), "alltoall")
    right = {f"fft3d {calls.name}": fft_is_numpys(calls, SHAPES[0]) for calls in exchanges}
    right |= {f"fft3d {shape}": fft_is_numpys(exchanges[0], shape) for shape in SHAPES}
    right |= {f"moe_layer {calls.name}": layer_is_that_of_one(calls) for calls in exchanges}
    gathers = beside.libraries(comm, argparse.Namespace(vs=False, algorithm=of_kind("allgather")), "allgather")
    sums = beside.libraries(comm, argparse.Namespace(vs=False, algorithm=of_kind("allreduce")), "allreduce")
    right |= {f"kfac_step {calls.name}": training_is_that_of_one(calls) for calls in (*gathers, *sums)}
    wrong = Scrambled("", comm)
    shows = {
        "fft3d": not beside.agreed(comm, fft_is_numpys(wrong, SHAPES[0])),
        "moe_layer": not beside.agreed(comm, layer_is_that_of_one(wrong)),
        "kfac_step": not training_is_that_of_one(wrong),
    }
    print(*(f"right: {name}" for name, found in right.items() if found), sep="\n")
    print(*(f"WRONG: {name}" for name, found in right.items() if not found), sep="\n")
    print(*(f"a wrong result shows: {name}" for name, found in shows.items() if found), sep="\n")
