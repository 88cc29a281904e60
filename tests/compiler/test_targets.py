"""How the runtimes that read MSCCL XML execute a file, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import errors
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.comm import programs
from gc3.runtime import targets

Write = Callable[..., str]


def gc3_(line: str, code: int = 0) -> Result:
    """Runs a command line and checks its exit code."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


def step(what: str, dep: str = "-1:-1", *, signals: bool = False) -> str:
    """A step such as "re s1 o0 x2": opcode, source, destination, count."""
    found = re.fullmatch(r"(\w+)(?: (\w)(-?\d+) (\w)(-?\d+))?(?: x(\d+))?", what)
    assert found is not None, what
    opcode, src, srcoff, dst, dstoff, count = found.groups()
    tb, _, at = dep.partition(":")
    return (
        f'type="{opcode}" srcbuf="{src or "i"}" srcoff="{srcoff or -1}" dstbuf="{dst or "o"}" dstoff="{dstoff or -1}" '
        f'cnt="{count or (0 if opcode == "nop" else 1)}" depid="{tb}" deps="{at}" hasdep="{int(signals)}"'
    )


def tb(steps: list[str], send: int = -1, recv: int = -1, chan: int = 0) -> tuple[tuple[int, int, int], list[str]]:
    """A threadblock."""
    return (send, recv, chan), steps


