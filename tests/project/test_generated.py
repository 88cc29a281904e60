"""Tables are complete and consistent, and the committed pages and stubs are generated from them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import gen_docs
import generated
from gc3 import _core, datatypes
from gc3.cuda import arrays
from gc3.lang.build import STAGES

pytestmark = pytest.mark.python_only

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_pages_are_current() -> None:
    assert generated.stale(gen_docs.pages()) == ""


def test_no_table_beside_the_code_lacks_a_row() -> None:
    """DLPack's numbers have every data type, the compiler's page every stage in order."""
    assert set(arrays.DLPACK_TYPES.values()) == set(datatypes.DTYPES)
    page = (ROOT / "docs/compiler.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == list(STAGES)


def test_every_listing_is_linked_from_its_algorithms() -> None:
    headings = re.findall(r"^## (.+)", gen_docs.LISTINGS.read_text(), re.MULTILINE)
    linked = re.findall(r"listings\.md#([\w-]+)", gen_docs.algorithms())
    assert set(linked) == {heading.lower().replace(" ", "-") for heading in headings}


def test_a_stale_page_is_shown_as_a_difference(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert "+new" in generated.stale({page: "new\n"})
    page.write_text("old\n")
    assert "-old\n+new" in generated.stale({page: "new\n"})
    assert generated.stale({page: "old\n"}) == ""


def test_error_codes_are_unique_and_in_order() -> None:
    codes = [e.code for e in _core.all_errors()]
    assert len(set(codes)) == len(codes)
    for letter in gen_docs.GROUPS:
        numbers = [int(c[5:]) for c in codes if c.startswith(f"GC3-{letter}")]
        assert numbers == list(range(1, len(numbers) + 1))
    assert all(re.fullmatch(r"GC3-[A-Z]\d{3}", c) and c[4] in gen_docs.GROUPS for c in codes)


def test_hints_name_pages_that_exist() -> None:
    named = {page for e in _core.all_errors() for page in re.findall(r"docs/[\w/]+\.md", e.hint)}
    assert named
    assert [page for page in named if not (ROOT / page).is_file()] == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in 3.11")
def test_the_build_group_has_what_the_build_system_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["build-system"]["requires"]) <= set(project["dependency-groups"]["build"])
