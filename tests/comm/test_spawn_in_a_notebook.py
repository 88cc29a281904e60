"""gc3.spawn in the kernel of a notebook: functions of cells, printed output, errors and interrupts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

import ranks

pytestmark = pytest.mark.python_only

LONGEST_S = 120.0  # of a cell

DEFINED = """
import os, time
import numpy as np
import gc3
scale = 10
def total(comm, base):
    print("rank", comm.rank, "of", comm.size)
    return float(comm.all_reduce(np.array([base + comm.rank * scale]))[0])
"""
FAILS = """
def fails(comm):
    if comm.rank == 1:
        raise KeyError("of the cell")
    comm.barrier()
try:
    gc3.spawn(fails, 2)
except gc3.CommError as problem:
    print(problem.message)
"""
WAITS = """
def waits(comm):
    os.write(1, b"process %d\\n" % os.getpid())
    time.sleep(1000)
try:
    gc3.spawn(waits, 2)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(LONGEST_S)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_cells_of_a_notebook(kernel: tuple[KernelManager, BlockingKernelClient]) -> None:
    manager, client = kernel

    def run(cell: str, after: Callable[[str], None] = lambda _: None) -> str:
        """What a cell prints; its value is the last line."""
        parts: list[str] = []

        def shown(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["header"]["msg_type"] == "error":
                parts.append("\n".join(content["traceback"]))
            parts.append(content.get("text") or content.get("data", {}).get("text/plain", ""))
            after("".join(parts))

        client.execute_interactive(cell, output_hook=shown, timeout=LONGEST_S)
        return "".join(parts)

    assert run(DEFINED) == ""
    *printed, result = run("gc3.spawn(total, 3, 1.0)").splitlines()
    assert sorted(printed) == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
    assert ast.literal_eval(result) == [33.0] * 3
    assert run(FAILS) == "a rank has failed: rank 1: KeyError: 'of the cell'\n"

    interrupts: list[str] = []

    def interrupt(text: str) -> None:
        if text.count("\n") == 2 and not interrupts:
            interrupts.append(text)
            manager.interrupt_kernel()

    text = run(WAITS, interrupt)
    started = [Path(f"/proc/{line.split()[1]}/task") for line in interrupts[0].splitlines()]
    assert len(set(started)) == 2
    assert text == interrupts[0] + "interrupted\n"
    assert not any(task.exists() for task in started)
    *printed, result = run("gc3.spawn(total, 2, 1.0)").splitlines()
    assert sorted(printed) == ["rank 0 of 2", "rank 1 of 2"]
    assert ast.literal_eval(result) == [12.0] * 2
    assert ranks.children(manager.provisioner.pid) == []
