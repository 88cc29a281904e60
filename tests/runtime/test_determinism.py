"""The promise of docs/runtime.md: the same program on the same data gives the same bits, however it is run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gc3
import ranks
from gc3 import algorithm, chunk, datatypes
from gc3.algorithms import catalogue, load
from gc3.runtime.program import DEFAULT_OPTIONS, EngineOptions, Program

COUNT = 1031  # divisible by nothing
REDUCING: list[tuple[str, dict[str, int]]] = [
    ("ring_allreduce", {"R": 4}),
    ("double_binary_tree_allreduce", {"R": 5}),
    ("recursive_halving_doubling_allreduce", {"R": 6}),
    ("allpairs_allreduce", {"R": 4}),
    ("hierarchical_allreduce", {"N": 2, "G": 2}),
    ("ring_reducescatter", {"R": 4}),
    ("chain_reduce", {"R": 4}),
]
THREADS = [
    EngineOptions(workers=1),
    EngineOptions(workers=4),
    EngineOptions(slots=2),
    EngineOptions(slots=16),
    EngineOptions(slot_bytes=256),
    EngineOptions(slot_bytes=1 << 20),
    *(EngineOptions(seed=seed) for seed in range(4)),
]


def inputs_of(program: Program, dtype: str) -> list[Any]:
    """Numbers of many magnitudes, zeros of both signs and infinities, whose sums depend on the order."""
    random = np.random.default_rng(7)
    found: list[Any] = []
    for rank in range(program.ranks):
        count = program.collective.input_blocks(rank) * COUNT
        values = random.standard_normal(count) * 2.0 ** random.integers(-6, 7, count)
        values[random.integers(0, count, count // 16)] = -0.0
        values[random.integers(0, count, count // 16)] = 0.0
        found.append(values.astype(datatypes.dtype(dtype)) if count else None)
    return found


def bits(outputs: list[Any]) -> list[bytes | None]:
    """The bits of the outputs."""
    return [None if out is None else datatypes.as_bytes(out).tobytes() for out in outputs]


def run(program: Program, dtype: str, op: str, options: EngineOptions = DEFAULT_OPTIONS) -> list[bytes | None]:
    """The outputs of a run on threads."""
    settings = {name: getattr(options, name) for name in ("slots", "slot_bytes", "workers", "seed")}
    return bits(program.run(inputs_of(program, dtype), op=op, dtype=dtype, **settings))


COPYING = [p for p in datatypes.PROTOCOLS if p != "Copy"]  # copies do not add up
# Each program with every second protocol, each protocol with every second program; the others by `make nightly`.
CASES = [
    pytest.param(*case, protocol, marks=[pytest.mark.nightly] if (i + j) % 2 else [])
    for i, case in enumerate(REDUCING)
    for j, protocol in enumerate(COPYING)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters", "protocol"), CASES)
def test_threads(name: str, parameters: dict[str, int], protocol: str) -> None:
    program = gc3.compile(load(name), protocol=protocol, instances=2, **parameters)  # pyright: ignore[reportArgumentType]
    for dtype, op in (("float32", "sum"), ("float16", "avg"), ("bfloat16", "prod"), ("float64", "max")):
        first = run(program, dtype, op)
        for options in THREADS:
            assert run(program, dtype, op, options) == first, (dtype, op, options)
        assert [run(program, dtype, op) for _ in range(5)] == [first] * 5


# One of a ring, of which every rank sends what it combined, one of pairs, and one with a root.
OTHERS = [pytest.param(*REDUCING[3], marks=pytest.mark.nightly)]


@pytest.mark.python_only
@pytest.mark.parametrize(("name", "parameters"), [REDUCING[0], REDUCING[6], *OTHERS])
def test_processes(name: str, parameters: dict[str, int], tmp_path: Path) -> None:
    """Whether ranks read each other's memory or not."""
    program = gc3.compile(load(name), **parameters)  # pyright: ignore[reportArgumentType]
    program.save(tmp_path / "program.gc3")
    wanted: list[list[str]] = [[] for _ in range(program.ranks)]
    for dtype, op in (("float16", "prod"), ("float32", "sum")):
        for rank, values in enumerate(inputs_of(program, dtype)):
            np.save(tmp_path / f"{op}.{rank}.npy", values)
        for rank, out in enumerate(run(program, dtype, op)):
            wanted[rank] += [f"{op} {None if out is None else out.hex()}"] * 3
    small = {"GC3_SLOTS": "2", "GC3_SLOT_BYTES": "512"}
    for copies, options in itertools.product(("0", "1"), ({}, small)):
        environment = {"GC3_PROBE": "0", "GC3_SINGLE_COPY": copies, **options}
        said = ranks.run(ranks.program("same_bits"), program.ranks, environment, [tmp_path])
        assert [text.splitlines() for text in said] == wanted, environment


@pytest.mark.parametrize("name", [n for n, a in catalogue().items() if a.collective_name == "allreduce"])
@pytest.mark.parametrize("size", [3, 8])
def test_all_ranks_get_the_same_bits_of_the_librarys_allreduces(name: str, size: int) -> None:
    chosen = catalogue()[name]
    natural = {"R": size, "N": 2, "G": 8 if name == "ndv2_allreduce" else size}
    parameters: Any = {p.name: natural[p.name] for p in chosen.parameters if p.name in natural}
    program = gc3.compile(chosen, **parameters)
    for dtype, op in (("float32", "sum"), ("float16", "prod")):
        assert len(set(run(program, dtype, op))) == 1


@algorithm("allreduce", in_place=False, chunks=1)
def each_for_itself(R: int) -> None:
    """Every rank begins with its own input, so each has its own order."""
    for rank in range(R):
        mine = chunk(rank, "in", 0).copy(rank, "out", 0)
        for k in range(1, R):
            mine = mine.reduce(chunk((rank + k) % R, "in", 0))


def test_the_order_matters_for_these_data_so_that_the_tests_mean_something() -> None:
    """Two algorithms add in different orders, and so do the ranks of one in which each reduces for itself."""
    ring = run(gc3.compile(load("ring_allreduce"), R=4), "float32", "sum")
    tree = run(gc3.compile(load("double_binary_tree_allreduce"), R=4), "float32", "sum")
    assert ring[0] != tree[0]
    assert len(set(run(gc3.compile(each_for_itself, R=4), "float32", "sum"))) == 4