def xml(
    ranks: list[list[Any]],
    *,
    chunks: int,
    coll: str = "allreduce",
    use: str = 'inplace="0" outofplace="1" minBytes="0" maxBytes="4096"',
    scratch: int = 0,
    sizes: tuple[int, int] | None = None,
    name: str = "t",
    channels: int = 1,
) -> str:
    """A file of these threadblocks."""
    i, o = sizes or (chunks, chunks)
    lines = [
        f'<algo name="{name}" proto="Simple" nchannels="{channels}" nchunksperloop="{chunks}" ngpus="{len(ranks)}" '
        f'coll="{coll}" {use}>'
    ]
    for rank, tbs in enumerate(ranks):
        lines.append(f'  <gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{scratch}">')
        for t, ((send, recv, chan), steps) in enumerate(tbs):
            lines.append(f'    <tb id="{t}" send="{send}" recv="{recv}" chan="{chan}">')
            lines += [f'      <step s="{s}" {text}/>' for s, text in enumerate(steps)]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and returns its name."""

    def to_file(text: str) -> str:
        path = tmp_path / "t.xml"
        path.write_text(text)
        return str(path)

    return to_file


def three_ranks(reductions: list[str], before: tuple[str, ...] = ()) -> str:
    """An AllReduce of 3 ranks and 2 chunks: all ranks send all data to all, and reduce with the given steps."""
    ranks: list[list[Any]] = []
    for rank in range(3):
        others = [r for r in range(3) if r != rank]
        tbs = [
            tb([step("s i0 i0 x2"), step(f"r s{2 * k} s{2 * k} x2", signals=True)], send=other, recv=other)
            for k, other in enumerate(others)
        ]
        waits = [step("cpy i0 o0 x2"), step("nop", "1:1"), *before]
        ranks.append([*tbs, tb([*waits, *reductions])])
    return xml(ranks, chunks=2, scratch=4)


def test_merged_reductions_take_the_last_count(write: Write) -> None:
    """The first is of two chunks, the one merged with it of one: the runtimes reduce one chunk of either."""
    merged = [step("re s0 o0 x2", "0:1"), step("re s2 o0"), step("re s3 o1")]
    file = write(three_ranks(merged))
    assert gc3.verify(gc3.Program.load(file)).ok
    told = gc3_(f"verify {file}").stdout
    for runtime in targets.NAMES:
        verdict = targets.judge(file, runtime)
        assert [d.code for d in verdict.refused] == []
        assert {d.code for d in verdict.diagnostics} == {"GC3-V008"}
        assert f"  {runtime}: wrong: GC3-V008" in told
        found = gc3_(f"verify {file} --target {runtime}", 1)
        assert "GC3-V008" in found.stderr
        assert "not proven" in found.stderr
    # The program that the runtime executes, run here, is wrong indeed.
    executed = gc3.Program.load(file, runtime="rccl")
    executed.trust()
    assert [list(out) for out in executed.run([[1, 1]] * 3) if out is not None] == [[3, 2]] * 3
    apart = [step("re s0 o0 x2", "0:1", signals=True), step("re s2 o0"), step("re s3 o1")]
    file = write(three_ranks(apart))
    assert all(verdict.ok for verdict in targets.judge_all(file))
    assert gc3_(f"verify {file} --target rccl").stdout.endswith(
        "this is the program that rccl executes for the file, for calls whose data it can divide into 2 equal chunks\n"
    )


def test_merged_reductions_of_equal_counts_are_right(write: Write) -> None:
    file = write(three_ranks([step("re s0 o0 x2", "0:1"), step("re s2 o0 x2")]))
    for runtime in targets.NAMES:
        assert targets.judge(file, runtime).ok
        assert gc3.Program.load(file, runtime=runtime) == gc3.Program.load(file)


def test_a_dependency_inside_merged_reductions_comes_too_late(write: Write) -> None:
    """The dependency goes to the operation after them."""
    late = [step("re s0 o0 x2", "0:1"), step("nop", "1:1"), step("re s2 o0 x2"), step("cpy o0 s0", "0:1")]
    text = three_ranks(late).replace(
        f'{step("nop", "1:1")}/>\n      <step s="2"', f'{step("nop")}/>\n      <step s="2"'
    )
    file = write(text)
    assert gc3.verify(gc3.Program.load(file)).ok
    assert {d.code for d in targets.judge(file, "rccl").diagnostics} == {"GC3-V007"}


def test_chains_of_nops_end_in_a_dependency(write: Write) -> None:
    file = write(three_ranks([step("re s0 o0 x2"), step("re s2 o0 x2")], (step("nop", "0:1"),)))
    assert gc3.verify(gc3.Program.load(file)).ok
    for runtime in targets.NAMES:
        refused = targets.judge(file, runtime).refused
        assert [d.code for d in refused] == ["GC3-I009"]
        assert refused[0].hint.startswith("lower what the message says is above the limit, or write for another target")
        assert (
            refused[0].where.line
            == Path(file).read_text().splitlines().index(f'      <step s="3" {step("re s0 o0 x2")}/>') + 1
        )
        assert "takes further dependencies on a nop only where" in gc3_(f"verify {file} --target {runtime}", 1).stderr
    assert "  azure: refused: GC3-I009" in gc3_(f"verify {file}").stdout


def test_waits_count_as_the_runtimes_do(write: Write) -> None:
    """A nop without a dependency counts only in the file: waits for steps after it wait for later ones."""
    counted = [step("nop"), step("cpy i0 o0", signals=True)]
    file = write(xml([[tb(counted), tb([step("nop", "0:1"), step("cpy i0 s0", "0:1")])]], chunks=1, scratch=1))
    assert gc3.verify(gc3.Program.load(file)).ok
    assert "which RCCL never sees done" in targets.judge(file, "rccl").refused[0].message
    # The wait for step 1 waits for the runtime's step 1: the second copy.
    later = [step("nop"), step("cpy i0 o0", signals=True), step("cpy i0 s0", signals=True)]
    file = write(xml([[tb(later), tb([step("cpy o0 s1", "0:1")])]], chunks=1, scratch=2))
    executed = gc3.Program.load(file, runtime="azure")
    assert "after (0:1)" in executed.text
    assert "after (0:0)" in gc3.Program.load(file).text
    assert targets.judge(file, "azure").ok


def test_sixteen_reductions_are_merged_and_not_more(write: Write) -> None:
    def reducing(first: int, then: int) -> str:
        steps = [step(f"cpy i0 s{k}") for k in (0, 1, 2, 3, 9)]
        steps += [step(f"re s{k % 4} s9", signals=k == first - 1) for k in range(first + then)]
        return write(xml([[tb([*steps, step("cpy i0 o0")])]], chunks=1, scratch=10))

    assert targets.judge(reducing(16, 0), "msccl").ok
    assert targets.judge(reducing(0, 32), "msccl").ok  # the first 16 of a threadblock end a run
    assert targets.judge(reducing(0, 33), "msccl").refused  # later ones do not
    assert targets.judge(reducing(10, 20), "msccl").ok
    refused = targets.judge(reducing(1, 32), "msccl").refused
    assert "more than 16 overrun an array" in refused[0].message


def test_large_chunks_take_a_slot_each(write: Write) -> None:
    """Both ranks send three chunks before they receive: correct only while they fit the slots of two messages."""

    def swap(count: int) -> str:
        ranks = [
            [tb([step(f"s i0 i0 x{count}"), step(f"rrc i0 o0 x{count}")], send=1 - r, recv=1 - r)] for r in range(2)
        ]
        return write(xml(ranks, chunks=count))

    file = swap(3)
    assert gc3.verify(gc3.Program.load(file)).ok
    found = targets.judge(file, "azure")
    assert [d.code for d in found.diagnostics] == ["GC3-V005"]
    assert "each of a message takes a FIFO slot" in "".join(note.text for note in found.diagnostics[0].notes)
    assert targets.judge(swap(2), "azure").ok


PAIR = [[tb([step("s i0 i0"), step("rrc i0 o0")], send=1 - r, recv=1 - r)] for r in range(2)]
BOTH = 'inplace="1" outofplace="1" minBytes="0" maxBytes="4096"'


def test_each_mode_is_looked_at(write: Write) -> None:
    """In place, the second rank's sum is what it sends; out of place its input is unchanged."""
    file = write(xml(PAIR, chunks=1, use=BOTH))
    verdict = targets.judge(file, "azure")
    assert verdict.ok
    assert [program.in_place for program, _ in verdict.modes] == [False, True]
    assert [program.in_place for program, _ in targets.judge(file, "msccl").modes] == [True]  # it has only inplace
    assert "for use in place only" in targets.judge(file, "msccl", in_place=False).refused[0].message
    data = json.loads(gc3_(f"verify {file} --target azure --json").stdout)
    assert (data["target"], [mode["in_place"] for mode in data["modes"]]) == ("azure", [False, True])
    on = json.loads(gc3_(f"verify {file} --json").stdout)["runtimes"]
    assert [(name, on[name]["ok"], on[name]["refused"]) for name in on] == [
        ("msccl", True, False),
        ("azure", True, False),
        ("rccl", False, True),
    ]


