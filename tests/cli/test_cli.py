"""The command line, command by command, in this process."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import _core, errors
from gc3.cli.command import Command
from gc3.cli.main import main
from gc3.lang.build import STAGES
from gc3.runtime.checking import Case

pytestmark = pytest.mark.python_only

EXAMPLES = Path(__file__).parents[2] / "examples"


def _commands(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    """The commands by their command line, such as "run" and "topo show"."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found |= (
            _commands(command, f"{prefix}{name} ") if isinstance(command, click.Group) else {prefix + name: command}
        )
    return found


COMMANDS = {name: command for name, command in _commands(main).items() if isinstance(command, Command)}

# Sends chunk 0 twice, so chunk 1 of rank 1 is wrong.
WRONG = """program "wrong" version 1
collective alltonext ranks 2 chunks 2
protocol Simple instances 1 slots 1

rank 0
  tb 0 channel 0 send 1
    0 send in[0]
    1 send in[0]

rank 1
  tb 0 channel 0 recv 0
    0 recv -> out[0]
    1 recv -> out[1]
"""

MISTAKEN = '''"""Algorithms with mistakes, at lines that the tests know."""
from gc3 import algorithm, chunk
print("noise")

@algorithm("allgather")
def stale(R):
    first = chunk(0, "in", 0).copy(1, "out", 0)
    chunk(1, "in", 0).copy(1, "out", 0)
    first.copy(0, "out", 0)

@algorithm("allgather")
def raises(R):
    [][R]

@algorithm("allgather")
def leaves(R):
    raise SystemExit(3)

@algorithm("allgather")
def unfinished(R):
    chunk(0, "in", 0).copy(1, "out", 0)
'''


def gc3_(line: str, code: int = 0) -> Result:
    """Runs a command line and checks its exit code."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


def data_of(line: str, code: int = 0) -> Any:
    """Runs a command line with --json; standard output is one document."""
    return json.loads(gc3_(f"{line} --json", code).stdout)


@pytest.fixture
def compiled(tmp_path: Path) -> str:
    """A compiled program."""
    path = str(tmp_path / "h.gc3")
    gc3_(f"compile hierarchical_allreduce:N=2,G=3 -o {path}")
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """A program that does not implement its collective."""
    path = str(tmp_path / "wrong.gc3")
    _core.Program.from_text(WRONG).save(path)
    return path


@pytest.fixture
def mistaken(tmp_path: Path) -> str:
    """A user's file full of mistakes."""
    path = tmp_path / "mistaken.py"
    path.write_text(MISTAKEN)
    return str(path)


