"""The selection table: its format, its choices, and the default one."""

import json
import re
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3 import collectives, errors
from gc3.cli.main import main
from gc3.comm.export import export, export_xml
from gc3.comm.selection import FORMAT, TRANSPORTS, Table, parse
from gc3.comm.selection import LIMITS as KEYS
from gc3.comm.spec import Spec
from gc3.runtime.program import Program

ROW = {"collective": "allreduce", "ranks": [2, 4], "size": [100, 200], "program": {"algorithm": "ring_allreduce"}}


DOCS = Path(__file__).parents[2] / "docs"
NEW_KEY = "each key of cpp/gc3/runtime/select/row_keys.def wants an example here, and a row in docs/selection.md"
# For each key of a row: values, and what the index of its files for 4 ranks has for it, or None if it has no such row.
EXAMPLES = {
    "collective": [("allgather", "allgather 4 0 - 0 0 0 0 F")],
    "ranks": [([4, 5], "allreduce 4 0 - 0 0 0 0 F"), ([5, 8], None)],
    "size": [([10, 20], "allreduce 4 10 20 0 0 0 0 F")],
    "in_place": [(True, "allreduce 4 0 - 1 0 0 0 F")],
    "root": [(3, "allreduce 4 0 - 0 3 0 0 F")],
    "nodes": [([1, 1], "allreduce 4 0 - 0 0 0 0 F nodes=1:1"), ([2, None], None)],
    "ranks_per_node": [([3, 4], "allreduce 4 0 - 0 0 0 0 F ranks_per_node=3:4"), ([2, 2], None), ([5, None], None)],
    "transport": [("tcp", None)],
    "skew": [([2, None], "allreduce 4 0 - 0 0 0 0 F skew=2:-"), ([1, 2.5], "allreduce 4 0 - 0 0 0 0 F skew=1:2.5")],
    "condition": [(64 * "a", None)],
    "adapt": [(True, "allreduce 4 0 - 0 0 0 0 F adapt=1"), (False, "allreduce 4 0 - 0 0 0 0 F adapt=0")],
}


def text(*rows: object) -> str:
    return json.dumps({"format": FORMAT, "rows": rows})


