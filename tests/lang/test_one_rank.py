"""Programs written from the view of one rank: the same chunks as the loops over all ranks, and what is refused."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import builtins
import pickle
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3 import _core, algorithms
from gc3.algorithms import _one_rank
from gc3.cli.main import main
from gc3.comm import programs
from gc3.lang import Algorithm, algorithm, chunk, compile, dump, me
from gc3.runtime.classes import ClassProgram
from gc3.runtime.program import Program
from one_rank_programs import FORMS, hierarchical_allreduce, two_step_alltoall


def _operations(source: Algorithm, parameters: dict[str, Any], **how: Any) -> Counter[str]:
    lines = dump(source, "trace", **parameters, **how).splitlines()[1:]
    return Counter(re.sub(r"^\d+: |  # line.*", "", line) for line in lines)


def _name(value: Any) -> str:
    return value.name if isinstance(value, Algorithm) else ",".join(f"{k}={v}" for k, v in value.items())


def test_each_algorithm_that_has_the_form_is_compared() -> None:
    written = {name for name in algorithms.catalogue() if hasattr(import_module(f"gc3.algorithms.{name}"), "one_rank")}
    assert {form.name for form, _ in FORMS} == written


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
        ("x = -node", "- asks for a rank's own number", 3),
        ("x = 1 - node", "own number", 3),
        ("x = gpu & 1", "own number", 3),
        ("x = 1 if gpu else 2", "own number", 3),
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
        ("me(1 << 20, 1 << 20)", "a machine of more than 2^22 ranks", 3),
        ("me(N, 0)", "a coordinate of 0 values", 3),
        ("me()", "without the shape", 3),
        ("me(N, G, *[1] * 31)", "more than 32 coordinates", 3),
        ("c = chunk((node, gpu), 'in', 0)\nc.multicast([1])", "a multicast", 4),
    ],
)
def test_mistakes_are_one_message_with_the_line(text: str, said: str, line: int) -> None:
    with pytest.raises(gc3.UserError, match=re.escape(said)) as caught:
        _written(text)
    assert str(caught.value).startswith(f"program.py:{line}: ")


@pytest.mark.parametrize("text", ["x = node - gpu", "x = node * gpu", "x = node + 0.5"])
def test_what_coordinates_cannot_do_is_said_as_of_other_types(text: str) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        _written(text)


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


def test_scratch_has_whole_axes_though_a_rank_uses_a_part() -> None:
    @algorithm("alltoall", scratch=("held",))
    def passed_on(R: int) -> None:
        (rank,) = me(R)
        for d in range(R):
            part = chunk(rank, "in", rank + d)
            if d != R - 2:
                part.copy(rank + d, "out", rank)
                continue
            part.copy(rank + d - 1, "held", rank + d - 1 + d)
            chunk(rank, "held", rank + d).copy(rank + 1, "out", rank - d + 1)

    assert compile(passed_on, R=5).verify().ok


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
        if classes is None:  # parts of chunks
            assert "parallel" in parameters
            continue
        found = _core.verify_classes(classes)
        assert found.ok, found.diagnostics
        whole = _core.verify(classes.expand())
        assert whole.ok, whole.diagnostics
        assert (found.slots, found.transfers) == (whole.slots, whole.transfers)


@pytest.mark.parametrize("name", sorted({form.name for form, _ in FORMS}))
def test_the_library_is_written_so_where_loops_take_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = next(given for form, given in FORMS if form.name == name)
    loop = algorithms.load(name)
    assert not loop.write(**parameters).trace().symmetric
    monkeypatch.setattr(_one_rank, "LOOPED", 3)
    assert loop.write(**parameters).trace().symmetric
    if name == "ring_allreduce":  # a chunk's channel depends on its number
        assert not loop.write(R=4, channels=2).trace().symmetric
    if name == "ring_allgather":  # and its ring
        assert not loop.write(R=4, G=2, rails=2).trace().symmetric


def test_a_program_of_65536_ranks_is_one_class() -> None:
    made = compile(algorithms.load("hierarchical_allreduce"), N=8192, G=8)
    assert made.ranks == 65536
    assert made.info()["classes"] == 1
    assert made.verify().transfers == 65536 * (2 * 7 + 2 * 8191)
    with pytest.raises(gc3.UserError, match="65536 ranks in one class"):
        _ = made.core


@pytest.mark.python_only
@pytest.mark.parametrize("nodes", [1024, pytest.param(8192, marks=pytest.mark.nightly)])
def test_an_all_to_all_of_many_ranks_is_proven(nodes: int) -> None:
    made = compile(algorithms.load("two_step_alltoall"), N=nodes, G=8)
    assert made.verify().transfers == 8 * nodes * (nodes * 7 + nodes - 1)


def test_a_class_program_runs_as_that_of_all_ranks() -> None:
    made = compile(two_step_alltoall, N=2, G=2)
    out = made.run([[10 * r + i for i in range(4)] for r in range(4)])
    assert [list(o) for o in out if o is not None] == [[10 * i + r for i in range(4)] for r in range(4)]


def _same(a: Program, b: Program) -> None:
    assert a == b
    assert hash(a) == hash(b)
    assert a.text == b.text
    assert a.verify() == b.verify()


@pytest.mark.parametrize("ending", ["gc3", "txt"])
def test_a_file_has_one_rank_and_is_proven_and_shown(tmp_path: Path, ending: str) -> None:
    made = compile(two_step_alltoall, N=3, G=2)
    path = tmp_path / f"a.{ending}"
    made.save(path)
    found = Program.load(path)
    assert isinstance(found, ClassProgram)
    assert found.use is not None
    assert not found.use.in_place
    _same(made, found)
    _same(made, pickle.loads(pickle.dumps(made)))  # noqa: S301  made here
    whole = Program(_core.compile(two_step_alltoall.write(N=3, G=2).trace(), slots=2))
    assert found.threadblocks(4)[0].rank == 4
    for rank in range(6):
        assert found.threadblocks(rank) == Program(found.core).threadblocks(rank)
    assert whole.verify().transfers == found.verify().transfers
    said = CliRunner().invoke(main, ["verify", str(path)], catch_exceptions=False)
    assert said.exit_code == 0
    assert "6 ranks in 1 class" in said.output
    shown = CliRunner().invoke(main, ["show", str(path), "--rank", "5"], catch_exceptions=False)
    assert shown.output.splitlines()[1] == "rank 5 scratch 6"
    with pytest.raises(gc3.UserError, match="GC3-L007"):
        found.threadblocks(6)


def test_a_file_whose_symmetry_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    compile(hierarchical_allreduce, N=3, G=2).save(path)
    text = path.read_text()
    assert "\nsymmetry 3 2\nregion in[0] 0:1 1:3\n" in text
    for wrong, said in (
        (("symmetry 3 2", "symmetry 3 3"), "a machine of 9 ranks"),
        (("symmetry 3 2", "symmetry 0"), "a coordinate without values"),
        (("symmetry 3 2", "symmetry"), "the numbers of values"),
        (("symmetry 3 2", "symmetry 4194305"), "more than 2^22 ranks"),
        (("collective allreduce", "collective broadcast"), "the ranks of broadcast differ"),
        (("in[0] 0:1 1:3", "in[0] 7:1 1:3"), "overlap"),
        (("in[0] 0:1 1:3", "in[0] 0:2 1:3"), "overlap"),
        (("in[0] 0:1 1:3", "in[0]"), "do not map what allreduce requires"),
        (("region sc[0]", "region sc[0] 0:0"), "do not permute the chunks of scratch"),
        (("region sc[0]", "region sc[1]"), "follow each other from 0 on"),
        (("region in[0] 0:1 1:3\n", ""), "follow each other from 0 on"),
        (("symmetry 3 2", "symmetry" + 33 * " 1"), "the end of the line"),
        (("\nrank 0", "\nrank 0\n\nrank 1"), "has one rank"),
    ):
        path.write_text(text.replace(*wrong, 1))
        with pytest.raises(gc3.UserError, match=r"a\.txt:\d+: .*" + re.escape(said)):
            Program.load(path)
    path.write_text(text.replace("send 1", "send 2", 1))
    with pytest.raises(gc3.UserError, match="GC3-V"):
        Program.load(path).verify()


def test_the_file_of_65536_ranks_is_small(tmp_path: Path) -> None:
    path = tmp_path / "h.gc3"
    made = compile(hierarchical_allreduce, N=8192, G=8)
    made.save(path)
    assert path.stat().st_size < 1_000_000
    assert Program.load(path) == made


@pytest.mark.parametrize("target", [None, "msccl"])
def test_xml_is_written_rank_by_rank(tmp_path: Path, target: str | None) -> None:
    made = compile(two_step_alltoall, N=3, G=2)
    made.save(tmp_path / "one.xml", target=target)
    if target is None:
        assert "_whole" not in vars(made)  # the steps of all ranks were never there at once
    made.whole.save(tmp_path / "all.xml", target=target)
    assert (tmp_path / "one.xml").read_text() == (tmp_path / "all.xml").read_text()


def test_ranks_that_are_processes_and_tables_get_one_rank(tmp_path: Path) -> None:
    made = compile(two_step_alltoall, N=2, G=2)
    made.save(tmp_path / "a.gc3")
    run = ["run", str(tmp_path / "a.gc3"), "--engine", "processes", "--size", "4KiB"]
    assert CliRunner().invoke(main, run, catch_exceptions=False).exit_code == 0
    path = programs.write(made, tmp_path / "table.json")
    found = programs.read(path, ranks=4, root=0, in_place=False)
    assert isinstance(found, ClassProgram)
    assert found == made
    with pytest.raises(gc3.UserError, match="is for alltoall on 4 ranks"):
        programs.read(path, ranks=5, root=0, in_place=False)


def test_no_settings_are_tried_for_which_all_of_many_ranks_would_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.cli.trials.choose", None)
    machine = ["-t", "hierarchical:N=129,G=8,nics=8", "-b", "64MiB", "-e", "64MiB"]
    result = CliRunner().invoke(main, ["sim", "hierarchical_allreduce:N=129,G=8", *machine])
    assert result.exit_code == 0, result.output
    assert "1032 ranks in 1 class" in result.output
