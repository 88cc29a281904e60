"""The backend of PyTorch. `make test-torch` installs PyTorch and runs these tests; without it most are skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import ranks
from gc3 import _core
from gc3.comm import kept
from torch_ranks import IN_CPP, IN_PYTHON, Tier, both, mainly_cpp, needs_torch, own_folder, run

HERE = Path(__file__).parent


def slow(*values: object) -> object:
    """A case that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


# PyTorch's tests that cannot pass, because of what PyTorch 2.15 does not ask of a backend in Python, or because they
# demand the word "gloo".
COMPLETION = "whether a call has ended"
EVENTS = "events of the profiler"
SOURCE = "from whom a message came"
NEVER = {"test_ddp_logging_data_cpu": "DDP logs the name of any backend that is not PyTorch's as custom"}
NOT_IN_PYTHON = {
    "test_irecv": COMPLETION,
    "test_isend": COMPLETION,
    "test_isend_autograd_profiler": COMPLETION,
    "test_isend_torch_profiler": COMPLETION,
    "test_send_recv_any_source": SOURCE,
    "test_send_recv_any_source_autograd_profiler": SOURCE,
    "test_send_recv_any_source_torch_profiler": SOURCE,
    "test_send_recv_autograd_profiler": EVENTS,
    "test_send_recv_torch_profiler": EVENTS,
    "test_send_recv_with_tag_autograd_profiler": EVENTS,
    "test_send_recv_with_tag_torch_profiler": EVENTS,
}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_pytorch_finds_the_backend_by_its_name() -> None:
    (found,) = entry_points(group="torch.distributed.backends", name="gc3")
    assert found.value == "gc3.torch:register"


