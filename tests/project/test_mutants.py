"""The list of planted defects: entries that do not fit the sources are reported, planted ones are found or survive."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import mutant_list
import mutants
from mutant_list import Mutant

pytestmark = pytest.mark.python_only

SOURCE = """int half(int x) { return x / 2; }
int twice(int x) { return x * 2; }
"""


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mutant:
    """An entry that fits a small tree."""
    (tmp_path / "cpp").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "cpp" / "a.cc").write_text(SOURCE)
    (tmp_path / "cpp" / "a_test.cc").write_text('TEST_CASE("halves: of even numbers") {}')
    (tmp_path / "tests" / "test_a.py").write_text("def test_twice() -> None: ...")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return Mutant("half", "cpp/a.cc", "x / 2", "x / 3", ("gc3_a_test -tc=halves*", "tests/test_a.py::test_twice"))


def test_an_entry_that_fits(entry: Mutant) -> None:
    other = replace(entry, name="twice", old="* 2", new="+ 2", tests=("gc3_a_test", "tests/test_a.py -k twice"))
    assert mutants.problems([entry, other]) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"old": "x / 4"}, "its text is 0 times in cpp/a.cc, not once"),
        ({"old": "return x"}, "its text is 2 times in cpp/a.cc, not once"),
        ({"file": "cpp/b.cc"}, "its text is 0 times in cpp/b.cc, not once"),
        ({"new": "x / 2"}, "used twice, or changes nothing, or names no tests"),
        ({"tests": ()}, "used twice, or changes nothing, or names no tests"),
        ({"tests": ("gc3_a_test -tc=thirds*",)}, "there is no test 'gc3_a_test -tc=thirds*'"),
        ({"tests": ("tests/test_b.py",)}, "there is no test 'tests/test_b.py'"),
        ({"tests": ("tests/test_a.py::test_half",)}, "there is no test 'tests/test_a.py::test_half'"),
    ],
)
def test_an_entry_that_does_not_fit(entry: Mutant, change: dict[str, object], why: str) -> None:
    assert mutants.problems([replace(entry, **change)]) == [f"half: {why}"]


def test_a_name_is_used_once(entry: Mutant) -> None:
    assert mutants.problems([entry, entry]) == ["half: used twice, or changes nothing, or names no tests"]


class Planted:
    """Stands for the copy: its test searches for a word in the file at the time of the test."""

    digest = "1"

    def __init__(self, file: Path, word: str) -> None:
        """Nothing has run yet."""
        self.file, self.word, self.runs = file, word, 0

    def build(self, tests: tuple[str, ...]) -> str | None:
        """The compiler rejects only question marks."""
        del tests
        return "a.cc:1: error: a question mark" if "?" in self.file.read_text() else None

    def test(self, test: str, seconds: float | None) -> tuple[str, str]:
        """Fails if the word is missing."""
        del seconds
        self.runs += 1
        return (mutants.SURVIVED, "") if self.word in self.file.read_text() else (mutants.KILLED, test)


@pytest.fixture
def copy(entry: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "TREE", mutants.ROOT)
    monkeypatch.setattr(mutants, "RESULTS", tmp_path / "results.json")
    return tmp_path / entry.file


def test_the_outcome_of_a_defect(entry: Mutant, copy: Path) -> None:
    tree = Planted(copy, "/ 2")
    runner = mutants.Runner(tree, fresh=False)
    killed = runner.decide(entry)
    assert (killed.status, killed.told) == (mutants.KILLED, "gc3_a_test -tc=halves*")
    assert runner.decide(replace(entry, name="b", old="x * 2", new="x + 2")).status == mutants.SURVIVED
    odd = runner.decide(replace(entry, name="c", new="x ? 2"))
    assert (odd.status, odd.told) == (mutants.NOT_BUILT, "a.cc:1: error: a question mark")
    assert copy.read_text() == SOURCE
    assert tree.runs == 2 + 1 + 2  # both tests without a defect, once; the first failure ends a run


def test_tests_that_fail_without_a_defect_say_nothing(entry: Mutant, copy: Path) -> None:
    assert mutants.Runner(Planted(copy, "thirds"), fresh=False).decide(entry).status == mutants.BROKEN


def test_an_interrupted_run_continues_while_the_sources_are_the_same(entry: Mutant, copy: Path) -> None:
    assert mutants.Runner(Planted(copy, "/ 2"), fresh=False).decide(entry).status == mutants.KILLED
    again = Planted(copy, "/ 2")
    assert mutants.Runner(again, fresh=False).decide(entry).status == mutants.KILLED
    assert again.runs == 0
    assert mutants.Runner(again, fresh=False).decide(replace(entry, new="x / 4")).status == mutants.KILLED
    assert again.runs == 1  # the entry has changed, but not its tests
    mutants.Runner(again, fresh=True).decide(entry)
    again.digest = "2"
    mutants.Runner(again, fresh=False).decide(entry)
    assert again.runs == 1 + 3 + 3


def test_a_defect_is_taken_out_again_whatever_happens(entry: Mutant, copy: Path) -> None:
    class Interrupted(Planted):
        def test(self, test: str, seconds: float | None) -> tuple[str, str]:
            if self.runs == 2:
                assert "x / 3" in copy.read_text()
                raise KeyboardInterrupt
            return super().test(test, seconds)

    with pytest.raises(KeyboardInterrupt):
        mutants.Runner(Interrupted(copy, "/ 2"), fresh=False).decide(entry)
    assert copy.read_text() == SOURCE


def test_defects_that_nothing_finds_count_apart(entry: Mutant, capsys: pytest.CaptureFixture[str]) -> None:
    alike = replace(entry, name="alike", equivalent="nobody sees it")
    killed, survived = mutants.Outcome(mutants.KILLED, 1.0, "t"), mutants.Outcome(mutants.SURVIVED, 1.0, "")
    assert mutants.report([entry, alike], {"half": killed, "alike": survived}, as_json=False) == 0
    assert "1 of 1 found; 1 that cannot be" in capsys.readouterr().out
    assert mutants.report([entry, alike], {"half": survived, "alike": survived}, as_json=False) == 1
    assert "half (cpp/a.cc): survived" in capsys.readouterr().out
    assert mutants.report([alike], {"alike": killed}, as_json=True) == 1


def test_the_copy_is_the_tree_whatever_was_left_in_it(
    entry: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "build" / "tree"
    monkeypatch.setattr(mutants, "TREE", copy)
    subprocess.run([shutil.which("git") or "git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    first = mutants.Tree().digest
    assert (copy / entry.file).read_text() == SOURCE
    left = copy / "python" / "gone" / "old.py"
    left.parent.mkdir(parents=True)
    left.write_text("")
    (copy / "python" / "_core.so").write_text("built")
    (copy / entry.file).write_text("planted")
    assert mutants.Tree().digest == first
    assert (copy / entry.file).read_text() == SOURCE
    assert [path.name for path in (copy / "python").iterdir()] == ["_core.so"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "new.md").write_text("no source")
    assert mutants.Tree().digest == first
    (tmp_path / entry.file).write_text(SOURCE + "\n")
    assert mutants.Tree().digest != first


def test_the_list_of_this_project_is_read() -> None:
    assert len({m.name for m in mutant_list.load()}) >= 14


def test_a_python_test_counts_as_run_with_the_options_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(mutants.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_good(): pass\ndef test_bad(): raise ValueError\n")
    for name, value in (("HOME", tmp_path), ("TREE", tmp_path), ("PYTHON", Path(sys.executable))):
        monkeypatch.setattr(mutants, name, value)
    tree = object.__new__(mutants.Tree)
    assert tree.test("tests/test_a.py::test_good", None) == (mutants.SURVIVED, "")
    assert tree.test("tests/test_a.py::test_bad", None) == (mutants.KILLED, "tests/test_a.py::test_bad")
    assert tree.test("tests/test_a.py -k none", None)[0] == mutants.BROKEN