def test_the_first_row_that_fits_counts() -> None:
    second = {**ROW, "size": [0, None], "in_place": True, "note": "second"}
    table = Table(parse(text(ROW, second), "t.json"))
    choice = table.choose("allreduce", ranks=2, size=100, in_place=True)
    assert (choice.row.source, choice.passed_over) == ("t.json row 1", ())
    choice = table.choose("allreduce", ranks=4, size=200, in_place=True)
    assert choice.row.note == "second"
    assert choice.passed_over == (("t.json row 1", "for 100 B to less than 200 B"),)
    with pytest.raises(errors.UserError, match="GC3-R014") as caught:
        table.choose("allreduce", ranks=5, size=0, in_place=False)
    assert "for 2 to 4 ranks" in str(caught.value)
    with pytest.raises(errors.UserError, match="no row"):
        table.choose("allreduce", ranks=4, size=0, in_place=False)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({**ROW, "collective": "gossip"}, "there is no collective 'gossip'"),
        ({**ROW, "rank": 1}, "there is no key 'rank'"),
        ({"collective": "allreduce"}, "'program' is missing"),
        ({**ROW, "ranks": [0, 4]}, "whole number from 1"),
        ({**ROW, "ranks": [4, 2]}, "whole number from 4"),
        ({**ROW, "size": 7}, "size must be \\[first, last\\]"),
        ({**ROW, "in_place": "yes"}, "in_place must be true, false, or null"),
        ({**ROW, "program": {"algorithm": "x", "protocol": "TCP"}}, "protocol must be one of"),
        ({**ROW, "program": {"algorithm": "x", "parameters": {"R": "all"}}}, "parameter R is 'all'"),
        ({**ROW, "program": {"algorithm": "x", "parameters": [1]}}, "parameters must be an object"),
        ({**ROW, "ranks": [1, 2**32]}, "ranks is 4294967296, not a whole number from 1 to 4294967295"),
        ({**ROW, "size": [2**63, None]}, "size is 9223372036854775808, not a whole number from 0"),
        ({**ROW, "program": {"algorithm": "x", "slots": 2**32}}, "slots is 4294967296"),
        ({**ROW, "program": {"algorithm": "x", "slot_bytes": 2**63}}, "slot_bytes is 9223372036854775808"),
        ({**ROW, "program": {"algorithm": "x", "instances": 2**32}}, "instances is 4294967296"),
        ({**ROW, "program": {"algorithm": "x", "order": 1}}, "order is 1, not a list of the ranks"),
        ({**ROW, "program": {"algorithm": "x", "order": [0, 2]}}, r"order is \[0, 2\], not a list of the ranks"),
        ({**ROW, "program": {"algorithm": "x", "order": [1, 0, 1]}}, "each from 0 on once"),
        ({**ROW, "program": {"algorithm": "x", "order": [True, 0]}}, "each from 0 on once"),
        ({**ROW, "program": {"algorithm": "x", "thresholds": [1]}}, "thresholds must be an object"),
        ({**ROW, "program": {"algorithm": "x", "thresholds": {"spin": 1}}}, "there is no threshold 'spin'"),
        ({**ROW, "program": {"algorithm": "x", "thresholds": {"spins": None}}}, "spins is never, not a number from 0"),
        ({**ROW, "program": {"algorithm": "x", "thresholds": {"read_moved": 1}}}, "read_moved is 1, not a number from"),
        ({**ROW, "program": {"algorithm": "x", "thresholds": {"spins": 1.5}}}, "threshold spins is 1.5"),
        ({**ROW, "nodes": [0, 2]}, "nodes is 0, not a whole number from 1"),
        ({**ROW, "nodes": [2, 2], "transport": "ib"}, "transport is 'ib', not one of tcp, "),
        ({**ROW, "nodes": [1, 2], "transport": "tcp"}, "a row with a transport is for several hosts"),
        ({**ROW, "ranks_per_node": 2}, "ranks_per_node must be \\[first, last\\]"),
        (
            {**ROW, "nodes": [2, 2], "program": {"algorithm": "x", "parameters": {"N": "nodes"}}},
            "needs 'ranks_per_node' in its row",
        ),
        *(
            ({**ROW, "skew": skew}, "not \\[first, end\\] with numbers from 1 on")
            for skew in (2, [1], [0.5, None], [3, 2], [2, 2], [1, "x"], [True, None], [1, 1e300], [1, 2, 3])
        ),
        ([], "is not an object"),
    ],
)
def test_invalid_rows_are_reported(row: object, why: str) -> None:
    with pytest.raises(errors.UserError, match=why) as caught:
        parse(text(ROW, row), "t.json")
    assert "t.json row 2" in str(caught.value)


def test_a_row_is_read_as_it_was_written() -> None:
    data = {**ROW, "in_place": None, "program": Spec("ring_allreduce", ()).data(), "note": ""}
    every = {**data, **{key: values[-1][0] for key, values in EXAMPLES.items()}, "collective": "mine"}
    assert EXAMPLES.keys() == {"collective", "condition", "adapt", *KEYS}, NEW_KEY
    for written in (data, every, {**data, "root": 0}):
        (row,) = parse(text(written), "t.json")
        assert json.loads(json.dumps(row.data())) == written


@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_a_row_is_told_and_compared(key: str) -> None:
    row = {"collective": "broadcast", "nodes": [2, None], "program": {"algorithm": "binomial_broadcast"}}
    rows = [{name: value for name, value in row.items() if name != key}, {**row, key: EXAMPLES[key][0][0]}]
    wide, narrow = (row.core() for row in parse(text(*rows), "t.json"))
    assert wide.describe() != narrow.describe()
    assert wide.covers(narrow)
    assert not narrow.covers(wide)


def test_the_manual_has_each_transport() -> None:
    manual = (DOCS / "hosts.md").read_text()
    told = "each transport of cpp/gc3/base/transport_kind.h wants a sentence with its name in docs/hosts.md"
    assert all(f'`"{name}"`' in manual for name in TRANSPORTS), told


def test_the_manual_has_each_key_of_rows() -> None:
    manual = (DOCS / "selection.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", manual, re.MULTILINE))
    assert explained == EXAMPLES.keys() | {"note"}, NEW_KEY


