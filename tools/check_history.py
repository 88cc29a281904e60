"""Checks the messages of commits: subjects in the imperative, at most 72 characters, with a body that says why.

Looks at the commits since the newest tag, or since the rule began where there is none. Merges are left out: git words
them. Prints one line for each violation and exits with 1 if there is any.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reporting import report

ROOT = Path(__file__).resolve().parent.parent
BEGAN = "e06d30ab846c"  # the last commit before the rule
LONGEST = 72
# Words that look like a past tense, a participle or a third person, but are imperatives.
_IMPERATIVES = {
    "address",
    "bias",
    "bring",
    "bypass",
    "compress",
    "cross",
    "discuss",
    "dismiss",
    "exceed",
    "express",
    "feed",
    "focus",
    "miss",
    "need",
    "pass",
    "press",
    "process",
    "speed",
    "string",
    "succeed",
    "suppress",
}
_NO_VERBS = {
    "a",
    "an",
    "all",
    "as",
    "at",
    "for",
    "from",
    "he",
    "if",
    "in",
    "is",
    "it",
    "its",
    "no",
    "of",
    "on",
    "one",
    "only",
    "the",
    "they",
    "this",
    "to",
    "when",
    "where",
}


def defects(subject: str, body: str) -> Iterator[str]:
    """Yields what is wrong with a message.

    >>> list(defects("Check the length", "Long subjects are cut in lists."))
    []
    >>> list(defects("Checked it", "Because."))
    ["'Checked' is not an imperative"]
    """
    first = subject.split(maxsplit=1)[0] if subject.strip() else ""
    word = first.lower().strip(":,.")
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters, {LONGEST} at most"
    if word in {"wip", "fixup!", "squash!", "amend!"}:
        yield f"'{first}': squash it into the commit that it belongs to"
    elif word in _NO_VERBS or "'" in word or (word.endswith(("ed", "ing", "s")) and word not in _IMPERATIVES):
        yield f"'{first}' is not an imperative"
    elif not first[:1].isupper():
        yield f"'{first}' begins with no capital letter"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if not body.strip():
        yield "there is no body that says why"


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """Returns what git prints; None where it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def violations(root: Path = ROOT, began: str = BEGAN) -> list[str]:
    """Returns a line for each defect of a commit; none outside a checkout, or if the history is too short."""
    base = git("describe", "--tags", "--abbrev=0", root=root) or git("rev-parse", "--verify", "-q", began, root=root)
    log = base and git("log", "--no-merges", "-z", "--format=%h%n%s%n%b", f"{base}..HEAD", root=root)
    found: list[str] = []
    for message in (log or "").split("\0"):
        if message.strip():
            commit, subject, body = (*message.strip("\n").split("\n", 2), "")[:3]
            found += [f"{commit} {subject!r}: {defect}" for defect in defects(subject, body)]
    return found


if __name__ == "__main__":
    sys.exit(report(violations()))
