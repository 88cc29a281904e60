"""Has clang read the library and the bindings, with the warnings that are errors here.

It takes the commands of build/release, leaves out the tests, and generates no code. If the machine has no clang of
version 16 or newer, it says so and exits with 0.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = 16
_OF_GCC = {"-fno-stack-protector"}


def clang() -> str | None:
    """Returns the newest clang++ on PATH that is not older than `OLDEST`."""
    for name in (*(f"clang++-{version}" for version in range(40, OLDEST - 1, -1)), "clang++"):
        found = shutil.which(name)
        if found is None:
            continue
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"clang version (\d+)", said)
        if version is not None and int(version[1]) >= OLDEST:
            return found
    return None


def command(compiler: str, entry: dict[str, str]) -> list[str]:
    """Returns a command that checks what a command of g++ compiles."""
    words = shlex.split(entry["command"])
    begin = next(i for i, word in enumerate(words) if "++" in Path(word).name) + 1  # after a compiler cache
    kept = [w for w in words[begin : words.index("-o")] if not w.startswith("-M") and w not in _OF_GCC]
    kept = [w for w in kept if not w.endswith(".d") and not w.endswith(".o")]
    return [compiler, *kept, "-fsyntax-only", "-Werror", entry["file"]]


def main() -> int:
    """Checks every file, and prints what clang says of those that fail."""
    compiler = clang()
    if compiler is None:
        print(f"skipped: this machine has no clang {OLDEST} or newer")
        return 0
    entries = json.loads((ROOT / "build" / "release" / "compile_commands.json").read_text())
    ours = [
        e
        for e in entries
        if re.search(r"/(cpp/gc3|bindings)/[^ ]*(?<!_test)\.cc$", e["file"]) and not e["file"].endswith("/test_main.cc")
    ]

    def check(entry: dict[str, str]) -> str:
        done = subprocess.run(
            command(compiler, entry), cwd=entry["directory"], capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else f"{entry['file']}:\n{done.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [said for said in pool.map(check, ours) if said]
    print("".join(failed) + f"{Path(compiler).name}: {len(ours) - len(failed)} of {len(ours)} files without a warning")
    return 1 if failed or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