def test_a_row_orders_the_ranks_of_each_node() -> None:
    row = {**ROW, "program": {"algorithm": "ring_allgather", "order": [0, 2, 1]}}
    (read,) = parse(text(row), "t.json")
    (same,) = parse(text({**ROW, "program": read.spec.data()}), "t.json")
    assert same.spec == read.spec
    assert str(read.spec).endswith(", order 0 2 1")

    def next_of_first(program: Program) -> int:
        return program.core.as_dict()["ranks"][0]["threadblocks"][0]["send_peer"]

    assert next_of_first(read.spec.compile(6)) == 2
    assert next_of_first(read.spec.compile(6, order=[0, 3, 1, 4, 2, 5])) == 1  # the third rank of the first host
    with pytest.raises(errors.UserError, match="an order of 3 ranks of each node does not divide 8 ranks"):
        read.spec.compile(8)
    rooted = Spec("chain_broadcast", (("R", "ranks"), ("root", "root")), order=(1, 2, 0))
    assert rooted.compile(3, root=1).collective.root == 1  # proven, too


@pytest.mark.parametrize("bad", ["", "[]", "{}", '{"format": "gc3-selection-1", "rows": 3}'])
def test_what_is_no_table(bad: str) -> None:
    with pytest.raises(errors.UserError, match="GC3-R014"):
        parse(bad, "t.json")


def test_rows_by_skew() -> None:
    even = {**ROW, "skew": [1, 1.5]}
    table = Table(parse(text(even, {**ROW, "skew": [3, None]}, ROW), "t.json"))
    sources = [
        table.choose("allreduce", ranks=2, size=100, in_place=True, skew=skew).row.source for skew in (1, 1.49, 1.5, 3)
    ]
    assert sources == ["t.json row 1", "t.json row 1", "t.json row 3", "t.json row 2"]
    choice = table.choose("allreduce", ranks=2, size=100, in_place=True, skew=2)
    assert choice.passed_over == (
        ("t.json row 1", "for a skew of less than 1.5"),
        ("t.json row 2", "for a skew of 3 and more"),
    )


def test_a_missing_file() -> None:
    with pytest.raises(errors.UserError, match="GC3-I001"):
        Table.read("/no/such/table.json")


@pytest.mark.parametrize("name", list(collectives.BUILTIN))
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16, 17, 40, 64])
def test_the_default_table_serves_every_call(name: str, ranks: int) -> None:
    for in_place in (False, True):
        specs = {
            Table.default().choose(name, ranks=ranks, size=size, in_place=in_place).row.spec
            for size in (0, 1, 1 << 10, 1 << 14, 1 << 16, 1 << 20, 1 << 30)
        }
        for spec in specs:
            for root in {0, ranks - 1} if collectives.get(name).rooted else {0}:
                program = spec.compile(ranks, root=root, in_place=in_place)
                assert program.collective.name == name
                assert program.in_place == in_place
                assert not collectives.rooted(program.collective) or program.collective.root == root


@pytest.mark.parametrize("ranks", [17, 32, 64])
def test_small_calls_of_many_ranks_take_few_steps_and_little_memory(ranks: int) -> None:
    for name in ("allreduce", "allgather", "alltoall"):
        spec = Table.default().choose(name, ranks=ranks, size=1024, in_place=False).row.spec
        assert not spec.algorithm.startswith("ring"), "as many steps as ranks"
        assert ranks * (ranks - 1) * spec.slots * spec.slot_bytes <= 256 << 20 or name == "allreduce"


