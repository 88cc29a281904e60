"""make reproduce: the papers' claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claims import GIVEN, OUT_OF_REACH, PAPERS, catalogue, claim, osu
from claims.bench import Bench
from click.testing import CliRunner, Result
from reproduce import reproduce as command

pytestmark = pytest.mark.python_only

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "papers.json"


def gc3_reproduce(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(command, line.split())
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is written today of the claims of kind A."""
    path = tmp_path_factory.mktemp("reproduce") / "papers.json"
    gc3_reproduce(f"--kind A -o {path}", code=1)
    return json.loads(path.read_text())["claims"]


def test_the_rules() -> None:
    for expected, found, same in (
        (1.9, 1.9, True),
        (1.9, 1.44, False),  # the gain is less than half
        (1.9, 1.5, True),
        (1.9, 2.36, True),
        (1.9, 2.40, False),
        (1.06, 1.02, False),
        (1.06, 1.04, True),
        (1.06, 1.2, False),
        (14.5, 8.0, False),
    ):
        assert claim.speedup(expected, found).reproduced == same, (expected, found)
    assert claim.crossover(512, 256, "B", 1).reproduced
    assert not claim.crossover(512, 128, "B", 1).reproduced
    assert not claim.crossover(512, None, "B", 1).reproduced
    assert claim.exactly(30, 30).reproduced
    assert not claim.exactly(30, 31).reproduced
    assert not claim.faster("a", 1.01).reproduced
    assert claim.plateau(100, 80, "GB/s").reproduced
    assert not claim.plateau(100, 70, "GB/s").reproduced
    assert not claim.ratio_of_one(1.2, 0.1).reproduced


def test_claims_have_names_papers_and_sections() -> None:
    claims = catalogue()
    assert len({c.name for c in claims}) == len(claims) > 40
    assert {c.name for c in claims} > GIVEN.keys()
    for c in claims:
        assert c.paper in PAPERS
        assert c.name.startswith(f"{c.paper}-")
        assert c.kind in ("A", "B")
        assert c.section
        assert c.text


def test_counts_are_reproduced(counted: list[dict[str, Any]]) -> None:
    """All but formula (3) of 004, which contradicts the listing beside it."""
    assert [c["name"] for c in counted] == [c.name for c in catalogue() if c.kind == "A"]
    assert [c["name"] for c in counted if not c["reproduced"]] == ["004-III.A-formula"]


def test_on_the_command_line() -> None:
    result = gc3_reproduce("002-7.1 003")
    assert "002: GC3, third version" in result.stdout
    assert "reproduced      002-7.1.2-allpairs: 8 A100: All Pairs up to 1.8x NCCL from 1 KB to 1 MB" in result.stdout
    assert "paper: 1.8x; simulated: " in result.stdout
    failing = gc3_reproduce("000-6.2-threadblocks 000-6.3-ring 000-4", code=1)
    assert "not reproduced  000-6.2-threadblocks" in failing.stdout
    # Formulas and constants do not count.
    assert "\nformulas and constants, which nothing computes\n  reproduced      000-4-tile" in failing.stdout
    assert "# 1 of 2 computed claims reproduced; besides, 3 formulas and constants" in failing.stdout
    data = json.loads(gc3_reproduce("000-6.2-threadblocks 000-6.3-ring 000-4 --json", code=1).stdout)
    assert (data["reproduced"], data["computed"]) == (1, 2)
    assert [c["reproduced"] for c in data["claims"]] == [False, True, True, True, True]
    assert data["claims"][0]["why_not"].startswith("A threadblock of the 1 x 32 ring")
    assert [c["given"] is None for c in data["claims"]] == [True, True, False, False, False]
    assert data["claims"][1]["why_not"] is None
    assert len(data["out_of_reach"]) == len(OUT_OF_REACH)


def test_claims_are_listed_and_chosen_by_name() -> None:
    assert gc3_reproduce("--list --kind A").stdout.count("\n") == sum(c.kind == "A" for c in catalogue())
    assert json.loads(gc3_reproduce("--list --json 004").stdout)["claims"][0]["name"].startswith("004")
    assert "no claim's name begins with 005" in gc3_reproduce("005", code=2).output


def test_the_results_have_every_claim_and_a_reason_for_each_that_fails(counted: list[dict[str, Any]]) -> None:
    claims = json.loads(RESULTS.read_text())["claims"]
    assert [c["name"] for c in claims] == [c.name for c in catalogue()]
    assert all(c["reproduced"] or c["why_not"] for c in claims)
    # They are what would be written today, as far as can be checked quickly.
    assert counted == [c for c in claims if c["kind"] == "A"]


def test_no_order_of_messages_saves_what_004_claims_of_lassen() -> None:
    """Not even with all that the paper names for each message by itself, beside the time of the NICs."""
    message, (_, nodes, gpus) = 1 << 20, osu._LASSEN
    most = osu._any_alltoall(Bench(), osu._LASSEN, message)
    lines = gpus * gpus * (nodes - 1) * message / (2 * 12.5e9)
    each = 2 * (message / 75e9 + 1.9e-6) + 3 * 2.6e-6
    assert 1 - lines / (lines + (nodes - 1) * gpus * each) <= most < 0.25
