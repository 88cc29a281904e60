"""Scripts written for msccl-tools run as they are: traced, refused or proven, with nothing called msccl installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import errors, mscclang
from gc3.cli.main import main
from gc3.cli.script import main as script_main

pytestmark = pytest.mark.python_only

HEAD = """import argparse
from msccl.language import *
from msccl.topologies import *
from msccl.language.collectives import *
"""

RING = """
def ring(ranks, instances):
    with MSCCLProgram("ring", fully_connected(ranks), AllReduce(ranks, ranks, True), instances,
                      threadblock_policy=ThreadblockPolicy.manual):
        for step in range(2 * ranks - 2):
            for index in range(ranks):
                here, there = (index + step) % ranks, (index + step + 1) % ranks
                c = chunk(here, Buffer.input, index)
                if step < ranks - 1:
                    chunk(there, Buffer.input, index).reduce(c, sendtb=0, recvtb=0, ch=0)
                else:
                    c.copy(there, Buffer.output, index, sendtb=0, recvtb=0, ch=0)
        XML()
        Check()

parser = argparse.ArgumentParser()
parser.add_argument("ranks", type=int)
parser.add_argument("--instances", type=int, default=1)
args = parser.parse_args()
ring(args.ranks, args.instances)
"""

GATHERED = """
with MSCCLProgram("two_step", fully_connected(4), AllToAll(4, 1, False), 1):
    parts = {}
    for source in range(4):
        for node in range(2):
            if source // 2 == node:
                for local in range(2):
                    c = chunk(source, Buffer.input, 2 * node + local)
                    c.copy(c.get_dst_rank(), Buffer.output, c.get_dst_index())
            else:
                key = (source // 2, node)
                c = chunk(source, Buffer.input, 2 * node, 2).copy(2 * (source // 2), key)
                parts[key] = parts[key].group(c) if key in parts else c
    for (one, other), part in parts.items():
        for c in part.copy(2 * other, "arrived").split(4):
            assert c.get_origin_rank() // 2 == one and c.get_origin_index() == c.get_dst_rank()
            c.copy(c.get_dst_rank(), Buffer.output, c.get_dst_index())
    Check()
"""

MIRROR = """
class Mirror(Collective):
    def init_buffers(self):
        return [{Buffer.input: [Chunk(r, c, self.num_ranks - 1 - r, c) for c in range(self.chunk_factor)],
                 Buffer.output: [None] * self.chunk_factor} for r in range(self.num_ranks)]

    def check(self, prog):
        right = True
        for r in range(self.num_ranks):
            for c, held in enumerate(prog.buffers[r][Buffer.output]):
                if held != Chunk(self.num_ranks - 1 - r, c):
                    print("rank", r, "chunk", c, "holds", held)
                    right = False
        return right

with MSCCLProgram("mirror", ring(4), Mirror(4, 2, False), 2):
    for r in range(4):
        c = chunk(r, Buffer.input, 0, 2)
        if r in (0, 3):
            c.copy(3 - r, Buffer.output, 0)
        else:
            c.copy(%s, Buffer.output, 0)
"""

TREE_OF_AN_EARLIER_VERSION = """
with MSCCLProgram("pair", fully_connected(2), AllReduce(2, 1, True), 1):
    c = chunk(1, Buffer.input, 0).reduce(0, Buffer.input, 0)
    c.send(1, Buffer.input, 0)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes a script and returns its path."""

    def write(body: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(HEAD + body)
        return str(path)

    return write


Script: TypeAlias = "Callable[[str], str]"


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def only(path: str, *args: str) -> gc3.Program:
    """The compiled, proven program of a script that makes one."""
    (program,) = mscclang.run(path, args)
    compiled = program.compiled()
    gc3.verify(compiled)
    return compiled


def test_a_ring_with_manual_threadblocks_is_proven(script: Script) -> None:
    compiled = only(script(RING), "4", "--instances", "2")
    assert compiled.collective.name == "allreduce"
    assert compiled.in_place
    assert compiled.info()["instances"] == 2
    assert compiled.info()["max_threadblocks_per_rank"] == 2


def test_chunks_know_where_they_go_and_scratch_is_appended_to(script: Script) -> None:
    assert only(script(GATHERED)).collective.name == "alltoall"


def test_chunks_of_a_block_go_to_places_of_their_own(script: Script) -> None:
    body = """
with MSCCLProgram("direct", fully_connected(3), AllToAll(3, 2, False), 1):
    for rank in range(3):
        for index in range(6):
            c = chunk(rank, Buffer.input, index)
            c.copy(c.get_dst_rank(), Buffer.output, c.get_dst_index())
"""
    assert only(script(body)).collective.name == "alltoall"
    to_all = (
        body.replace("AllToAll", "AllGather")
        .replace("range(6)", "range(2)")
        .replace("c.copy(c.get_dst_rank()", "[c.copy(to")
        .replace("dst_index())", "dst_index()) for to in range(3)]")
    )
    assert only(script(to_all)).collective.name == "allgather"


def test_a_custom_collective_is_proven_against_what_its_check_accepts(script: Script) -> None:
    compiled = only(script(MIRROR % "3 - r"))
    # The instances cut each of the two chunks into two.
    for rank in range(4):
        assert [compiled.collective.expected_terms(rank, i) for i in range(4)] == [[(3 - rank, i)] for i in range(4)]


def test_a_custom_collective_whose_check_refuses_is_refused(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(MIRROR % "r ^ 1 if r == 1 else 3")
    with pytest.raises(errors.UserError) as caught:
        only(path)
    assert caught.value.code == "GC3-L015"
    assert "check() of Mirror refuses what 'mirror' makes" in caught.value.message
    assert caught.value.file == path
    assert "chunk 0 holds" in capsys.readouterr().out


def test_calls_of_earlier_versions(script: Script) -> None:
    only(script(TREE_OF_AN_EARLIER_VERSION))


def test_a_wrong_program_is_refused_at_the_users_line(script: Script) -> None:
    path = script(RING.replace("2 * ranks - 2", "2 * ranks - 3"))
    result = invoke("compile", path, "--", "3")
    assert result.exit_code == 1
    assert "GC3-L015" in result.stderr


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("chunk(0, Buffer.input, 0).copy(1, Buffer.output)", "GC3-L009", "without an index"),
        ("chunk(0, Buffer.input, 0).copy(1, index=0)", "GC3-L009", "without a buffer"),
        ("chunk(0, Buffer.input, 0).copy(2, Buffer.output, 0)", "GC3-M007", "no link from rank 0 to rank 2"),
        ("chunk(0, Buffer.input, 7)", "GC3-L005", "index 7"),
        ("chunk(9, Buffer.input, 0)", "GC3-L007", "rank 9 of 4"),
        ("chunk(0, Buffer.input, 0).copy(9, 'x')", "GC3-L007", "rank 9 of 4"),
        ("chunk(0, Buffer.input, 0).reduce(chunk(0, Buffer.input, 0, 2))", "GC3-L004", "2 chunks"),
        ("chunk(0, Buffer.input, 0, 2).split(3)", "GC3-L003", "2 chunks split into 3"),
        ("chunk(0, Buffer.input, 0).group(chunk(1, Buffer.input, 0))", "GC3-L009", "in one buffer"),
        ("chunk(0, Buffer.output, 0).copy(1, 'x')", "GC3-L002", "so chunk() returned None"),
    ],
)
def test_mistakes_are_one_message_at_the_scripts_line(script: Script, line: str, code: str, message: str) -> None:
    path = script(f"with MSCCLProgram('p', ring(4), AllReduce(4, 4, False), 1):\n    {line}\n")
    with pytest.raises(errors.UserError) as caught:
        mscclang.run(path)
    assert caught.value.code == code
    assert message in caught.value.message
    assert (caught.value.file, caught.value.line) == (path, HEAD.count("\n") + 2)


def test_chunk_of_nothing_is_none(script: Script) -> None:
    path = script(
        "with MSCCLProgram('p', fully_connected(2), AllGather(2, 1, False), 1):\n"
        "    assert chunk(0, Buffer.output, 1) is None\n"
        "    for r in range(4):\n"
        "        chunk(r % 2, Buffer.input, 0).copy(r // 2, Buffer.output, r % 2)\n"
    )
    only(path)


def test_msccl_is_served_to_scripts_only(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("msccl")
    monkeypatch.setitem(sys.modules, "msccl", installed)
    before = list(sys.meta_path)
    only(script("assert not hasattr(__import__('msccl'), '__file__')\n" + TREE_OF_AN_EARLIER_VERSION))
    assert sys.modules["msccl"] is installed
    assert sys.meta_path == before
    assert not any(name.startswith("msccl.") for name in sys.modules)


def test_what_msccl_tools_would_have_made_wrong_is_said(script: Script) -> None:
    path = script(
        "with MSCCLProgram('p', fully_connected(2), AllReduce(2, 1, True), 1):\n"
        "    c = chunk(1, Buffer.input, 0).copy(1, 'kept', 0)\n"
        "    chunk(0, Buffer.input, 0).reduce(c).copy(1, Buffer.input, 0)\n"
    )
    (program,) = mscclang.run(path)
    assert list(program.remarks.values()) == [HEAD.count("\n") + 3]
    gc3.verify(program.compiled())


def test_compile_takes_the_scripts_arguments_after_two_dashes(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "ring.xml"
    result = invoke("export", script(RING), "-o", str(out), "--json", "--", "3", "--instances", "2")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["program"]["instances"] == 2
    assert invoke("verify", str(out)).exit_code == 0
    assert invoke("run", script(RING), "--size", "1KiB", "--", "3").exit_code == 0
    assert "postcondition" not in invoke("show", script(RING), "--dump", "trace", "--", "3").output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("compile", "SCRIPT", "--", "x"), "ended with exit status 2; give its arguments after --"),
        (("compile", "SCRIPT:R=3", "--", "3"), "decides that itself"),
        (("compile", "SCRIPT:collective=allreduce", "--", "3"), "names its collective"),
        (("compile", "ring_allreduce:R=3", "--", "3"), "is no script of MSCCLang"),
        (("compile", "SCRIPT:7", "--", "3"), "makes the programs 1 ring: name one"),
    ],
)
def test_mistakes_on_the_command_line(script: Script, args: tuple[str, ...], message: str) -> None:
    path = script(RING)
    result = invoke(*(arg.replace("SCRIPT", path) for arg in args))
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_a_script_with_several_programs(script: Script) -> None:
    path = script(TREE_OF_AN_EARLIER_VERSION + TREE_OF_AN_EARLIER_VERSION.replace("pair", "other"))
    assert "1 pair, 2 other" in invoke("compile", path).stderr
    for which in ("2", "other"):
        assert "other: allreduce" in invoke("compile", f"{path}:{which}").output


def test_run_as_a_module_prints_xml_and_proves(script: Script) -> None:
    result = CliRunner().invoke(script_main, [script(RING), "3", "--instances", "2"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith('<algo name="ring"')
    assert result.stdout.endswith("</algo>\n")
    assert "proven: it implements allreduce" in result.stderr
    assert CliRunner().invoke(script_main, [script(RING), "x"]).exit_code == 2
    wrong = CliRunner().invoke(script_main, [script(RING.replace("- 2)", "- 3)")), "3"])
    assert wrong.exit_code == 1
    assert "<algo" not in wrong.stdout
    assert CliRunner().invoke(script_main, ["nowhere.py"]).exit_code == 1


def test_an_exception_of_the_script_is_blamed_on_its_line(script: Script) -> None:
    result = invoke("compile", script("raise RuntimeError('mine')\n"))
    assert result.exit_code == 1
    assert "GC3-L019" in result.stderr
    assert "RuntimeError: mine" in result.stderr


def test_programs_do_not_nest_and_need_a_block(script: Script) -> None:
    opened = "with MSCCLProgram('p', fully_connected(2), AllReduce(2, 1, True), 1):\n"
    for body, code in (
        (opened + "    " + opened + "        pass\n", "GC3-L017"),
        ("chunk(0, Buffer.input, 0)\n", "GC3-L014"),
        (opened.replace("AllReduce(2", "AllReduce(3") + "    pass\n", "GC3-M001"),
    ):
        with pytest.raises(errors.UserError) as caught:
            mscclang.run(script(body))
        assert caught.value.code == code


def test_topologies_say_who_is_linked(script: Script) -> None:
    path = script(
        "from msccl.topologies.nvidia import *\n"
        "from msccl.topologies.distributed import *\n"
        "one = dgx1()\n"
        "assert one.num_nodes() == 8 and one.link(0, 4) and not one.link(0, 5)\n"
        "two = distributed_fully_connected(one, 2, 1)\n"
        "assert two.link(0, 9) and two.link(8, 12) and not two.link(8, 13) and not two.link(3, 3)\n"
        "assert line(3).link(0, 1) and not line(3).link(0, 2) and star(3).link(2, 0) and not star(3).link(1, 2)\n"
        "assert reverse_topology(Topology('t', [[0, 0], [1, 0]])).link(1, 0)\n"
    )
    assert mscclang.run(path) == []
