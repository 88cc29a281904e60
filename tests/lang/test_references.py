"""References as people use them: parts, groups, places without an index, threadblocks given in part, open results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import SourceProgram, algorithms, chunk, collectives, errors
from gc3.cli.main import main


def traced(collective: Any, write: Callable[[], None], **how: Any) -> SourceProgram:
    program = SourceProgram("p", collective, **how)
    with program:
        write()
    return program


def refused(write: Callable[[], None], collective: Any = "allgather", **how: Any) -> errors.UserError:
    with pytest.raises(errors.UserError) as caught:
        traced(collective, write, **({"ranks": 3, "chunks": 4} | how))
    assert Path(caught.value.file).name == Path(__file__).name
    return caught.value


def test_split_and_group() -> None:
    def write() -> None:
        for rank in range(3):
            parts = chunk(rank, "in", 0, 4).split(2)
            assert [(p.index, p.count) for p in parts] == [(0, 2), (2, 2)]
            for to in range(3):
                first, second = (p.copy(to, "scratch") for p in parts)
                whole = second.group(first)
                assert (whole.rank, whole.count) == (to, 4)
                whole.copy(to, "out", 4 * rank)

    gc3.verify(gc3.compile(traced("allgather", write, ranks=3, chunks=4)))


def test_a_copy_without_an_index_appends_and_one_with_a_rank_alone_keeps_its_place() -> None:
    def write() -> None:
        a = chunk(0, "in", 1, 2).copy(1, "scratch")
        b = chunk(0, "in", 0).copy(1, "scratch")
        assert [(c.index, c.count) for c in (a, b)] == [(0, 2), (2, 1)]
        c = b.copy(2)
        assert (c.rank, c.buffer, c.index) == (2, "scratch", 2)
        assert b.copy(1).index == 2  # onto itself

    traced("allgather", write, ranks=3, chunks=4)


@pytest.mark.parametrize(
    ("write", "code", "message"),
    [
        (lambda: chunk(0, "in", 0, 3).split(2), "GC3-L003", "3 chunks split into 2"),
        (lambda: chunk(0, "in", 0, 3).split(0), "GC3-L003", "3 chunks split into 0"),
        (lambda: chunk(0, "in", 0).group(chunk(0, "in", 2)), "GC3-L009", "do not touch"),
        (lambda: chunk(0, "in", 0).group(chunk(1, "in", 1)), "GC3-L009", "do not touch"),
        (lambda: chunk(0, "in", 0).copy(1, "out"), "GC3-L009", "output without an index"),
        (lambda: chunk(0, "in", 0).copy(1, index=2), "GC3-L009", "an index without a buffer"),
        (lambda: chunk(0, "in", 0).copy(3, "scratch"), "GC3-L007", "rank 3 of 3"),
        (lambda: chunk(0, "in", 0).copy(1), "GC3-L010", "read-only input"),
    ],
)
def test_misuse_is_refused_at_the_line(write: Callable[[], None], code: str, message: str) -> None:
    problem = refused(write)
    assert problem.code == code
    assert message in problem.message


def test_a_group_of_a_stale_part_is_refused() -> None:
    def write() -> None:
        a = chunk(0, "in", 0).copy(1, "scratch", 0)
        b = chunk(0, "in", 1).copy(1, "scratch", 1)
        chunk(0, "in", 2).copy(1, "scratch", 0)
        a.group(b)

    assert refused(write).code == "GC3-L001"


@pytest.mark.parametrize("rank", range(2))
@pytest.mark.parametrize(
    "given", [{"sendtb": 0, "recvtb": 0}, {"sendtb": 0}, {"recvtb": 0}, {"sendtb": 3, "recvtb": 1, "ch": 1}]
)
def test_threadblocks_may_be_given_in_part(given: dict[str, int], rank: int) -> None:
    """The operations of one rank give threadblocks; the compiler chooses those of the others."""

    def write() -> None:
        for source in range(3):
            for step in range(2):
                c = chunk(source, "in", 2 * step, 2)
                for to in ((source + 1) % 3, (source + 2) % 3):
                    mine = given if source == rank and to == (rank + 1) % 3 else {}
                    c.copy(to, "out", 4 * source + 2 * step, **mine)
                c.copy(source, "out", 4 * source + 2 * step)

    for instances in (1, 2):
        compiled = gc3.compile(traced("allgather", write, ranks=3, chunks=4), instances=instances)
        gc3.verify(compiled)


def test_an_operation_without_threadblocks_joins_the_connection_that_has_them() -> None:
    def write(ch: int | None) -> None:
        chunk(0, "in", 0).copy(1, "out", 0, sendtb=4, recvtb=2, ch=1)
        chunk(0, "in", 1).copy(1, "out", 1, ch=ch)

    for ch, blocks in ((None, 1), (1, 1), (0, 2)):
        program = traced("alltonext", lambda ch=ch: write(ch), ranks=2, chunks=2)
        compiled = gc3.compile(program)
        gc3.verify(compiled)
        assert [compiled.info()["max_threadblocks_per_rank"]] == [blocks]


def test_fusion_can_be_switched_off() -> None:
    ring = algorithms.load("ring_allreduce")
    fused, plain = (gc3.compile(ring, R=3, fuse=fuse) for fuse in (True, False))

    def opcodes(program: gc3.Program) -> set[str]:
        return {step.opcode for rank in range(3) for block in program.threadblocks(rank) for step in block.steps}

    assert opcodes(fused) & {"recv_reduce_send", "recv_reduce_copy_send", "recv_copy_send"}
    assert opcodes(plain) <= {"send", "recv", "recv_reduce_copy", "nop"}
    gc3.verify(plain)
    result = CliRunner().invoke(main, ["show", "ring_allreduce:R=3,fuse=no"])
    assert result.exit_code == 0
    assert "recv_reduce_send" not in result.stdout


def test_views_of_the_schedule_agree_with_the_text_form() -> None:
    compiled = gc3.compile(algorithms.load("ring_allreduce"), R=3, channels=2)
    (first, *_) = blocks = compiled.threadblocks(1)
    assert (first.rank, first.index, first.send_peer, first.recv_peer, first.channel) == (1, 0, 2, 0, 0)
    assert sum(len(block.steps) for block in blocks) == compiled.core.instructions_per_rank[1]
    for step in first.steps:
        assert (step.source is None) == (step.opcode in ("recv", "recv_copy_send"))
        assert step.sends or step.receives
        assert step.count == 1
    with pytest.raises(AttributeError):
        first.channel = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(errors.UserError) as caught:
        compiled.threadblocks(3)
    assert caught.value.code == "GC3-L007"


OPEN = collectives.custom("open", inputs=[2, 2], outputs=[1, 2], expect="whatever it makes")


def sums() -> None:
    chunk(0, "in", 0).copy(0, "out", 0)
    chunk(0, "out", 0).reduce(chunk(1, "in", 1)).copy(1, "out", 1)
    chunk(0, "out", 0).reduce(chunk(1, "in", 1))


def test_whatever_a_program_makes_is_proven_of_its_schedule() -> None:
    compiled = gc3.compile(traced(OPEN, sums), instances=2)
    gc3.verify(compiled)
    assert compiled.collective.expected_terms(0, 1) == [(0, 1), (1, 3), (1, 3)]
    assert compiled.collective.expected_terms(1, 0) == []  # never written: any value
    assert compiled.collective.expected_terms(1, 2) == [(0, 0), (1, 2)]
    data = [np.arange(8), 100 + np.arange(8)]
    out = compiled.run(data)
    assert np.array_equal(np.asarray(out[0]), data[0][:4] + 2 * data[1][4:])


def test_a_function_judges_the_result() -> None:
    seen: list[list[tuple[int, int]]] = []

    def fine(made: collectives.Made) -> bool:
        seen.extend(made(rank, index) for rank, index in ((0, 0), (1, 0), (1, 1)))
        return made(1, 1) == [(0, 0), (1, 1)]

    def collective(check: Any) -> collectives.Collective:
        return collectives.custom("judged", inputs=[2, 2], outputs=[1, 2], check=check)

    gc3.verify(gc3.compile(traced(collective(fine), sums)))
    assert seen == [[(0, 0), (1, 1), (1, 1)], [], [(0, 0), (1, 1)]]
    for verdict, why in ((False, "check() returned False"), (None, "check() returned None"), ("too much", "too much")):
        with pytest.raises(errors.UserError) as caught:
            gc3.compile(traced(collective(lambda _made, verdict=verdict: verdict), sums))
        assert caught.value.code == "GC3-L015"
        assert why in caught.value.message


def test_a_result_is_given_in_one_way() -> None:
    for given in (
        {},
        {"expect": {}, "check": print},
        {"expect": "whatever it makes", "check": print},
        {"expect": "it"},
    ):
        with pytest.raises(errors.UserError) as caught:
            collectives.custom("c", inputs=[1], outputs=[1], **given)  # pyright: ignore[reportArgumentType]
        assert caught.value.code == "GC3-M001"


def test_a_result_of_too_many_inputs_is_refused() -> None:
    def doubling() -> None:
        chunk(0, "in", 0).copy(0, "scratch", 0)
        for _ in range(40):
            c = chunk(0, "scratch", 0).copy(0, "scratch", 1)
            chunk(0, "scratch", 0).reduce(c)

    with pytest.raises(errors.UserError) as caught:
        gc3.compile(traced(OPEN, doubling))
    assert caught.value.code == "GC3-C002"


MINE = """from gc3 import collectives
mirror = collectives.custom("mirror", inputs=[2, 2], outputs=[2, 2], expect=lambda rank, i: (1 - rank, i))
def made(): return mirror
seven = 7
free = collectives.custom("free", inputs=[2, 2], outputs=[2, 2], expect="whatever it makes")
"""

STEP = '<step s="{}" type="{}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{}" depid="-1" deps="-1" hasdep="0"/>'


def mirror_xml(per_loop: int) -> str:
    lines = [
        f'<algo name="m" proto="Simple" nchannels="1" nchunksperloop="{per_loop}" ngpus="2" coll="custom" inplace="0">'
    ]
    for rank in range(2):
        lines += [
            f'<gpu id="{rank}" i_chunks="{per_loop}" o_chunks="{per_loop}" s_chunks="0">',
            f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">',
            STEP.format(0, "s", per_loop),
            STEP.format(1, "r", per_loop),
            "</tb></gpu>",
        ]
    return "\n".join([*lines, "</algo>"])


@pytest.mark.parametrize("per_loop", [2, 4])  # 4: the writer cut each chunk into two instances
def test_a_custom_collective_for_xml_at_the_command_line(tmp_path: Path, per_loop: int) -> None:
    (tmp_path / "my.py").write_text(MINE)
    (tmp_path / "m.xml").write_text(mirror_xml(per_loop))
    xml, mine = str(tmp_path / "m.xml"), str(tmp_path / "my.py")

    def verify(collective: str, *more: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["verify", f"{xml}:collective={collective}", *more])
        return result.exit_code, result.output

    for name in ("mirror", "made"):
        code, output = verify(f"{mine}:{name}")
        assert code == 0, output
        assert "implements mirror" in output
    for name, code, message in (
        (f"{mine}:seven", 1, "has no collective 'seven'; it has mirror, free"),
        (f"{mine}:free", 1, "states no result of its own"),
        ("nowhere.py:mirror", 1, "GC3-I001"),
        ("mirror", 2, "expected one of allreduce"),
    ):
        assert verify(name)[0] == code
        assert message in " ".join(verify(name)[1].split())
    compiled = str(tmp_path / "m.gc3")
    assert CliRunner().invoke(main, ["compile", f"{xml}:collective={mine}:mirror", "-o", compiled]).exit_code == 0
    result = CliRunner().invoke(main, ["verify", f"{compiled}:collective={mine}:mirror"])
    assert result.exit_code == 1
    assert "it contains its collective" in result.output
