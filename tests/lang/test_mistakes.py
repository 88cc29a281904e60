"""Various mistakes: each is one message with a code, never a crash or an internal error."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import SourceProgram, UserError, algorithm, chunk, collectives, next_step, parallelize
from gc3.algorithms import load
from gc3.cli.main import main


def line_of(marker: str) -> int:
    """The line of this file that ends with the comment `marker`."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {marker}"))


def place(error: gc3.Gc3Error) -> tuple[str, int]:
    return Path(error.file).name, error.line


# Programs and references, as in a notebook.


def gathered() -> tuple[SourceProgram, gc3.lang.ChunkRef]:
    """An all-gather of two ranks, and its last reference."""
    program = SourceProgram("pair", "allgather", ranks=2)
    with program:
        refs = [chunk(s, "in", 0).copy(t, "out", s) for s in range(2) for t in range(2)]
    return program, refs[-1]


def test_a_reference_outlives_its_program() -> None:
    program, ref = gathered()
    assert gc3.compile(program).verify().ok
    assert repr(ref) == "<chunks of rank 1 output[1]>"
    assert ref.buffer == "output"
    assert program.check() == []
    with pytest.raises(UserError, match="already finished") as caught, program:
        chunk(0, "in", 0)  # finished
    assert place(caught.value) == (Path(__file__).name, line_of("finished"))


def test_errors_outside_a_program_have_the_line() -> None:
    with pytest.raises(UserError, match="no program") as caught:
        chunk(0, "in", 0)  # outside
    assert place(caught.value) == (Path(__file__).name, line_of("outside"))


def test_a_block_that_ends_twice_is_an_error() -> None:
    block = parallelize(2)
    with pytest.raises(UserError, match="has not begun"):
        block.__exit__(None, None, None)
    with SourceProgram("x", "alltonext", ranks=2):
        with block, block:
            pass
        with pytest.raises(UserError, match="has not begun"):
            block.__exit__(None, None, None)


def test_a_step_needs_a_program() -> None:
    with pytest.raises(UserError, match=r"test_mistakes.py:\d+: GC3-L014"):
        next_step()


def test_factors_do_not_overflow() -> None:
    with SourceProgram("x", "alltonext", ranks=2), parallelize(2), pytest.raises(UserError, match="largest product"):
        parallelize(2**62).__enter__()


def test_a_program_without_an_algorithm_is_placed_where_it_begins() -> None:
    program = SourceProgram("x", "allgather", ranks=2)  # begins
    with pytest.raises(UserError, match="postcondition") as caught:
        gc3.compile(program)
    assert place(caught.value) == (Path(__file__).name, line_of("begins"))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"collective": "allgathr"}, "no collective 'allgathr'"),
        ({"collective": "broadcast", "root": 7}, "root=7; expected a whole number from 0 to 2"),
        ({"chunks": 0}, "chunks=0"),
        ({"collective": lambda: None}, "collective=None"),
        ({"ranks": lambda R: R / 2}, "ranks=1.5"),
        ({"ranks": lambda R: f"{R}"}, "ranks='3'"),
        ({"ranks": 100_000}, "chunks in a buffer"),
    ],
)
def test_a_bad_record_is_reported_at_the_algorithm(record: dict[str, Any], text: str) -> None:
    def nothing(R: int) -> None:  # nothing
        pass

    with pytest.raises(UserError) as caught:
        gc3.compile(algorithm(**({"collective": "allgather"} | record))(nothing), R=3)
    assert text in caught.value.message
    assert place(caught.value) == (Path(__file__).name, line_of("nothing"))


def test_a_wrong_collective_is_a_mistake_of_the_decorator() -> None:
    with pytest.raises(UserError, match=r"no collective 'allgatherr'; did you mean allgather\?") as caught:
        algorithm("allgatherr")(lambda R: None)  # decorated
    assert place(caught.value) == (Path(__file__).name, line_of("decorated"))


def test_a_root_is_a_parameter_or_told() -> None:
    @algorithm("gather")
    def to_one(R: int, root: int = 1) -> None:
        for rank in range(R):
            chunk(rank, "in", 0).copy(root, "out", rank)

    assert gc3.compile(to_one, R=3, root=2).collective.root == 2

    @algorithm("scatter")
    def from_one(R: int) -> None:
        for rank in range(R):
            chunk(1, "in", rank).copy(rank, "out", 0)

    with pytest.raises(UserError, match="GC3-L005") as caught:
        gc3.compile(from_one, R=3)
    assert caught.value.diagnostics[0].notes[0].text.startswith("the root is rank 0; root= of the decorator")


@pytest.mark.parametrize("function", [lambda R, *more: None, lambda R, **more: None, lambda R, /: None])
def test_parameters_without_a_name_are_refused(function: Callable[..., None]) -> None:
    with pytest.raises(UserError, match="given by name"):
        algorithm("allgather")(function)


