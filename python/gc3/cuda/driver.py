"""The CUDA driver, the run-time compiler and NCCL, which are found and loaded on first use."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from gc3 import _core
from gc3.support import knobs

# Newest first; the core skips those that are newer than the driver.
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
    return _core.CudaRuntime(driver, [nvrtc] if nvrtc else compilers())


def nccl() -> _core.Nccl:
    """Returns NCCL, which must be new enough to give the addresses of its windows.

    Raises:
        gc3.CommError: There is no such NCCL.
    """
    return _core.Nccl(nccl_libraries())


def nccl_libraries() -> list[str]:
    """Returns the libraries to try for NCCL: the one that is set, or else those of pip packages, then the system's."""
    set_up = knobs.read()
    return [set_up.nccl] if set_up.nccl else [*_of_wheels("nccl", "libnccl.so.2"), "libnccl.so.2"]


def compilers() -> list[str]:
    """Returns the libraries to try for NVRTC: those of pip packages, then the system's."""
    wheels = [*_of_wheels("cu13", "libnvrtc.so.13"), *_of_wheels("cuda_nvrtc", "libnvrtc.so.12")]
    return wheels + [f"libnvrtc.so.{version}" for version in _VERSIONS]


def _of_wheels(folder: str, library: str) -> list[str]:
    """The paths of a library that NVIDIA's pip packages have installed."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [str(path) for place in places if (path := place / folder / "lib" / library).exists()]
