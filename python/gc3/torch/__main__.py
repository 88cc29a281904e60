"""The command ``python -m gc3.torch build``: builds the backend of PyTorch in C++ for this machine."""

from __future__ import annotations

import sys
import time

import gc3.torch
from gc3 import errors

_USAGE = """usage: python -m gc3.torch build

Builds the backend of PyTorch in C++, with g++ and the headers of the installed PyTorch, and keeps it in the folder of
GC3_CACHE. Scripts then use it instead of the one in Python.
"""


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status; 0: the backend in C++ is there."""
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        return 0
    if arguments != ["build"]:
        sys.stderr.write(_USAGE)
        return 2
    began = time.monotonic()
    try:
        file = gc3.torch.build()
        told = gc3.torch.tier()
    except errors.Gc3Error as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"{file} ({time.monotonic() - began:.0f} s)\nthe backend of PyTorch is {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
