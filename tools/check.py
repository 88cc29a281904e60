"""A developer's two minutes, after `make build`: checks what was changed since main. `make check` runs this.

Formats, rules and types of the changed files; the C++ tests of the touched layers; the Python tests of the touched
areas, without those marked slow or waits, except in changed files of tests. An area is a folder of python/gc3 and the
one of that name in tests/. What was not run is printed. `--format` leaves the tests out; a commit hook runs that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
BIN = ROOT / ".venv" / "bin"
CPP = Path("cpp/gc3")
PACKAGE = Path("python/gc3")

# The Python tests of what is written in C++.
AREAS_OF_LAYERS: Mapping[str, tuple[str, ...]] = {
    "ir": ("compiler",),
    "compiler": ("compiler",),
    "verify": ("compiler",),
    "sim": ("sim",),
    "synth": ("synth",),
    "runtime/interp": ("runtime",),
    "runtime/cpu": ("runtime",),
    "runtime/direct": ("runtime",),
    "runtime/p2p": ("comm",),
    "runtime/core": ("comm",),
    "runtime/select": ("comm",),
    "transport": ("comm",),
    "comm": ("comm",),
    "runtime/cuda": ("cuda",),
    "nccl": ("nccl",),
    "nccl_tuner": ("nccl",),
}
# The tests of modules that have no folder, or none of that name.
AREAS_OF_MODULES: Mapping[str, tuple[str, ...]] = {
    "algorithms": ("lang",),
    "torch": (),  # `make torch-tests`
    "support": ("project",),
    "nccl.py": ("nccl",),
}


def changed() -> list[Path]:
    """Returns the files that differ from main's, or on main from its last commit, and exist."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, stdout=-1, stderr=-3, text=True, check=False)
        return done.stdout.splitlines()

    base = next(iter(git("merge-base", "main", "HEAD")), "HEAD")
    names = {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    return sorted(Path(name) for name in names if (ROOT / name).is_file())


def layers(files: Iterable[Path]) -> set[str]:
    """Returns the layers of cpp/gc3 that have one of the files."""
    folders = [path.parent.relative_to(CPP).parts for path in files if path.is_relative_to(CPP)]
    return {"/".join(parts[: 2 if parts[0] == "runtime" else 1]) for parts in folders if parts}


def tests(files: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Returns what pytest runs for the files: folders of tests, and files of tests that were changed themselves."""
    files = list(files)
    areas = {area for layer in layers(files) for area in AREAS_OF_LAYERS.get(layer, ())}
    for path in files:
        if path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).parts[0]
            areas.update(AREAS_OF_MODULES.get(name, (name,)))
    folders = {f"tests/{area}" for area in areas if (ROOT / "tests" / area).is_dir()}
    single = [path for path in files if path.match("tests/*/test_*.py") and path.parts[1] != "pytorch"]
    return folders, {str(path) for path in single}


def run(what: str, *command: str | Path, passes: tuple[int, ...] = (0,)) -> bool:
    """Runs a check, and says how long it took; returns whether it passed, which the exit status tells."""
    begun = time.monotonic()
    passed = subprocess.run(command, cwd=ROOT, check=False).returncode in passes
    print(f"{what}: {'passed' if passed else 'FAILED'} in {time.monotonic() - begun:.0f} s", flush=True)
    return passed


def main(*, only_format: bool) -> int:
    """Runs the checks; returns the exit status."""
    files = changed()
    python = [path for path in files if path.suffix == ".py"]
    cpp = [path for path in files if path.suffix in {".cc", ".h"} and path.parts[0] != "third_party"]
    typed = [path for path in python if path.parts[0] in {"python", "tools"}]
    passed = [run("rules of files", sys.executable, "tools/check_files.py")]
    if python:
        passed += [
            run("rules", BIN / "ruff", "check", *python),
            run("format", BIN / "ruff", "format", "--check", *python),
        ]
    if cpp:
        passed.append(run("format of C++", BIN / "clang-format", "--dry-run", "-Werror", *cpp))
    if typed:
        passed.append(run("types", BIN / "pyright", *typed))
    touched, (wanted, single) = layers(files), tests(files)
    if touched and not only_format:
        names = sorted(layer.replace("/", "_") for layer in touched)
        known = [name for name in names if f"gc3_{name}_test:" in ninja_targets()]
        progress = [sys.executable, "tools/progress.py", "Compiling the tests of " + ", ".join(known)]
        passed.append(
            run("compiling", *progress, "cmake", "--build", BUILD, "--target", *(f"gc3_{n}_test" for n in known))
        )
        if passed[-1]:
            passed.append(run("C++ tests", "ctest", "--test-dir", BUILD, "-j5", "-R", f"^({'|'.join(known)})"))
    pytest = [BIN / "python", "-m", "pytest", "-n", "3", "--dist", "worksteal", "-m"]
    if (wanted or single) and not only_format:
        apart = {name for name in single if str(Path(name).parent) not in wanted}
        passed.append(run("Python tests", *pytest, "not slow and not waits", *sorted(wanted | apart), passes=(0, 5)))
    if single and not only_format:  # 5: there are none
        passed.append(run("slow tests that were changed", *pytest, "slow or waits", *sorted(single), passes=(0, 5)))
    left = sorted(f"tests/{p.name}" for p in (ROOT / "tests").iterdir() if any(p.glob("test_*.py")))
    left = [name for name in left if name not in wanted]
    if not only_format:
        print(f"not run: {', '.join(left)}; C++ tests of other layers; tests marked slow or waits; sanitizers")
    return 0 if all(passed) else 1


def ninja_targets() -> str:
    """Returns the targets of the build."""
    return subprocess.run(["ninja", "-C", str(BUILD), "-t", "targets"], stdout=-1, text=True, check=True).stdout


if __name__ == "__main__":
    if shutil.which("ninja", path=str(BIN)) is None:
        sys.exit("`make build` comes first")
    sys.exit(main(only_format="--format" in sys.argv[1:]))
