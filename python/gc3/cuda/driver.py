"""The CUDA driver and run-time compiler, found and loaded when they are first asked for."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from gc3 import _core, knobs

# Newest first; the core passes over those that are newer than the driver.
_VERSIONS = (13, 12)


def runtime() -> _core.CudaRuntime:
    """Returns the CUDA driver of this process.

    Raises:
        gc3.UserError: There is no driver, or no device.
    """
    set_up = knobs.read()
    return _runtime(set_up.cuda_driver, set_up.nvrtc)


@cache
def _runtime(driver: str, nvrtc: str) -> _core.CudaRuntime:
    return _core.CudaRuntime(driver, [nvrtc] if nvrtc else _compilers())


def _compilers() -> list[str]:
    """Names the libraries that may be NVRTC: those of pip packages, then the system's."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [
        str(place / folder / "lib" / f"libnvrtc.so.{version}")
        for place in places
        for version, folder in ((13, "cu13"), (12, "cuda_nvrtc"))
        if (place / folder / "lib" / f"libnvrtc.so.{version}").exists()
    ]
    return found + [f"libnvrtc.so.{version}" for version in _VERSIONS]
