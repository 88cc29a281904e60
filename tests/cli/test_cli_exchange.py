"""The exchange format on the command line: written, read, proven, run, timed and shown."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import _core, errors
from gc3.algorithms import load
from gc3.cli import output
from gc3.cli.main import main


def gc3_(line: str, code: int = 0) -> Result:
    """Runs a command line and checks its exit code."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


def data_of(line: str, code: int = 0) -> Any:
    """Runs a command line with --json; standard output is one document."""
    return json.loads(gc3_(f"{line} --json", code).stdout)


def swap_and_add(rank: int) -> str:
    """A rank that sends its chunk and then adds what it receives: right in place as out of place."""
    return f"""<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>"""


@pytest.fixture
def xml(tmp_path: Path) -> str:
    """A file for both uses and a range of sizes."""
    path = tmp_path / "a.xml"
    path.write_text(
        '<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1" '
        f'outofplace="1" minBytes="1024" maxBytes="1048576">{swap_and_add(0)}{swap_and_add(1)}</algo>'
    )
    return str(path)


def test_compile_writes_either_dialect(tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    written = data_of(f"export ring_allreduce:R=3 -o {path}")
    assert written["file"] == str(path)
    assert "outofplace" not in path.read_text()
    assert gc3.Program.load(path) == gc3.compile(load("ring_allreduce"), R=3)
    gc3_(f"export ring_allreduce:R=3 -o {path} --dialect rccl --max-bytes 64KiB")
    assert 'outofplace="0" minBytes="0" maxBytes="65536"' in path.read_text()
    gc3_(f"export direct_allgather:R=3 -o {path} --target rccl")
    assert "outofplace" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_limits_of_a_target_are_the_users_error(tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    result = gc3_(f"export ring_allreduce:R=4 -o {path} --target rccl", 1)
    assert "GC3-I009" in result.stderr
    assert "threadblock" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("export ring_allreduce:R=2 -o a.plan.json --dialect rccl", "are for a file that ends in .xml"),
        ("export ring_allreduce:R=2 --max-bytes 1K", "Missing option '--output'"),
        ("export ring_allreduce:R=2 -o a.xml --target nccl", "Invalid value for '--target'"),
        ("compile {xml}", "give -o FILE"),
        ("compile {xml}:slots=2 -o b.gc3", "compiled already"),
        ("export {xml} -o b.xml --ranks 2", "for a table and a folder"),
        ("verify {xml}:instances=2", "instances cannot change it"),
        ("verify ring_allreduce:R=2,collective=reduce", "collective= cannot change it"),
    ],
)
def test_options_that_do_not_fit(xml: str, line: str, why: str) -> None:
    assert why in gc3_(line.format(xml=xml), 2).stderr


