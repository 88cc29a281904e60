"""Properties that only a separate process shows: exit codes, pure standard output, broken pipes and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gc3
import gc3_command
from gc3 import _core
from ranks import LONGEST

pytestmark = pytest.mark.python_only

GC3 = [sys.executable, "-m", "gc3"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GC3, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


def test_the_main_job_from_the_shell(tmp_path: Path) -> None:
    compiled = run("compile", "hierarchical_allreduce:N=2,G=3", "-o", "h.gc3", cwd=tmp_path)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    verified = run("verify", "h.gc3", cwd=tmp_path)
    assert (verified.returncode, verified.stderr) == (0, "")
    ran = run("run", "h.gc3", "--size", "1MiB", "--dtype", "float32", cwd=tmp_path)
    assert ran.returncode == 0
    assert [
        line for line in ran.stderr.splitlines() if not line.endswith(" ...")
    ] == []  # what it does, if that takes long
    assert "all equal to NumPy's" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("list",), 0), (("verify", "nowhere.gc3"), 1), (("nonsense",), 2), (("list", "--nonsense"), 2)],
)
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    result = gc3_command.run(*arguments)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    as_json = gc3_command.run(*arguments, "--json")
    assert as_json.returncode == code
    assert as_json.stderr == ""
    assert ("error" in json.loads(as_json.stdout)) == (code != 0)


def test_standard_output_is_the_commands_whatever_the_user_prints(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import os, subprocess\n"
        "from gc3 import algorithm, chunk\n"
        "print('at import', flush=True)\n"
        "os.write(1, b'by descriptor\\n')\n"
        "@algorithm('alltonext')\n"
        "def mine(R):\n"
        "    subprocess.run(['echo', 'by a process'], check=True)\n"
        "    print('while tracing')\n"
        "    for r in range(R - 1):\n"
        "        chunk(r, 'in', 0).copy(r + 1, 'out', 0)\n"
    )
    result = gc3_command.run("run", f"{source}:mine:R=3", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["check"]["ok"]
    users = [line for line in result.stderr.splitlines() if not line.endswith(" ...")]
    assert users == ["at import", "by descriptor", "by a process", "while tracing"]


def test_debug_prints_a_traceback() -> None:
    result = gc3_command.run("verify", "nowhere.gc3", "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_broken_pipe_is_not_an_error() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen([*GC3, "list"], stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(reader)
        os.close(writer)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 141
    assert stderr == ""


@pytest.mark.parametrize("json_or_not", [[], ["--json"]])
def test_a_full_disk_is_one_message(json_or_not: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*GC3, "list", *json_or_not], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert result.returncode == 1
    assert result.stderr.startswith("error GC3-I002: cannot write the file: standard output: No space left")
    assert "Traceback" not in result.stderr


def test_without_standard_output_a_command_still_works(tmp_path: Path) -> None:
    for closed in (">&-", ">&- 2>&-"):
        command = f"{sys.executable} -m gc3 compile ring_allreduce:R=2 -o r.gc3 {closed}"
        result = subprocess.run(
            ["/bin/sh", "-c", command], stderr=subprocess.PIPE, timeout=60, check=False, cwd=tmp_path
        )
        assert (result.returncode, result.stderr) == (0, b"")
        assert gc3.Program.load(tmp_path / "r.gc3").ranks == 2
        (tmp_path / "r.gc3").unlink()


def interrupt(arguments: list[str], first: str) -> tuple[int, str]:
    """Presses Ctrl-C a second after a line that begins so, on either stream; returns exit code and later errors.

    What does not end fails.
    """
    with subprocess.Popen([*GC3, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout if first.startswith("#") else process.stderr
        assert said is not None
        assert said.readline().startswith(first)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LONGEST)
    return process.returncode, stderr.strip()


def test_ctrl_c_ends_a_long_run_at_once() -> None:
    long = ["bench", "ring_allreduce:R=2", "-b", "16MiB", "-n", "1000000", "--no-check"]  # hours
    assert interrupt(long, first="# ring_allreduce") == (130, "interrupted")


def test_ctrl_c_at_any_time_gives_no_traceback() -> None:
    """From before NumPy and the core are imported to the very end."""
    script = (
        "import signal, sys; from gc3.__main__ import main; sys.argv = ['gc3', 'list']; set_handler = signal.signal\n"
        "def handle(*given):\n"
        "    signal.signal = set_handler\n"
        "    set_handler(*given); print(flush=True)\n"
        "signal.signal = handle; main()"
    )
    started = time.monotonic()
    run("list")
    whole = time.monotonic() - started
    for part in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # Ctrl-C is handled from here on
            time.sleep(part * whole / 8)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        ended = (process.returncode, stderr.strip())
        assert ended in ((130, b"interrupted"), (-signal.SIGINT, b""), (0, b"")), part


def test_ctrl_c_while_the_process_ends_gives_no_traceback() -> None:
    script = (
        "import signal, sys; from gc3.__main__ import main; sys.argv = ['gc3', '--version']\n"
        "set_handler = signal.signal\n"
        "def handle(number, handler):\n"
        "    if handler is signal.SIG_DFL: signal.raise_signal(number)\n"
        "    return set_handler(number, handler)\n"
        "signal.signal = handle; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, b"interrupted")


# Each rank waits for the other's message before it sends its own. A single worker, the default on one core, sees that
# at once; two wait.
STUCK = """program "stuck" version 1
collective allgather ranks 2 chunks 1
protocol Simple instances 1 slots 1

rank 0
  tb 0 channel 0 send 1 recv 1
    0 recv -> out[1]
    1 send in[0]

rank 1
  tb 0 channel 0 send 0 recv 0
    0 recv -> out[0]
    1 send in[0]
"""


def test_a_run_in_which_nothing_moves_ends_at_the_deadline(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck.gc3")
    _core.Program.from_text(STUCK).save(path)
    done = gc3_command.run("run", f"{path}:prove=no", "--engine", "threads:workers=2,timeout=0.2")
    assert done.returncode == 1
    assert "GC3-R003" in done.stderr
    assert "rank 1 threadblock 0 step 0" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_run_in_which_nothing_moves(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck.gc3")
    _core.Program.from_text(STUCK).save(path)
    stuck = ["run", f"{path}:prove=no", "--engine", "threads:workers=2,timeout=3600"]
    assert interrupt(stuck, first=f"running {path} ...") == (130, "interrupted")