def wrong_in_place() -> str:
    """Receives into the output and adds the input to it, which in place is what was received."""
    ranks = [[tb([step("s i0 i0"), step("r o0 o0"), step("re i0 o0")], send=1 - r, recv=1 - r)] for r in range(2)]
    return xml(ranks, chunks=1, use=BOTH)


def test_a_file_for_both_modes_is_proven_for_both(write: Write, tmp_path: Path) -> None:
    file = write(wrong_in_place())
    assert "not proven in place" in gc3_(f"verify {file}", 1).stderr
    gc3_(f"verify {file}:in_place=no")
    assert "GC3-V008" in gc3_(f"verify {file}:in_place=yes", 1).stderr
    data = json.loads(gc3_(f"verify {file} --json", 1).stdout)
    assert (data["ok"], [mode["ok"] for mode in data["modes"]]) == (False, [True, False])
    gc3_(f"compile {file} -o {tmp_path}/x.gc3", 1)
    assert not (tmp_path / "x.gc3").exists()
    gc3_(f"compile {file}:in_place=no -o {tmp_path}/x.gc3")
    gc3_(f"run {file} --size 64B --dtype int32", 1)
    gc3_(f"run {file}:in_place=no --size 64B --dtype int32")
    gc3_(f"run {file}:prove=no --size 64B --dtype int32", 1)
    check = json.loads(gc3_(f"run {file}:prove=no --size 64B --dtype int32 --json", 1).stdout)["check"]
    assert (check["ok"], [mode["ok"] for mode in check["modes"]]) == (False, [True, False])
    gc3_(f"run {file} --size 64B --no-check")  # one run, of the correct mode
    right = write(xml(PAIR, chunks=1, use=BOTH))
    assert "proven, in place: it implements allreduce" in gc3_(f"verify {right}").stdout
    ran = gc3_(f"run {right} --size 64B").stdout
    assert "checked 32 elements of 2 ranks in place: all equal" in ran
    assert "checked 32 elements of 2 ranks out of place: all equal" in ran


