"""Tensors of PyTorch and arrays of CuPy, on a device; fake_arrays.py has stand-ins for them."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import gc3
import ranks
from gc3 import cuda
from gc3.algorithms import catalogue

pytestmark = pytest.mark.gpu

RANKS = 3
REPLAYS = 1000
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "float8_e4m3fn", "float8_e5m2")


def library(name: str) -> Any:
    """A library that supports the device, or a reason to skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own import
        try:
            found = importlib.import_module(name)
        except ImportError as problem:
            pytest.skip(f"{name}: {problem}")
        if not found.cuda.is_available():
            pytest.skip(f"{name} finds no device")
    return found


def ring(protocol: str) -> cuda.Engine:
    return cuda.Engine(gc3.compile(catalogue()["ring_allreduce"], R=RANKS, protocol=protocol, in_place=True))


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_of_torch_of_every_type(dtype: str) -> None:
    torch = library("torch")
    tensors = [torch.full((1001,), r + 1.0, device="cuda").to(getattr(torch, dtype)) for r in range(RANKS)]
    engine = ring("LL128")
    engine.enqueue(tensors, tensors)
    engine.synchronize()
    assert all(bool((t.float() == 6).all()) for t in tensors)


def test_work_follows_the_stream_of_torch() -> None:
    torch = library("torch")
    engine = ring("Simple")
    streams = [torch.cuda.Stream() for _ in range(2)]
    tensors = [torch.zeros(1 << 20, dtype=torch.int64, device="cuda") for _ in range(RANKS)]
    torch.cuda.synchronize()
    for turn in range(20):
        stream = streams[turn % 2]
        stream.wait_stream(streams[1 - turn % 2])
        with torch.cuda.stream(stream):
            for tensor in tensors:
                tensor.add_(1)
            engine.enqueue(tensors, tensors, op="max")
    torch.cuda.synchronize()
    engine.synchronize()
    assert all(bool((t == 20).all()) for t in tensors)


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
def test_a_graph_of_torch_is_replayed(protocol: str) -> None:
    torch = library("torch")
    engine = ring(protocol)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    tensors = [torch.full((333,), r + 1, dtype=torch.int64, device="cuda") for r in range(RANKS)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        engine.enqueue(tensors, tensors)  # once before the capture
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        engine.enqueue(tensors, tensors)
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    engine.synchronize()
    wanted = (6 * 3**REPLAYS + 2**63) % 2**64 - 2**63  # as 64 bits have it
    assert all(bool((t == wanted).all()) for t in tensors)


def test_arrays_of_cupy_on_their_stream() -> None:
    cupy = library("cupy")
    engine = ring("LL")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        arrays = [cupy.full(1001, r + 1, dtype="float32") for r in range(RANKS)]
        engine.enqueue(arrays, arrays)
        assert all(bool((a == 6).all()) for a in arrays)
    engine.synchronize()


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_communicator_makes_arrays_of_the_same_library(name: str) -> None:
    library(name)
    ranks.run(ranks.program("device_arrays_of"), 2, arguments=[name])
