"""The page of results and its drawing are generated from the committed measurements."""

from __future__ import annotations

import json

import pytest
import versus
from peers import record

pytestmark = pytest.mark.python_only


def test_the_tables_say_what_was_measured() -> None:
    results = json.loads(versus.RESULTS.read_text())
    text = versus.PAGE.read_text()
    assert versus.page(text, results) == text
    assert text.count("\n### ") == len({(p.collective, p.ranks) for p in record.points(results)})
    assert versus.DRAWING.stat().st_size < 150_000


def test_new_points_replace_old_ones_of_the_same_kind() -> None:
    results = json.loads(versus.RESULTS.read_text())
    first, second = results["points"][:2]
    again = {**first, "bound_us": 1.0}
    both = versus.merged({**results, "points": [second, first]}, {**results, "points": [again]})
    assert both["points"] == [again, second]
    assert both["summary"]["points"] == 2
