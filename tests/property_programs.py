"""Programs whose proof needs properties of operations, an executor for their schedules, and the sequential results."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import gc3
from gc3 import _core, chunk, collectives
from gc3.datatypes import Array

scale = gc3.op("scale", properties={"linear": (0, 1), "rowwise": 0})
norm = gc3.op("norm", properties={"rowwise": 0})
gelu = gc3.op("gelu", properties="elementwise")
expert = gc3.op("expert")

OPERATIONS = {op.name: op for op in (scale, norm, gelu, expert)}


def do_scale(x: Array, w: Array, out: Array) -> None:
    """A product of matrices: linear in both, row-wise in the first."""
    np.matmul(x, w, out=out)


def do_norm(x: Array, gain: Array, out: Array) -> None:
    """Row-wise; neither linear nor element-wise."""
    np.multiply(x * x.sum(axis=1, keepdims=True), gain[:1], out=out)
    out += 1


def do_gelu(x: Array, out: Array) -> None:
    """Element-wise; not linear."""
    np.multiply(x * x, x + 1, out=out)


def do_expert(x: Array, w: Array, out: Array) -> None:
    """Nothing but a function: a row depends on all others."""
    np.matmul(x + x.sum(), w, out=out)
    out += 1


FUNCTIONS: dict[str, Callable[..., None]] = {"scale": do_scale, "norm": do_norm, "gelu": do_gelu, "expert": do_expert}
ROWS, COLUMNS = 2, 3


def applied(name: str, *operands: Array) -> Array:
    """What an operation makes of operands."""
    out = np.zeros_like(operands[0])
    FUNCTIONS[name](*operands, out=out)
    return out


Named = Mapping[tuple[str, int], Array]  # all chunks of a tensor of a rank


@dataclass(frozen=True)
class Fused:
    """A program, and its sequential form on data."""

    algorithm: gc3.Algorithm
    inputs: Mapping[str, tuple[int, int, int]]  # chunks, and their rows and columns
    expected: Callable[[int, Named], Named]  # outputs, from inputs


def total(terms: Iterable[Any]) -> Any:
    """A sum of values of a postcondition."""
    return sum(terms)


def _total(R: int, given: Named, name: str = "x") -> Array:
    return np.asarray(sum(given[name, q] for q in range(R)))


def _reduced_then_scaled(R: int) -> collectives.Collective:
    """Products of parts, added up."""
    return collectives.custom(
        "reduced_then_scaled",
        ranks=R,
        inputs={"x": R, "w": lambda rank: 1 if rank == 0 else 0},
        outputs={"y": 1},
        expect=lambda v, rank, _, __: total(scale(v(q, "x", rank), v(0, "w", 0)) for q in range(R)),
    )


@gc3.algorithm(_reduced_then_scaled, scratch=["sum", "factor"])
def scale_after_the_sum(R: int) -> None:
    """One product for each rank, after the reduction."""
    for rank in range(1, R):
        chunk(0, "w", 0).copy(rank, "factor", 0)
    for own in range(R):
        added = chunk((own + 1) % R, "x", own).copy(own, "sum", 0)
        for step in range(2, R + 1):
            added = added.reduce(chunk((own + step) % R, "x", own))
        scale(added, chunk(0, "w", 0) if own == 0 else chunk(own, "factor", 0), out=(own, "y", 0))


def _reduce_scale_gelu(R: int) -> collectives.Collective:
    return collectives.custom(
        "reduce_scale_gelu",
        ranks=R,
        inputs={"x": R, "w": 1},
        outputs={"y": lambda _: R},
        expect=lambda v, rank, _, i: gelu(scale(total(v(q, "x", i) for q in range(R)), v(i, "w", 0))),
    )


@gc3.algorithm(_reduce_scale_gelu, scratch=["part", "away"])
def scale_before_the_sum(R: int) -> None:
    """Each rank scales its part with the owner's factor; the owner adds up in two sums, and all get the result."""
    for own in range(R):
        added = scale(chunk(own, "x", own), chunk(own, "w", 0), out=(own, "part", own))
        for step in range(1, R):
            rank = (own + step) % R
            factor = chunk(own, "w", 0).copy(rank, "away", own)
            added = added.reduce(scale(chunk(rank, "x", own), factor, out=(rank, "part", own)))
        y = gelu(added, out=(own, "y", own))
        for step in range(1, R):
            y.copy((own + step) % R, "y", own)


