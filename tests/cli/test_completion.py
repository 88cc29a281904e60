"""What a shell offers for an unfinished command line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gc3 import datatypes
from gc3.cli.main import main

pytestmark = pytest.mark.python_only


_MORE = (
    *("channels=1", "G=1", "rails=1"),
    *(f"protocol={name}" for name in datatypes.PROTOCOLS),
    *("instances=2", "in_place=yes"),
)


def offered(line: str) -> list[str]:
    """What is offered for the last word of `line`, which may be empty."""
    *words, begun = line.split(" ")
    return [item.value for item in ShellComplete(main, {}, "gc3", "_GC3_COMPLETE").get_completions(words, begun)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("com", ["compile", "completion"]),
        ("compile ring_allr", ["ring_allreduce"]),
        ("compile ring_allreduce:R", [f"ring_allreduce:R={n}" for n in (2, 4, 8, 16)]),
        ("compile ring_allreduce:R=1", ["ring_allreduce:R=16"]),
        ("compile ring_allreduce:R=2,", [f"ring_allreduce:R=2,{more}" for more in _MORE]),
        ("compile ring_allreduce:R=2,protocol=LL1", ["ring_allreduce:R=2,protocol=LL128"]),
        ("compile ring_allreduce --out", ["--output"]),
        ("sim ring_allr", ["ring_allreduce"]),
        ("sim ring_allreduce -t dgx1", ["dgx1"]),
        ("topo show ndv4:", ["ndv4:N=1", "ndv4:rails=1"]),
        ("synth allg", ["allgather"]),
        ("errors gc3-l001", ["GC3-L001"]),
        ("verify mine.g", ["mine.g"]),  # a file: the shell goes on
        ("compile no_such.py:ring:R", ["no_such.py:ring:R"]),
    ],
)
def test_names_are_offered(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_GC3_COMPLETE" in result.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so its script is not tried")
    script = tmp_path / "script"
    script.write_text(result.stdout)
    assert subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False).returncode == 0
