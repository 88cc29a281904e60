"""Calls of processes write only to the caller's outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ranks

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])}
ROOTED_INTO_OUT = """
with gc3.init() as comm:
    for c in (1, 1000, 70001):
        base = np.arange(c, dtype=np.int64)
        everyone = [base + 1000 * k for k in range(n)]
        total, joined = sum(everyone), np.concatenate(everyone)
        full = np.arange(n * c, dtype=np.int64)
        for root in {0, n - 1}:
            here = r == root
            for shift in (None, 0, 1, c // 2):  # by how much out begins after x; None: elsewhere
                memory = np.zeros(2 * c, np.int64)
                x = memory[:c]
                x[:] = everyone[r]
                out = None if not here else np.zeros(c, np.int64) if shift is None else memory[shift : shift + c]
                got = comm.reduce(x, root=root, out=out)
                assert got is out and (not here or np.array_equal(out, total)), ("reduce", c, root, shift)
                if shift is None or not here:
                    assert np.array_equal(x, everyone[r])
            for shift in (None, 0, r * c, (n - 1) * c, min(c // 2, (n - 1) * c)):  # where x lies in out
                memory = np.zeros(n * c, np.int64)
                x = np.zeros(c, np.int64) if shift is None else memory[shift : shift + c]
                x[:] = everyone[r]
                got = comm.gather(x, root=root, out=memory if here else None)
                assert not here or (got is memory and np.array_equal(got, joined)), ("gather", c, root, shift)
                if shift is None or not here:
                    assert np.array_equal(x, everyone[r])
            for shift in (None, 0, root * c, (n - 1) * c, min(c // 2, (n - 1) * c)):  # where out lies in the root's x
                x = full.copy() if here else None
                out = np.zeros(c, np.int64) if shift is None or not here else x[shift : shift + c]
                got = comm.scatter(x, root, out=out)
                assert got is out and np.array_equal(out, full[r * c : (r + 1) * c]), ("scatter", c, root, shift)
                if here:
                    end = shift + c if shift is not None else 0
                    rest = slice(0, shift or 0), slice(end, None)
                    assert all(np.array_equal(x[part], full[part]) for part in rest)
            x = everyone[root].copy() if here else np.zeros(c, np.int64)
            x.flags.writeable = not here  # the root's is only read
            assert np.array_equal(comm.broadcast(x, root), everyone[root])
"""


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_rooted_collectives_into_memory_of_the_callers(n: int) -> None:
    ranks.run(ROOTED_INTO_OUT, n)


def test_programs_write_to_outputs_alone(tmp_path: Path) -> None:
    """Random programs in place, on inputs in read-only memory maps; some ranks have no output."""
    ranks.run(
        f"""
from random_programs import random_program
with gc3.init() as comm:
    made = [random_program(seed, in_place=True) for seed in range(400)]
    for seed, random in [(s, m) for s, m in enumerate(made) if m.ranks == n][:40]:
        program = gc3.compile(random.write(), instances=1 + seed % 2)
        for count in (7, 5000):
            given = [np.arange(random.inputs * count) % 11 + k for k in range(n)]
            file = f"{tmp_path}/{{seed}}.{{count}}.{{r}}"
            given[r].tofile(file)
            x = np.memmap(file, given[r].dtype, "r")
            got = comm.run(program, x)
            assert (got is None) == (random.outputs[r] == 0)
            for rank, index, terms in random.results():
                if rank == r:
                    wanted = sum(given[k].reshape(random.inputs, -1)[i] * times for (k, i), times in terms.items())
                    assert np.array_equal(got.reshape(random.outputs[r], -1)[index], wanted), (seed, count)
            assert np.array_equal(x, given[r])
""",
        3,
        HERE,
    )


def test_a_rank_that_only_passes_data_on_says_the_count() -> None:
    ranks.run(
        """
data = gc3.collectives.custom("pass", inputs=[2, 0, 0], outputs=[0, 0, 2], expect=lambda _, i: (0, i))
@gc3.algorithm(lambda: data)
def relay():
    gc3.chunk(0, "in", 0, 2).copy(1, "sc", 0).copy(2, "out", 0)
with gc3.init() as comm:
    program = gc3.compile(relay)
    for dtype in (np.float32, np.int8):
        x = np.arange(10).astype(dtype) if r == 0 else None
        out = comm.run(program, x, out=np.zeros(10, dtype) if r == 2 else None, count=5, dtype=dtype)
        assert out is None if r < 2 else out.tolist() == list(range(10))
    if r == 0:
        comm.run(program, np.ones(4, np.float32))
    elif r == 1:
        try:
            comm.run(program, None)
        except gc3.UserError as problem:
            assert problem.code == "GC3-R001" and "pass count=" in str(problem), problem
        comm.run(program, None, count=2)
    else:
        assert comm.run(program, None, count=2).tolist() == [1] * 4
    for wrong, code in (
        (dict(count=-1), "GC3-R001"),
        (dict(count="2"), "GC3-R001"),
        (dict(count=2, dtype="object"), "GC3-M002"),
        (dict(count=2, dtype="int8", out=np.ones(4, np.float32)), "GC3-R001"),
    ):
        try:
            comm.run(program, None, **wrong)
        except gc3.UserError as problem:
            assert problem.code == code, problem
        else:
            raise AssertionError(wrong)
""",
        3,
    )
