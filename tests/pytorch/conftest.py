"""The backends that the tests of this folder use."""

from __future__ import annotations

import pytest

from torch_ranks import IN_PYTHON, Tier, command


@pytest.fixture(scope="session")
def tiers(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Tier:
    """The environment in which a backend is used. The one in C++ is built once for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    cache = str((base if worker_id == "master" else base.parent) / "torch_cache")

    def environment(tier: str) -> dict[str, str]:
        if tier == IN_PYTHON:
            return {"GC3_TORCH_BUILD": "0"}
        done = command("build", GC3_CACHE=cache)
        assert "the backend of PyTorch is in C++" in done.stdout, done.stderr
        return {"GC3_CACHE": cache}

    return environment
