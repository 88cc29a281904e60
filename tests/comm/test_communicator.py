"""Communicators in a user's scripts, with each rank a process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
import ranks
from gc3 import errors
from gc3.cli.main import main
from gc3.comm import programs
from one_rank_programs import many_rings, many_sends


@pytest.mark.parametrize(
    "n",
    [
        *(1, 2, 3),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in (4, 7)),
        pytest.param(8, marks=pytest.mark.python_only),
    ],
)
def test_every_collective(n: int) -> None:
    ranks.run(ranks.program("every_collective"), n, {"GC3_PROBE": "1"})  # as users do


def test_any_buffer_and_every_type() -> None:
    ranks.run(ranks.program("any_buffer_and_type"), 2)


def test_asynchronous_calls(tmp_path: Path) -> None:
    ranks.run(ranks.program("asynchronous_calls"), 3, arguments=[tmp_path / "waited"])


def test_arrays_of_a_finished_call_are_released() -> None:
    with gc3.init(rank=0, size=1, job=f"let go {os.getpid()}") as comm:
        given = np.ones(10)
        watched = weakref.ref(given)
        handle = comm.all_reduce_async(given)
        del given
        assert handle.wait().sum() == 10
        del handle
        assert watched() is None
        lost = np.ones(10)
        watched = weakref.ref(lost)
        comm.all_reduce_async(lost)  # no rank waits for it
        del lost
        comm.synchronize()
        assert comm.all_reduce_async([1.0]).wait() == [1.0]  # the next one finds it finished
        assert watched() is None


class Asked:
    """An array that counts how often it is read."""

    def __init__(self, elements: int = 4) -> None:
        """Makes it of ones."""
        self.x, self.times = np.ones(elements), 0

    def __dlpack__(self, **how: object) -> object:
        """Counts."""
        self.times += 1
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Is the host."""
        return self.x.__dlpack_device__()


def test_a_call_reads_its_arguments_once() -> None:
    copies = gc3.SourceProgram("copies", "allreduce", ranks=1)
    with copies:
        gc3.chunk(0, "in", 0).copy(0, "out", 0)
    program = gc3.compile(copies)
    with gc3.init(rank=0, size=1, job="asked") as comm:
        for call in (
            lambda x, out: comm.all_reduce(x, out=out),
            lambda x, out: comm.reduce_scatter_async(x, out=out).wait(),
            lambda x, out: comm.gather(x, out=[out]),
            lambda x, out: comm.run(program, x, out),
            lambda x, out: comm.run(program, x, out),  # now it is prepared
            lambda x, out: comm.run(program, x, out, gc3.PreMulSum(1)),
            lambda x, out: comm.all_gather_v(x, [4], out=out),
            lambda x, out: comm.reduce_scatter_v([x], out=out),
            lambda x, out: comm.sendrecv(x, 0, out, 0),
        ):
            x, out = Asked(), Asked()
            call(x, out)
            assert (out.x == 1).all()
            assert (x.times, out.times) == (1, 1)
        x, out = Asked(), Asked(3)
        with pytest.raises(gc3.UserError, match="3"):
            comm.run(program, x, out)
        assert (x.times, out.times) == (1, 1)


def test_split_two_communicators_and_threads() -> None:
    ranks.run(ranks.program("split_and_threads"), 4)


def test_a_fork_is_refused() -> None:
    ranks.run(ranks.program("call_in_a_fork"), 2)


def test_programs_are_loaded_and_explained(tmp_path: Path) -> None:
    row = {
        "collective": "allreduce",
        "size": [0, 100],
        "program": {"algorithm": "ring_allreduce", "protocol": "LL128"},
        "note": "mine",
    }
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    ranks.run(ranks.program("load_programs"), 3, arguments=[table])


def test_programs_run_again() -> None:
    ranks.run(ranks.program("run_again"), 3)


@pytest.mark.slow
def test_ranks_of_large_programs_make_their_own_steps_alone(tmp_path: Path) -> None:
    gc3.compile(many_rings, R=4, chunks=5500).save(tmp_path / "sums.gc3")
    gathers = gc3.compile(many_sends, R=4, chunks=11000, in_place=False)
    gathers.save(tmp_path / "gathers.gc3")
    table = tmp_path / "table.json"
    file = programs.write(gathers, table)
    row = {"collective": "allgather", "in_place": False, "program": {"file": programs.place(file)}}
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    ranks.run(ranks.program("own_steps"), 4, arguments=[tmp_path])


def test_calls_of_a_signal_handler_within_a_call_are_refused(tmp_path: Path) -> None:
    ranks.run(ranks.program("nested_calls"), 2, arguments=[tmp_path / "handled"])


def test_calls_of_a_signal_handler_while_a_program_is_compiled() -> None:
    ranks.run(ranks.program("nested_calls_of_makers"), 2)


@ranks.limits_memory
def test_calls_that_find_no_thread_are_one_error() -> None:
    ranks.run(ranks.program("no_threads"), 1)


@ranks.limits_memory
def test_a_call_that_finds_no_memory_is_told_to_all() -> None:
    ranks.run(ranks.program("call_without_memory"), 2)


def test_a_killed_rank_is_reported() -> None:
    results = ranks.start(ranks.program("killed_rank"), 3).finish()
    assert [status for status, _ in results] == [0, -signal.SIGKILL, 0]
    assert [text for _, text in results] == ["told\n", "", "told\n"]


def test_different_calls_are_reported_on_all_ranks() -> None:
    for difference, said in (
        ("count", "rank 1: allreduce of 4 float64 (sum)"),
        ("collective", "rank 1: allgather of 1 int64"),
        ("root", "broadcast of 2 float64, root 1"),
        ("type", "rank 1: allreduce of 3 float32 (sum)"),
        ("barrier", "rank 1: barrier"),
    ):
        for text in ranks.run(ranks.program("different_calls"), 3, arguments=[difference]):
            assert "GC3-R010" in text, text
            assert said in text, text


