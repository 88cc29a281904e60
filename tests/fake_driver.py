"""The fake CUDA driver of tests/fake_cuda, which runs the kernels' source on the CPU: no GPU is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

import forked
from fake_arrays import ENVIRONMENT, LIBRARY

needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="the fake driver is built by `make cpp-tests`")
# Runs a test with the fake driver and, if there is a device, with a real one.
DRIVERS = (
    pytest.param(ENVIRONMENT, id="fake", marks=needs_library),
    pytest.param({"GC3_CUDA_DRIVER": "", "GC3_NVRTC": ""}, id="device", marks=pytest.mark.gpu),
)


def gc3(*arguments: str, settings: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs the command line with the fake driver, whose `settings` are those of tests/fake_cuda/machine.h."""
    return _run("import sys, gc3.cli.main as cli\nsys.exit(cli.main())", arguments, settings, timeout)


def python(code: str, settings: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a piece of Python with the fake driver."""
    return _run(code, (), settings, timeout)


def _run(code: str, arguments: Sequence[str], settings: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """In a forked process, whose streams are one."""
    environment = {**os.environ, **ENVIRONMENT, "FAKE_CUDA": settings}
    imports = ["gc3.cli.run", "gc3.comm.tool_ranks", "numpy.random"]
    status, text = forked.run(code, arguments, environment, imports, timeout)
    return subprocess.CompletedProcess([*arguments], status, text, text)
