"""Files that the user asked for."""

from __future__ import annotations

from pathlib import Path

from gc3 import errors


def write_text(path: str, text: str) -> None:
    """Writes a file that the user asked for."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise errors.error("FileUnwritable", f"'{path}': {problem.strerror}") from None


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that the user asked for."""
    try:
        Path(path).write_bytes(data)
    except OSError as problem:
        raise errors.error("FileUnwritable", f"'{path}': {problem.strerror}") from None