def _norm_of_rows(R: int) -> collectives.Collective:
    @gc3.sequential
    def reference(call: Any) -> None:
        call("allreduce", "x", "total")
        call(norm, "total", "gain", out="normed", cut="rows")
        call(gelu, "normed", out="y", cut="columns")

    return collectives.custom(
        "norm_of_rows", ranks=R, inputs={"x": R, "gain": 1}, outputs={"y": lambda _: R}, expect=reference
    )


@gc3.algorithm(_norm_of_rows, scratch=["sum", "normed"])
def scatter_norm_gather(R: int) -> None:
    """ReduceScatter, norm and AllGather for AllReduce and norm of all rows."""
    for own in range(R):
        added = chunk((own + 1) % R, "x", own).copy(own, "sum", 0)
        for step in range(2, R + 1):
            added = added.reduce(chunk((own + step) % R, "x", own))
        # All ranks have one gain; the postcondition of rank r names its own, so each makes its own rows' norm of it.
        for rank in range(R):
            there = added if rank == own else added.copy(rank, "sum", own + 1)
            made = norm(there, chunk(rank, "gain", 0), out=(rank, "normed", own))
            gelu(made, out=(rank, "y", own))


def _expert_of_all(R: int) -> collectives.Collective:
    return collectives.custom(
        "expert_of_all",
        ranks=R,
        inputs={"x": R, "w": 1},
        outputs={"y": R},
        expect=lambda v, rank, _, to: scale(expert(v(rank, "x", to), v(to, "w", 0)) + v(rank, "x", to), v(to, "w", 0)),
    )


@gc3.algorithm(_expert_of_all, scratch=["came", "made", "also"])
def experts(R: int) -> None:
    """Dispatch, an opaque expert, and a product of its sum with the block, made of both terms one by one."""
    for source in range(R):
        for to in range(R):
            block = chunk(source, "x", to).copy(to, "came", source)
            weight = chunk(to, "w", 0)
            made = expert(block, weight, out=(to, "made", source))
            answer = scale(made, weight, out=(to, "also", 2 * source))
            answer = answer.reduce(scale(block, weight, out=(to, "also", 2 * source + 1)))
            answer.copy(source, "y", to)


def _norms(R: int, given: Named) -> Named:
    whole = _total(R, given)
    return {("y", r): applied("gelu", applied("norm", whole, given["gain", r])) for r in range(R)}


def _after(R: int, given: Named) -> Named:
    blocks = [np.split(given["x", q], R) for q in range(R)]
    products = [[applied("scale", blocks[q][r], given["w", 0]) for q in range(R)] for r in range(R)]
    return {("y", r): np.asarray(sum(products[r])) for r in range(R)}


def _before(R: int, given: Named) -> Named:
    blocks = [np.split(given["x", q], R) for q in range(R)]
    parts = [applied("gelu", np.asarray(sum(blocks[q][i] @ given["w", i] for q in range(R)))) for i in range(R)]
    return {("y", r): np.concatenate(parts) for r in range(R)}


def _answers(R: int, given: Named) -> Named:
    blocks = [np.split(given["x", q], R) for q in range(R)]

    def answer(block: Array, w: Array) -> Array:
        return applied("scale", applied("expert", block, w) + block, w)

    return {("y", r): np.concatenate([answer(blocks[r][to], given["w", to]) for to in range(R)]) for r in range(R)}


_X = (0, ROWS, COLUMNS)  # as many chunks as there are ranks
_W = (1, COLUMNS, COLUMNS)
FUSED = (
    Fused(scale_after_the_sum, {"x": _X, "w": _W}, _after),
    Fused(scale_before_the_sum, {"x": _X, "w": _W}, _before),
    Fused(scatter_norm_gather, {"x": _X, "gain": (1, ROWS, COLUMNS)}, _norms),
    Fused(experts, {"x": _X, "w": _W}, _answers),
)


def data(fused: Fused, R: int, seed: int) -> dict[tuple[str, int], Array]:
    """Small whole numbers for the inputs of all ranks."""
    numbers = np.random.default_rng(seed)
    return {
        (name, rank): numbers.integers(-3, 4, ((chunks or R) * rows, columns), np.int64)
        for name, (chunks, rows, columns) in fused.inputs.items()
        for rank in range(R)
    }


