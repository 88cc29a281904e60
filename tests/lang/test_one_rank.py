"""Programs written from the view of one rank: the same chunks as the loops over all ranks, and what is refused."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import gc3
from gc3 import _core, algorithms
from gc3.lang import Algorithm, algorithm, chunk, compile, dump, me, parallelize


def _reduce_scatter(at: Callable[[int], Any], place: Callable[[int], Any], R: int, count: int = 1, **how: Any) -> None:
    """A ring of R ranks, in which at(1) is the next; place(s) is where the data of the rank s further on ends."""
    for s in range(1, R):
        mine = chunk(at(0), "in", place(-s), count)
        chunk(at(1), "in", place(-s), count).reduce(mine, **how)


def _all_gather(
    at: Callable[[int], Any],
    place: Callable[[int], Any],
    R: int,
    count: int = 1,
    *,
    buffer: str = "in",
    **how: Any,
) -> None:
    for s in range(R - 1):
        chunk(at(0), buffer, place(-s), count).copy(at(1), **how)


@algorithm("allreduce", chunks=lambda R: R, in_place=True)
def ring_allreduce(R: int) -> None:
    (rank,) = me(R)
    tb: dict[str, Any] = {"ch": 0, "sendtb": 0, "recvtb": 0}
    _reduce_scatter(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **tb)
    _all_gather(lambda d: (rank + d,), lambda d: rank + 1 + d, R, **tb)


@algorithm("allgather", in_place=True)
def ring_allgather(R: int) -> None:
    (rank,) = me(R)
    _all_gather(lambda d: (rank + d,), lambda d: rank + d, R, buffer="out", ch=0)


@algorithm("reducescatter", in_place=True)
def ring_reducescatter(R: int) -> None:
    (rank,) = me(R)
    _reduce_scatter(lambda d: (rank + d,), lambda d: rank + d, R, ch=0)


@algorithm("allreduce", chunks=lambda N, G: N * G, in_place=True)
def hierarchical_allreduce(N: int, G: int, parallel: int = 0) -> None:
    node, gpu = me(N, G)
    channels: list[dict[str, Any]] = [{"ch": k} if parallel else {} for k in range(3)]
    first, across, last = channels
    with parallelize(max(parallel, 1)):
        _reduce_scatter(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **first)
    _reduce_scatter(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    _all_gather(lambda d: (node + d, gpu), lambda d: gpu * N + (node + d), N, **across)
    with parallelize(max(parallel, 1)):
        _all_gather(lambda d: (node, gpu + d), lambda d: (gpu + d) * N, G, N, **last)


@algorithm("reducescatter", in_place=True)
def hierarchical_reducescatter(N: int, G: int) -> None:
    node, gpu = me(N, G)
    for a in range(N):
        _reduce_scatter(lambda d: (node, gpu + d), lambda d, a=a: (node + a) * G + (gpu + d), G)
    _reduce_scatter(lambda d: (node + d, gpu), lambda d: (node + d) * G + gpu, N)


@algorithm("alltoall")
def two_step_alltoall(N: int, G: int) -> None:
    node, gpu = me(N, G)
    for a in range(N):
        for b in range(G):
            c = chunk((node, gpu), "in", (node + a, gpu + b))
            if a == 0:
                c.copy((node, gpu + b), "out", (node, gpu))
            else:
                c.copy((node, gpu + b), "sc", (node + a, gpu))
        if a:
            chunk((node, gpu), "sc", (node + a) * G, sz=G).copy((node + a, gpu), "out", node * G)


@algorithm("allreduce", chunks=lambda R, chunks: R * chunks, in_place=True)
def allpairs_allreduce(R: int, chunks: int = 1) -> None:
    (rank,) = me(R)
    for d in range(1, R):
        chunk(rank + d, "in", rank * chunks, chunks).copy(rank, "sc", (rank + d) * chunks)
    for index in range(chunks):
        c = chunk(rank, "in", rank * chunks + index)
        for d in range(1, R):
            c = c.reduce(chunk(rank, "sc", (rank + d) * chunks + index))
    for d in range(1, R):
        chunk(rank, "in", rank * chunks, chunks).copy(rank + d)


@algorithm("allreduce", chunks=lambda R: R, in_place=True)
def recursive_halving_doubling_allreduce(R: int) -> None:
    bits = me(*[2] * (R.bit_length() - 1))  # the highest first
    weights = [R >> (k + 1) for k in range(len(bits))]

    def beside(k: int) -> Any:
        return (*bits[:k], bits[k] + 1, *bits[k + 1 :])

    def kept(k: int) -> Any:
        out = bits[0] * weights[0]
        for bit, weight in zip(bits[1 : k + 1], weights[1 : k + 1], strict=True):
            out = out + bit * weight
        return out

    for k in range(len(bits)):
        theirs = chunk(beside(k), "in", kept(k), weights[k])
        chunk(bits, "in", kept(k), weights[k]).reduce(theirs)
    for k in reversed(range(len(bits))):
        chunk(bits, "in", kept(k), weights[k]).copy(beside(k))


FORMS: list[tuple[Algorithm, dict[str, Any]]] = [
    (ring_allreduce, {"R": 5}),
    (ring_allreduce, {"R": 2}),
    (ring_allgather, {"R": 4}),
    (ring_reducescatter, {"R": 6}),
    (hierarchical_allreduce, {"N": 4, "G": 2}),
    (hierarchical_allreduce, {"N": 3, "G": 3}),
    (hierarchical_allreduce, {"N": 1, "G": 4}),
    (hierarchical_allreduce, {"N": 4, "G": 1}),
    (hierarchical_allreduce, {"N": 3, "G": 2, "parallel": 3}),
    (hierarchical_reducescatter, {"N": 3, "G": 2}),
    (two_step_alltoall, {"N": 3, "G": 2}),
    (two_step_alltoall, {"N": 2, "G": 4}),
    (allpairs_allreduce, {"R": 4}),
    (allpairs_allreduce, {"R": 3, "chunks": 2}),
    (recursive_halving_doubling_allreduce, {"R": 8}),
]


def _operations(source: Algorithm, parameters: dict[str, Any], **how: Any) -> Counter[str]:
    lines = dump(source, "trace", **parameters, **how).splitlines()[1:]
    return Counter(re.sub(r"^\d+: |  # line.*", "", line) for line in lines)


def _name(value: Any) -> str:
    return value.name if isinstance(value, Algorithm) else ",".join(f"{k}={v}" for k, v in value.items())


@pytest.mark.parametrize(("form", "parameters"), FORMS, ids=_name)
def test_the_form_of_one_rank_moves_the_chunks_of_the_loop(form: Algorithm, parameters: dict[str, Any]) -> None:
    loop = algorithms.load(form.name)
    assert _operations(form, parameters) == _operations(loop, parameters)
    for in_place in (False, True):
        if form.collective != "alltoall":
            assert _operations(form, parameters, in_place=in_place) == _operations(loop, parameters, in_place=in_place)
        assert compile(form, in_place=in_place, **parameters).verify().ok


def _all_of_machine(N: int, G: int) -> int:
    return N * G


def _written(text: str, collective: str = "allreduce", **parameters: Any) -> _core.Trace:
    names: dict[str, Any] = {"chunk": chunk, "me": me}
    body = "def f(N, G):\n    node, gpu = me(N, G)\n    " + text.replace("\n", "\n    ")
    exec(builtins.compile(body, "program.py", "exec"), names)  # noqa: S102  an algorithm whose lines are known
    chunks: dict[str, Any] = {}
    if collective == "allreduce":
        chunks["chunks"] = _all_of_machine
    made = algorithm(collective, in_place=collective != "alltoall", **chunks)(names["f"])
    return made.write(**(parameters or {"N": 3, "G": 2})).trace()


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("if node == 0: pass", "own number", 3),
        ("for i in range(gpu): pass", "own number", 3),
        ("x = [1, 2][gpu]", "own number", 3),
        ("x = node // 2", "own number", 3),
        ("x = node % 2", "own number", 3),
        ("x = int(node)", "own number", 3),
        ("x = {node: 1}", "own number", 3),
        ("x = node * 0", "1 or more", 3),
        ("chunk(0, 'in', 0)", "not one from me()", 3),
        ("chunk((gpu, node), 'in', 0)", "not one from me()", 3),
        ("chunk((0, gpu), 'in', 0)", "not one from me()", 3),
        ("chunk((node, gpu, gpu), 'in', 0)", "one part for each coordinate", 3),
        ("chunk((node, gpu), 'in', gpu * 3 + 3)", "reaches what moves", 3),
        ("chunk((node, gpu), 'in', gpu, 2)", "side by side", 3),
        ("chunk((node, gpu), 'in', gpu * 3 + node)\nchunk((node, gpu), 'in', 0)", "the same on all ranks", 4),
        ("chunk((node, gpu), 'in', node)\nchunk((node, gpu), 'in', gpu)", "another one", 4),
        ("chunk((node, gpu), 'in', node * 2)\nchunk((node, gpu), 'in', gpu * 3)", "overlap", 3),
        ("c = chunk((node, gpu), 'in', gpu)\nc.copy((node, gpu + 1), 'in', gpu + 1)", "all do this at once", 4),
        ("c = chunk((node, gpu), 'in', 0)\nme(N * G)", "after the first chunk", 4),
        ("me(N, G + 1)", "another machine", 3),
        ("c = chunk((node, gpu), 'in', 0)\nc.multicast([1])", "a multicast", 4),
    ],
)
def test_mistakes_are_one_message_with_the_line(text: str, said: str, line: int) -> None:
    with pytest.raises(gc3.UserError, match=re.escape(said)) as caught:
        _written(text)
    assert str(caught.value).startswith(f"program.py:{line}: ")


@pytest.mark.parametrize("collective", ["broadcast", "alltonext"])
def test_a_collective_whose_ranks_differ_is_refused(collective: str) -> None:
    with pytest.raises(gc3.UserError, match="the ranks of " + collective + " differ"):
        _written("pass", collective)


def test_a_machine_of_other_ranks_is_refused() -> None:
    @algorithm("allgather")
    def other(R: int) -> None:
        me(R + 1)

    with pytest.raises(gc3.UserError, match="a machine of 5 ranks, and the collective has 4"):
        other.write(R=4)


def test_a_wrong_result_is_refused_when_it_is_compiled() -> None:
    @algorithm("allgather")
    def lacks(R: int) -> None:
        (rank,) = me(R)
        chunk(rank, "in", 0).copy(rank, "out", rank)

    with pytest.raises(gc3.UserError, match="instead of"):
        compile(lacks, R=3)


def test_split_and_group_keep_what_an_index_depends_on() -> None:
    @algorithm("allgather", chunks=2)
    def parts(R: int) -> None:
        (rank,) = me(R)
        for d in range(R):
            a, b = chunk(rank, "in", 0, 2).split(2)
            a.group(b).copy(rank + d, "out", rank * 2)

    assert compile(parts, R=3).verify().ok


@pytest.mark.parametrize(("form", "parameters"), FORMS, ids=_name)
def test_one_rank_is_compiled_and_proven_for_all(form: Algorithm, parameters: dict[str, Any]) -> None:
    for in_place in (False, True):
        classes = _core.compile_classes(form.write(in_place=in_place, **parameters).trace())
        if classes is None:  # parts of chunks, or threadblocks by number
            assert "parallel" in parameters or form.name == "ring_allreduce"
            continue
        found = _core.verify_classes(classes)
        assert found.ok, found.diagnostics
        whole = _core.verify(classes.expand())
        assert whole.ok, whole.diagnostics
        assert (found.slots, found.transfers) == (whole.slots, whole.transfers)


def test_a_program_of_65536_ranks_is_one_class() -> None:
    made = compile(hierarchical_allreduce, N=8192, G=8)
    assert made.ranks == 65536
    assert made.info()["classes"] == 1
    assert made.verify().transfers == 65536 * (2 * 7 + 2 * 8191)
    with pytest.raises(gc3.UserError, match="65536 ranks in one class"):
        _ = made.core


def test_a_class_program_runs_as_that_of_all_ranks() -> None:
    made = compile(two_step_alltoall, N=2, G=2)
    out = made.run([[10 * r + i for i in range(4)] for r in range(4)])
    assert [list(o) for o in out if o is not None] == [[10 * i + r for i in range(4)] for r in range(4)]
