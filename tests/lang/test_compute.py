"""Programs with compute operations: proven, refused, and run on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

import computing_programs
import gc3
import ranks
from computing_programs import ALGORITHMS, FUNCTIONS, Case, add_norm, expert, gemm_rs, matmul, moe, norm
from gc3 import _core, chunk, collectives
from gc3.cli.main import main
from gc3.datatypes import Array


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_program_text(algorithm: gc3.Algorithm, golden: Callable[..., None]) -> None:
    """The C++ tests damage these texts."""
    golden(gc3.compile(algorithm, R=3).text)


@pytest.mark.parametrize("R", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_programs_are_proven_and_equal_to_numpy(algorithm: gc3.Algorithm, R: int) -> None:
    case = Case(algorithm, R)
    case.program.verify()
    bound = case.program.bind(case.functions)
    for seed in (None, 1, 2):
        case.check(bound.run(case.inputs, shapes=case.shapes, seed=seed))


def test_any_order_of_steps_computes_the_same() -> None:
    case = Case(computing_programs.scatter_norm_gather, 3)
    bound = case.program.bind(case.functions)
    for seed in range(20):
        case.check(bound.run(case.inputs, shapes=case.shapes, seed=seed))


@pytest.mark.parametrize("rows", [0, 1, 4096])
def test_chunks_of_any_length(rows: int) -> None:
    """A chunk of 4096 rows is longer than a FIFO slot, and still one tile."""
    for algorithm in ALGORITHMS[:3]:
        case = Case(algorithm, 2, rows)
        got = case.program.bind(case.functions).run(case.inputs, shapes=case.shapes)
        case.check(got)


def test_an_output_for_which_any_value_will_do() -> None:
    case = Case(computing_programs.scatter_norm_gather, 2)
    got = case.program.bind(case.functions).run(case.inputs, shapes=case.shapes)
    for rank in range(2):
        own = slice(3 * rank, 3 * rank + 3)
        assert np.array_equal(got["sum"][rank][own], case.sum[own])


@pytest.mark.parametrize("ending", [".gc3", ".txt"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_files(algorithm: gc3.Algorithm, ending: str, tmp_path: object) -> None:
    program = gc3.compile(algorithm, R=3)
    path = f"{tmp_path}/program{ending}"
    program.save(path)
    again = gc3.Program.load(path)
    assert again == program
    assert again.core.to_bytes(source=False) == program.core.to_bytes(source=False)
    case = Case(algorithm, 3)
    case.check(again.bind(case.functions).run(case.inputs, shapes=case.shapes))


# Planted defects, each with what the error has to name.


def refused(algorithm: Callable[[int], None], collective: Callable[[int], collectives.Collective]) -> str:
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(gc3.algorithm(collective, scratch=["part", "arrived", "made"])(algorithm), R=2)
    return str(caught.value)


def test_residual_added_on_each_rank() -> None:
    def wrong(R: int) -> None:
        for own in range(R):
            total = None
            for step in range(1, R + 1):
                at = (own + step) % R
                part = chunk(at, "x", own).copy(at, "part", own).reduce(chunk(at, "residual", own))
                total = part if total is None else part.reduce(total)
            assert total is not None
            total = total.copy(own, "sum", own)
            y = norm(total, chunk(own, "gain", 0), out=(own, "y", own))
            for step in range(1, R):
                y.copy((own + step) % R, "y", own)

    said = refused(wrong, add_norm)
    assert "y[0] of rank 0 must hold norm(x[0] of rank 0 + residual[0] of rank 0 + x[0] of rank 1, gain[0]" in said
    assert (
        "but holds norm(x[0] of rank 0 + residual[0] of rank 0 + x[0] of rank 1 + residual[0] of rank 1, gain" in said
    )
    assert "last written here (" in said


def test_norm_before_the_reduction_is_complete() -> None:
    def wrong(R: int) -> None:
        for own in range(R):
            total = chunk((own + 1) % R, "x", own).copy(own, "sum", own).reduce(chunk(own, "residual", own))
            y = norm(total, chunk(own, "gain", 0), out=(own, "y", own))
            total.reduce(chunk(own, "x", own))
            for step in range(1, R):
                y.copy((own + step) % R, "y", own)

    said = refused(wrong, add_norm)
    assert "but holds norm(residual[0] of rank 0 + x[0] of rank 1, gain[0] of rank 0)" in said


def test_buffer_reused_too_early() -> None:
    def wrong(R: int) -> None:
        for source in range(R):
            for to in range(R):
                block = chunk(source, "tokens", to).copy(to, "arrived", 0)
                chunk((source + 1) % R, "tokens", to).copy(to, "arrived", 0)
                expert(block, chunk(to, "weights", 0), out=(to, "made", source))

    said = refused(wrong, moe)
    assert "GC3-L001" in said
    assert "arrived[0]" in said
    assert "overwritten here" in said


def damaged(program: gc3.Program, old: str, new: str) -> str:
    """What the verifier says of the text in which something is replaced."""
    assert program.text.count(old) == 1, program.text
    found = _core.verify(_core.Program.from_text(program.text.replace(old, new)), 0, 0, 0, 1, False)
    assert found.diagnostics
    return str(found.diagnostics[0])


def test_the_verifier_orders_and_compares_operations() -> None:
    program = gc3.compile(computing_programs.scatter_norm_gather, R=3)
    step = 'apply "norm" out[3] in[6] -> out[0]:3'
    # Nothing to wait for; other data than is read to wait for.
    for other in ("", " after (1:2)"):
        said = damaged(program, f"{step} after (0:1) signals", f"{step}{other} signals")
        assert "GC3-V007" in said
        assert step in said
    said = damaged(program, "send out[0] after (4:0)\n  tb 1", "send out[0]\n  tb 1")
    assert "GC3-V007" in said
    assert f"{step} after (0:1) signals) writes it" in said
    # The sum before the residual is added is another term.
    said = damaged(program, "1 copy sc[0] -> out[3] after (1:2)", "1 copy sc[0] -> out[3] after (1:1)")
    assert "which is not marked as having dependents" in said
    said = damaged(program, "2 reduce in[3] -> sc[0] signals", "2 nop signals")
    told = "holds norm(x[0] of rank 0 + x[0] of rank 1 + x[0] of rank 2, gain[0] of rank 0) instead of norm("
    assert "GC3-V008" in said
    assert told in said
    said = damaged(program, step, 'apply "norm" in[6] out[3] -> out[0]:3')
    assert "norm(gain[0] of rank 0, x[0] of rank 0 + " in said
    assert "last written by rank 0 threadblock 4 step 0" in said


def test_the_verifier_checks_tables_and_lengths() -> None:
    program = gc3.compile(computing_programs.scatter_norm_gather, R=3)
    step = 'apply "norm" out[3] in[6] -> out[0]:3'
    assert "reads and writes output[3]" in damaged(program, step, step.replace("out[0]", "out[3]"))
    assert "GC3-V010" in damaged(program, step, step.replace("out[0]", "in[0]"))
    assert "without a buffer or a length" in damaged(program, step, step.replace(":3", ":9"))
    assert "uses output[9]" in damaged(program, step, step.replace("out[3]", "out[9]"))
    said = damaged(program, step, step.replace(":3", ":2"))
    assert "GC3-V012" in said
    assert "output[0] holds a chunk as long as those of gain instead of a chunk as long as those of y" in said
    for old, new in (('"norm" out[3]', '"sum" out[3]'), ("call 1", "call 2"), ("=0\n", "=9\n")):
        with pytest.raises(gc3.UserError, match="GC3-I006"):
            _core.Program.from_text(program.text.replace(old, new))


def test_operations_take_and_make_single_chunks_of_one_rank() -> None:
    x, w = (0, "x", 0), (0, "w", 0)
    for operands, out, why in (
        ([x, (1, "w", 0)], (0, "part", 0), "w[0] is of another rank than rank 0 x[0]"),
        (
            [x, w],
            (1, "part", 0),
            "GC3-L020 bad operands of a compute operation: the result rank 1 part[0] is of another rank",
        ),
        ([(0, "x", 0, 2), w], (0, "part", 0), "x[0..1] is not a single chunk"),
        ([x, w], None, "out= is a place"),
        ([x, w], [], "no operand, or no result"),
        ([x, w], [(0, "part", 0), (0, "part", 0)], "two results are at rank 0 part[0]"),
        ([x, w], (0, "x", 0), "GC3-L010"),
        ([x, w], (0, "nowhere", 0), "GC3-L006"),
        ([x, w], (0, "y", 1), "index 1 of y on rank 0, which has 1 chunk there"),
        ([x, (0, "w", 1)], (0, "part", 0), "index 1 of w on rank 0"),
        ([x, 7], (0, "part", 0), "each operand is a reference"),
    ):

        def wrong(R: int) -> None:
            given = [chunk(*o) if isinstance(o, tuple) else o for o in operands]  # noqa: B023  called at once
            matmul(*given, out=out)  # noqa: B023

        assert why in refused(wrong, gemm_rs), why

    def in_place(R: int) -> None:
        part = chunk(0, "x", 0).copy(0, "part", 0)
        matmul(part, out=(0, "part", 0))

    assert "is an operand and a result" in refused(in_place, gemm_rs)

    def unknown(R: int) -> None:
        norm(chunk(0, "x", 0), out=(0, "part", 0))

    assert "the postcondition of gemm_rs does not name it" in refused(unknown, gemm_rs)

    def stale(R: int) -> None:
        part = matmul(chunk(0, "x", 0), chunk(0, "w", 0), out=(0, "part", 0))
        matmul(chunk(0, "x", 1), chunk(0, "w", 0), out=(0, "part", 0))
        part.copy(0, "y", 0)

    assert "GC3-L001" in refused(stale, gemm_rs)
    with pytest.raises(gc3.UserError, match="allreduce has no named tensors"):
        gc3.compile(gc3.algorithm("allreduce")(lambda R: norm(chunk(0, "in", 0), out=(0, "out", 0))), R=2)
    with pytest.raises(gc3.UserError, match="'x' is neither a chunk nor a value"):
        norm("x")


def test_what_needs_chunks_of_one_length_is_refused(tmp_path: object) -> None:
    program = gc3.compile(computing_programs.gemm_ring, R=2)
    for attempt in (
        lambda: gc3.compile(computing_programs.gemm_ring, R=2, instances=2),
        lambda: gc3.compile(computing_programs.gemm_ring, R=2, protocol="LL"),
        lambda: gc3.compile(computing_programs.gemm_ring, R=2, in_place=True),
        lambda: gc3.compile(computing_programs.gemm_ring, R=2, memory="direct"),
        lambda: program.run([np.zeros(4)] * 2),
        lambda: program.time([np.zeros(4)] * 2),
        lambda: program.save(f"{tmp_path}/program.xml"),
    ):
        with pytest.raises(gc3.UserError, match="GC3-C004"):
            attempt()
    with pytest.raises(gc3.UserError, match="it has no gemm_rs"):
        program.save(f"{tmp_path}/program.plan.json")

    def parallel(R: int) -> None:
        with gc3.parallelize(2):
            chunk(0, "x", 0).copy(0, "part", 0)

    assert "GC3-C004" in refused(parallel, gemm_rs)


def test_custom_collectives_of_tensors_say_what_is_wrong() -> None:
    for change, why in (
        ({"ranks": None}, "needs ranks="),
        ({"inputs": [1, 1]}, "both mappings"),
        ({"inputs": {"x": [1]}}, "'x' has chunks for 1 ranks, not 2"),
        ({"inputs": {"x": -1}}, "'x' has -1 chunks on rank 0"),
        ({"outputs": {"x": 1}}, "two tensors have the name 'x'"),
        ({"inputs": {"": 1}}, "'' cannot name a tensor"),
        ({"expect": {}}, "expect is a function of value"),
        ({"expect": lambda v, r, o, i: 3}, "expect of y[0] of rank 0 is 3, not a value"),
        ({"expect": lambda v, r, o, i: v(0, "z", 0)}, "there is no input 'z', but x"),
        ({"expect": lambda v, r, o, i: v(0, "x", 5)}, "x[5] of rank 0 does not exist"),
    ):
        given: dict[str, object] = {
            "ranks": 2,
            "inputs": {"x": 1},
            "outputs": {"y": 1},
            "expect": lambda v, r, o, i: v(r, "x", i),
        }
        with pytest.raises(gc3.UserError) as caught:
            collectives.custom("c", **(given | change))  # pyright: ignore[reportArgumentType]
        assert why in str(caught.value)


# Runs.


def test_bindings_and_arrays_are_checked() -> None:
    case = Case(computing_programs.gemm_ring, 2)
    with pytest.raises(gc3.UserError, match="'matmul' has no function"):
        case.program.bind({})
    with pytest.raises(gc3.UserError, match="'expert' is no operation of it: the program applies matmul"):
        case.program.bind(FUNCTIONS)
    with pytest.raises(gc3.UserError, match="which is no function"):
        case.program.bind({"matmul": 3})  # pyright: ignore[reportArgumentType]
    bound = case.program.bind(case.functions)
    x, w = case.inputs["x"], case.inputs["w"]
    for tensors, shapes, why in (
        ({"x": x}, case.shapes, "'w' is missing; its inputs are x, w"),
        ({"x": x, "w": w, "y": w}, case.shapes, "'y' is no input"),
        ({"x": x[:1], "w": w}, case.shapes, "'x' has arrays for 1 ranks, not 2"),
        ({"x": [x[0], None], "w": w}, case.shapes, "rank 1 has no 'x'"),
        ({"x": [x[0], x[1].astype(np.float32)], "w": w}, case.shapes, "runs on one type, float64"),
        ({"x": [x[0], x[1][:3]], "w": w}, case.shapes, "its first dimension is cut into 2 chunks"),
        ({"x": [x[0], x[1][:4]], "w": w}, case.shapes, r"a chunk of 'x' of rank 1 has shape \(2, 4\), and one of 'x'"),
        ({"x": x, "w": w}, {}, "no input has chunks as long as those of 'y'"),
        ({"x": x, "w": w}, {"z": (1,)}, "there is no 'z'"),
        ({"x": x, "w": w}, {"y": (-1,)}, "expected a whole number"),
        ({"x": x, "w": w}, {"y": 3}, "expected the sizes of a chunk's axes"),
        ({"x": x, "w": w}, [("y", (3, 6))], "shapes is of type list"),
        ([x, w], case.shapes, "tensors is of type list"),
        ({"x": x, "w": 3}, case.shapes, "'w' has arrays for no list of ranks"),
        ({"x": x, 3: w}, case.shapes, "'3' is no input"),
        ({"x": x, "w": [w[0], [[1.0], [2.0, 3.0]]]}, case.shapes, "an input is not an array"),
        ({"x": x, "w": [w[0], np.ma.masked_array(w[1], w[1] > 0)]}, case.shapes, "a masked array"),
    ):
        with pytest.raises(gc3.UserError, match=f"GC3-R001.*{why}"):
            bound.run(cast("Any", tensors), shapes=cast("Any", shapes))
    for wrong in (lambda: bound.run_rank(cast("Any", 3), {}), lambda: cast("Any", bound).run(case.inputs, often=1)):
        with pytest.raises(gc3.UserError, match="GC3-L017"):
            wrong()
    with pytest.raises(gc3.UserError, match=r"GC3-C004.*avg"):
        bound.run(case.inputs, shapes=case.shapes, op="avg")
    with pytest.raises(gc3.UserError, match="GC3-M003"):
        bound.run(case.inputs, shapes=case.shapes, op="band")


@pytest.mark.parametrize("ranks_there", [2, 3])
def test_programs_that_compute_on_processes(ranks_there: int) -> None:
    for text in ranks.run(ranks.program("computing"), ranks_there):
        said = [line for line in text.splitlines() if line.startswith("GC3-")]
        assert [line.split()[0] for line in said] == ["GC3-C004", "GC3-C004", "GC3-R001", "GC3-R029"]
        assert "'w' is missing" in said[2]
        assert "matmul of rank 1 threadblock " in said[3]
        assert "(apply, computing_programs.py:" in said[3]
        assert "has raised ValueError: no such shape" in said[3]


hold = gc3.op("hold")


def held(R: int) -> collectives.Collective:
    """Each rank computes by itself, and has nothing to do after that."""
    return collectives.custom(
        "held", ranks=R, inputs={"x": 1}, outputs={"y": 1}, expect=lambda v, rank, _, __: hold(v(rank, "x", 0))
    )


@gc3.algorithm(held)
def by_itself(R: int) -> None:
    """One operation a rank."""
    for rank in range(R):
        hold(chunk(rank, "x", 0), out=(rank, "y", 0))


def test_an_abort_while_the_last_operation_computes_ends_that_call() -> None:
    def body(comm: gc3.Communicator) -> list[str]:
        def last(x: Array, out: Array) -> None:
            if comm.rank == 0:
                aborter = threading.Thread(target=comm.abort)
                aborter.start()
                aborter.join()
            out[...] = x

        bound = gc3.compile(by_itself, R=2).bind({"hold": last})
        found: list[str] = []
        for call in (
            lambda: bound.run_rank(comm, {"x": np.ones(3, np.float32)}, shapes={"x": (3,), "y": (3,)}),
            comm.barrier,
        ):
            try:
                call()
                found.append("no error")
            except gc3.CommError as problem:
                found.append(str(problem))
        return found

    (call, after), (other, other_after) = ranks.call(body, 2)
    assert all("rank 0 (" in text and "has aborted the communicator" in text for text in (call, after, other_after))
    assert other in (call, "no error")  # a rank that needs nothing from rank 0 may have ended its call before


# What rank 1 of 2 gives wrong to a program that computes; rank 0 is told at once, and does not wait.
MISTAKES: dict[str, dict[str, Any]] = {
    "an input less": {"tensors": {}},
    "a mapping of nothing": {"tensors": 3},
    "rows": {"tensors": {"x": np.ones((5, 4)), "w": np.ones((4, 6))}},
    "a shape": {"shapes": {"y": 6}},
    "a reduction": {"op": "avg"},
    "a time-out": {"timeout": -1.0},
    "a word as time-out": {"timeout": "soon"},
    "a keyword": {"often": 3},
}


def test_wrong_arguments_of_a_rank_that_computes_are_told_to_the_others() -> None:
    def body(comm: gc3.Communicator) -> dict[str, str]:
        case = Case(computing_programs.gemm_ring, 2)
        mine = {name: arrays[comm.rank] for name, arrays in case.inputs.items()}
        bound: Any = case.program.bind(case.functions)
        found: dict[str, str] = {}
        for name, wrong in MISTAKES.items():
            group = comm.group([0, 1], name=name)
            given = {"tensors": mine, "shapes": case.shapes, **(wrong if comm.rank == 1 else {})}
            try:
                bound.run_rank(group, **given)
            except gc3.Gc3Error as problem:
                found[name] = str(problem)
            comm.barrier()  # rank 1 does not wait in its wrong call, nor for the others to make the group
        return found

    first, second = ranks.call(body, 2)
    for name in MISTAKES:
        assert "a call with wrong arguments: " in first[name], first[name]
        assert not second[name].startswith("GC3-R010"), second[name]


def test_the_postcondition_as_text() -> None:
    said = CliRunner().invoke(main, ["show", f"{computing_programs.__file__}:gemm_ring:R=2", "--expect"]).output
    assert "rank 1 out[0] = matmul(x[1] of rank 0, w[0] of rank 0) + matmul(x[1] of rank 1, w[0] of rank 1)" in said
    assert gc3.compile(computing_programs.gemm_ring, R=2).collective.expected_value(0, 0) == [
        "matmul(x[0] of rank 0, w[0] of rank 0)",
        "matmul(x[0] of rank 1, w[0] of rank 1)",
    ]


def test_damaged_texts_are_refused_with_one_error() -> None:
    """Each line left out, each word replaced: an error, or a program that is the same after a round trip."""
    text = gc3.compile(computing_programs.column_norm, R=2).text
    lines = text.splitlines()
    damaged_texts = ["\n".join(lines[:k] + lines[k + 1 :]) for k in range(len(lines))]
    words = text.split(" ")
    for k in range(len(words)):
        damaged_texts += [" ".join([*words[:k], other, *words[k + 1 :]]) for other in ("", "7", "=0", "->", '"stats"')]
    accepted = 0
    for each in damaged_texts:
        try:
            program = _core.Program.from_text(each)
        except gc3.UserError:
            continue
        accepted += 1
        assert _core.Program.from_text(program.to_text()) == program
        assert _core.Program.from_bytes(program.to_bytes()) == program
        _core.verify(program, 0, 0, 0, 10, False)
    assert accepted > 20