def test_a_huge_scratch_index_asks_for_no_memory() -> None:
    @algorithm("alltonext")
    def far(R: int) -> None:
        chunk(0, "in", 0).copy(R - 1, "sc", 2_000_000_000)

    with pytest.raises(UserError, match="at most 4194304 chunks") as caught:
        gc3.compile(far, R=2)
    assert caught.value.code == "GC3-L005"


def test_an_adapted_program_complains_only_of_what_is_wrong() -> None:
    """Written in place, compiled out of place: the outputs are copied to their place at the end."""

    @algorithm("reducescatter", in_place=True)
    def misses_one(R: int) -> None:
        for r in range(R):
            total = chunk(r, "in", r)
            for s in range(R):
                if r not in (s, 1):
                    total = total.reduce(chunk(s, "in", r))

    found: list[list[str]] = []
    for in_place in (True, False):
        with pytest.raises(UserError) as caught:
            gc3.compile(misses_one, R=3, in_place=in_place)
        found.append([d.message for d in caught.value.diagnostics])
    assert found[0] == found[1]
    assert [m.rpartition(", but ")[2] for m in found[0]] == ["holds input[1] of rank 1"]


def test_the_limit_of_threadblocks_holds_for_those_given_by_hand() -> None:
    @algorithm("alltonext", chunks=2)
    def by_hand(R: int) -> None:
        for i in range(2):
            chunk(0, "in", i).copy(R - 1, "out", i, sendtb=i, recvtb=i)

    assert gc3.compile(by_hand, R=2, max_threadblocks=2).verify().ok
    with pytest.raises(UserError, match="rank 0 needs 2, the target allows 1") as caught:
        gc3.compile(by_hand, R=2, max_threadblocks=1)
    assert caught.value.code == "GC3-C001"


# Arguments of calls.

ONES = [np.ones(4, np.float32)] * 3


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"slots": -1}, "slots=-1"),
        ({"slots": 1.5}, "slots=1.5"),
        ({"slot_bytes": 2**70}, "slot_bytes="),
        ({"workers": 2**40}, "workers="),
        ({"seed": -1}, "seed=-1"),
        ({"timeout": "3"}, "timeout='3'"),
        ({"count": 4.0}, "count=4.0"),
        ({"inputs": [[1, [2, 3]]] * 3}, "an input is not an array"),
    ],
)
def test_bad_arguments_of_a_run(changes: dict[str, Any], text: str) -> None:
    program = gc3.compile(load("ring_allreduce"), R=3)
    with pytest.raises(UserError) as caught:
        program.run(**({"inputs": ONES} | changes))
    assert text in caught.value.message


