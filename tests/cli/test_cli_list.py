"""gc3 list: the overview, and the details of an algorithm."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gc3.algorithms import catalogue
from gc3.cli.main import main

pytestmark = pytest.mark.python_only

EXAMPLES = Path(__file__).parents[2] / "examples"


def gc3_(line: str, code: int = 0, **environment: str) -> Result:
    """Runs a command line and checks its exit code."""
    result = CliRunner().invoke(main, shlex.split(line), env=environment)
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


def data_of(line: str) -> Any:
    """Runs a command line with --json; standard output is one document."""
    return json.loads(gc3_(f"{line} --json").stdout)


def test_list() -> None:
    text = gc3_("list").stdout
    data = data_of("list")
    assert [a["name"] for a in data["algorithms"]] == list(catalogue())
    for algorithm in data["algorithms"]:
        assert sorted(algorithm) == [
            "collective",
            "file",
            "good_for",
            "in_place",
            "line",
            "name",
            "parameters",
            "section",
            "sent",
            "sent_of",
            "steps",
            "summary",
        ]
        assert algorithm["name"] in text
        assert algorithm["section"]
    ring = next(a for a in data["algorithms"] if a["name"] == "ring_allreduce")
    assert ring["collective"] == "allreduce"
    assert ring["parameters"][0] == {"name": "R", "default": None, "required": True}
    assert (ring["steps"], ring["sent"], ring["sent_of"]) == ("2*(R-1)", "2*(R-1) * rails", "R * rails")
    assert max(map(len, text.splitlines())) <= 100
    assert text.index("allreduce: every rank gets") < text.index("\n  ring_allreduce") < text.index("allgather: every")
    assert "  recursive_halving_doubling_allreduce  R                  medium messages\n" in text
    assert "  ring_allreduce\n    R channels=1 G=1 rails=1\n    large messages\n" in gc3_("list", COLUMNS="80").stdout
    only = data_of("list --collective alltoall")["algorithms"]
    assert {a["collective"] for a in only} == {"alltoall"}
    gc3_("list --collective none", 2)
    assert data_of("list ring_allreduce --collective alltoall") == {"algorithms": []}


def test_list_of_one_shows_the_whole_record() -> None:
    text = " ".join(gc3_("list ring_allreduce").stdout.split())
    assert "the busiest rank sends 2*(R-1) * rails of the R * rails chunks that make up S" in text
    assert "See 000 section 6.2.1, figure 8a; 002 section 7.1.1." in text
    assert text.endswith("gc3 compile ring_allreduce:R=...")
    names = [a["name"] for a in data_of("list ring_allreduce alltonext")["algorithms"]]
    assert names == ["ring_allreduce", "alltonext"]
    assert f"gc3 compile {EXAMPLES}/my_allgather.py:ring:R=..." in gc3_(f"list {EXAMPLES}/my_allgather.py:ring").stdout
    assert "did you mean ring_allreduce" in gc3_("list ring_alreduce", 1).stderr
    assert "gc3 list shows" in gc3_("list nothing", 1).stderr