def test_dialect_and_target_disagree(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    assert (
        "does not read the dialect"
        in gc3_(f"export direct_allgather:R=2 -o {path} --dialect msccl --target rccl", 1).stderr
    )


def test_a_program_is_converted(xml: str, tmp_path: Path) -> None:
    image, other = tmp_path / "a.gc3", tmp_path / "b.xml"
    gc3_(f"compile {xml}:in_place=yes -o {image}")
    gc3_(f"export {image} -o {other} --dialect msccl")
    assert gc3.Program.load(other) == gc3.Program.load(image) == gc3.Program.load(xml, in_place=True)
    assert gc3_(f"show {image}").stdout.endswith(gc3.Program.load(image).text)


def test_conditions_of_a_file_are_shown(xml: str) -> None:
    allowed = "the file allows it for in place and out of place, buffers from 1 KiB to 1 MiB"
    for command in ("verify", "run --size 4KiB", "show"):
        assert allowed in gc3_(f"{command} {xml}").stdout
    use = {"in_place": True, "out_of_place": True, "min_bytes": 1024, "max_bytes": 1024**2}
    for command in ("verify", "run", "show"):
        assert data_of(f"{command} {xml}")["use"] == use
    assert data_of("verify ring_allreduce:R=2")["use"] is None


def test_either_use_is_read(xml: str) -> None:
    assert not data_of(f"verify {xml}")["program"]["in_place"]
    assert data_of(f"verify {xml}:in_place=yes")["program"]["in_place"]
    assert data_of(f"run {xml}:in_place=yes --size 1KiB")["check"]["ok"]


def test_bench_measures_both_uses(xml: str) -> None:
    row = data_of(f"bench {xml} -b 4KiB -n 2 -w 0")["rows"][0]
    assert row["in_place"]["wrong"] == row["out_of_place"]["wrong"] == 0
    row = data_of(f"bench {xml}:in_place=yes -b 4KiB -n 2 -w 0")["rows"][0]
    assert row["out_of_place"] is None


def test_a_size_outside_the_range_is_remarked(xml: str) -> None:
    assert "not meant for 516 B" in gc3_(f"run {xml} --size 516B").stderr
    assert data_of(f"run {xml} --size 2MiB")["notes"][-1].startswith("the file is not meant for")
    assert not data_of(f"run {xml} --size 3KiB")["notes"]


def test_a_file_that_does_not_say_what_it_computes(tmp_path: Path) -> None:
    path = tmp_path / "next.xml"
    gc3_(f"export alltonext:N=2,G=2 -o {path}")
    assert "GC3-I008" in gc3_(f"verify {path}", 1).stderr
    assert data_of(f"verify {path}:collective=alltonext")["ok"]
    assert data_of(f"run {path}:collective=alltonext")["check"]["ok"]
    # A wrong collective is found.
    assert not data_of(f"verify {path}:collective=allreduce", 1)["ok"]


def test_files_without_meaning(tmp_path: Path) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text("<algo name='x'>\n<gpu>")
    found = gc3_(f"verify {broken}", 1).stderr
    assert "GC3-I007" in found
    assert "broken.xml:1" in found
    assert "GC3-I001" in gc3_(f"run {tmp_path}/none.xml", 1).stderr


def test_of_a_long_line_only_the_beginning_is_shown(xml: str) -> None:
    path = Path(xml)
    text = path.read_text()
    path.write_text(
        "\n" + text.replace('name="pair"', f'name="{"x" * 100_000}"').replace('proto="Simple"', 'proto="None"')
    )
    found = gc3_(f"verify {xml}", 1).stderr
    shown = next(line for line in found.splitlines() if line.lstrip().startswith("<algo"))
    assert shown.strip() == f'<algo name="{"x" * 188} ...'  # 200 bytes of the line
    assert len(found) < 1000


def test_the_line_of_a_finding_is_read_and_not_mapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shortening a mapped file ends the process that reads it; a file of /proc cannot be mapped at all."""
    long = tmp_path / "long"
    long.write_bytes(b"x" * 100_000 + b"\nsecond\n\nfourth")
    places = {("/proc/self/status", 1): "Name:", (str(long), 2): "second", (str(long), 4): "fourth"}
    for (file, line), text in places.items():
        output.print_diagnostics(errors.error("FileUnreadable", "a test", file=file, line=line).diagnostics)
        assert f":{line}\n      {text}" in capsys.readouterr().err
    for line in (3, 5, 100):
        output.print_diagnostics(errors.error("FileUnreadable", "a test", file=str(long), line=line).diagnostics)
        assert f":{line}\n  hint" in capsys.readouterr().err


def test_a_name_of_any_length_and_content_does_no_harm_to_the_terminal(xml: str) -> None:
    path = Path(xml)
    path.write_text(path.read_text().replace('name="pair"', f'name="&#27;[2J{"x" * 100_000}"'))
    text = gc3_(f"verify {xml}").stdout
    assert text.startswith(f"\\x1b[2J{'x' * 53} ...: allreduce of 2 ranks")
    assert len(text) < 1500
    assert data_of(f"verify {xml}")["program"]["name"] == "\\x1b[2J" + "x" * 100_000


def test_save_from_python(tmp_path: Path) -> None:
    program = gc3.compile(load("allpairs_allreduce"), R=2)
    path = tmp_path / "p.xml"
    program.save(path, target="azure", max_bytes=4096)
    again = gc3.Program.load(path)
    assert again == program
    assert again.use == gc3.runtime.program.Use(again.in_place, not again.in_place, 0, 4096)
    assert program.use is None
    program.save(tmp_path / "p.gc3")
    assert gc3.Program.load(tmp_path / "p.gc3", collective="allreduce").use is not None
    with pytest.raises(errors.UserError, match=r"is for use (in|out of) place only"):
        gc3.Program.load(tmp_path / "p.gc3", in_place=not program.in_place)
    with pytest.raises(errors.UserError, match="is for allreduce"):
        gc3.Program.load(tmp_path / "p.gc3", collective="allgather")
    with pytest.raises(errors.UserError, match=r"does not end in \.xml"):
        program.save(tmp_path / "q.gc3", dialect="rccl")
    with pytest.raises(errors.UserError, match="there is no target 'nccl'"):
        program.save(path, target="nccl")
    with pytest.raises(errors.UserError, match="GC3-I002"):
        program.save(tmp_path / "no" / "p.xml")
    assert _core.Program.load(str(path)) == program.core


def test_conditions_of_a_file_are_kept_or_reported(xml: str, tmp_path: Path) -> None:
    other, image = tmp_path / "other.xml", tmp_path / "image.gc3"
    use = {"in_place": True, "out_of_place": False, "min_bytes": 1024, "max_bytes": 1024**2}
    for dialect in ("rccl", "msccl"):
        told = gc3_(f"export {xml}:in_place=yes -o {other} --dialect {dialect}").stderr
        assert "cannot keep what the original file states: the other mode, out of place" in told
        assert data_of(f"verify {other}")["use"] == use
    told = gc3_(f"compile {other} -o {image}").stderr
    assert "image.gc3 cannot keep what the original file states: the sizes that it is for" in told
    again = tmp_path / "again.xml"
    assert "does not say" not in gc3_(f"export {other} -o {again} --max-bytes 2MiB").stderr
    assert data_of(f"verify {again}")["use"] == {**use, "max_bytes": 2 * 1024**2}
