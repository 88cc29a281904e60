"""Files that users name."""

from __future__ import annotations

from pathlib import Path

from gc3 import errors


def read_bytes(path: str, most: int, limit: str = "it may have") -> bytes:
    """Returns what is in a file of at most `most` bytes, a multiple of 1 MiB; `limit` is for the message.

    Raises:
        gc3.UserError: The file cannot be read, or is larger.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as problem:
        raise errors.error("FileUnreadable", f"'{path}': {problem.strerror}") from problem
    if len(data) > most:
        raise errors.error("FileUnreadable", f"'{path}': larger than the {most >> 20} MiB that {limit}")
    return data
