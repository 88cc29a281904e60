"""Jobs of several hosts, which are namespaces of this machine; see tests/hosts.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

import hosts
from ranks import program

pytestmark = pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}")


def on_hosts(count: int, ranks: int, words: Sequence[object], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of ranks on that many hosts; the output of all ranks is together."""
    line = hosts.command(count, ranks, [sys.executable, *map(str, words)], "--timeout", "60", *options)
    return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, check=False)


@pytest.mark.parametrize(("count", "ranks"), [(2, 2), (3, 1)])
def test_ranks_of_several_hosts_meet(count: int, ranks: int) -> None:
    done = on_hosts(count, ranks, [program("on_hosts"), ranks])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all right") == count * ranks