class BrokenError(Exception):
    """A schedule that ends with steps that wait, or reads what nothing has written."""


def execute(program: _core.Program, given: Named, seed: int) -> dict[tuple[str, int], list[Array | None]]:
    """Runs a schedule step by step in a random order, and returns the chunks of each output.

    It knows nothing of terms and properties, and shares no code with the verifier.
    """
    order = random.Random(seed)  # noqa: S311  no secret
    model = program.collective
    memory: list[dict[tuple[str, int], Array]] = []
    for rank in range(model.ranks):
        cells: list[Array] = []
        for name, is_output, chunks, _ in model.tensors:
            if not is_output and chunks[rank]:
                cells += np.split(given[name, rank], chunks[rank])
        memory.append({("input", k): cell for k, cell in enumerate(cells)})
    wires: defaultdict[tuple[int, int, int], deque[list[Array]]] = defaultdict(deque)
    blocks = [(rank, block) for rank in range(model.ranks) for block in program.threadblocks_of(rank)]
    first = [[k for k, (of, _) in enumerate(blocks) if of == rank][:1] for rank in range(model.ranks)]
    done = [0] * len(blocks)

    def able(k: int) -> bool:
        rank, block = blocks[k]
        if done[k] == len(block["steps"]):
            return False
        step = block["steps"][done[k]]
        waits: list[tuple[int, int]] = step["deps"]
        if any(done[first[rank][0] + tb] <= at for tb, at in waits):
            return False
        return not step["opcode"].startswith("recv") or bool(wires[block["recv_peer"], rank, block["channel"]])

    while True:
        choice = [k for k in range(len(blocks)) if able(k)]
        if not choice:
            break
        k = order.choice(choice)
        rank, block = blocks[k]
        _step(block["steps"][done[k]], rank, block, memory[rank], wires)
        done[k] += 1
    if any(done[k] != len(block["steps"]) for k, (_, block) in enumerate(blocks)):
        raise BrokenError("a step waits for ever")
    found: dict[tuple[str, int], list[Array | None]] = {}
    for rank in range(model.ranks):
        at = 0
        for name, is_output, chunks, _ in model.tensors:
            if is_output:
                found[name, rank] = [memory[rank].get(("output", at + k)) for k in range(chunks[rank])]
                at += chunks[rank]
    return found


def _step(
    step: Mapping[str, Any],
    rank: int,
    block: Mapping[str, Any],
    cells: dict[tuple[str, int], Array],
    wires: Mapping[tuple[int, int, int], deque[list[Array]]],
) -> None:
    def load(place: Any, k: int = 0) -> Array:
        held = cells.get((place["buffer"], place["chunk"] + k))
        if held is None:
            raise BrokenError("a step reads what nothing has written")
        return held

    opcode, count = step["opcode"], step["count"]
    if opcode == "apply":
        made = applied(step["operation"], *(load(place) for place in step["reads"]))
        cells[step["writes"][0]["buffer"], step["writes"][0]["chunk"]] = made
        return
    words = opcode.split("_")
    came = wires[block["recv_peer"], rank, block["channel"]].popleft() if "recv" in words else [None] * count
    moved: list[Array] = []
    for k in range(count):
        value = came[k]
        if step["src"] is not None:
            value = load(step["src"], k) if value is None else value + load(step["src"], k)
        assert value is not None
        if opcode == "reduce":
            value = value + load(step["dst"], k)
        if step["dst"] is not None:
            cells[step["dst"]["buffer"], step["dst"]["chunk"] + k] = value
        moved.append(value)
    if "send" in words:
        wires[rank, block["send_peer"], block["channel"]].append(moved)


def is_right(program: _core.Program, fused: Fused, R: int, seed: int) -> bool:
    """Whether a schedule makes what the sequential form makes, on random data in a random order."""
    given = data(fused, R, seed)
    try:
        made = execute(program, given, seed)
    except (BrokenError, ValueError):  # or shapes that do not fit
        return False
    for place, wanted in fused.expected(R, given).items():
        chunks = made[place]
        if any(each is None for each in chunks):
            return False
        joined = np.concatenate([each for each in chunks if each is not None])
        if joined.shape != wanted.shape or not np.array_equal(joined, wanted):
            return False
    return True
