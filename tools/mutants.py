"""Plants defects one at a time and reports which of them the tests find.

The defects are listed in tests/mutant_list. They are planted in a copy of the tree, build/mutants/tree, with a build
and an environment of its own; nothing else is touched. Only what the named tests need is built. Results are kept in
build/mutants/results.json as long as the sources stay the same, so that a run that was interrupted goes on.

    python tools/mutants.py                     all of them
    python tools/mutants.py --only 'fuse-*'     some, by name
    python tools/mutants.py --check             whether the list fits the sources; plants nothing

The exit status is 1 where a defect was not found, an entry does not build, or a test fails without any defect.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import mutant_list  # noqa: E402
from mutant_list import Mutant  # noqa: E402

HOME = ROOT / "build" / "mutants"
TREE = HOME / "tree"
RESULTS = HOME / "results.json"
BUILD = TREE / "build" / "release"
PYTHON = TREE / ".venv" / "bin" / "python"
PYTORCH = ROOT / "build" / "peers" / "gloo" / "bin" / "python"
SOURCES = ("cpp", "bindings", "python", "tests", "third_party", "CMakeLists.txt", "pyproject.toml")

KILLED, SURVIVED, TIMED_OUT, NOT_BUILT, BROKEN = "killed", "survived", "timed out", "did not build", "tests fail anyway"
FOUND = (KILLED, TIMED_OUT)
# A test may take this many times as long as without a defect, and this many seconds more.
PATIENCE, GRACE = 5, 60
NO_TESTS = 5  # exit status of pytest that has found nothing to run


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a defect, or for a test without any.

    Attributes:
        status: One of the constants above.
        seconds: How long building and testing took.
        told: The test that found it, or the failure.
    """

    status: str
    seconds: float
    told: str


def is_pytest(test: str) -> bool:
    """Returns whether a test is run by pytest."""
    return test.startswith("tests/")


def problems(mutants: list[Mutant]) -> list[str]:
    """Returns mismatches with the sources: texts that do not occur exactly once, duplicate names, missing tests."""
    cases = [
        name
        for path in (ROOT / "cpp").rglob("*_test.cc")
        for name in re.findall(r'TEST_CASE(?:_TEMPLATE)?\("([^"]+)"', path.read_text())
    ]
    found: list[str] = []
    seen: set[str] = set()
    for m in mutants:
        path = ROOT / m.file
        times = path.read_text().count(m.old) if path.is_file() else 0
        if times != 1:
            found.append(f"{m.name}: its text is {times} times in {m.file}, not once")
        if m.name in seen or m.old == m.new or not m.tests:
            found.append(f"{m.name}: used twice, or changes nothing, or names no tests")
        seen.add(m.name)
        for test in m.tests:
            if is_pytest(test):
                words = shlex.split(test)
                file, _, name = words[0].partition("::")
                text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
                pattern = re.escape(name.partition("[")[0]) if name else r"test_\w*"
                if "-k" in words:
                    pattern += words[words.index("-k") + 1] + r"\w*"
                gone = not re.search(rf"def {pattern}\(", text)
            else:
                filters = [w.partition("=")[2] for w in shlex.split(test) if w.startswith("-tc=")]
                wanted = [pattern for f in filters for pattern in f.split(",")]
                gone = not all(any(fnmatch(c, pattern) for c in cases) for pattern in wanted)
            if gone:
                found.append(f"{m.name}: there is no test '{test}'")
    return found