# The keys of the documents are a promise, because scripts read them.
PROGRAM = [
    "chunks",
    "collective",
    "dependencies",
    "in_place",
    "instances",
    "instructions",
    "max_threadblocks_per_rank",
    "name",
    "protocol",
    "ranks",
    "root",
    "scratch_share",
    "slots",
    "threadblocks",
]
PROOF = ["diagnostics", "modes", "ok", "slots", "transfers"]
DIAGNOSTIC = ["code", "file", "hint", "kind", "line", "message", "name", "notes", "title"]
_TIMES = ("max", "median", "min", "quarter", "three_quarters", "time")
MEASUREMENT = ["algbw", "busbw", *(f"{time}_us" for time in _TIMES), "waited", "wrong"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_examples(name: str) -> None:
    text = gc3_(f"{name} --help").stdout
    assert "Examples:" in text
    for example in COMMANDS[name].examples:
        assert example in text


def test_every_command_has_examples_and_the_overview_names_it() -> None:
    assert set(COMMANDS) == set(_commands(main))
    overview = gc3_("--help").stdout
    for name in main.list_commands(click.Context(main)):
        assert f"\n  {name} " in overview


def test_the_overview_does_not_wait_for_what_commands_import() -> None:
    script = "import sys, gc3.cli.main as m\ntry: m.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "gc3.sim", "gc3.comm", "gc3.synth"} & set(loaded.split())


@pytest.mark.parametrize("example", [e for c in COMMANDS.values() for e in c.examples])
def test_examples_are_lines_that_parse(example: str) -> None:
    program, name, *arguments = shlex.split(example)
    assert program == "gc3"
    group = main.get_command(click.Context(main), name)
    assert group is not None
    if isinstance(group, click.Group):
        _, chosen, arguments = group.resolve_command(click.Context(group), arguments)
        assert chosen is not None
        name = f"{name} {chosen.name}"
    command = COMMANDS[name]
    with command.make_context(name, arguments) as context:
        assert isinstance(context, click.Context)


def test_version() -> None:
    assert gc3.__version__ in gc3_("--version").stdout


def test_verify_and_run_read_the_output_of_compile(compiled: str) -> None:
    assert "proven: it implements allreduce" in gc3_(f"verify {compiled}").stdout
    text = gc3_(f"run {compiled} --size 64KiB --dtype float32").stdout
    assert "ran 64 KiB of float32 sum" in text
    assert f"checked {6 * 16384} elements of 6 ranks: all equal to NumPy's" in text
    assert "rrcs" in gc3_(f"show {compiled}").stdout


def test_compile_json(tmp_path: Path) -> None:
    path = tmp_path / "r.gc3"
    data = data_of(f"compile ring_allreduce:R=2,instances=2,protocol=LL -o {path}")
    assert sorted(data) == ["file", "program", "proof"]
    assert sorted(data["program"]) == PROGRAM
    assert sorted(data["proof"]) == PROOF
    assert (data["program"]["instances"], data["program"]["protocol"]) == (2, "LL")
    assert gc3_(f"show {path}").stdout.endswith(gc3.Program.load(path).text)
    told = gc3_("compile ring_allreduce:R=2")
    assert "nothing was written" in told.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_stages_can_be_dumped(stage: str) -> None:
    text = gc3_(f"show ring_allreduce:R=2 --dump {stage}").stdout
    assert text
    data = data_of(f"show ring_allreduce:R=2 --dump {stage}")
    assert data["stage"] == stage
    assert data["text"].rstrip("\n") == text.rstrip("\n")


def test_run_a_custom_algorithm_with_an_odd_size() -> None:
    line = f"run {EXAMPLES}/my_allgather.py:ring:R=4 --size 1000003B --dtype uint8"
    result = gc3_(line)
    assert "note: 1000003 B is rounded down to 1000000 B: 4 blocks of 250000 uint8 elements" in result.stderr
    assert "checked 4000000 elements of 4 ranks" in result.stdout
    data = data_of(line)
    assert sorted(data) == [
        "algbw",
        "busbw",
        "check",
        "chosen_by",
        "count",
        "dtype",
        "engine",
        "notes",
        "op",
        "program",
        "proven",
        "size",
        "time_us",
        "use",
    ]
    assert (data["size"], data["count"], data["proven"]) == (1_000_000, 250_000, True)
    compared = {"ok": True, "elements": 4_000_000, "wrong": 0, "first": None, "changed_inputs": []}
    assert data["check"] == {**compared, "modes": [{"in_place": False, **compared}]}
    assert data["busbw"] == pytest.approx(data["algbw"] * 3 / 4)


def test_run_takes_the_engines_options() -> None:
    line = "run ring_allreduce:R=3 --size 1KiB --engine threads:seed=7,slots=2,slot_bytes=256,timeout=10"
    assert data_of(line)["check"]["ok"]
    line = "run ring_allreduce:R=3 --size 0 --op avg --dtype bfloat16 --engine threads:workers=1"
    assert data_of(line)["check"]["ok"]
    assert data_of(f"{line} --no-check")["check"] is None


@pytest.mark.parametrize("line", ["run", "run --engine processes", "bench -e 1TiB"])
def test_buffers_that_no_memory_holds_are_refused_before_they_are_made(line: str) -> None:
    size = "-b" if line.startswith("bench") else "--size"
    result = gc3_(f"{line} ring_allreduce:R=4 {size} 1TiB", code=1)
    assert f"inputs and outputs of 4 ranks take {8 << 40} B" in result.stderr


def test_a_wrong_result_is_reported_and_fails(wrong: str) -> None:
    refused = gc3_(f"run {wrong}", 1)
    assert "GC3-V008" in refused.stderr
    case = Case(gc3.Program.load(wrong).collective, 16, "int32", "sum")
    data = case.input(0)
    assert data is not None
    different = data[:8] != data[8:]
    result = gc3_(f"run {wrong}:prove=no --size 64B --dtype int32", 1)
    where = int(different.argmax())
    assert "GC3-V008" in result.stderr
    assert f"{different.sum()} of 16 elements differ" in result.stderr
    expected = f"rank 1 at index {8 + where}: expected {data[8 + where]}, got {data[where]}"
    assert expected in result.stderr
    check = data_of(f"run {wrong}:prove=no --size 64B --dtype int32", 1)["check"]
    assert not check["ok"]
    assert check["first"] == {
        "rank": 1,
        "index": 8 + where,
        "expected": int(data[8 + where]),
        "got": int(data[where]),
    }


def test_verify_tells_every_finding(wrong: str, compiled: str) -> None:
    result = gc3_(f"verify {wrong}", 1)
    assert "GC3-V008" in result.stderr
    assert "not proven: 1 finding" in result.stderr
    data = data_of(f"verify {wrong}", 1)
    assert sorted(data) == sorted([*PROOF, "program", "runtimes", "target", "topology", "use", "v_form"])
    assert not data["ok"]
    assert [sorted(d) for d in data["diagnostics"]] == [DIAGNOSTIC]
    good = data_of(f"verify {compiled}")
    assert good["ok"]
    assert good["diagnostics"] == []
    assert data_of(f"verify {compiled}:max_threadblocks=1", 1)["diagnostics"][0]["code"] == "GC3-V009"
    assert data_of("verify ring_allreduce:R=3 --slots 5")["slots"] == 5


def test_bench_has_the_columns_of_nccl_tests() -> None:
    line = "bench ring_allreduce:R=2 -b 1KiB -e 4KiB -f 2 --iters 2 --warmup 1"
    data = data_of(line)
    assert sorted(data) == ["average_busbw", "chosen", "programs", "rows", "settings", "wrong"]
    assert [row["size"] for row in data["rows"]] == [1024, 2048, 4096]
    assert [data["programs"][mode]["in_place"] for mode in ("out_of_place", "in_place")] == [False, True]
    for row in data["rows"]:
        assert sorted(row) == ["count", "in_place", "out_of_place", "redop", "root", "size", "type"]
        assert (row["count"], row["type"], row["redop"], row["root"]) == (row["size"] // 4, "float32", "sum", -1)
        for mode in ("in_place", "out_of_place"):
            assert sorted(row[mode]) == MEASUREMENT
            assert row[mode]["wrong"] == 0
            assert row[mode]["algbw"] == pytest.approx(row["size"] / row[mode]["time_us"] / 1e3)
    lines = gc3_(line).stdout.splitlines()
    fixed, group = ["#", "size", "count", "type", "redop", "root"], ["time", "algbw", "busbw", "#wrong"]
    assert lines[3].split() == fixed + group * 2
    assert [row.split()[:5] for row in lines if not row.startswith("#")] == [
        [str(size), str(size // 4), "float32", "sum", "-1"] for size in (1024, 2048, 4096)
    ]
    assert lines[-2] == "# Out of bounds values : 0 OK"


def test_bench_of_a_compiled_program_fills_its_own_mode(compiled: str) -> None:
    data = data_of(f"bench {compiled} -b 1KiB -e 3KiB -i 1KiB -n 1 -w 0 --no-check")
    assert data["programs"]["out_of_place"] is None
    assert [row["out_of_place"] for row in data["rows"]] == [None] * 3
    assert [row["in_place"]["wrong"] for row in data["rows"]] == [None] * 3
    row = gc3_(f"bench {compiled} -b 1KiB -n 1 -w 0").stdout.splitlines()[4].split()
    assert row[5:9] == ["N/A"] * 4


def test_bench_without_reduction_and_wrong_results(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = data_of("bench two_step_alltoall:N=2,G=2,in_place=no -b 64 -n 1 -w 0")["rows"][0]
    assert (row["redop"], row["count"], row["in_place"]) == ("none", 4, None)
    monkeypatch.setattr("gc3.cli.bench.verify", lambda *_, **__: None)
    monkeypatch.setattr("gc3.runtime.program.verify", lambda *_, **__: None)
    assert data_of(f"bench {wrong} -b 64 -n 1 -w 0", 1)["wrong"] > 0
    assert "FAILED" in gc3_(f"bench {wrong} -b 64 -n 1 -w 0", 1).stdout


def test_show(compiled: str, tmp_path: Path) -> None:
    whole = gc3_(f"show {compiled}").stdout
    one = gc3_(f"show {compiled} --rank 3").stdout
    assert "\nrank 3" in whole
    assert "rank 3" in one
    assert "rank 2\n" not in one
    assert whole.endswith(gc3.Program.load(compiled).text)
    data = data_of(f"show {compiled} --rank 3")
    assert sorted(data) == ["lines", "program", "ranks", "use"]
    assert [r["rank"] for r in data["ranks"]] == [3]
    assert data["ranks"][0]["threadblocks"][0]["steps"][0]["opcode"]
    expected = gc3_("show alltonext:N=1,G=2 --expect").stdout
    assert "rank 0 out[0] = anything" in expected
    assert "rank 1 out[1] = rank 0 in[1]" in expected
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import gc3\n@gc3.algorithm('allgather')\ndef nothing(R):\n    pass\n")
    unmet = gc3_(f"compile {wrong}:R=4", 1).stderr
    assert "13 further output chunks are not what they must be" in unmet
    assert unmet.count("hint: ") == 1
    assert "rank 3 out[0] = rank 0 in[0]" in gc3_(f"show {wrong}:R=4 --expect").stdout  # although it is wrong
    assert data_of("show alltonext:N=1,G=2 --expect --rank 1")["expected"][0] == {
        "rank": 1,
        "index": 0,
        "terms": [[0, 0]],
    }


def test_errors_explains_codes() -> None:
    text = gc3_("errors GC3-L001").stdout
    assert "stale reference" in text
    assert "what to do" in text
    assert [e["code"] for e in data_of("errors gc3-l001")["errors"]] == ["GC3-L001"]
    assert len(data_of("errors")["errors"]) == len(_core.all_errors())
    assert "GC3-V007" in gc3_("errors race").stdout
    gc3_("errors GC3-Z999", 2)


def test_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_SLOTS", "5")
    data = data_of("env")
    assert data["gc3"] == gc3.__version__
    assert data["settings"]["GC3_SLOTS"]["value"] == 5
    assert "GC3_SLOTS=5" in gc3_("env").stdout
    assert "processes" not in data
    assert data_of("env --probe")["processes"].startswith("messages are ")


@pytest.mark.slow
def test_demo_does_the_main_job(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = import_module("gc3.cli.demo")
    monkeypatch.setattr(demo, "_SIZE", 4 << 20)
    monkeypatch.setattr(demo, "_BENCH_SIZES", (64 << 10, 1 << 20))
    text = gc3_("demo").stdout
    assert "proven: it implements allreduce" in text
    assert "6291456 elements checked: all equal to NumPy's" in text


@pytest.mark.parametrize(
    ("function", "code", "line", "message"),
    [
        ("stale", "GC3-L001", 9, "stale reference"),
        ("raises", "GC3-L019", 13, "IndexError: list index out of range"),
        ("leaves", "GC3-L019", 17, "SystemExit: 3"),
        ("unfinished", "GC3-L015", None, "postcondition not met"),
        ("missing", "GC3-L017", 1, "has no algorithm 'missing'"),
    ],
)
def test_a_users_mistake_is_one_message_at_its_line(
    mistaken: str, function: str, code: str, line: int | None, message: str
) -> None:
    result = gc3_(f"compile {mistaken}:{function}:R=2", 1)
    assert f"error {code}: " in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "hint: " in result.stderr
    assert result.stdout == ""
    error = data_of(f"compile {mistaken}:{function}:R=2", 1)["error"]
    assert sorted(error) == sorted([*DIAGNOSTIC, "others"])
    assert error["code"] == code
    if line is not None:
        assert f"mistaken.py:{line}\n" in result.stderr
        assert (error["file"], error["line"]) == (mistaken, line)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("verify nowhere.gc3", 1, "GC3-I001"),
        (f"verify {Path(__file__)}", 1, "GC3-L017"),
        ("compile nothing", 1, "there is no algorithm 'nothing'"),
        ("compile nothing.py:f", 1, "GC3-I001"),
        ("compile ring_allreduce:R=2 -o /nowhere/at/all.gc3", 1, "GC3-I002"),
        ("compile ring_allreduce:R=", 2, "is not key=value"),
        ("compile ring_allreduce:R=two", 2, "'R=two' of 'ring_allreduce:R=two': expected a whole number"),
        ("compile", 2, "Missing argument"),
        ("compile ring_allreduce --nonsense", 2, "No such option"),
        ("nonsense", 2, "No such command"),
        ("complie", 2, "Did you mean 'compile'?"),
        ("explain ring_allreduce", 2, "use gc3 sim PROGRAM --mode explain"),
        ("list --collective allredcue", 2, "'allredcue' is not one of"),
        ("run ring_allreduce:R=2 --size big", 2, "'big' is not a size"),
        ("run ring_allreduce:R=2 --dtype float128", 2, "float128"),
        ("bench ring_allreduce:R=2 -b 2K -e 1K", 2, "below the smallest"),
        ("bench ring_allreduce:R=2 -f 2 -i 1K", 2, "exclude each other"),
        ("show ring_allreduce:R=2 --rank 2", 2, "rank 2 of 2 ranks"),
        ("show ring_allreduce:R=2 --dump ir --rank 1", 2, "whole stage"),
    ],
)
def test_mistakes_have_the_right_exit_code(line: str, code: int, message: str) -> None:
    result = gc3_(line, code)
    assert message in result.stderr
    assert result.stdout == ""
    error = data_of(line, code)["error"]
    assert message in f"{error['code']} {error['message']}"


def test_what_is_compiled_cannot_be_compiled_otherwise(compiled: str) -> None:
    for key in ("R=2", "instances=2", "protocol=LL", "max_threadblocks=9", "slots=2"):
        result = gc3_(f"run {compiled}:{key}", 2)
        assert "is compiled already" in result.stderr
    assert "for use in place only" in gc3_(f"run {compiled}:in_place=no", 1).stderr
    gc3_(f"compile {compiled}", 2)
    gc3_(f"show {compiled} --dump schedule", 2)
    gc3_(f"show {compiled} --dump ir")


def test_a_defect_is_reported_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("gc3.cli.list.catalogue", fail)
    result = gc3_("list", 1)
    assert "error GC3-X001: internal error: RuntimeError: oops" in result.stderr
    assert data_of("list", 1)["error"]["kind"] == "internal"
    with pytest.raises(RuntimeError, match="oops"):
        CliRunner().invoke(main, ["list", "--debug"], catch_exceptions=False)


def test_a_wrong_result_of_a_proven_program_is_our_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc3.Program, "time", lambda *_, **__: [1e-3])
    result = gc3_("run ring_allreduce:R=2 --size 64", 1)
    assert "error GC3-X001" in result.stderr
    assert "32 of 32 elements differ, the first in the output of rank 0 at index 0" in result.stderr


def test_too_little_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(Case, "inputs", fail)
    assert "GC3-R006" in gc3_("run ring_allreduce:R=2", 1).stderr


def test_debug_shows_the_traceback(mistaken: str) -> None:
    with pytest.raises(errors.UserError):
        CliRunner().invoke(main, ["--debug", "compile", f"{mistaken}:raises:R=2"], catch_exceptions=False)


def test_an_interruption_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gc3.cli.list.catalogue", interrupt)
    assert "interrupted" in gc3_("list", 130).stderr
