"""`gc3.Program`: run, verify, save and load, from Python."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gc3
from gc3 import CommError, EngineOptions, PreMulSum, UserError, chunk, collectives, datatypes
from gc3.algorithms import catalogue, load
from gc3.runtime.checking import Case

PARAMETERS = {
    "allpairs_allreduce": {"R": 3},
    "alltonext": {"N": 2, "G": 2},
    "hierarchical_allreduce": {"N": 2, "G": 3},
    "ring_allreduce": {"R": 3},
    "two_step_alltoall": {"N": 2, "G": 2},
}


PAIRS = [(dtype, op) for dtype in datatypes.DTYPES for op in datatypes.OPS if datatypes.takes(op, dtype)]


@gc3.algorithm("allgather")
def direct(R: int) -> None:
    """Every rank sends to all others."""
    for source in range(R):
        for target in range(R):
            chunk(source, "in", 0).copy(target, "out", source)


@gc3.algorithm("broadcast", root=1)
def star(R: int) -> None:
    """The root sends to all others."""
    for target in range(R):
        chunk(1, "in", 0).copy(target, "out", 0)


def ring(**options: Any) -> gc3.Program:
    return gc3.compile(catalogue()["ring_allreduce"], R=3, **options)


def test_the_docstring_of_the_package_holds() -> None:
    outputs = ring().run([np.full(4, rank, np.float32) for rank in range(3)])
    assert [a.tolist() for a in outputs if a is not None] == [[3.0] * 4] * 3


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 1009])
def test_algorithms_implement_their_collective(name: str, in_place: bool, count: int) -> None:
    program = gc3.compile(catalogue()[name], in_place=in_place, **PARAMETERS[name])
    case = Case(program.collective, count, "int32")
    inputs = case.inputs()
    assert case.compare(inputs, program.run(inputs, count=count)).ok


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
@pytest.mark.parametrize(
    "protocol", ["Simple", *(pytest.param(name, marks=pytest.mark.python_only) for name in ("LL", "LL128"))]
)
def test_every_type_reduction_and_protocol(dtype: str, op: str, protocol: str) -> None:
    program = ring(protocol=protocol, in_place=False)
    case = Case(program.collective, 333, dtype, op)
    inputs = case.inputs()
    outputs = program.run(inputs, op=op)
    assert case.compare(inputs, outputs).ok
    assert {a.dtype for a in outputs if a is not None} == {datatypes.dtype(dtype)}


def test_operations_that_a_type_does_not_take_are_refused() -> None:
    refused = {(dtype, op) for dtype in datatypes.DTYPES for op in datatypes.OPS if not datatypes.takes(op, dtype)}
    assert refused > {("complex64", "min"), ("float16", "band"), ("bool", "avg"), ("complex128", "max")}
    for dtype, op in refused:
        with pytest.raises(UserError, match=rf"GC3-M003.*{op} of {dtype}; it takes"):
            ring().run([np.zeros(6, datatypes.dtype(dtype))] * 3, op=op)


def scaled(case: Case, inputs: list[Any], op: PreMulSum) -> list[Any]:
    """The inputs that sum alone would need for the same result; exact as those of `case` are."""
    factors = op.elements(case.dtype, case.model.ranks)
    return [(a * f).astype(a.dtype) for a, f in zip(inputs, factors, strict=True)]


@pytest.mark.parametrize("dtype", [dtype for dtype in datatypes.DTYPES if datatypes.takes("premulsum", dtype)])
@pytest.mark.parametrize("name", ["ring_allreduce", "ring_reducescatter", "recursive_doubling_allreduce"])
def test_premulsum_multiplies_the_input_of_each_rank(dtype: str, name: str) -> None:
    ranks = 2 if name.startswith("recursive") else 3
    op = PreMulSum([-1, 2, 1][:ranks] if datatypes.kind(dtype) not in ("unsigned", "complex") else [1, 2, 0][:ranks])
    for in_place, protocol in itertools.product((True, False), ("Simple", "LL128")):
        program = gc3.compile(catalogue()[name], R=ranks, in_place=in_place, protocol=protocol)
        case = Case(program.collective, 333, dtype)
        inputs = [a // 2 if datatypes.kind(dtype) == "float" else a for a in case.inputs() if a is not None]
        before = [a.copy() for a in inputs]
        want = program.run(scaled(case, inputs, op))
        for got, expected in zip(program.run(inputs, op=op), want, strict=True):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(inputs, before)


def test_premulsum_into_the_callers_memory() -> None:
    program = gc3.compile(catalogue()["ring_reducescatter"], R=3, in_place=True)
    buffers = [np.arange(6) + rank for rank in range(3)]
    parts = [buffer[2 * rank :][:2] for rank, buffer in enumerate(buffers)]
    program.run(buffers, outputs=parts, op=PreMulSum([1, 10, 100]))
    assert [a.tolist() for a in buffers] == [[210, 321, 2, 3, 4, 5], [1, 2, 432, 543, 5, 6], [2, 3, 4, 5, 654, 765]]
    assert program.time(buffers, op=PreMulSum(2), warmup=0, iterations=2)


@pytest.mark.parametrize(
    ("factor", "dtype", "said"),
    [
        (0.5, "int32", "a factor of int32 is one of its numbers"),
        (300, "uint8", "a factor of uint8 is one of its numbers"),
        (1j, "float32", "a factor of float32 is not complex"),
        ([1, 2], "float32", "a number is needed, or 3 of them"),
        ([[1], [2, 3]], "float32", "a number is needed"),
        ("x", "float32", "a number is needed"),
        (2**70, "float32", "a number is needed"),
        (1, "bool", "premulsum of bool; it takes float16"),
    ],
)
def test_factors_that_are_none_are_refused(factor: Any, dtype: str, said: str) -> None:
    with pytest.raises(UserError, match=f"GC3-M003.*{re.escape(said)}"):
        ring().run([np.ones(3, datatypes.dtype(dtype))] * 3, op=PreMulSum(factor))


def test_premulsum_needs_factors_and_something_to_reduce() -> None:
    with pytest.raises(UserError, match=r"GC3-M003.*PreMulSum\(factor\)"):
        ring().run([np.ones(3)] * 3, op="premulsum")
    with pytest.raises(UserError, match=r"GC3-M003.*allgather reduces nothing"):
        gc3.compile(catalogue()["ring_allgather"], R=3).run([np.ones(3)] * 3, op=PreMulSum(2))
    engine = gc3._core.ThreadsEngine(ring(in_place=False).core)
    outputs = [np.ones(3) for _ in range(3)]
    with pytest.raises(UserError, match=r"GC3-M003.*rank 0: premulsum of float64 needs a factor.*none is given"):
        engine.run(outputs, outputs, 3, "float64", "premulsum")


@pytest.mark.parametrize("count", [1, 5, 64])
def test_collectives_that_only_move_take_any_fixed_size(count: int) -> None:
    record = np.dtype([("at", "i4"), ("to", "f8"), ("name", "S3")])  # of 15 bytes
    program = gc3.compile(direct, R=3)
    for dtype in (record, np.dtype("datetime64[s]"), np.dtype("U7"), np.dtype(np.longdouble)):
        inputs = [np.frombuffer(np.random.default_rng(r).bytes(count * dtype.itemsize), np.uint8) for r in range(3)]
        outputs = program.run([a.view(dtype) for a in inputs])
        for output in outputs:
            assert output is not None
            assert output.dtype == dtype
            assert output.tobytes() == b"".join(a.tobytes() for a in inputs)
    with pytest.raises(UserError, match="GC3-M002"):
        ring().run([np.zeros(3, record)] * 3)
    with pytest.raises(UserError, match=r"GC3-M002.*no values of a fixed size"):
        program.run([np.array(["x", None], object)] * 3)


@pytest.mark.parametrize("in_place", [False, True])
def test_inputs_do_not_change(in_place: bool) -> None:
    inputs = [np.arange(8.0) + rank for rank in range(3)]
    before = [a.copy() for a in inputs]
    ring(in_place=in_place).run(inputs)
    np.testing.assert_array_equal(inputs, before)


def test_outputs_that_are_the_inputs_work_in_place_on_purpose() -> None:
    buffers = [np.arange(6, dtype=np.int64) * rank for rank in range(3)]
    results = ring(in_place=True).run(buffers, outputs=buffers)
    assert all(result is buffer for result, buffer in zip(results, buffers, strict=True))
    np.testing.assert_array_equal(buffers, [np.arange(6) * 3] * 3)


def test_outputs_given_are_written() -> None:
    for in_place in (False, True):
        outputs = [np.zeros(6, np.float32) for _ in range(3)]
        results = gc3.compile(direct, R=3, in_place=in_place).run(
            [[r, -r] for r in range(3)], dtype="float32", outputs=outputs
        )
        assert all(result is output for result, output in zip(results, outputs, strict=True))
        np.testing.assert_array_equal(outputs, [[0, 0, 1, -1, 2, -2]] * 3)


def test_shapes_and_bfloat16_survive() -> None:
    inputs = [np.ones((2, 3), ml_dtypes.bfloat16)] * 3
    outputs = ring().run(inputs)
    assert outputs[0] is not None
    assert outputs[0].shape == (2, 3)
    assert (outputs[0] == 3).all()


def test_rooted_collectives_take_none_where_there_is_no_buffer() -> None:
    for in_place in (False, True):
        program = gc3.compile(star, R=3, in_place=in_place)
        outputs = program.run([None, np.array([4, 5], np.uint8), None])
        assert [a.tolist() for a in outputs if a is not None] == [[4, 5]] * 3
        assert program.info()["root"] == 1


def test_a_custom_collective_runs() -> None:
    swap = collectives.custom("swap", inputs=[1, 1], outputs=[1, 1], expect={(0, 0): (1, 0), (1, 0): (0, 0)})

    @gc3.algorithm(lambda: swap)
    def exchange() -> None:
        chunk(0, "in", 0).copy(1, "out", 0)
        chunk(1, "in", 0).copy(0, "out", 0)

    for instances in (1, 2):
        program = gc3.compile(exchange, instances=instances)
        outputs = program.run([np.array([1, 2, 3]), np.array([4, 5, 6])])
        assert [a.tolist() for a in outputs if a is not None] == [[4, 5, 6], [1, 2, 3]]
        case = Case(program.collective, 7, "float16")
        assert case.compare(case.inputs(), program.run(case.inputs())).ok


def test_mistakes_in_a_call_are_reported() -> None:
    with pytest.raises(UserError, match=r"GC3-M003.*median"):
        ring().run([np.ones(3)] * 3, op="median")
    with pytest.raises(UserError, match=r"GC3-R001.*2 inputs for 3 ranks"):
        ring().run([np.ones(3)] * 2)


def test_a_seed_runs_deterministically_and_options_are_honoured() -> None:
    program = ring(in_place=False)
    inputs = [np.arange(1000, dtype=np.int32)] * 3
    for seed in range(3):
        outputs = program.run(inputs, seed=seed, slots=2, slot_bytes=1024)
        np.testing.assert_array_equal(outputs, [np.arange(1000) * 3] * 3)
    times = program.time(inputs, warmup=1, iterations=4, options=EngineOptions(workers=1))
    assert len(times) == 4
    assert min(times) > 0


def test_other_options_replace_the_engine_and_its_threads() -> None:
    program = ring()
    inputs = [np.ones(3, dtype=np.float32)] * 3

    def threads(slots: int) -> int:
        program.run(inputs, workers=2, slots=slots)
        return len(list(Path("/proc/self/task").iterdir()))

    first = threads(2)
    assert [threads(slots) for slots in (3, 4, 5, 2, 2)] == [first] * 5


def test_the_environment_sets_what_a_call_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_TIMEOUT", "never")
    with pytest.raises(UserError, match=r"GC3-R002.*GC3_TIMEOUT"):
        ring().run([np.ones(3)] * 3)


# Each rank waits for the other's message before it sends its own.
STUCK = """program "stuck" version 1
collective allgather ranks 2 chunks 1
protocol Simple instances 1 slots 1

