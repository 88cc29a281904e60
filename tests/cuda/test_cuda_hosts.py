"""Calls on arrays of a device by ranks of several hosts, which are namespaces of this machine; see tests/hosts.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fake_driver
import hosts
from ranks import program

pytestmark = [
    pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}"),
    fake_driver.needs_library,
]


def on_two_hosts(ranks: int, name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of ranks, so many on each host; the output of each rank is whole."""
    run = [sys.executable, str(program(name)), *map(str, words)]
    line = hosts.command(2, ranks, run, "--apart", "--timeout", "120")
    return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150, check=False)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.python_only)])
def test_results_between_hosts(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_CUDA_WINDOWS", str(ranks - 1))  # they do not serve several hosts, and it is said
    done = on_two_hosts(ranks, "device_on_hosts", ranks)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all right") == 2 * ranks


@pytest.mark.python_only
def test_the_end_of_an_engine_lets_other_threads_connect() -> None:
    done = on_two_hosts(1, "device_engine_dropped")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all right") == 2


@pytest.mark.python_only
@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_lost_host_ends_the_kernels_that_wait_for_it(fault: str) -> None:
    done = on_two_hosts(2, "device_lost_host", fault)
    said = [line for line in done.stdout.splitlines() if line.startswith("lost: ")]
    # The link of the lost host, not the host, is cut: it loses the other one.
    assert len(said) == (2 if fault == "kill" else 4), done.stdout
    assert all(line.startswith("lost: GC3-R009") and "rank" in line for line in said), done.stdout
    assert done.stdout.count("closed") == len(said), done.stdout