class Tree:
    """The copy in which defects are planted."""

    def __init__(self) -> None:
        """Makes the copy the same as the tree, including files that an earlier run has changed."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, stdout=-1
        )
        names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
        self._digest = hashlib.sha256()
        for name in sorted(names):
            data = (ROOT / name).read_bytes()
            if name.startswith(SOURCES) and not name.startswith("tests/mutant_list/"):
                self._digest.update(f"{name} {len(data)}\n".encode() + data)
            copy = TREE / name
            if not copy.is_file() or copy.read_bytes() != data:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(data)
                shutil.copymode(ROOT / name, copy)
        for folder in ("cpp", "bindings", "python", "tests"):
            for path in sorted((TREE / folder).rglob("*"), reverse=True):  # what is in a folder before the folder
                if path.is_dir():
                    with contextlib.suppress(OSError):  # unless it is empty
                        path.rmdir()
                elif path.suffix != ".so" and str(path.relative_to(TREE)) not in names:
                    path.unlink()

    @property
    def digest(self) -> str:
        """A short fingerprint of the sources."""
        return self._digest.hexdigest()

    def prepare(self) -> None:
        """Makes the build and the environment, once."""
        borrowed = ROOT / ".venv" / "bin" / "python"
        if not PYTHON.exists():
            self._must([str(borrowed), "-m", "venv", "--without-pip", str(TREE / ".venv")])
            script = PYTHON.with_name("gc3")
            script.write_text(f"#!{PYTHON}\nimport sys\nfrom gc3.__main__ import main\nsys.exit(main())\n")
            script.chmod(0o755)
        # gc3 comes from the copy, all other packages from .venv, and PyTorch from where `make test-torch` has it.
        own, *others = [sys_path(python) for python in (PYTHON, borrowed, PYTORCH) if python.exists()]
        (own / "borrowed.pth").write_text("".join(f"{where}\n" for where in (TREE / "python", *others)))
        if not (BUILD / "build.ninja").exists():
            self._must(["cmake", "--preset", "release", f"-DPython_EXECUTABLE={borrowed}", "-DGC3_BENCHMARKS=OFF"])

    def build(self, tests: tuple[str, ...]) -> str | None:
        """Builds what the tests need; returns the compiler's output if that fails."""
        targets = {"_core" if is_pytest(test) else shlex.split(test)[0] for test in tests}
        parts = {"core"} if "_core" in targets else set[str]()
        if any(test.startswith("tests/nccl") for test in tests):
            targets |= {"gc3_nccl_library", "gc3_nccl_tuner_library"}
        if any(test.startswith("tests/cuda") for test in tests):
            targets.add("gc3_fake_cuda")
            parts.add("nccl")
        status, told = self._run(["cmake", "--build", str(BUILD), "--target", *sorted(targets)], None)
        for part in sorted(parts):
            if status == 0:
                install = ["cmake", "--install", str(BUILD), "--component", part, "--prefix", str(TREE / "python")]
                status, told = self._run(install, None)
        return None if status == 0 else told

    def test(self, test: str, seconds: float | None) -> tuple[str, str]:
        """Runs a test; returns what that says of the defect, and the test that failed."""
        words = shlex.split(test)
        if is_pytest(test):
            command = [str(PYTHON), "-m", "pytest", "-x", "--tb=line", "-p", "no:cacheprovider", *words]
        else:
            command = [str(BUILD / words[0]), "--abort-after=1", *words[1:]]
        status, told = self._run(command, seconds)
        if status is None:
            return TIMED_OUT, test
        skipped = is_pytest(test) and (status == NO_TESTS or (status == 0 and " passed" not in told))
        if skipped or re.search(r"test cases:\s+0 ", told):
            return BROKEN, f"nothing is run by '{test}'"
        if status == 0:
            return SURVIVED, ""
        named = re.findall(r"^(?:FAILED|ERROR) (\S+)|^TEST CASE:\s+(.*)$", told, re.MULTILINE)
        return KILLED, next((a or b for a, b in named), f"{test}: status {status}")

    def _must(self, command: list[str]) -> None:
        status, told = self._run(command, None)
        if status != 0:
            sys.exit(f"{shlex.join(command)}:\n{told}")

    def _run(self, command: list[str], seconds: float | None) -> tuple[int | None, str]:
        """Runs a command in the copy, with all that it starts; the status is None if it took too long."""
        # Bytecode caches compare times in seconds, and a defect is planted and removed in less.
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "CCACHE_BASEDIR": str(TREE)}
        env["PATH"] = f"{PYTHON.parent}:{ROOT / '.venv' / 'bin'}:{env['PATH']}"
        with (HOME / "output.txt").open("w+b") as output:
            child = subprocess.Popen(command, cwd=TREE, env=env, stdout=output, stderr=-2, start_new_session=True)
            try:
                status = child.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            output.seek(0)
            return status, output.read().decode(errors="replace")


def sys_path(python: Path) -> Path:
    """Returns where the packages of a Python are."""
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.run([str(python), "-c", code], check=True, stdout=-1, text=True).stdout.strip())


