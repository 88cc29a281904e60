"""The promise of docs/runtime.md: the same program on the same data gives the same bits, however it is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gc3
from gc3 import algorithm, chunk, datatypes
from gc3.algorithms import catalogue, load
from gc3.comm.tool_ranks import Ranks
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


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [p for p in datatypes.PROTOCOLS if p != "Copy"])  # copies do not add up
@pytest.mark.parametrize(("name", "parameters"), REDUCING)
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
def test_processes(name: str, parameters: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether ranks read each other's memory or not."""
    program = gc3.compile(load(name), **parameters)  # pyright: ignore[reportArgumentType]
    wanted = {(dtype, op): run(program, dtype, op) for dtype, op in (("float32", "sum"), ("float16", "prod"))}
    monkeypatch.setenv("GC3_PROBE", "0")
    for copies in ("0", "1"):
        monkeypatch.setenv("GC3_SINGLE_COPY", copies)
        for options in (EngineOptions(), EngineOptions(slots=2, slot_bytes=512)):
            with Ranks(program, options) as ranks:
                for (dtype, op), first in wanted.items():
                    for _ in range(3):
                        inputs = inputs_of(program, dtype)
                        outputs = [
                            np.zeros(blocks * COUNT, datatypes.dtype(dtype)) if blocks else None
                            for blocks in map(program.collective.output_blocks, range(program.ranks))
                        ]
                        given: dict[str, Any] = {"outputs": outputs, "count": COUNT, "dtype": dtype, "op": op}
                        ranks.time(inputs, warmup=0, iterations=1, **given)
                        assert bits(outputs) == first, (copies, options, dtype)


@pytest.mark.parametrize("name", [n for n, a in catalogue().items() if a.collective_name == "allreduce"])
@pytest.mark.parametrize("ranks", [3, 8])
def test_all_ranks_get_the_same_bits_of_the_librarys_allreduces(name: str, ranks: int) -> None:
    chosen = catalogue()[name]
    natural = {"R": ranks, "N": 2, "G": 8 if name == "ndv2_allreduce" else ranks}
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
