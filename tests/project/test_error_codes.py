"""Every error that a user can meet occurs in some test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gc3 import _core

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).parents[2]
# An internal error is a defect: a test that provoked one would be fixed together with the defect.
WITHOUT_TEST = {"Internal"}


def test_every_error_has_a_test() -> None:
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("cpp/**/*_test.cc"), *ROOT.glob("cpp/**/test_*.h")]
    text = "\n".join(file.read_text() for file in files if file.name != Path(__file__).name)
    untested = [
        f"{e.code} {e.name}"
        for e in _core.all_errors()
        if e.name not in WITHOUT_TEST and e.code not in text and f"ErrorCode::{e.name}" not in text
    ]
    assert not untested
    assert len({e.code for e in _core.all_errors()}) == len(_core.all_errors())


def test_every_id_has_a_text() -> None:
    """The reverse, that every text has an id, is a static assertion in diagnostic.cc."""
    headers = [*ROOT.glob("cpp/gc3/base/errors/*.h")]
    ids = [name for file in headers for name in re.findall(r"constexpr ErrorId (\w+)", file.read_text())]
    assert sorted(ids) == sorted(e.name for e in _core.all_errors())