class Runner:
    """Plants, builds, tests, and remembers."""

    def __init__(self, tree: Tree, *, fresh: bool) -> None:
        """Reads the results of a run that was interrupted."""
        self._tree = tree
        self._known: dict[str, Any] = {"sources": tree.digest, "without": {}, "with": {}}
        if RESULTS.exists() and not fresh:
            kept = json.loads(RESULTS.read_text())
            if kept["sources"] == tree.digest:
                self._known = kept

    def decide(self, m: Mutant) -> Outcome:
        """Returns the result for a defect."""
        key = hashlib.sha256(json.dumps([m.file, m.old, m.new, m.tests]).encode()).hexdigest()
        kept = self._known["with"].get(m.name)
        if kept is not None and kept["key"] == key:
            return Outcome(**kept["outcome"])
        begun = time.monotonic()
        if told := self._before(m):
            outcome = Outcome(BROKEN, 0, told)
        else:
            path = TREE / m.file
            text = path.read_text()
            try:
                path.write_text(text.replace(m.old, m.new))
                status, told = self._judged(m)
            finally:
                path.write_text(text)
            outcome = Outcome(status, round(time.monotonic() - begun, 1), told)
        self._keep("with", m.name, {"key": key, "outcome": asdict(outcome)})
        return outcome

    def _before(self, m: Mutant) -> str | None:
        """Runs the tests without the defect, once each; returns their failures."""
        fresh = tuple(test for test in m.tests if test not in self._known["without"])
        if fresh and (told := self._tree.build(fresh)):
            return told[-2000:]
        for test in fresh:
            begun = time.monotonic()
            status, told = self._tree.test(test, None)
            seconds = round(time.monotonic() - begun, 1)
            self._keep("without", test, asdict(Outcome(status, seconds, told)))
        before = [self._known["without"][test] for test in m.tests]
        return next((kept["told"] for kept in before if kept["status"] != SURVIVED), None)

    def _judged(self, m: Mutant) -> tuple[str, str]:
        if told := self._tree.build(m.tests):
            errors = [line for line in told.splitlines() if "error" in line]
            return NOT_BUILT, errors[0] if errors else told[-500:]
        for test in m.tests:
            status, told = self._tree.test(test, GRACE + PATIENCE * self._known["without"][test]["seconds"])
            if status != SURVIVED:
                return status, told
        return SURVIVED, ""

    def _keep(self, kind: str, name: str, value: dict[str, Any]) -> None:
        self._known[kind][name] = value
        new = RESULTS.with_suffix(".new")
        new.write_text(json.dumps(self._known, indent=1))
        new.replace(RESULTS)


def run(mutants: list[Mutant], *, fresh: bool, as_json: bool) -> int:
    """Decides all of them and prints the results; returns the exit status."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run is using {HOME}")
        tree = Tree()
        tree.prepare()
        runner = Runner(tree, fresh=fresh)
        outcomes: dict[str, Outcome] = {}
        for i, m in enumerate(mutants, start=1):
            place = f"[{i:>{len(str(len(mutants)))}}/{len(mutants)}]"
            if sys.stderr.isatty():
                print(f"{place} {m.name} ...", end="\r", file=sys.stderr, flush=True)
            outcome = outcomes[m.name] = runner.decide(m)
            status = "equivalent" if m.equivalent and outcome.status == SURVIVED else outcome.status
            line = f"{place} {status:<13} {m.name:<40} {outcome.seconds:>6.0f} s  {outcome.told.splitlines()[:1]}"
            print(line, file=sys.stderr, flush=True)
    return report(mutants, outcomes, as_json=as_json)


def report(mutants: list[Mutant], outcomes: dict[str, Outcome], *, as_json: bool) -> int:
    """Prints the sums; returns the exit status."""
    wanted = [m for m in mutants if not m.equivalent]
    found = [m for m in wanted if outcomes[m.name].status in FOUND]
    # An entry that was thought to be equivalent and is found must be corrected.
    wrong = [m for m in mutants if (outcomes[m.name].status in FOUND) == bool(m.equivalent)]
    if as_json:
        print(json.dumps({m.name: {**asdict(m), **asdict(outcomes[m.name])} for m in mutants}, indent=1))
    else:
        print(f"{len(found)} of {len(wanted)} found; {len(mutants) - len(wanted)} that cannot be")
        for m in wrong:
            print(f"  {m.name} ({m.file}): {outcomes[m.name].status}")
    return 1 if wrong else 0


def main() -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="PATTERN", help="those whose names match; may be repeated")
    parser.add_argument("--check", action="store_true", help="only whether the list fits the sources")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON; progress goes to stderr")
    options = parser.parse_args()
    mutants = mutant_list.load()
    if wrong := problems(mutants):
        print("\n".join(wrong))
        return 1
    if options.check:
        return 0
    if options.only:
        mutants = [m for m in mutants if any(fnmatch(m.name, pattern) for pattern in options.only)]
        if not mutants:
            parser.error("no entry has such a name")
    if options.list:
        print("\n".join(m.name for m in mutants))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(mutants, fresh=options.fresh, as_json=options.json)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
