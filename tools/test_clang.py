"""Has clang read each source of the library and the bindings alone, with the warnings that are errors here.

What g++ compiles is batches of sources; this is where a source that does not include what it uses is found.

clang-tidy's part of the compiler does it, since that is to be had as a wheel, and a whole compiler is not. It takes the
commands of a build without batches, leaves out the tests, and generates no code. Most of the time is the standard
library, once for each source. So the CI has the sources that were changed lately read (--commits), the night all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALONE = ROOT / "build" / "alone"
# Beside this Python, as the Makefile installs it.
CLANG = Path(sys.executable).with_name("clang-tidy")
_OF_GCC = {"-fno-stack-protector"}
# The stable_sort of libstdc++ 12 calls what libstdc++ 12 says is deprecated.
_OF_LIBRARY = "-Wno-deprecated-declarations"


def command(entry: dict[str, str]) -> list[str]:
    """Returns a command that checks what a command of g++ compiles."""
    words = shlex.split(entry["command"])
    begin = next(i for i, word in enumerate(words) if "++" in Path(word).name) + 1  # after a compiler cache
    kept = [w for w in words[begin : words.index("-o")] if not w.startswith("-M") and w not in _OF_GCC]
    kept = [w for w in kept if not w.endswith(".d") and not w.endswith(".o")]
    only_warnings = ["--quiet", "--allow-no-checks", "--checks=-*,clang-diagnostic-*", "--warnings-as-errors=*"]
    return [str(CLANG), *only_warnings, entry["file"], "--", *kept, _OF_LIBRARY]


def _changed(commits: int) -> set[str] | None:
    """Returns the files that the newest commits and the working tree changed; None if there are not so many commits."""
    git = ["git", "diff", "--name-only", f"HEAD~{commits}"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    return {str(ROOT / name) for name in done.stdout.split("\n")} if done.returncode == 0 else None


def main() -> int:
    """Checks the files, and prints what clang says of those that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, help="only sources that so many of the newest commits changed")
    commits = parser.parse_args().commits
    settings = ["-DGC3_UNITY=OFF", "-DGC3_TESTS=OFF", "-DGC3_BENCHMARKS=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "--preset", "release", "-B", str(ALONE), *settings], cwd=ROOT, check=True, stdout=-3)
    entries = json.loads((ALONE / "compile_commands.json").read_text())
    ours = [
        e
        for e in entries
        if re.search(r"/(cpp/gc3|bindings)/[^ ]*(?<!_test)\.cc$", e["file"]) and not e["file"].endswith("/test_main.cc")
    ]

    if commits is not None and (changed := _changed(commits)) is not None:
        ours = [e for e in ours if e["file"] in changed]
        if not ours:
            print(f"clang: no source was changed by the newest {commits} commits")
            return 0

    def check(entry: dict[str, str]) -> str:
        done = subprocess.run(command(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{entry['file']}:\n{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [said for said in pool.map(check, ours) if said]
    print("".join(failed) + f"clang: {len(ours) - len(failed)} of {len(ours)} files without a warning")
    return 1 if failed or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
