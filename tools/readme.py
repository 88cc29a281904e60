"""Runs the commands whose output README.md shows, and writes it there, with the machine. `make readme` runs this.

Run it while nothing else runs. The table of compile times is not among them, because it has a column of another tool.
"""

from __future__ import annotations

import re
import subprocess
import sys

from gc3.runtime import measure
from generated import ROOT

README = ROOT / "README.md"
# What a block begins with, and the command that prints it.
BLOCKS = {
    "1. Compile ": [".venv/bin/gc3", "demo"],
    "instruction, 8-byte chunks": ["build/release/gc3_interpreter_benchmark"],
}


def block(text: str, begin: str) -> re.Match[str]:
    """Finds the block of output that begins so.

    Raises:
        ValueError: There is none, or there are several.
    """
    found = list(re.finditer(rf"(?<=^```text\n){re.escape(begin)}.*?(?=^```$)", text, re.MULTILINE | re.DOTALL))
    if len(found) != 1:
        raise ValueError(f"README.md has {len(found)} blocks that begin with '{begin}'")
    return found[0]


def updated(text: str, outputs: dict[str, str], name: str) -> str:
    """Returns the page with these outputs, and the name of the machine they are of."""
    for begin, output in outputs.items():
        old = block(text, begin)
        at = output.find(begin)
        if at < 0:
            raise ValueError(f"no line of the output begins with '{begin}':\n{output}")
        text = text[: old.start()] + output[at:].rstrip() + "\n" + text[old.end() :]
    # Each of the two texts before a block ends in the machine that it is of.
    text, places = re.subn(r"(?<=\(on )[^()]*(?=\):\n\n```text$)", lambda _: name, text, flags=re.MULTILINE)
    if places != len(outputs):
        raise ValueError(f"README.md names the machine at {places} of {len(outputs)} blocks, as '(on ...):'")
    return text


def main() -> int:
    """Runs everything before it changes anything."""
    folder = f"{ROOT}/"  # the demo names it
    outputs = {
        begin: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace(folder, "")
        for begin, command in BLOCKS.items()
    }
    machine = measure.machine()
    README.write_text(updated(README.read_text(), outputs, f"{machine['cpu']}, {machine['cores']} cores"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