def _wait_until_it_waits(process: int) -> None:
    """Waits until a rank gives its core away again and again, as it does within a call that cannot go on."""

    def given_away() -> int:
        return sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", Path(f"/proc/{process}/status").read_text())))

    before = given_away()
    ranks.until(lambda: given_away() >= before + 50)


def test_ctrl_c_ends_a_call_on_all_ranks(tmp_path: Path) -> None:
    world = ranks.start(ranks.program("interrupted_call"), 2, arguments=[tmp_path / "pressed"])
    output = world.processes[0].stdout
    assert output is not None
    assert output.readline() == "ready\n"
    _wait_until_it_waits(world.processes[0].pid)
    world.processes[0].send_signal(signal.SIGINT)
    assert output.readline() == "interrupted\n"  # before rank 1 comes, with which the call would end
    (tmp_path / "pressed").touch()
    (first, _), (second, other) = world.finish()
    assert (first, second) == (0, 0)
    assert "rank 0 (process" in other
    assert "was interrupted" in other


def test_arrays_that_all_ranks_can_read() -> None:
    ranks.run(ranks.program("shared_arrays"), 3)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) != os.cpu_count(), reason="gc3 leaves restricted processes alone")
@pytest.mark.skipif((os.cpu_count() or 1) > 7, reason="takes more ranks than cores")
@pytest.mark.parametrize(("pin", "spread"), [("1", 1), ("0", os.cpu_count())])
def test_ranks_that_share_cores_are_distributed_evenly(pin: str, spread: int) -> None:
    cores = os.cpu_count() or 1
    printed = ranks.run(ranks.program("print_cores"), cores + 1, {"GC3_PIN": pin})
    allowed = [text.split() for text in printed]
    assert {len(cores) for cores in allowed} == {spread}
    if pin == "1":
        counts = [allowed.count([str(core)]) for core in range(cores)]
        assert sorted(counts) == [1] * (cores - 1) + [2]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) != os.cpu_count(), reason="gc3 leaves restricted processes alone")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core is all cores")
def test_processes_are_pinned_by_their_local_rank_unless_a_framework_owns_them() -> None:
    ranks.run(ranks.program("pinning"), 1)


def test_without_a_launcher_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.UserError, match="GC3-R007") as caught:
        gc3.init()
    assert all(way in caught.value.hint for way in ("WORLD_SIZE", "mpirun -n 4 python SCRIPT.py", "gc3.spawn"))
    assert "gc3 run" not in caught.value.hint  # it takes a program, not a script


def test_ranks_that_do_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_JOIN_TIMEOUT", "0.2")
    with pytest.raises(errors.CommError, match=r"these have not joined within 0.2 s: 1"):
        gc3.init(rank=0, size=2, job=f"nobody {os.getpid()}")


@pytest.mark.skipif(ranks.SANITIZED, reason="the sanitizer itself needs descriptors")
def test_system_errors_are_quoted() -> None:
    (text,) = ranks.run(ranks.program("too_few_descriptors"), 1)
    assert "GC3-R013 a system call failed: memfd_create: Too many open files" in text


def test_timing() -> None:
    ranks.run(ranks.program("time_every_collective"), 3)


@pytest.mark.parametrize(
    "line",
    [
        "run ring_allreduce:R=3 --engine processes --size 100003B --dtype int8",
        "run direct_alltoall:R=4,protocol=LL --engine processes --json",
        "bench ring_allreduce:R=2 --engine processes -b 1KiB -e 64KiB -f 8",
    ],
)
@pytest.mark.python_only
def test_run_and_bench_on_processes(line: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, done.output


def test_processes_take_no_order_of_steps() -> None:
    refused = CliRunner().invoke(main, ["run", "ring_allreduce:R=2", "--engine", "processes:seed=1"])
    assert refused.exit_code == 2
    assert "--engine threads" in refused.stderr


@pytest.mark.python_only
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_rank_processes_of_a_tool_end_with_it(how: signal.Signals) -> None:
    command = ["bench", "ring_allreduce:R=3", "--engine", "processes", "-b", "64MiB", "-n", "100000"]
    tool = subprocess.Popen([sys.executable, "-m", "gc3", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ranks.until(lambda: len(ranks.children(tool.pid)) >= 3)
    found = ranks.children(tool.pid)
    assert len(found) == 3
    time.sleep(1)
    tool.send_signal(how)
    tool.communicate(timeout=ranks.LONGEST)
    assert tool.returncode == (130 if how == signal.SIGINT else -how)
    ranks.until(lambda: not any(Path(f"/proc/{p}").exists() and running(p) for p in found))
    assert not [p for p in found if Path(f"/proc/{p}").exists() and running(p)]


@pytest.mark.python_only
@pytest.mark.parametrize("module", ["gc3.comm.tool_worker", "gc3.comm.spawned"])
def test_a_rank_whose_parent_ended_while_it_started_ends(module: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    ours, theirs = Pipe()
    with ours, theirs:
        command = [sys.executable, "-m", module, str(theirs.fileno()), str(ended.pid)]
        done = subprocess.run(command, pass_fds=[theirs.fileno()], timeout=ranks.LONGEST, check=False)
    assert done.returncode == -signal.SIGKILL


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_of_one_rank() -> None:
    with gc3.init(rank=0, size=1, job=f"alone {os.getpid()}") as comm:
        assert comm.all_gather(np.arange(3)).tolist() == [0, 1, 2]
        assert "direct_allreduce" in str(comm.explain("allreduce", 10**6))
        assert repr(comm) == "<gc3.Communicator rank 0 of 1>"
