"""Reducing a library's device code to one architecture, on containers in the form of NVIDIA's libraries."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).resolve().parents[2]
CUBIN, PTX = 2, 1


def container(*images: tuple[int, int, bytes]) -> bytes:
    """A container of images, each a kind, an architecture and its code."""
    body = b"".join(
        struct.pack("<HHIQ12xI32x", kind, 257, 64, len(code), architecture) + code
        for kind, architecture, code in images
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def one_architecture(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "cuda" / "one_architecture.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_other_architectures_and_ptx_are_left_out_in_place(tmp_path: Path) -> None:
    first = container((CUBIN, 80, b"a" * 40), (CUBIN, 90, b"b" * 24), (PTX, 90, b"p" * 16))
    second = container((CUBIN, 100, b"c" * 80))
    whole, packed, unpacked = tmp_path / "whole", tmp_path / "packed", tmp_path / "unpacked"
    whole.write_bytes(b"ELF " * 4 + first + b"text" * 4 + second + b"end ")
    assert one_architecture(whole, 90, packed).returncode == 0
    assert one_architecture("--unpack", packed, unpacked).returncode == 0
    kept = container((CUBIN, 90, b"b" * 24)).ljust(len(first), b"\0")
    assert unpacked.read_bytes() == b"ELF " * 4 + kept + b"text" * 4 + container().ljust(len(second), b"\0") + b"end "


def test_a_library_without_the_architecture_is_said_to_be_one(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.write_bytes(container((CUBIN, 80, b"a" * 40)))
    done = one_architecture(whole, 90, tmp_path / "packed")
    assert (done.returncode, done.stderr) == (1, f"{whole} has no code for sm_90\n")
    assert not (tmp_path / "packed").exists()


def test_a_library_laid_out_otherwise_is_not_cut(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    data = bytearray(container((CUBIN, 90, b"a" * 40)))
    data[8:16] = struct.pack("<Q", 96)  # less than the image states
    whole.write_bytes(data)
    done = one_architecture(whole, 90, tmp_path / "packed")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "is not laid out as expected" in done.stderr
