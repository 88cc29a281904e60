"""The applications of examples/ beside Gloo, at small sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_ranks import IN_PYTHON, Tier, needs_torch, own_folder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def slow(line: str, libraries: list[str]) -> object:
    """A case that `make test` leaves out."""
    return pytest.param(line, libraries, marks=pytest.mark.slow)


@needs_torch
@pytest.mark.parametrize(
    ("line", "libraries"),
    [
        ("fft3d --shape 6 5 3", ["gc3"]),
        slow("kfac_step --widths 5 3 --samples 8 --steps 2", ["gc3"]),
        ("moe_layer --tokens 9 --width 4 --algorithm direct_alltoall", ["gc3", "gc3 direct_alltoall"]),
        slow("torch_ddp --width 8", ["gc3 meet_at_owners", "gc3", "alone"]),
        (
            "torch_decoding --layers 2 --width 32 --tokens 3 --dtype bfloat16 --algorithm allpairs_allreduce",
            ["gc3", "gc3 allpairs_allreduce"],
        ),
    ],
)
def test_an_application_beside_gloo(line: str, libraries: list[str], tmp_path: Path, tiers: Tier) -> None:
    name, *words = line.split()
    record = tmp_path / "out.json"
    options = ["--ranks", "2", "--vs", "--rounds", "1", "--json", str(record)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *words, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, **own_folder(tmp_path), **tiers(IN_PYTHON)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(record.read_text())
    assert (found["name"], found["ranks"]) == (name, 2)
    assert [row["library"] for row in found["rows"]] == ["gloo", *libraries]
    assert found["rows"][0]["ratio"] == 1
    assert found["of"] == {"moe_layer": 18, "torch_decoding": 12}.get(name, 1)