def test_table_commands(tmp_path: Path) -> None:
    run = CliRunner()
    shown = run.invoke(main, ["table", "show", "--json"])
    assert len(json.loads(shown.output)["rows"]) == len(Table.default().rows)
    some = json.loads(run.invoke(main, ["table", "show", "--ranks", "2,3", "--json"]).stdout)["rows"]
    assert 0 < len(some) < len(json.loads(shown.stdout)["rows"])
    several = run.invoke(main, ["table", "show", "--collective", "allreduce", "--ranks", "2,4", "--size", "1MiB"])
    assert (several.exit_code, "one number of --ranks" in several.output) == (2, True)
    chosen = run.invoke(main, ["table", "show", "--collective", "allreduce", "--ranks", "4", "--size", "1MiB"])
    assert "staged_allreduce" in chosen.output
    assert "not default.json row 1: for 5 to 7 ranks" in chosen.output
    mine = tmp_path / "mine.json"
    mine.write_text(text(ROW))
    assert run.invoke(main, ["table", "check", str(mine)]).output == "1 row: good\n"
    mine.write_text(text({**ROW, "transport": "tcp"}, {**ROW, "skew": [1, 2]}, {**ROW, "skew": [2, 8]}, ROW))
    assert run.invoke(main, ["table", "check", str(mine)]).output == "4 rows: good\n"
    skewed = run.invoke(main, ["table", "show", str(mine), "--ranks", "4"]).output
    assert ", skew 1 to less than 2\n" in skewed
    assert ", 2 or more hosts, over tcp\n" in skewed
    for_hosts = ["table", "show", str(mine), "--collective", "allreduce", "--ranks", "4", "--nodes", "2"]
    call = [*for_hosts, "--size", "150", "--transport"]
    assert run.invoke(main, [*call, "tcp"]).output.startswith("mine.json row 1")
    assert run.invoke(main, [*call, "ucx"]).output.startswith("mine.json row 2")
    uneven = run.invoke(main, [*call, "tcp", "--nodes", "3"])
    assert (uneven.exit_code, "4 ranks are not as many on each of 3 hosts" in uneven.output) == (2, True)
    assert "give its --size, too" in run.invoke(main, for_hosts).output
    wrong = {**ROW, "program": {"algorithm": "ring_allgather"}}
    # It would take some 10 s to compile, and is for other ranks anyway.
    huge = {**ROW, "program": {"algorithm": "allpairs_allreduce", "parameters": {"R": 1000}}}
    mine.write_text(text(huge))
    began = time.process_time()
    assert "is for 1000 ranks, not for" in run.invoke(main, ["table", "check", str(mine)]).output
    assert time.process_time() - began < 2
    mine.write_text(text(ROW, ROW, wrong, {**ROW, "program": {"algorithm": "nothing"}}))
    checked = run.invoke(main, ["table", "check", str(mine), "--json"])
    problems = [(p["row"], p["problem"]) for p in json.loads(checked.output)["problems"]]
    assert checked.exit_code == 1
    assert ("mine.json row 2", "is never chosen: mine.json row 1 serves all of its calls") in problems
    assert any(row == "mine.json row 3" and "implements allgather" in why for row, why in problems)
    assert any(row == "mine.json row 4" and "there is no algorithm 'nothing'" in why for row, why in problems)


@pytest.mark.parametrize("name", ["default.json", "hosts.json"])
def test_the_default_table_has_no_problem(name: str) -> None:
    path = Path(__file__).parents[2] / "python" / "gc3" / "comm" / name
    checked = CliRunner().invoke(main, ["table", "check", str(path)])
    assert checked.exit_code == 0, checked.output