RULES: list[tuple[str, str, str, str]] = [
    ("azure", ' outofplace="1"', "", "all three: gc3 export FILE.xml -o NEW.xml --target azure writes"),
    ("rccl", ' maxBytes="4096"', "", "all three: gc3 export FILE.xml -o NEW.xml --target rccl writes"),
    ("azure", 'minBytes="0" maxBytes="4096"', 'minBytes="9" maxBytes="8"', "and there are none"),
    ("msccl", 'minBytes="0" maxBytes="4096"', 'minBytes="8" maxBytes="8"', "none: gc3 export FILE.xml -o NEW"),
    ("rccl", "", "", "RCCL does not run 'rrc'"),
    ("azure", "allreduce", "reduce_scatter", "knows no coll='reduce_scatter': gc3 export FILE.xml -o NEW.xml"),
    ("azure", "<algo", '<?xml version="1.0"?>\n<algo', "take no declaration"),
    ("azure", "<algo", "\ufeff<algo", "GC3-I007"),
    ("azure", "    <tb", "\t<tb", "GC3-I007"),
    ("azure", 'cnt="1"', "cnt='1'", "take only double quotes"),
    ("azure", 'cnt="1"', 'cnt ="1"', "no blanks around '='"),
    ("azure", 'cnt="1"', 'cnt= "1"', "no blanks around '='"),
    ("azure", ' cnt="1"', '\n cnt="1"', "a tag only on one line"),
    ("azure", ' cnt="1"', '        cnt="1"', "more than the 16 blanks"),
    ("azure", "</tb>", "</tb >", "GC3-I007"),
    ("azure", 'coll="allreduce"', 'coll="all&#114;educe"', "take no references"),
    ("azure", 'name="t"', f'name="{"t" * 256}"', "take at most 255 bytes"),
    ("azure", "<algo", "<!--a=b-->\n<algo", "take no comment that begins so"),
    ("azure", 'nchannels="1"', 'nchannels="33"', "has 33 channels, the limit of the Azure executor is 32"),
    ("msccl", 'i_chunks="1"', 'i_chunks="2"', "takes only buffers of 1 chunks for 'allreduce', the input has 2"),
    ("azure", 'cnt="1"', 'cnt="72"', "has 72 chunks at once"),
]


@pytest.mark.parametrize(("runtime", "old", "new", "why"), RULES)
def test_what_runtimes_refuse(write: Write, runtime: str, old: str, new: str, why: str) -> None:
    good = xml(PAIR, chunks=1)
    if runtime != "rccl":
        assert targets.judge(write(good), runtime).ok
    file = write(good.replace(old, new, 1) if old else good)
    found = gc3_(f"verify {file} --target {runtime}", 1).stderr
    assert why in found
    assert "t.xml:" in found
    verdict = targets.judge(file, runtime)
    assert verdict.refused
    assert not verdict.ok


@pytest.mark.parametrize(("wrote", "other"), [("msccl", "azure"), ("azure", "msccl")])
def test_a_refused_dialect_is_written_by_the_command_that_the_refusal_names(
    wrote: str, other: str, tmp_path: Path
) -> None:
    for name in ("ring_allreduce", "ring_reducescatter"):
        one, two = tmp_path / f"{name}.xml", tmp_path / f"{name}.new.xml"
        gc3_(f"export {name}:R=4 -o {one} --target {wrote}")
        found = gc3_(f"verify {one} --target {other}", 1).stderr
        assert f"gc3 export FILE.xml -o NEW.xml --target {other}" in found
        gc3_(f"export {one} -o {two} --target {other}")
        gc3_(f"verify {two} --target {other}")


