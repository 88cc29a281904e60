"""The examples work, at small sizes. Those of PyTorch: tests/pytorch/test_torch_applications.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forked
import hosts
import ranks
from gc3.algorithms import catalogue

pytestmark = pytest.mark.python_only

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {
    "fft3d": ["--shape", "6", "5", "3"],
    "kfac_step": ["--widths", "5", "3", "--samples", "8", "--steps", "2"],
    "moe_layer": ["--tokens", "9", "--width", "4"],
}
VERDICTS = {
    "fft3d": "numpy.fft.fftn",
    "kfac_step": "one process with the whole batch",
    "moe_layer": "one rank with all experts",
}
QUICK = ["--rounds", "1"]


def of_kind(*collectives: str) -> list[str]:
    return [a.name for a in catalogue().values() if a.collective_name in collectives]


@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.nightly), 4])
def test_applications_compute_what_one_process_does_with_every_program(count: int) -> None:
    for text in ranks.run(ranks.program("applications"), count):
        found = text.splitlines()
        assert "WRONG" not in text
        for name in of_kind("alltoall"):
            assert {f"right: fft3d gc3 {name}", f"right: moe_layer gc3 {name}"} <= set(found)
        for name in of_kind("allgather", "allreduce"):
            assert f"right: kfac_step gc3 {name}" in found
        assert [line for line in found if "shows" in line] == [f"a wrong result shows: {name}" for name in SMALL_ORDER]


SMALL_ORDER = ("fft3d", "moe_layer", "kfac_step")


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    small = [*SMALL[name], *QUICK] if name in SMALL else []
    whole = [sys.executable, str(EXAMPLES / f"{name}.py"), *small, *arguments]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=100)


def alone(name: str, *arguments: str) -> tuple[int, str]:
    """The exit status of a script without a launcher, and what it prints; as `script`, with the imports made."""
    process = forked.start(EXAMPLES / f"{name}.py", arguments, os.environ, ("gc3.comm",))
    said, _ = process.communicate(ranks.LONGEST)
    return process.wait(), said


@pytest.mark.parametrize(("name", "algorithm"), [
    ("fft3d", "two_step_alltoall"), ("kfac_step", "hierarchical_allgather"), ("moe_layer", "direct_alltoall")
])  # fmt: skip
def test_a_script_starts_ranks_compares_and_records(name: str, algorithm: str, tmp_path: Path) -> None:
    """One of them starts its ranks, which the others do in the same way."""
    arguments = ["--algorithm", algorithm, "--json", str(tmp_path / "out.json")]
    if name == "fft3d":
        done = script(name, "--ranks", "2", *arguments)
        assert done.returncode == 0, done.stderr
        said = done.stdout
    else:
        said = "".join(ranks.run(EXAMPLES / f"{name}.py", 2, arguments=[*SMALL[name], *QUICK, *arguments]))
    assert f"equal to {VERDICTS[name]}" in said
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["name"], record["ranks"], record["hosts"]) == (name, 2, 1)
    assert [row["library"] for row in record["rows"]] == ["gc3", f"gc3 {algorithm}"]
    for row in record["rows"]:
        assert row["per_second"] == pytest.approx(1e3 * record["of"] / row["ms"])
        assert 0 < row["communication"] < 1


@pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}")
@pytest.mark.parametrize("name", ["fft3d", pytest.param("moe_layer", marks=pytest.mark.nightly)])
def test_on_two_hosts_of_two_ranks(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *SMALL[name], *QUICK, "--algorithm", "two_step_alltoall"]
    line = hosts.command(2, 2, command, "--timeout", "60")
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout
    assert f"equal to {VERDICTS[name]}" in done.stdout
    assert "\ngc3 two_step_alltoall " in done.stdout


def test_what_a_script_cannot_do_it_says_in_one_line() -> None:
    for name, arguments, said in (
        ("moe_layer", ["--ranks", "1"], "a token goes to 2 experts, so 2 ranks or more are needed"),
        ("fft3d", ["--algorithm", "ring_allreduce"], "--algorithm ring_allreduce: expected one of bruck_alltoall, "),
    ):
        status, text = alone(name, *SMALL[name], *QUICK, *arguments)
        assert (status, len(text.splitlines())) == (1, 1), text
        assert said in text
    status, text = alone("fft3d", "--ranks", "0")
    assert status == 2
    assert "0 is less than 1" in text
    launched = ranks.start(EXAMPLES / "fft3d.py", 1, arguments=["--ranks", "2"]).finish()
    assert launched == [(1, "--ranks 2, but the launcher has started 1 ranks\n")]


@pytest.mark.parametrize("name", ["torch_ddp", "torch_decoding", "fft3d"])
def test_without_pytorch_a_script_says_what_is_missing(name: str) -> None:

    code = (
        "import importlib.util as u, runpy, sys; found = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name in ('torch', 'mpi4py') else found(name, *more);"
        "sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rpartition('/')[0]);"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    arguments = [str(EXAMPLES / f"{name}.py"), "--vs"]
    if name != "fft3d":
        found = forked.run(code, arguments, os.environ, ("gc3.comm",), ranks.LONGEST)
        assert found == (1, "this example needs PyTorch: pip install torch\n")
        return
    one = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": f"{name} {id(arguments)}", "MASTER_PORT": "1"}
    status, said = forked.run(code, arguments, {**os.environ, **one}, ("gc3.comm",), ranks.LONGEST)
    assert status == 1
    assert said.startswith("--vs: there is no default library. Install torch, or start the ranks with mpirun")


def test_what_is_left_of_a_machine_goes_on_with_a_repaired_program() -> None:
    line = [sys.executable, str(EXAMPLES / "repair.py"), "--machine", "ring:R=4", "--lose", "2"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found = sorted(re.findall(r"rank (\d): right (\d+) ms after the kill: noticed \d+, shrunk", done.stdout))
    assert [rank for rank, _ in found] == ["0", "1", "3"], done.stdout
    assert max(int(ms) for _, ms in found) < 10_000, "0.3 s where nothing else runs"
    for machine, rank, says in (
        ("ring:R=4", "-1", "ring:R=4 has ranks 0 to 3"),
        ("ring:R=4", "4", "ring:R=4 has ranks 0 to 3"),
        ("nosuch", "0", "nosuch"),
        ("line:R=4", "1", "without it is not two ranks or more that reach each other"),
        ("ring:R=1", "0", "without it is not two ranks or more that reach each other"),
    ):
        status, said = alone("repair", "--machine", machine, "--lose", rank)
        assert status == 2, said
        assert says in said
        assert "Traceback" not in said


FUSED = {
    "fused_norm": ["--rows", "3", "--width", "8"],
    "fused_linear": ["--rows", "12", "--width", "8", "--hidden", "12", "--tiles", "2"],
    "fused_mlp": ["--rows", "16", "--width", "8", "--hidden", "12", "--tiles", "4"],
    "fused_moe": ["--tokens", "24", "--width", "4", "--tiles", "6", "--skew", "12"],
    "fused_fsdp": ["--rows", "4", "--width", "6", "--layers", "3"],
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_programs_equal_call_after_call(name: str, tmp_path: Path) -> None:
    for count in (1, 3):
        found = ranks.start(EXAMPLES / f"{name}.py", count, arguments=[*FUSED[name], "--check"]).finish()
        assert [status for status, _ in found] == [0] * count, found
        said = "".join(text for _, text in found)
        assert re.fullmatch(rf"proven: \w+ on {count} ranks\nequal to call after call\n", said), said
    ranks.run(EXAMPLES / f"{name}.py", 2, arguments=[*FUSED[name], *QUICK, "--json", tmp_path / "out.json"])
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["library"] for row in rows] == ["gc3", "gc3 by hand", "gc3 one program", "alone", "messages"]


# By night those that send messages of the same kinds.
BY_DAY = ("fused_norm", "fused_moe")


@pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in FUSED]
)
def test_fused_programs_on_two_hosts(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *FUSED[name], "--check"]
    line = hosts.command(2, 1, command, "--timeout", "60")
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout.count("equal to call after call")) == (0, 1), done.stdout