def test_custom_rows_come_before_those_of_gc3(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(text(ROW))
    table = Table.read(path)
    assert table.choose("allreduce", ranks=2, size=150, in_place=False).row.source == "own.json row 1"
    other = table.choose("allreduce", ranks=2, size=200, in_place=False)
    assert other.row.source.startswith("default.json row")
    assert other.passed_over[0] == ("own.json row 1", "for 100 B to less than 200 B")
    assert table.choose("broadcast", ranks=2, size=150, in_place=True).row.source.startswith("default.json row")


def test_a_table_says_on_which_machines_it_was_measured() -> None:
    head = '{"format": "gc3-selection-1", "measured_on": %s, "rows": [%s]}'
    row = '{"collective": "reduce", "program": {"algorithm": "flat_reduce"}, "note": "%s"}'
    assert parse(head % ('["A, 2 cores", "B"]', row % "why"), "x")[0].note == "why; measured on A, 2 cores; B"
    assert parse(head % ("[]", row % ""), "x")[0].note == ""
    own = row.replace('"note"', '"measured_on": ["C"], "note"') % "why"
    assert parse(head % ('["A"]', own), "x")[0].note == "why; measured on C"
    assert parse(head % ('["A"]', own.replace('["C"]', "[]")), "x")[0].note == "why; not measured"
    for bad in ('"A"', "[1]", "null", "{}"):
        with pytest.raises(errors.UserError, match='"measured_on" must be a list of names of machines'):
            parse(head % (bad, row % ""), "x")


def test_files_of_a_table_hold_the_programs_of_its_rows(tmp_path: Path) -> None:
    spec = {"algorithm": "ring_allreduce", "instances": 4}
    row = {**ROW, "size": [0, 10], "in_place": False, "ranks": [4, 4]}
    specs = [spec, {**spec, "order": [0, 2, 1, 3]}, {**spec, "slots": 8}]
    few = [{"algorithm": "direct_alltoall", "threadblocks": each} for each in (3, 0)]
    given = [{**row, "program": each} for each in specs]
    given += [{**row, "collective": "alltoall", "program": each} for each in few]
    rows = parse(text(*given), "t.json")
    assert export(Table(rows), [4], tmp_path) == (5, 4, [])
    lines = (tmp_path / "index").read_text().splitlines()[1:]
    for line, each in zip(lines, rows, strict=True):
        assert Program.load(tmp_path / line.split()[-1]).core.as_dict() == each.spec.compile(4).core.as_dict()


@pytest.mark.parametrize("key", EXAMPLES)
def test_each_key_of_a_row_is_in_the_index_of_its_files(key: str, tmp_path: Path) -> None:
    for value, wanted in EXAMPLES[key]:
        row = {"collective": "allreduce", "in_place": False, "program": {"algorithm": "ring_allreduce"}, key: value}
        if key == "collective":
            row["program"] = {"algorithm": "ring_allgather"}
        if key == "condition":
            row["collective"] = "mine"
        rows = parse(text(row), "t.json")
        _, _, left = export(Table(rows), [4], tmp_path)
        assert left == (["t.json row 1"] if rows[0].limits.nodes[0] > 1 or rows[0].condition else [])
        words = [line.split() for line in (tmp_path / "index").read_text().splitlines()[1:]]
        assert [" ".join([*line[:8], "F", *line[9:]]) for line in words] == ([] if wanted is None else [wanted])


def test_files_for_one_host_have_no_rows_of_other_calls(tmp_path: Path) -> None:
    row = {**ROW, "size": [0, None], "in_place": False, "ranks": [4, 4]}
    ring = {"algorithm": "ring_allreduce"}
    placed = {"algorithm": "leader_allreduce", "parameters": {"R": "ranks_per_node"}}
    direct = {**row, "program": {**ring, "memory": "direct"}, "size": [0, 100]}
    rows = parse(text(direct, {**row, "program": placed, "ranks_per_node": [2, 4]}, row), "t.json")
    export(Table(rows), [4], tmp_path)
    lines = [line.split() for line in (tmp_path / "index").read_text().splitlines()[1:]]
    assert [line[9:] for line in lines] == [["nodes=1:1", "ranks_per_node=2:4"], [], []]
    assert lines[2][2:4] == ["0", "100"]  # its messages are those of any other row
    written, refused = export_xml(parse(text({**row, "skew": [2, None]}, row), "t.json"), [4], "msccl", tmp_path)
    assert refused == ["t.json row 1 is for blocks of different lengths"]
    assert len(written) == 1


def test_a_table_is_not_written_with_fewer_slots_than_a_program_needs(tmp_path: Path) -> None:
    rows = [{**ROW, "program": {"algorithm": "ring_allreduce", "slots": slots}} for slots in (0, 1)]
    with pytest.raises(errors.UserError, match="GC3-V005"):
        export(Table(parse(text(*rows), "t.json")), [4], tmp_path)


def test_of_rows_that_overlap_the_first_serves_another_runtime(tmp_path: Path) -> None:
    row = {**ROW, "in_place": False, "ranks": [4, 4]}
    rows = parse(text({**row, "size": [100, 200]}, {**row, "size": [150, 180]}, {**row, "size": [0, None]}), "t.json")
    written, refused = export_xml(rows, [4], "msccl", tmp_path)
    assert refused == []
    uses = [Program.load(path).use for path in written]
    assert [(use.min_bytes, use.max_bytes) for use in uses if use is not None] == [(100, 199), (0, 99), (200, 0)]


def test_programs_that_differ_have_different_texts() -> None:
    """Ranks compare their tables by these texts."""
    given = Spec("ring_allgather", (("R", "ranks"),))
    others = {
        "algorithm": "direct_allgather",
        "parameters": (("R", 4),),
        "instances": 2,
        "protocol": "LL",
        "slots": 3,
        "slot_bytes": 4096,
        "thresholds": (("spins", 1),),
        "threadblocks": 5,
        "order": (1, 0),
        "memory": "direct",
    }
    assert [*others] == [each.name for each in fields(Spec)]
    texts = [str(given), *(str(replace(given, **{name: other})) for name, other in others.items())]
    assert len({*texts}) == len(texts)