def test_comments_and_blanks_that_they_take(write: Write) -> None:
    text = xml(PAIR, chunks=1).replace("<algo", "<!-- made = by hand -->\n<algo").replace(' cnt="1"', '  cnt="1"')
    assert targets.judge(write(text), "azure").ok


def test_a_rank_without_threadblocks_cannot_be_launched(write: Write) -> None:
    file = write(xml([[]], chunks=1, use='inplace="1" outofplace="0" minBytes="0" maxBytes="4096"'))
    gc3_(f"verify {file}")
    assert "rank 0 has no threadblock" in gc3_(f"verify {file} --target rccl", 1).stderr


def test_a_file_of_4096_elements_is_one_too_many(write: Write) -> None:
    """The parsers check for room for one more element before they read the end of the open one."""
    steps = [step("cpy i0 o0")] * 63

    def file(last: int) -> str:
        tbs = [*(tb(steps) for _ in range(63)), tb(steps[:last])]  # 1 + 1 + 64 + 3969 + last
        return write(xml([tbs[:1] + [tb([step("cpy i0 s0")] * len(t[1])) for t in tbs[1:]]], chunks=1, scratch=1))

    verdict = targets.judge(file(60), "rccl")
    assert not verdict.refused
    assert "has 4096 elements" in targets.judge(file(61), "rccl").refused[0].message


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("verify ring_allreduce:R=2 --target rccl", "is an algorithm"),
        ("verify {xml} --target rccl --slots 2", "sets the slots and limits"),
        ("verify {xml}:instances=2 --target rccl", "cannot change it"),
        ("verify {xml} --target nccl", "'nccl' is not one of"),
    ],
)
def test_options_that_do_not_fit(write: Write, line: str, why: str) -> None:
    assert why in gc3_(line.format(xml=write(xml(PAIR, chunks=1))), 2).stderr


def test_other_forms_are_for_no_runtime(tmp_path: Path) -> None:
    image = tmp_path / "r.gc3"
    gc3_(f"compile ring_allreduce:R=2 -o {image}")
    assert "is no MSCCL XML, so RCCL cannot read it" in gc3_(f"verify {image} --target rccl", 1).stderr
    assert "runtimes" not in gc3_(f"verify {image}").stdout
    assert targets.judge_all(image) == ()
    with pytest.raises(errors.UserError, match="there is no runtime 'nccl'"):
        targets.judge(image, "nccl")


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("name", ["ring_allreduce", "allpairs_allreduce", "direct_alltoall", "binomial_broadcast"])
def test_what_is_written_for_a_runtime_is_right_on_it(name: str, instances: int, tmp_path: Path) -> None:
    for runtime in targets.NAMES:
        path = tmp_path / f"{name}-{runtime}.xml"
        program = gc3.compile(load(name), R=4, instances=instances)
        try:
            program.save(path, target=runtime)
        except errors.UserError as problem:
            assert problem.code == "GC3-I009"  # noqa: PT017
            continue
        verdict = targets.judge(path, runtime)
        assert verdict.ok, verdict.diagnostics
        assert verdict.modes[0][0].core.instruction_count == program.core.instruction_count


def test_compile_proves_the_program_that_the_target_executes(write: Write, tmp_path: Path) -> None:
    """The program is correct, but would deadlock with large chunks."""
    ranks = [[tb([step("s i0 i0 x3"), step("rrc i0 o0 x3")], send=1 - r, recv=1 - r)] for r in range(2)]
    file = write(xml(ranks, chunks=3))
    out = tmp_path / "out.xml"
    assert "GC3-V005" in gc3_(f"export {file} -o {out} --target azure", 1).stderr
    assert not out.exists()
    gc3_(f"export {file} -o {out} --dialect rccl")
    # So does the export of a table.
    table = tmp_path / "t.json"
    place = programs.place(programs.write(gc3.Program.load(file), str(table)))
    row = {"collective": "allreduce", "in_place": False, "program": {"file": place}}
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    data = json.loads(gc3_(f"export {table} --ranks 2 --target azure -o {tmp_path / 'xml'} --json", 1).stdout)
    assert data["files"] == list((tmp_path / "xml").iterdir()) == []
    assert "deadlock" in data["refused"][0]
