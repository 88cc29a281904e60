"""`gc3` in processes that are forked: they begin with its imports made, which take most of a short command's time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import forked
from ranks import LONGEST

# As `python -m gc3` begins, with each of the three streams a file, or a terminal.
_CODE = """
import os, sys
streams, sys.argv = sys.argv[1:4], ["gc3", *sys.argv[4:]]
for number, path in enumerate(streams):
    os.dup2(os.open(path, os.O_RDWR | os.O_NOCTTY), number)
sys.stdin, sys.stdout, sys.stderr = (open(number, "rww"[number], closefd=False) for number in range(3))
from gc3.__main__ import main
main()
"""


def started(
    arguments: Sequence[str], streams: Sequence[str], folder: str, environment: Mapping[str, str]
) -> forked.Process:
    """Starts `gc3 ARGUMENTS` with these files as its streams; `folder`: for its code, until it has ended."""
    code = Path(folder, "code.py")
    code.write_text(_CODE)
    return forked.start(code, [*streams, *arguments], environment, ["gc3.cli.main", "gc3.cli.options"])


def run(*arguments: str, environment: Mapping[str, str] = os.environ) -> CompletedProcess[str]:
    """Runs `gc3 ARGUMENTS` to its end."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        out.touch()
        err.touch()
        process = started(arguments, ["/dev/null", str(out), str(err)], folder, environment)
        try:
            process.communicate(LONGEST)
        finally:
            process.kill()
        return CompletedProcess(arguments, process.wait(), out.read_text(), err.read_text())