rank 0
  tb 0 channel 0 send 1 recv 1
    0 recv -> out[1]
    1 send in[0]
    2 copy in[0] -> out[0]

rank 1
  tb 0 channel 0 send 0 recv 0
    0 recv -> out[0]
    1 send in[0]
    2 copy in[0] -> out[1]
"""


def stuck() -> gc3.Program:
    return gc3.Program(gc3.runtime.program._core.Program.from_text(STUCK))


def test_verify_returns_a_proof_or_raises_every_finding() -> None:
    report = ring().verify()
    assert report.ok
    assert (report.slots, report.transfers) == (2, 12)
    with pytest.raises(UserError) as caught:
        stuck().verify()
    assert caught.value.code.startswith("GC3-V")
    found = gc3.verify(stuck(), check=False)
    assert not found.ok
    assert [d.code for d in found.diagnostics] == [d.code for d in caught.value.diagnostics]


def test_a_run_that_cannot_end_says_so() -> None:
    inputs = [np.ones(4), np.ones(4)]
    with pytest.raises(CommError, match=r"GC3-R005"):
        stuck().run(inputs, seed=1)
    with pytest.raises(CommError, match=r"GC3-R00[35]"):
        stuck().run(inputs, timeout=0.2)


def test_save_load_equality_and_description(tmp_path: Path) -> None:
    program = ring(instances=2)
    path = tmp_path / "ring.gc3"
    program.save(path)
    again = gc3.Program.load(path)
    assert again == program
    assert hash(again) == hash(program)
    assert again != ring()
    assert again != "ring"
    assert again.text == program.text
    assert repr(program) == "<gc3.Program ring_allreduce: allreduce, 3 ranks, Simple, in place>"
    assert program.info() == {
        "name": "ring_allreduce",
        "collective": "allreduce",
        "ranks": 3,
        "chunks": 6,
        "root": None,
        "in_place": True,
        "protocol": "Simple",
        "instances": 2,
        "slots": 2,
        "threadblocks": 6,
        "max_threadblocks_per_rank": 2,
        "scratch_share": "0",
        "instructions": program.core.instruction_count,
        "dependencies": program.core.dependency_count,
    }
    assert [a is not None for a in again.run([np.ones(5)] * 3)] == [True] * 3


def test_a_type_that_engines_do_not_have_is_refused() -> None:
    program = gc3.compile(catalogue()["ring_allreduce"], R=2)
    with pytest.raises(gc3.UserError, match=r"GC3-M002 unknown data type: .datetime64"):
        program.run([np.zeros(4, "M8[s]")] * 2)


def cores_of_threads() -> set[frozenset[int]]:
    """The sets of cores on which threads of this process may run."""
    found: set[frozenset[int]] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended
            found.add(frozenset(os.sched_getaffinity(int(thread))))
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one core")
def test_workers_keep_to_their_cores_and_other_threads_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = frozenset(os.sched_getaffinity(0))
    program = gc3.compile(load("ring_allreduce"), R=4)
    count = len(mine)
    buffers = [np.ones(8, np.float32) for _ in range(4)]
    shares = {c for c in cores_of_threads() if c != mine}  # of engines of other tests
    program.run(buffers, workers=2)
    parts = {c for c in cores_of_threads() if c != mine} - shares
    assert len(shares | parts) >= 2
    assert parts <= {frozenset(sorted(mine)[: count // 2]), frozenset(sorted(mine)[count // 2 :])}
    assert frozenset(os.sched_getaffinity(0)) == mine
    code = """
import os, numpy as np, gc3
from gc3.algorithms import load
gc3.compile(load("ring_allreduce"), R=4).run([np.ones(8, np.float32)] * 4)
assert {frozenset(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")} == {
    frozenset(os.sched_getaffinity(0))
}
"""
    monkeypatch.setenv("GC3_PIN", "0")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
