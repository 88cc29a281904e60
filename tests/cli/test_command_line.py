"""Mistakes on the command line and in the environment: reported with exit code 2, and nothing is written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import errors
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.support import knobs

pytestmark = pytest.mark.python_only


def gc3_(line: str, code: int = 0) -> Result:
    """Runs a command line and checks its exit code."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compile ring_allreduce", "needs a value for 'R'"),
        ("run ring_allreduce", "R, N and G are those of a machine only where --topology names one"),
        ("sim ring_allreduce", " sim [OPTIONS] PROGRAM"),
        ("sim -t ndv4", " sim --help'"),
        ("sim predict -t ndv4", " sim predict --help'"),
        ("compile ring_allreduce:R=2,Q=1", "has no parameter 'Q'"),
        ("compile ring_allreduce:R=0", "R=0 does not suit ring_allreduce: bad collective: ranks=0"),
        ("show ring_allreduce:R=-4 --dump trace", "R=-4 does not suit ring_allreduce"),
        (
            "show flat_broadcast:R=2,root=7 --expect",
            "R=2, root=7 does not suit flat_broadcast: bad coll",
        ),
        ("compile ring_allreduce:R=4,channels=0", "R=4, channels=0 does not suit ring_allreduce"),
        ("sim ring_allreduce:channels=0 -t ndv4", "channels=0 does not suit ring_allreduce"),
        (
            "sim ring_allreduce:protocol=LL64 -t ndv4",
            "'protocol=LL64' of 'ring_allreduce:protocol=LL64': expected one of Simple",
        ),
        ("compile ring_allreduce:R=2,protocol=LL64", "expected one of Simple"),
        ("compile ring_allreduce:R=2,instances=1048576", "expected a whole number from 1 to 1048575"),
        (
            "run ring_allreduce:R=2 --engine threads:seed=-1",
            "'seed=-1' of 'threads:seed=-1': expected a whole number from 0",
        ),
        ("verify ring_allreduce:R=2 --slots 0", "0 is not in the range x>=1"),
        ("verify ring_allreduce:R=2 --max-channels 0", "0 is not in the range x>=1"),
        ("compile ring_allreduce:R=2,slots=0", "'slots=0' of"),
        ("run ring_allreduce:R=2 --engine threads:slots=0", "expected a whole number from 1"),
        ("bench ring_allreduce:R=2 --engine threads:workers=0", "expected a whole number from 1"),
        ("run ring_allreduce:R=2 --engine threads:slot_bytes=0", "expected a size from 1 B"),
        (
            "compile ring_allreduce:R=2 -o /tmp/x.docx",
            "the name must end in .gc3, .txt, which selects",
        ),
        ("export ring_allreduce:R=2 -o x.gc3", "the name must end in .xml, .plan.json, which selects"),
        ("compile ring_allreduce:R=4,order=0+2", "expected the ranks of a node in another order"),
        ("verify ring_allreduce:R=2,prove=no", "this command proves every program"),
        ("compile", "Missing argument 'X'"),
        ("compile ring_allreduce:R=2 -o x", "the name must end in .gc3, .txt, which selects"),
        ("trace ring_allreduce -t ndv4 -o t.docx", "the name must end in .json, .json.gz, which selects"),
        (
            "synth allgather -t dgx1 --steps least -o x.docx",
            "the name must end in .gc3, .xml, .plan.json, .txt, .json, which",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_not_one_of_the_library(line: str, message: str) -> None:
    told = gc3_(line, 2)
    assert message in told.stderr
    assert "-->" not in told.stderr
    assert told.stdout == ""


@pytest.mark.parametrize("command", ["compile", "run", "bench -b 1KiB -e 1KiB", "show", "verify"])
def test_what_compiles_also_runs(command: str) -> None:
    gc3_(f"{command} alltonext:N=2,G=2")


def test_the_parameters_decide_between_an_algorithm_and_a_collective() -> None:
    assert "the algorithm of that name takes N, G" in gc3_("run alltonext", 2).stderr
    assert "alltonext of 3 ranks" in gc3_("run alltonext:R=3").stdout


def test_an_impossible_parameter_of_a_custom_algorithm(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import gc3\n@gc3.algorithm('allgather')\ndef unfinished(R):\n    pass\n")
    told = gc3_(f"compile {mine}:unfinished:R=0", 2).stderr
    assert "R=0 does not suit unfinished: bad collective" in told
    assert "-->" not in told
    assert "GC3-L015" in gc3_(f"compile {mine}:unfinished:R=2", 1).stderr  # this is a mistake in the file


def test_a_collective_of_ones_own_has_settings(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import gc3\n\ndef mirror(R):\n"
        "    return gc3.collectives.custom('m', inputs=[1] * R, outputs=[1] * R, expect=lambda r, i: (R-1-r, i))\n\n"
        "@gc3.algorithm(mirror)\ndef swap(R):\n    for r in range(R):\n"
        "        gc3.chunk(r, 'in', 0).copy(R-1-r, 'out', 0)\n"
    )
    (cell,) = json.loads(gc3_(f"sim {mine}:swap -t ndv4 -b 16MiB -e 16MiB --json").stdout)["rows"][0]["programs"]
    assert cell["chosen"].startswith("mine.py:swap:protocol=")
    program = tmp_path / "swap.gc3"
    gc3_(f"compile {mine}:swap:R=2,{cell['chosen'].partition(':swap:')[2]} -o {program}")
    assert "all equal to NumPy's" in gc3_(f"run {program}").stdout


def test_the_ending_says_the_form(tmp_path: Path) -> None:
    for command, ending in (("compile", ".gc3"), ("export", ".xml"), ("compile", ".txt")):
        path = tmp_path / f"r{ending}"
        gc3_(f"{command} ring_allreduce:R=2 -o {path}")
        assert gc3.Program.load(path) == gc3.compile(load("ring_allreduce"), R=2)
    assert (tmp_path / "r.txt").read_text() == gc3.Program.load(tmp_path / "r.gc3").text
    gc3_("compile ring_allreduce:R=2 -o /dev/null")
    with pytest.raises(errors.UserError, match=r"selects the form of the program: \.gc3 for GC3's own image, "):
        gc3.Program.load(tmp_path / "r.gc3").save(tmp_path / "r.docx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.gc3", "r.txt", "r.xml"]


def test_a_misspelt_variable_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "_told", set[str]())
    monkeypatch.setenv("GC3_TIMOUT", "3")
    monkeypatch.setenv("GC3_WHATEVER\x1b[2J", "3")
    told = gc3_("list").stderr
    assert "GC3_TIMOUT in the environment is not a variable of gc3: did you mean GC3_TIMEOUT?" in told
    assert "GC3_WHATEVER?[2J in the environment is not a variable of gc3: `gc3 env` lists them" in told
    assert gc3_("list").stderr == ""
    monkeypatch.setattr(knobs, "_told", set[str]())
    monkeypatch.delenv("GC3_WHATEVER\x1b[2J")
    with pytest.warns(UserWarning, match="did you mean GC3_TIMEOUT"):
        knobs.read()
    knobs.read()  # a warning would fail the test
    monkeypatch.setattr(knobs, "_told", set[str]())
    done = gc3_("run ring_allreduce:R=2 --engine processes --size 64B")
    assert done.stderr.count("GC3_TIMOUT") == 1


def test_predictions_are_of_proven_programs(tmp_path: Path) -> None:
    text = gc3.compile(load("ring_allreduce"), R=8).text
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(text.replace("send out[0]\n", "send out[1]\n", 1))
    gc3_(f"verify {wrong}", 1)
    more = {
        "sim {} -t ndv4 -b 1MiB -e 1MiB": wrong,
        f"trace {{}} -t ndv4 -o {tmp_path}/t.json": wrong,
        f"trace {{}} --engine threads --size 1KiB -o {tmp_path}/t.json": wrong,
    }
    for line, program in more.items():
        assert "GC3-V" in gc3_(line.format(program), 1).stderr
        gc3_(line.format(f"{program}:prove=no"))
    measured = tmp_path / "m.csv"
    measured.write_text("bytes,us_us\n1024,10\n1048576,100\n")
    assert "GC3-V" in gc3_(f"sim calibrate {measured} --column us -t ndv4 -p {wrong} --fit launch", 1).stderr


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ('"allgather", ranks=lambda R: "x"', "'mine': ranks='x'; expected a whole number"),
        ('"gather", root="x"', "'mine': root='x'; expected a whole number"),
        ('"gather", root=7', "'mine': root=7; expected a whole number from 0 to 1"),
        ('"gather", chunks=0', "'mine': chunks=0; expected a whole number from 1 to"),
    ],
)
def test_a_mistake_of_the_decorator_is_none_of_the_command_line(decorator: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import gc3\n@gc3.algorithm({decorator})\ndef mine(R: int) -> None:\n    pass\n")
    told = gc3_(f"verify {file}:mine:R=2", 1).stderr
    assert message in told
    assert f"--> {file}:2" in told


def test_an_export_says_that_a_table_has_no_row(tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    gc3_(f"tune allreduce -t dgx1 -b 1KiB -e 1KiB -o {table}")
    assert "has no row for 3, 4 ranks" in gc3_(f"export {table} -o {tmp_path}/xml --target azure --ranks 3,4", 2).stderr


@pytest.mark.parametrize("command", ["sim {} -b 1MiB -e 1MiB", "verify {}", "compile {}"])
def test_ranks_that_are_not_given_are_those_of_the_machine(command: str, tmp_path: Path) -> None:
    """Also of an algorithm in a user's file."""
    mine = tmp_path / "mine.py"
    mine.write_text((Path(__file__).parents[2] / "examples" / "my_allgather.py").read_text())
    assert "8 ranks" in gc3_(f"{command.format(f'{mine}:ring')} -t ndv4").stdout
    assert "4 ranks" in gc3_(f"{command.format('ring_allreduce')} -t ring:R=4").stdout
