"""Programs from Python: the three forms, the listing, and the errors of damaged files."""

import json
from pathlib import Path

import pytest

from gc3 import _core
from gc3.errors import UserError

TEXT = """program "ring" version 1
collective allreduce ranks 2 chunks 2 in place
protocol LL instances 1 slots 1

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send out[0]
    1 recv -> sc[0] signals
  tb 1 channel 0
    0 reduce sc[0] -> out[1] after (0:1)

rank 1
"""


@pytest.fixture
def program() -> _core.Program:
    """A program of two ranks, one of which is idle."""
    return _core.Program.from_text(TEXT)


def test_summary(program: _core.Program) -> None:
    """The properties agree with the text."""
    assert (program.name, program.protocol, program.instances, program.slots) == ("ring", "LL", 1, 1)
    assert program.collective.name == "allreduce"
    assert program.rank_count == 2
    assert program.threadblocks_per_rank == [2, 0]
    assert program.instructions_per_rank == [3, 0]
    assert (program.threadblock_count, program.instruction_count, program.dependency_count) == (2, 3, 1)


def test_round_trips(program: _core.Program, tmp_path: Path) -> None:
    """Text, bytes and file give the same program back."""
    assert program.to_text() == TEXT
    assert _core.Program.from_bytes(program.to_bytes()) == program
    path = str(tmp_path / "p.gc3")
    program.save(path)
    assert _core.Program.load(path) == program
    assert program != "ring"


def test_listing_is_json(program: _core.Program) -> None:
    """The listing is complete and survives JSON."""
    listing = json.loads(json.dumps(program.as_dict()))
    first, second = listing["ranks"][0]["threadblocks"]
    assert (first["send_peer"], first["recv_peer"], first["channel"]) == (1, 1, 0)
    assert second["send_peer"] is None
    assert second["steps"] == [
        {
            "opcode": "reduce",
            "src": {"buffer": "scratch", "chunk": 0},
            "dst": {"buffer": "output", "chunk": 1},
            "count": 1,
            "deps": [[0, 1]],
        }
    ]
    assert listing["ranks"][1] == {"scratch_chunks": 0, "threadblocks": []}


def test_errors_carry_code_and_line(program: _core.Program) -> None:
    """A damaged text names file and line, damaged bytes their code."""
    with pytest.raises(UserError) as text_error:
        _core.Program.from_text(TEXT.replace("send out[0]", "send"), "ring.txt")
    assert (text_error.value.code, text_error.value.file, text_error.value.line) == (
        "GC3-I006",
        "ring.txt",
        7,
    )
    with pytest.raises(UserError) as image_error:
        _core.Program.from_bytes(program.to_bytes()[:-1])
    assert image_error.value.code == "GC3-I005"


def test_xml(program: _core.Program, tmp_path: Path) -> None:
    """XML in both dialects, as str, bytes and file; the allowed calls of the file are kept."""
    for dialect in ("msccl", "rccl"):
        assert _core.Program.from_xml(program.to_xml(dialect)) == program
    xml = program.to_xml("rccl", min_bytes=1, max_bytes=1024)
    assert _core.Program.from_xml(xml.encode()) == program
    with pytest.raises(UserError, match="rank 1 has no threadblock, and the Azure executor cannot launch"):
        program.to_xml("rccl", target="azure")
    path = tmp_path / "p.xml"
    path.write_text(xml)
    assert _core.Program.load(str(path)) == program
    file = _core.read_xml(xml)
    assert (file.in_place, file.out_of_place, file.min_bytes, file.max_bytes) == (True, False, 1, 1024)


def test_xml_names_are_unicode(program: _core.Program) -> None:
    """A name keeps its characters through str and bytes."""
    renamed = _core.Program.from_text(TEXT.replace("ring", "r\u00efng \u4e2d"))
    xml = renamed.to_xml()
    assert _core.Program.from_xml(xml).name == "r\u00efng \u4e2d"
    assert _core.Program.from_xml(xml.encode()) == renamed != program


def test_xml_errors(program: _core.Program) -> None:
    """Unknown dialects and targets, limits, and files that do not parse."""
    with pytest.raises(UserError, match="expected 'msccl' or 'rccl'"):
        program.to_xml("nccl")
    with pytest.raises(UserError, match="the target 'rccl' does not read the dialect msccl"):
        program.to_xml("msccl", target="rccl")
    with pytest.raises(UserError) as broken:
        _core.Program.from_xml("<algo>", "x.xml")
    assert (broken.value.code, broken.value.file, broken.value.line) == ("GC3-I007", "x.xml", 1)


def test_opcode_table() -> None:
    """The table is the one of opcodes.def."""
    spelled = {op.name: op.xml for op in _core.opcodes()}
    assert spelled["recv_reduce_copy_send"] == "rrcs"
    assert len(set(spelled.values())) == len(spelled)
    assert all(op.doc for op in _core.opcodes())
