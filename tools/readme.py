"""Runs what README.md and docs/runtime.md print of a machine, and writes it there with the machine: `make readme`.

It draws the picture of README.md, by the command that README.md gives for it.

Run it while nothing else runs. The table of compile times is not among them, because it has a column of another tool.
"""

from __future__ import annotations

import re
import subprocess
import sys

from gc3.runtime import measure
from generated import ROOT

PICTURE = "docs/images/allreduce_ndv4.svg"
# What a block begins with, its page, and the command that prints it.
BLOCKS = {
    "1. Compile ": (ROOT / "README.md", [".venv/bin/gc3", "demo"]),
    "instruction, 8-byte chunks": (ROOT / "docs" / "runtime.md", ["build/release/gc3_interpreter_benchmark"]),
}


def block(text: str, begin: str) -> re.Match[str]:
    """Finds the block of output that begins so.

    Raises:
        ValueError: There is none, or there are several.
    """
    found = list(re.finditer(rf"(?<=^```text\n){re.escape(begin)}.*?(?=^```$)", text, re.MULTILINE | re.DOTALL))
    if len(found) != 1:
        raise ValueError(f"the page has {len(found)} blocks that begin with '{begin}'")
    return found[0]


def updated(text: str, begin: str, output: str, name: str) -> str:
    """Returns the page with this output of a block, and the name of the machine it is of."""
    old = block(text, begin)
    at = output.find(begin)
    if at < 0:
        raise ValueError(f"no line of the output begins with '{begin}':\n{output}")
    # The text before a block ends in the machine that it is of.
    before, places = re.subn(r"(?<=\(on )[^()]*(?=\):\n\n```text\n$)", lambda _: name, text[: old.start()])
    if places != 1:
        raise ValueError(f"before the block that begins with '{begin}' no machine is named, as '(on ...):'")
    return before + output[at:].rstrip() + "\n" + text[old.end() :]


def drawing(text: str) -> list[str]:
    """Returns the command of the page that draws its picture, without the name of the picture.

    Raises:
        ValueError: There is none.
    """
    found = re.search(r"`(gc3 sim [^`]* --picture) \S+`", text)
    if found is None:
        raise ValueError("the page has no `gc3 sim ... --picture FILE`")
    return found[1].split()


def main() -> int:
    """Runs everything before it changes anything."""
    folder = f"{ROOT}/"  # the demo names it
    outputs = {
        begin: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace(folder, "")
        for begin, (_, command) in BLOCKS.items()
    }
    command = drawing((ROOT / "README.md").read_text())
    subprocess.run([f".venv/bin/{command[0]}", *command[1:], PICTURE], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    machine = measure.machine()
    pages = {page: page.read_text() for page, _ in BLOCKS.values()}
    for begin, (page, _) in BLOCKS.items():
        pages[page] = updated(pages[page], begin, outputs[begin], f"{machine['cpu']}, {machine['cores']} cores")
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