@pytest.mark.parametrize("changes", [{"warmup": -1}, {"iterations": 0}, {"warmup": 2**32 - 1, "iterations": 1}])
def test_bad_arguments_of_a_timing(changes: dict[str, Any]) -> None:
    program = gc3.compile(load("ring_allreduce"), R=3)
    with pytest.raises(UserError, match=r"iterations|warmup"):
        program.time(ONES, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"instances": "2"}, {"slots": 2.5}, {"protocol": None}, {"R": "4"}, {"R": 4.0}, {"max_threadblocks": -1}],
)
def test_bad_arguments_of_compile(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        gc3.compile(load("ring_allreduce"), **({"R": 4} | changes))


@pytest.mark.parametrize("changes", [{"slots": -1}, {"slots": 2**40}, {"max_diagnostics": 0}, {"program": None}])
def test_bad_arguments_of_verify(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        gc3.verify(**({"program": gc3.compile(load("ring_allreduce"), R=3)} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": ["a"]},
        {"inputs": [2**40]},
        {"inputs": [np.arange(2)]},
        {"expect": {(0, 0): (np.arange(2), 0)}},
        {"expect": {0: (0, 0)}},
        {"expect": {(0, 0): 5}},
        {"expect": None},
        {"alias": [3]},
        {"alias": [("output", 2**80)]},
    ],
)
def test_bad_arguments_of_custom(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        collectives.custom("mine", **({"inputs": [1], "outputs": [1], "expect": {(0, 0): (0, 0)}} | changes))  # mine
    assert caught.value.code == "GC3-M001"
    assert place(caught.value) == (Path(__file__).name, line_of("mine"))


def test_the_terms_of_a_custom_collective_may_come_from_a_generator() -> None:
    both: Any = lambda _rank, _index: ((source, 0) for source in range(2))  # noqa: E731
    assert collectives.custom("sum", inputs=[1, 1], outputs=[1, 1], expect=both).model().expected_terms(1, 0) == [
        (0, 0),
        (1, 0),
    ]


# Files.


@pytest.mark.parametrize("name", ["a\0b", "a\udcff"])
def test_names_that_no_file_can_have(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        gc3.compile(load("ring_allreduce"), R=2).save(name)
    assert caught.value.code == "GC3-I002"
    with pytest.raises(UserError) as caught:
        gc3.Program.load(name)
    assert caught.value.code == "GC3-I001"
    assert list(tmp_path.iterdir()) == []


def test_links_and_pipes_are_written_to_not_replaced(tmp_path: Path) -> None:
    """As root, replacing would turn /dev/null into a file."""
    program = gc3.compile(load("ring_allreduce"), R=2)
    real, link, pipe = tmp_path / "real.gc3", tmp_path / "link.gc3", tmp_path / "pipe"
    real.touch()
    link.symlink_to(real)
    program.save(link)
    assert link.is_symlink()
    assert gc3.Program.load(real) == program
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    program.save(pipe)
    reader.join(timeout=60)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert read == [program.core.to_bytes()]


HEAD = "from __future__ import annotations\nfrom gc3 import algorithm, chunk\n"
BODY = """@algorithm("alltonext")
def mine(R):
    for r in range(R - 1):
        chunk(r, "in", 0).copy(r + 1, "out", 0)
"""


def gc3_(*arguments: str, code: int) -> str:
    """Runs a command line and returns its errors, none of which may be an internal error."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert "GC3-X" not in result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"import gc3\nx = '\xe9'\n", "mine.py:"),
        (b"x = 1\nx = '\0'\n", "mine.py:1"),
        (b"class Odd(BaseException): pass\nraise Odd('mine')\n", "mine.py:2"),
        (b"from gc3 import chunk\nchunk(0, 'in', 0)\n", "mine.py:2"),
        (HEAD.encode() + b"exec('raise KeyError')", "mine.py:3"),
    ],
)
def test_files_that_do_not_load(text: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(text)
    assert message in gc3_("compile", f"{file}:mine:R=2", code=1)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    assert "Is a directory" in gc3_("compile", f"{tmp_path}/folder.py:mine", code=1)
    assert "No such file" in gc3_("compile", f"{tmp_path}/none.py:mine", code=1)


def test_dataclasses_and_generated_algorithms_load(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{HEAD}from dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\nexec('''{BODY}''')\n")
    assert load(f"{file}:mine").write(R=3).trace().operations == 2


def test_a_file_changed_within_a_second_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for ranks in ("3", "4"):
        file.write_text(HEAD + BODY.replace("def mine(R)", f"def mine(R={ranks})"))
        os.utime(file, (1, 1))
        assert load(str(file)).write().trace().operations == int(ranks) - 1


@pytest.mark.parametrize(
    "option",
    [
        "--engine threads:slots=99999999999",
        "--engine threads:workers=99999999999",
        "--engine threads:seed=-1",
        "--engine threads:slot_bytes=99999999TiB",
        "--engine threads:timeout=nan",
        "--size 99999999TiB",
    ],
)
def test_numbers_out_of_all_proportion(option: str) -> None:
    gc3_("run", "ring_allreduce:R=2", *option.split(), code=2)


@pytest.mark.parametrize("option", ["--slots 99999999999", "--max-channels 99999999999", "--max-findings 99999999999"])
def test_numbers_out_of_all_proportion_for_verify(option: str) -> None:
    gc3_("verify", "ring_allreduce:R=2", *option.split(), code=1)


@pytest.mark.parametrize(
    ("options", "code"),
    [("-b 1 -e 1TiB -i 1", 2), ("-b 4 -e 8 -i 0", 1), ("-b 4 -n 99999999999", 1), ("-b 4 -w 4294967295 -n 4", 1)],
)
def test_benchmarks_out_of_all_proportion(options: str, code: int) -> None:
    gc3_("bench", "ring_allreduce:R=2", *options.split(), code=code)


def test_a_lost_working_directory_hides_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "raise KeyError\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "mine.py:3" in gc3_("compile", f"{file}:mine", code=1)


def test_json_of_a_mistake_is_one_document(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from gc3 import chunk\nchunk(0, 'in', 0)\n")
    result = CliRunner().invoke(main, ["compile", f"{file}:mine", "--json"])
    assert json.loads(result.stdout)["error"]["line"] == 2


# Processes.


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_program_runs_in_a_forked_process() -> None:
    """Threads do not survive a fork: the parent's engine would wait for them forever."""
    program = gc3.compile(load("ring_allreduce"), R=3)
    program.run(ONES)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            (first, *_) = program.run(ONES, timeout=20)
            code = 0 if first is not None and first.tolist() == [3.0] * 4 else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    program.run(ONES)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_a_signal_handler_may_raise_while_an_error_is_made(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """As a time limit does that comes while a program is refused, or Ctrl-C."""

    def interrupted(_: object) -> None:
        raise raised

    monkeypatch.setattr("gc3.errors.from_diagnostic", interrupted)
    with pytest.raises(raised):
        gc3.Program.load("no such file.gc3")
