"""The backends that the tests of this folder use."""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path

import pytest

from torch_ranks import IN_PYTHON, Tier, command

# The backend in C++ takes a minute to build. The name of the library contains its sources, PyTorch and Python, so that
# another run takes it, and nothing else of this run.
BUILT = Path(__file__).parents[2] / "build" / "torch_backends"


def copy(libraries: Path, to: Path) -> None:
    """Copies the libraries that are not there, each at once: other workers do the same."""
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    for library in libraries.glob("torch-*.so"):
        if not (to / library.name).exists():
            part = to / f"{library.name}.{os.getpid()}"
            shutil.copy(library, part)
            part.replace(to / library.name)


@pytest.fixture(scope="session")
def tiers(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Tier:
    """The environment in which a backend is used. The one in C++ is built once for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    cache = (base if worker_id == "master" else base.parent) / "torch_cache"

    @lru_cache
    def environment(tier: str) -> dict[str, str]:
        if tier == IN_PYTHON:
            return {"GC3_TORCH_BUILD": "0"}
        copy(BUILT, cache)
        done = command("build", GC3_CACHE=str(cache))
        assert "the backend of PyTorch is in C++" in done.stdout, done.stderr
        copy(cache, BUILT)
        return {"GC3_CACHE": str(cache)}

    return environment
