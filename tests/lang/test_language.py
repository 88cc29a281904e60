"""The language: the papers' listings run as printed, and every misuse is one message at the user's line."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gc3
from gc3 import SourceProgram, algorithm, chunk, collectives, next_step, parallelize
from gc3.algorithms import catalogue, load


def line_of(marker: str) -> int:
    """The line of this file that ends with the comment `marker`."""
    for number, text in enumerate(Path(__file__).read_text().splitlines(), 1):
        if text.endswith(f"# {marker}"):
            return number
    raise AssertionError(marker)


# The listings of the papers, as printed except for the decorator.


@algorithm("alltoall")
def listing_000_figure_1a(N: int, G: int) -> None:
    for n in range(N):
        for g in range(G):
            for m in range(N):
                for i in range(G):
                    c = chunk("input", rank=(m, i), index=(n, g))
                    if n == m:
                        chunk("output", rank=(n, g), index=(m, i)).assign(c)
                    else:
                        chunk("scratch", rank=(m, g), index=(n, i)).assign(c)
                if m != n:
                    c = chunk("scratch", rank=(m, g), index=n * G, sz=G)
                    chunk("output", rank=(n, g), index=m * G).assign(c)


@algorithm("allreduce", chunks=lambda R: R, in_place=True)
def listing_000_figure_8a(R: int) -> None:
    for i in range(R):
        c = chunk("input", rank=i, index=i)
        for r in range(1, R):
            r = chunk("input", rank=(i + r) % R, index=i)  # noqa: PLW2901 - as printed
            c = r.reduce(c, sendtb=i, recvtb=i, ch=i)
        for r in range(R - 1, 2 * R - 1):
            r = chunk("input", rank=(i + r) % R, index=i)  # noqa: PLW2901 - as printed
            c = r.assign(c, sendtb=i, recvtb=i, ch=i)


@algorithm("alltonext", chunks=lambda G: G)
def listing_000_figure_10a(N: int, G: int) -> None:
    for n in range(N):
        for g in range(G):
            if g != G - 1:
                c = chunk("input", rank=(n, g), index=0, sz=G)
                chunk("output", rank=(n, g + 1), index=0).assign(c)
                continue
            if n == N - 1:
                continue
            for i in range(G):
                c = chunk("input", rank=(n, g), index=i)
                if i == 0:
                    c = chunk("scratch", rank=(n, 0), index=0).assign(c)
                    c = chunk("output", rank=(n + 1, 0), index=0).assign(c)
                elif i == G - 1:
                    c = chunk("scratch", rank=(n + 1, i), index=i).assign(c)
                    c = chunk("output", rank=(n + 1, 0), index=i).assign(c)
                else:
                    c = chunk("scratch", rank=(n, i), index=0).assign(c)
                    c = chunk("scratch", rank=(n + 1, i), index=i).assign(c)
                    c = chunk("output", rank=(n + 1, 0), index=i).assign(c)


@pytest.mark.parametrize(
    ("listing", "parameters"),
    [
        (listing_000_figure_1a, {"N": 3, "G": 2}),
        (listing_000_figure_8a, {"R": 4}),
        (listing_000_figure_10a, {"N": 3, "G": 3}),
        (listing_000_figure_10a, {"N": 2, "G": 1}),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_listings_of_the_papers(listing: gc3.Algorithm, parameters: dict[str, int], in_place: bool) -> None:
    assert gc3.compile(listing, in_place=in_place, **parameters).verify().ok


def test_both_spellings_trace_the_same_program() -> None:
    library = load("two_step_alltoall")
    stages = [gc3.dump(a, "chunk-dag", N=2, G=2, name="x") for a in (library, listing_000_figure_1a)]
    assert stages[0] == stages[1]


# Misuse. Each function makes one mistake, at the line with its marker.


def stale(n: int = 0) -> None:
    old = chunk(0, "in", 0)
    chunk(1, "in", 0).copy(0, "out", 0)
    old.copy(1, "out", 0)
    second = chunk(0, "out", 0)
    chunk(0, "in", 0).copy(0, "out", 0)  # overwritten
    second.copy(1, "out", 0)  # stale


def uninitialised() -> None:
    chunk(0, "sc", 0)  # uninitialised


def uninitialised_source() -> None:
    chunk("output", rank=0, index=0).copy(1, "out", 0)  # uninitialised source


def wrong_count() -> None:
    chunk(0, "in", 0, 0)  # wrong count


def count_of_copy() -> None:
    chunk(0, "in", 0).copy(1, "out", 0, 2)  # count of copy


def unequal() -> None:
    chunk(0, "in", 0, 2).copy(0, "out", 0).reduce(chunk(1, "in", 0))  # unequal


def out_of_range() -> None:
    chunk(0, "in", 1, 2)  # out of range


def negative() -> None:
    chunk(0, "in", -1)  # negative


def unknown_buffer() -> None:
    chunk(0, "inn", 0)  # unknown buffer


def rank_range() -> None:
    chunk(0, "in", 0).copy(2, "out", 0)  # rank range


def pair_range() -> None:
    chunk((0, 7), "in", 0)  # pair range


def read_only() -> None:
    chunk(0, "in", 0).copy(1, "in", 0)  # read only


def overlapping() -> None:
    c = chunk(0, "in", 0, 2).copy(0, "sc", 0)
    c.copy(0, "sc", 1)  # overlapping


def bad_channel() -> None:
    chunk(0, "in", 0).copy(1, "out", 0, ch=-2)  # bad channel


def bad_factor() -> None:
    with parallelize(0):  # bad factor
        pass


def two_peers() -> None:
    chunk(0, "in", 0).copy(1, "out", 0, sendtb=0, recvtb=0)  # first peer
    chunk(0, "in", 1).copy(2, "out", 1, sendtb=0, recvtb=0)  # two peers


def bad_arguments() -> None:
    chunk(0, 1.5)  # bad arguments  # type: ignore[call-overload]


def bad_index() -> None:
    chunk(0, "in", "x")  # bad index  # type: ignore[call-overload]


MISUSES: list[tuple[Callable[..., None], str, str, str]] = [
    (stale, "GC3-L001", "stale", "rank 0 output[0] was overwritten"),
    (uninitialised, "GC3-L002", "uninitialised", "rank 0 scratch[0] was never written"),
    (uninitialised_source, "GC3-L002", "uninitialised source", "rank 0 output[0] was never written"),
    (wrong_count, "GC3-L003", "wrong count", "count 0"),
    (count_of_copy, "GC3-L003", "count of copy", "count 2 given to copy a reference to 1"),
    (unequal, "GC3-L004", "unequal", "2 chunks reduced with 1 chunk"),
    (out_of_range, "GC3-L005", "out of range", "indices 1 to 2 of input on rank 0, which has 2 chunks"),
    (negative, "GC3-L005", "negative", "index -1 of input"),
    (unknown_buffer, "GC3-L006", "unknown buffer", "'inn'"),
    (rank_range, "GC3-L007", "rank range", "rank 2 of 2"),
    (pair_range, "GC3-L007", "pair range", "(0, 7) with 1 gpus per node"),
    (read_only, "GC3-L010", "read only", "rank 1 input[0]"),
    (overlapping, "GC3-L011", "overlapping", "scratch[0..1]"),
    (bad_channel, "GC3-L012", "bad channel", "ch=-2"),
    (bad_factor, "GC3-L013", "bad factor", "factor 0"),
    (bad_index, "GC3-L017", "bad index  # type: ignore[call-overload]", "index must be a whole number, not 'x'"),
    (bad_arguments, "GC3-L017", "bad arguments  # type: ignore[call-overload]", "chunk(): missing a required"),
]


@pytest.mark.parametrize(("body", "code", "marker", "text"), MISUSES, ids=[m[0].__name__ for m in MISUSES])
def test_misuse_is_one_message_at_the_users_line(body: Callable[..., None], code: str, marker: str, text: str) -> None:
    wrong = algorithm("alltonext", ranks=2, chunks=2, gpus_per_node=1)(body)
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(wrong)
    error = caught.value
    assert error.code == code
    assert text in error.message
    assert (Path(error.file).name, error.line) == (Path(__file__).name, line_of(marker))
    assert error.hint


def test_misuse_in_a_with_block_is_the_same_message() -> None:
    for body, code, marker, text in MISUSES:
        program = SourceProgram("wrong", "alltonext", ranks=2, chunks=2, gpus_per_node=1)
        with pytest.raises(gc3.UserError) as caught, program:
            body()
        assert caught.value.code == code
        assert text in caught.value.message
        assert (Path(caught.value.file).name, caught.value.line) == (Path(__file__).name, line_of(marker))
    with pytest.raises(TypeError, match="mine"), SourceProgram("right", "alltonext", ranks=2):
        raise TypeError("mine")


def test_a_stale_reference_says_where_it_was_overwritten() -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(algorithm("alltonext", ranks=2)(stale))
    notes = {n.text: n.where.line for n in caught.value.diagnostics[0].notes}
    assert notes["overwritten here"] == line_of("overwritten")


def test_a_threadblock_with_two_peers_is_reported() -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(
            algorithm(
                lambda: gc3.collectives.custom("x", inputs=[2, 0, 0], outputs=[0, 2, 2], expect={(1, 0): (0, 0)}),
                ranks=None,
            )(two_peers)
        )
    assert caught.value.code == "GC3-L016"
    assert "threadblock 0 of rank 0 would have two send peers, ranks 1 and 2" in caught.value.message
    assert caught.value.line == line_of("two peers")


def test_bad_protocol() -> None:
    with pytest.raises(gc3.UserError, match="'LL64'") as caught:
        gc3.compile(load("alltonext"), N=1, G=2, protocol="LL64")
    assert caught.value.code == "GC3-L008"


def test_an_unmet_postcondition_lists_actual_and_expected_chunks() -> None:
    @algorithm("allreduce")
    def half(R: int) -> None:
        total = chunk(0, "in", 0).copy(0, "out", 0)
        for rank in range(1, R):
            total = total.reduce(chunk(rank, "in", 0))
        total = total.reduce(chunk(1, "in", 0))
        total.copy(1, "out", 0)

    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(half, R=3)
    messages = [d.message for d in caught.value.diagnostics]
    assert caught.value.code == "GC3-L015"
    assert len(messages) == 3
    everything = "input[0] of rank 0 + input[0] of rank 1 + input[0] of rank 2"
    held = "input[0] of rank 0 + 2 x input[0] of rank 1 + input[0] of rank 2"
    assert messages[0] == f"output[0] of rank 0 must hold {everything}, but holds {held}"
    assert messages[2] == f"output[0] of rank 2 must hold {everything}, but holds nothing"
    notes = [[note.text for note in d.notes] for d in caught.value.diagnostics]
    assert notes[0] == ["too much: input[0] of rank 1", "last written here"]
    assert notes[2] == []


def test_in_place_names_are_one_place() -> None:
    """Writing the output of an in-place program overwrites its input, so a reference to the input becomes stale."""

    @algorithm("allreduce", in_place=True)
    def aliased(R: int) -> None:
        mine = chunk(0, "in", 0)
        chunk(1, "in", 0).copy(0, "out", 0)
        mine.copy(1, "sc", 0)

    with pytest.raises(gc3.UserError, match="stale reference"):
        gc3.compile(aliased, R=2)


def test_copying_a_place_to_itself_does_nothing() -> None:
    @algorithm("allgather", in_place=True)
    def gather(R: int) -> None:
        for rank in range(R):
            own = chunk(rank, "in", 0).copy(rank, "out", rank)
            for other in range(R):
                own.copy(other, "out", rank)

    assert gc3.compile(gather, R=3).core.instruction_count == 12


def test_programs_nest_and_come_back_after_exceptions() -> None:
    outer = SourceProgram("outer", "alltonext", ranks=2)
    inner = SourceProgram("inner", "alltonext", ranks=2)
    with outer:
        mine = chunk(0, "in", 0)
        with contextlib.suppress(RuntimeError), inner:
            chunk(0, "in", 0).copy(1, "out", 0)
            with pytest.raises(gc3.UserError, match="GC3-L018 reference of another program"):
                mine.copy(1, "out", 0)
            raise RuntimeError
        mine.copy(1, "out", 0)
    assert outer.trace().operations == inner.trace().operations == 1
    with pytest.raises(gc3.UserError, match="GC3-L014 no program is being traced"):
        chunk(0, "in", 0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs a value for 'R'"),
        ({"R": 2, "Q": 1}, "has no parameter 'Q'; it takes R, channels=1"),
        ({"R": 0}, "ranks=0"),
    ],
)
def test_parameters_are_checked(given: dict[str, int], text: str) -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(load("ring_allreduce"), **given)
    assert text in caught.value.message


def test_an_algorithm_of_the_library_is_loaded_alone() -> None:
    """The first call of a collective would otherwise take as long as reading the whole library."""
    code = (
        "import sys; from gc3.algorithms import load; load('ring_allreduce'); "
        "print(*(n for n in sys.modules if n.startswith('gc3.algorithms.') and not n.startswith('gc3.algorithms._')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["gc3.algorithms.ring_allreduce"]


def test_every_file_of_the_library_has_the_name_of_its_algorithm() -> None:
    folder = Path(gc3.algorithms.__file__).parent
    assert sorted(catalogue()) == sorted(f.stem for f in folder.glob("*.py") if not f.name.startswith("_"))


def test_a_file_of_plain_functions_says_how_one_becomes_an_algorithm(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("from math import sqrt\nimport gc3\n\ndef ring(R):\n    pass\n")
    for spec in (str(mine), f"{mine}:ring"):
        with pytest.raises(gc3.UserError, match=r"'ring' is a function without @gc3\.algorithm") as caught:
            load(spec)
        assert (caught.value.file, caught.value.line) == (str(mine), 4)
    mine.write_text("x = 1\n")
    with pytest.raises(gc3.UserError, match=r"has no algorithm; a function with @gc3\.algorithm\(collective\) is one"):
        load(str(mine))


def test_algorithms_are_found_by_name_and_in_files(tmp_path: Path) -> None:
    with pytest.raises(gc3.UserError, match=r"there is no algorithm 'nope'; gc3 list shows"):
        load("nope")
    with pytest.raises(gc3.UserError, match="No such file"):
        load(f"{tmp_path}/none.py:f")
    file = tmp_path / "mine.py"
    body = inspect.getsource(listing_000_figure_8a.function)
    file.write_text("from gc3 import algorithm, chunk\n\n\n" + body)
    assert load(f"{file}:listing_000_figure_8a").parameters[0].name == "R"
    assert load(str(file)).name == "listing_000_figure_8a"
    with pytest.raises(gc3.UserError, match="has no algorithm 'other'; it has listing_000_figure_8a"):
        load(f"{file}:other")
    file.write_text("from gc3 import chunk\n\n\ndef ring(R):\n    chunk(0, 'in', 0)\n")
    with pytest.raises(
        gc3.UserError, match=r"'ring' is a function without @gc3.algorithm\(collective, ranks"
    ) as raised:
        load(f"{file}:ring")
    assert raised.value.line == 4


@pytest.mark.parametrize("name", ["hierarchical_allreduce", "two_step_alltoall", "alltonext"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 4), (3, 1), (2, 3), (4, 2)])
def test_library_for_any_nodes_and_gpus(name: str, nodes: int, gpus: int) -> None:
    assert gc3.compile(load(name), N=nodes, G=gpus).verify().ok


@pytest.mark.parametrize("name", ["ring_allreduce", "allpairs_allreduce"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 16])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("instances", [1, 2, 3])
def test_library_for_any_ranks(name: str, ranks: int, in_place: bool, instances: int) -> None:
    assert gc3.compile(load(name), R=ranks, in_place=in_place, instances=instances).verify().ok


@pytest.mark.parametrize("steps", [False, True])
def test_steps_order_what_a_threadblock_does(steps: bool) -> None:
    """Without steps, the chunk with the longer way goes first."""
    expect = {(1, 0): [(0, 0)], (2, 0): [(0, 1)]}
    data = collectives.custom("two ways", inputs=[2, 0, 0], outputs=[0, 1, 1], expect=expect)
    program = SourceProgram("x", data, ranks=3)
    with program:
        chunk(0, "in", 0).copy(1, "out", 0)
        if steps:
            next_step()
        chunk(0, "in", 1).copy(1, "scratch", 0).copy(2, "out", 0)
    sent = [line.split()[-1] for line in gc3.compile(program).core.to_text().splitlines() if " send in" in line]
    assert sent == (["in[0]", "in[1]"] if steps else ["in[1]", "in[0]"])
