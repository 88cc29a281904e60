"""Runs a command that takes long, and shows how far it is: python tools/progress.py "Compile" COMMAND ...

On a terminal one line is renewed; elsewhere there is a line every ten seconds. The command's own output is shown only
if it fails, and then whole; steps that ninja counts are counted. The exit status is the command's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

BETWEEN_LINES = 10.0  # seconds
BETWEEN_RENEWALS = 0.5
STEP = re.compile(r"\[(\d+/\d+)\] ")  # as ninja begins a line


class Said:
    """What the command has printed."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self.lines: list[str] = []
        self.done = ""

    def read(self, line: str) -> None:
        """Takes a line; those that only name a finished step are counted and not kept."""
        if step := STEP.match(line):
            self.done = f", {step.group(1)}"
        else:
            self.lines.append(line)


@contextmanager
def shown(label: str, said: Said) -> Generator[None]:
    """Shows the label, and how far the command is, until the block ends."""
    begun = time.monotonic()
    renews = sys.stdout.isatty()
    ended = threading.Event()

    def show() -> None:
        text = f"{label}{said.done}, {time.monotonic() - begun:.0f} s"
        print(f"\r\x1b[K{text}" if renews else text, end="" if renews else "\n", flush=True)

    def renew() -> None:
        while not ended.wait(BETWEEN_RENEWALS if renews else BETWEEN_LINES):
            show()

    if not renews:
        print(label, flush=True)
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        show()
        if renews:
            print(flush=True)


def main(label: str, *command: str) -> int:
    """Runs the command; returns its exit status."""
    said = Said()
    try:
        with (
            shown(label, said),
            subprocess.Popen(command, stdout=-1, stderr=-2, text=True, errors="replace", bufsize=1) as child,
        ):
            for line in child.stdout or ():
                said.read(line)
            status = child.wait()
    except KeyboardInterrupt:  # the terminal has told the command as well
        return 130
    if status != 0:
        print("".join(said.lines), end="", flush=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