@needs_torch
def test_a_lane_that_stops_makes_the_calls_that_the_end_of_a_call_waits_for() -> None:
    code = """
import threading
from gc3.torch.lane import Lane
lane, go = Lane(), threading.Event()
def end(_):
    while lane._tasks.empty():  # until `stop` waits
        pass
    lane.help(lane.put(lambda: None))
lane.put(go.wait).add_done_callback(end)
assert not lane.idle
go.set()
lane.stop()
assert lane.idle
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_gc3_does_not_import_pytorch() -> None:
    assert python("import sys, gc3; gc3.init; gc3.compile; assert 'torch' not in sys.modules").returncode == 0


def test_waits_do_not_count_times_in_which_the_process_was_stopped() -> None:
    assert [_core.Joined.counted(gap) for gap in (0.0, 0.125, 0.25, 10.0)] == [0.0, 0.125, 0.25, 0.25]


FAKE = "import sys, types; torch = types.ModuleType('torch'); torch.__version__ = '2.9.1+cpu'; sys.modules['torch'] = "


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("import sys; sys.modules['torch'] = None", "gc3.torch needs PyTorch 2.14 or newer"),
        (FAKE + "torch", "PyTorch 2.9.1+cpu; the backend gc3 needs 2.14 or newer: pip install -U torch"),
    ],
)
def test_a_version_that_is_missing_or_too_old(prepare: str, message: str) -> None:
    done = python(f"{prepare}\nimport gc3, gc3.torch\ntry: gc3.torch.register()\nexcept gc3.UserError as e: print(e)")
    assert done.stdout.startswith("GC3-M010 ")
    assert message in done.stdout
    assert done.stderr == ""


@needs_torch
@both
@pytest.mark.parametrize("n", [2, slow(3), slow(4)])
def test_every_operation(n: int, tmp_path: Path, tiers: Tier, tier: str) -> None:
    for status, text in run("torch_calls", n, tmp_path, tiers(tier)):
        assert (status, text.split()[-1]) == (0, "groups"), text


@needs_torch
@both
def test_tensors_in_registered_memory_are_served_one_sided(
    tmp_path: Path, tiers: Tier, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, cache = tiers(tier), tmp_path / "cache"
    cache.mkdir(mode=0o700)
    for library in Path(environment.get("GC3_CACHE", cache)).glob("torch-*.so"):
        shutil.copy(library, cache)
    rows = [
        {"collective": name, "program": {"algorithm": f"direct_{name}", "memory": "direct"}}
        for name in ("allreduce", "allgather", "reducescatter")
    ]
    monkeypatch.setenv("GC3_CACHE", str(cache))
    table = kept.path()
    assert table is not None
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": rows}))
    environment = environment | {"GC3_CACHE": str(cache)}  # of this test: other ones share the dictionary
    if tier == IN_CPP:  # PyTorch does not ask a backend in Python to allocate
        environment["DDP_DISABLE_COMM_MEM"] = "0"
    for status, text in run("torch_registered", 2, tmp_path, environment):
        assert (status, text.split()[-1]) == (0, "ended"), text


@needs_torch
@both
def test_every_type_is_reduced_right_or_refused(tmp_path: Path, tiers: Tier, tier: str) -> None:
    for status, text in run("torch_types", 2, tmp_path, tiers(tier)):
        assert (status, text.split()[-1]) == (0, "walked"), text  # after warnings of PyTorch


@needs_torch
@both
@pytest.mark.slow
@pytest.mark.parametrize(("n", "programs"), [(2, 200), (3, 60)])
def test_random_calls_do_what_gloo_does(n: int, programs: int, tmp_path: Path, tiers: Tier, tier: str) -> None:
    for status, text in run("torch_random", n, tmp_path, tiers(tier), str(programs)):
        assert (status, text) == (0, "the same\n")


@needs_torch
@mainly_cpp
@pytest.mark.parametrize("n", [2, slow(4)])
def test_training_gives_the_losses_of_gloo(n: int, tmp_path: Path, tiers: Tier, tier: str) -> None:
    for status, text in run("torch_training", n, tmp_path, tiers(tier), "ddp", "zero", "fsdp"):
        assert (status, text) == (0, "ddp agrees\nzero agrees\nfsdp agrees\n")


@needs_torch
@mainly_cpp
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("killed", "GC3-R009 a rank is gone: rank 2"),
        slow("killed before a reduce", "GC3-R009 a rank is gone: rank 2"),
        slow("killed before a call that is not contiguous", "GC3-R009 a rank is gone: rank 2"),
        slow("killed during DDP", "GC3-R009 a rank is gone: rank 2"),
        slow("late", "GC3-R003 deadline exceeded"),
        slow("stopped", "GC3-R003 deadline exceeded"),
        slow("other call", "GC3-R010 the ranks make different calls"),
        slow("aborted", "GC3-R004 run aborted: rank 2"),
        slow("aborted during DDP", "GC3-R004 run aborted: rank 2"),
        ("interrupted", "GC3-R004 run aborted: rank 2"),
        slow("interrupted in a reduce", "GC3-R004 run aborted: rank 2"),
        slow("raised", "GC3-R004 run aborted: rank 2"),
    ],
)
def test_faults_are_errors_on_the_other_ranks(fault: str, message: str, tmp_path: Path, tiers: Tier, tier: str) -> None:
    *others, (status, _) = run("torch_faults", 3, tmp_path, tiers(tier), fault)
    for code, text in others:
        assert code == 0
        first, again, left = text.splitlines()[-3:]
        assert first.startswith(f"refused: {message}"), text
        assert (again, left) == ("refused again", "left")
    assert status == {"killed": -9, "interrupted": -2, "raised": 1}.get(fault.split(maxsplit=1)[0], 0)


@needs_torch
@pytest.mark.slow
def test_every_survivor_of_a_random_kill_names_the_victim(tmp_path: Path) -> None:
    words = [sys.executable, str(ranks.program("mixed_faults")), "4", "7", "torch"]
    done = subprocess.run(words, env=os.environ | own_folder(tmp_path), capture_output=True, text=True, check=False)
    assert "4 kills, 0 wrong" in done.stdout, done.stdout + done.stderr


@needs_torch
@mainly_cpp
@pytest.mark.parametrize(
    ("what", "own", "others"),
    [
        ("types", "GC3 does not have: float8_e4m3fnuz", "GC3 does not have: float8_e5m2fnuz"),
        slow("descriptions", "description of the group: of 1", "description of the group: of 1"),
        (
            "all_gather",
            "an array of 4 rows for counts of 3 together",
            "rank 1: a call with wrong arguments: an array of 4",
        ),
        slow(
            "two tensors", "a list of 3 arrays, not 2", "rank 1: a call with wrong arguments: the input is a list of 3"
        ),
        slow("all_to_all_single", "pass the splits", "rank 1: a call with wrong arguments: 3 rows cannot be divided"),
        slow("reduction", "band of float32", "rank 1: a call with wrong arguments: band of float32"),
    ],
)
def test_what_differs_on_one_rank_is_told_to_all(
    what: str, own: str, others: str, tmp_path: Path, tiers: Tier, tier: str
) -> None:
    (first, told), (second, said) = run("torch_groups", 2, tmp_path, tiers(tier), what)
    assert (first, second) == (0, 0), (told, said)
    assert told.startswith("GC3-R010 the ranks make different calls"), told
    assert others in told, told
    assert own in said, said


@needs_torch
@both
def test_descriptions_tell_groups_apart(tmp_path: Path, tiers: Tier, tier: str) -> None:
    for found in run("torch_groups", 2, tmp_path, tiers(tier), "order"):
        assert found == (0, "no error\n")


@needs_torch
@mainly_cpp
def test_a_time_out_of_wait_ends_the_wait_alone(tmp_path: Path, tiers: Tier, tier: str) -> None:
    *others, (last, _) = run("torch_faults", 2, tmp_path, tiers(tier), "patience")
    assert last == 0
    for status, text in others:
        assert status == 0, text
        assert text == "refused: the call has not ended after 0.1 s\nrefused: the process group has been destroyed\n"


@needs_torch
@mainly_cpp
def test_a_process_ends_after_calls_that_nobody_waits_for(tmp_path: Path, tiers: Tier, tier: str) -> None:
    for found in run("torch_faults", 2, tmp_path, tiers(tier), "none waits"):
        assert found == (0, "")


@needs_torch
@mainly_cpp
def test_a_fork_is_refused_and_ends(tmp_path: Path, tiers: Tier, tier: str) -> None:
    for rank, (status, text) in enumerate(run("torch_faults", 2, tmp_path, tiers(tier), "forked")):
        assert status == 0, text
        assert text.count("refused: GC3-R012") == 2 + rank, text


@needs_torch
@pytest.mark.slow
def test_the_backends_can_be_mixed(tmp_path: Path, tiers: Tier) -> None:
    for status, text in run("torch_calls", 2, tmp_path, tiers(IN_CPP), "mixed"):
        assert (status, text.split()[-1]) == (0, "groups"), text


@needs_torch
@both
@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_pytorchs_own_tests(n: int, tmp_path: Path, tiers: Tier, tier: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "pytorch_suite.py", "gc3", str(n)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2300,
        env={**os.environ, **tiers(tier), **own_folder(tmp_path)},  # where PyTorch's tests leave theirs
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {words[1]: words[0] for words in lines if len(words) == 2 and words[0] in ("ok", "skip", "fail")}
    cannot = NEVER | (NOT_IN_PYTHON if tier == IN_PYTHON else {})
    assert {name for name, verdict in found.items() if verdict == "fail"} <= cannot.keys(), done.stderr[-5000:]
    assert sum(verdict == "ok" for verdict in found.values()) >= (75 if tier == IN_PYTHON else 86), done.stdout


@needs_torch
def test_an_own_algorithm_serves_ddp_under_torchrun(tmp_path: Path) -> None:
    example = HERE.parents[1] / "examples" / "torch_ddp.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", example]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=200, env={**os.environ, **own_folder(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert "the loaded program meet_at_owners" in done.stdout
    assert "leaked" not in done.stderr
