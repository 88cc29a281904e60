"""The check of commit messages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import check_history

pytestmark = pytest.mark.python_only

GIT = shutil.which("git") or "git"


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("Pass the length on", None),
        ("x" * 73, "73 characters"),
        ("wip", "squash it"),
        ("Fixed the length", "'Fixed' is not an imperative"),
        ("Checks the length", "'Checks' is not an imperative"),
        ("Checking the length", "'Checking' is not an imperative"),
        ("The length is checked", "'The' is not an imperative"),
        ("NCCL's library is found", "is not an imperative"),
        ("check the length", "no capital letter"),
        ("Check the length.", "full stop"),
    ],
)
def test_subjects(subject: str, told: str | None) -> None:
    found = list(check_history.defects(subject, "Why."))
    assert (not found) if told is None else any(told in defect for defect in found)


def test_commits_since_the_rule_or_the_newest_tag(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run([GIT, *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(message: str) -> None:
        git("commit", "-q", "--allow-empty", "-m", message)

    git("init", "-q", "-b", "main")
    commit("what was before")
    began = git("rev-parse", "HEAD")
    assert check_history.violations(tmp_path, began) == []
    commit("Add a\n\nBecause.")
    commit("Add b")
    (found,) = check_history.violations(tmp_path, began)
    assert found.endswith("'Add b': there is no body that says why")
    git("tag", "v1")
    assert check_history.violations(tmp_path, began) == []
    assert check_history.violations(tmp_path, "0" * 12) == []


def test_this_history_follows_the_rule() -> None:
    assert check_history.violations() == []
