"""gc3 show and gc3 verify of one-sided programs: execution plans of MSCCL++, and their text form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gc3.cli.main import main

pytestmark = pytest.mark.python_only

PLAN = Path(__file__).resolve().parents[1] / "data" / "two_halves.plan.json"


def gc3_says(*line: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, list(line))
    assert result.exit_code == status, result.output
    return result


def changed(folder: Path, **members: Any) -> str:
    path = folder / "changed.json"
    path.write_text(json.dumps({**json.loads(PLAN.read_text()), **members}))
    return str(path)


def test_a_plan_is_shown_and_proven(tmp_path: Path) -> None:
    shown = gc3_says("show", str(PLAN)).stdout
    first, text = shown.split("\n", 1)
    assert first == (
        "two halves: allreduce of 2 ranks, in place, one-sided, 2 threadblocks, 20 steps; "
        "at most 1 threadblock on a rank"
    )
    assert "    4 move in[2] + 0:in[2] -> in[2] 0:in[2] x2\n" in text
    assert "rank 0\n" not in gc3_says("show", str(PLAN), "-r", "1").stdout
    assert "rank 0 out[3] = rank 0 in[3] + rank 1 in[3]" in gc3_says("show", str(PLAN), "--expect").stdout
    data = json.loads(gc3_says("show", str(PLAN), "--dump", "ir", "--json").stdout)
    assert data["text"] == text
    assert data["program"]["steps"] == 20
    proven = gc3_says("verify", str(PLAN)).stdout
    assert "proven: it implements allreduce, call after call" in proven
    # The text that show prints is a program as well.
    written = tmp_path / "two.txt"
    written.write_text("# two halves\n\n" + text)
    assert gc3_says("show", str(written)).stdout == shown
    assert gc3_says("verify", str(written)).stdout == proven
    written.write_text(text.replace("sync", "sink", 1))
    assert "expected an operation, found 'sink'" in gc3_says("verify", str(written), status=1).stderr
    written.write_text(text.replace("5 sync", "5 signal 0", 1))
    data = json.loads(gc3_says("verify", str(written), "--json", status=1).stdout)
    assert not data["ok"]
    assert data["diagnostics"][0]["code"].startswith("GC3-V")


def test_what_prevents_a_plan_from_running_is_a_finding(tmp_path: Path) -> None:
    path = changed(tmp_path, collective="test")
    assert "test of 2 ranks" in gc3_says("show", path).stdout
    assert "it states no collective of this shape, only 'test'" in gc3_says("verify", path, status=1).stderr
    assert "proven" in gc3_says("verify", f"{path}:collective=allreduce").stdout
    assert "not those of allgather of 2 ranks" in gc3_says("verify", f"{path}:collective=allgather", status=1).stderr
    path = changed(tmp_path, buffer_alignment=8)
    why = "rres handles 16 bytes at once, and wrongly what is left of 8"
    assert why in gc3_says("show", path).stderr
    refused = gc3_says("verify", path, status=1).stderr
    assert why in refused
    assert "not proven: 2 findings\n" in refused
    path = changed(tmp_path, gpus=[])
    assert "GC3-I011" in gc3_says("show", path, status=1).stderr


def test_pipelines_are_shown_for_one_tile_and_proven_for_some(tmp_path: Path) -> None:
    plan = json.loads(PLAN.read_text())
    for gpu in plan["gpus"]:
        ops = gpu["threadblocks"][0]["ops"]
        ops[4] = {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 2}, "ops": [ops[4]]}
    path = changed(tmp_path, gpus=plan["gpus"])
    assert "20 steps for 1 tile of its pipelines" in gc3_says("show", path).stdout
    proven = gc3_says("verify", path).stdout
    assert "24 steps for 3 tiles" in proven
    assert "proven for 1, 2 and 3 tiles of its pipelines: it implements allreduce" in proven
    assert "proven: it implements" in gc3_says("verify", f"{path}:tiles=5").stdout
    assert "28 steps for 5 tiles" in gc3_says("show", f"{path}:tiles=5").stdout


def test_plans_with_scratch_are_proven_for_calls_of_one_size(tmp_path: Path) -> None:
    path = str(tmp_path / "packets.plan.json")
    assert gc3_says("export", "direct_allgather:R=3,protocol=LL", "-o", path).exit_code == 0
    said = gc3_says("verify", path).stdout
    assert said.endswith("\nfor calls of one size: MSCCL++ lays out scratch by the size of each\n")


def test_two_halves_of_scratch_are_proven_for_one_plan(tmp_path: Path) -> None:
    alone = (
        "\nfor calls of this plan alone: MSCCL++ chooses the half of the scratch by a count of all plans' launches\n"
    )
    for halves in (False, True):
        path = changed(tmp_path, use_double_scratch_buffer=halves)
        assert (alone in gc3_says("verify", path).stdout) == halves
        assert json.loads(gc3_says("verify", path, "--json").stdout)["only_for_calls_of_this_plan"] == halves


def one_rank(folder: Path, *blocks: list[Any], initial: int = 0) -> str:
    """An allreduce of one rank: threadblocks whose pipelines are lists of operations, with two semaphores."""
    loop = {"name": "pipeline", "iter_context": {"unit_size": 1 << 20, "num_chunks": 1}}
    threadblocks = [
        {"id": i, "channels": [], "ops": [{**loop, "ops": op} if isinstance(op, list) else op for op in ops]}
        for i, ops in enumerate(blocks)
    ]
    chunks = {"input_chunks": 1, "output_chunks": 1, "scratch_chunks": 1, "channels": [], "remote_buffers": []}
    semaphores = [{"init_value": 0}, {"init_value": initial}]
    gpu = {"id": 0, **chunks, "semaphores": semaphores, "threadblocks": threadblocks}
    return changed(folder, gpus=[gpu], inplace=False)


def copies(source: str, target: str) -> list[Any]:
    a, b = ({"type": buffer, "index": 0, "size": 1} for buffer in (source, target))
    return [{"name": "nop"}, {"name": "copy", "src_buff": [a], "dst_buff": [b]}, {"name": "nop"}]


def semaphore(name: str, number: int) -> Any:
    return {"name": f"sem_{name}", "semaphore_ids": [number]}


def test_a_plan_that_is_right_for_some_numbers_of_tiles_is_wrong(tmp_path: Path) -> None:
    give, take = semaphore("release", 0), semaphore("acquire", 0)
    path = one_rank(tmp_path, [[*copies("i", "s"), give]], [take, take, take, *copies("s", "o")])
    assert "proven: it" in gc3_says("verify", f"{path}:tiles=3").stdout
    assert "not proven for 1 tile of its pipelines: 1 finding" in gc3_says("verify", path, status=1).stderr
    # The second threadblock lets the first one go on only after all tiles.
    credit, back = semaphore("acquire", 1), semaphore("release", 1)
    blocks = [[[credit, *copies("i", "s"), give]], [[take, *copies("s", "o")], [back]]]
    path = one_rank(tmp_path, *blocks, initial=3)
    assert "proven: it" in gc3_says("verify", f"{path}:tiles=3").stdout
    assert "not proven for 6 tiles of its pipelines: 1 finding" in gc3_says("verify", path, status=1).stderr
    data = json.loads(gc3_says("verify", path, "--json", status=1).stdout)
    assert (data["tiles"], data["program"]["tiles"], data["diagnostics"][0]["code"]) == ([6], 6, "GC3-V004")
    path = one_rank(tmp_path, *blocks, initial=20)
    told = gc3_says("verify", path)
    assert "at most 16 are proven here, and 23 by" in told.stderr
    assert "proven for 1, 2, 3 and 16 tiles" in told.stdout
    blocks = [[[credit, *copies("i", "s"), give]], [[take, *copies("s", "o"), back]]]
    data = json.loads(gc3_says("verify", one_rank(tmp_path, *blocks, initial=2), "--json").stdout)
    assert (data["ok"], data["tiles"]) == (True, [1, 2, 3, 5])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["show", f"{PLAN}:R=3"], "R cannot change it"),
        (["show", f"{PLAN}:protocol=LL"], "protocol cannot change it"),
        (["verify", f"{PLAN}:in_place=yes"], "in_place cannot change it"),
        (["verify", str(PLAN), "--", "1"], "takes no arguments"),
        (["show", str(PLAN), "--dump", "trace"], "--dump trace does not apply"),
        (["show", str(PLAN), "--source"], "--source does not apply"),
        (["show", str(PLAN), "-r", "2"], "rank 2 of 2 ranks"),
        (["verify", str(PLAN), "--slots", "2"], "--slots does not apply"),
        (["verify", str(PLAN), "--target", "msccl"], "--target does not apply"),
        (["run", str(PLAN), "--engine", "processes"], "run on --engine threads or cuda"),
        (["run", str(PLAN), "--engine", "threads:slots=3"], "slots does not apply"),
        (["run", f"{PLAN}:prove=no"], "a one-sided program is proven before it runs"),
        (["compile", "ring_allreduce:R=3,memory=direct", "-t", "ndv4"], "--topology does not apply"),
        (["run", "ring_allreduce:R=3,memory=direct,protocol=LL"], "protocol=LL is one of messages"),
        (["run", "allreduce:R=3,memory=direct"], "memory cannot change it"),
        (["run", "a.gc3:memory=direct"], "memory cannot change it"),
        (["run", f"{PLAN}:memory=direct"], "memory cannot change it"),
        (["bench", "ring_allreduce:R=3,memory=direct"], "memory=direct makes no program of messages"),
    ],
)
def test_what_does_not_apply(line: list[str], why: str) -> None:
    assert why in gc3_says(*line, status=2).stderr


def test_other_commands_say_who_reads_a_plan() -> None:
    assert "gc3 show, verify and run read it" in gc3_says("bench", str(PLAN), status=1).stderr


def test_an_algorithm_is_compiled_proven_and_run_on_direct_memory(tmp_path: Path) -> None:
    ring, text, plan = "ring_allreduce:R=3,memory=direct", str(tmp_path / "ring.txt"), str(tmp_path / "r.plan.json")
    told = gc3_says("compile", ring, "-o", text).stdout
    assert "allreduce of 3 ranks, in place, one-sided" in told
    assert "proven: it implements allreduce, call after call" in told
    assert gc3_says("show", ring).stdout == gc3_says("show", text).stdout
    assert "proven" in gc3_says("verify", ring).stdout
    data = json.loads(gc3_says("export", text, "-o", plan, "--json").stdout)
    assert (data["ok"], data["file"], data["program"]["memory"]) == (True, plan, "direct")
    for name in (ring, text, plan):
        assert "checked 999 elements of 3 ranks: all equal to NumPy's" in gc3_says("run", name, "--size", "1333").stdout
    written = Path(text).read_text()
    Path(text).write_text(written.replace("5 signal", "5 sync #", 1))
    assert "GC3-V" in gc3_says("run", text, status=1).stderr
    assert "GC3-V" in gc3_says("export", text, "-o", plan, status=1).stderr


def test_a_plan_runs_with_as_many_tiles_as_the_size_needs(tmp_path: Path) -> None:
    plan = json.loads(PLAN.read_text())
    for gpu in plan["gpus"]:
        ops = gpu["threadblocks"][0]["ops"]
        ops[4] = {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 2}, "ops": [ops[4]]}
    path = changed(tmp_path, gpus=plan["gpus"], min_message_size=8192)
    for size, tiles in (("4KiB", "1 tile"), ("64KiB", "8 tiles")):
        ran = gc3_says("run", path, "--size", size)
        assert f"for {tiles} of its pipelines" in ran.stdout
        assert "all equal to NumPy's" in ran.stdout
        assert ("not meant for 4 KiB" in ran.stderr) == (size == "4KiB")
    data = json.loads(gc3_says("run", f"{path}:tiles=3", "--size", "64KiB", "--json").stdout)
    assert (data["program"]["tiles"], data["check"]["ok"], data["use"]) == (3, True, None)
    path = changed(tmp_path, collective="test")
    assert "it states no collective of this shape" in gc3_says("run", path, status=1).stderr
