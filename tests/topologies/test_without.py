"""Machines that have lost links or ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import gc3
from gc3 import topologies
from gc3.cli.main import main

pytestmark = pytest.mark.python_only

if TYPE_CHECKING:
    from pathlib import Path


def test_a_link_is_lost_in_both_directions_and_all_else_stays() -> None:
    whole, part = topologies.load("dgx1"), topologies.load("dgx1:without=0-1")
    assert part.path(0, 1) is part.path(1, 0) is None
    assert len(part.links) == len(whole.links) - 2
    assert part.rank_count == 8
    assert part == topologies.without(whole, links=[(1, 0)])


def test_ranks_after_a_lost_one_get_lower_numbers() -> None:
    whole, part = topologies.load("dgx1"), topologies.load("dgx1:without=3+6")
    kept = [r for r in range(8) if r not in (3, 6)]
    assert [rank.name for rank in part.ranks] == [whole.ranks[r].name for r in kept]
    for a, old_a in enumerate(kept):
        for b, old_b in enumerate(kept):
            assert (part.path(a, b) is None) == (whole.path(old_a, old_b) is None)


def test_a_rank_leaves_the_switches_of_its_machine() -> None:
    part = topologies.load("ndv4:N=2,without=0")
    assert (part.rank_count, part.node_count) == (15, 2)
    assert part.path(0, 14) is not None


def test_bounds_are_those_of_the_pairs_that_are_left() -> None:
    part = topologies.without(topologies.load("z52"), [(0, 3)], [6])
    links = {(link.src, link.dst) for link in part.links}
    assert len(links) == 2 * 5  # a ring of 8 links has lost one, and the two of a rank
    assert {pair for bound in part.bounds or () for pair in bound.pairs} == links


def test_a_node_and_a_rack_without_ranks_are_lost() -> None:
    left = topologies.load("hierarchical:N=4,G=2,rack=2,without=0+1+2")
    assert left.rank_levels == (("node", (0, 1, 1, 2, 2)), ("rack", (0, 1, 1, 1, 1)))
    assert topologies.load("hierarchical:N=4,G=1,rack=2,without=0+1").levels[0].groups == (0, 0)


def test_it_follows_a_file_and_is_one(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(topologies.dumps(topologies.load("ring:R=5")))
    part = topologies.load(f"{file}:without=0-1")
    assert part.path(0, 1) is None
    file.write_text(topologies.dumps(part))
    assert topologies.load(str(file)).links == part.links


def test_synthesis_avoids_lost_links_and_ranks(tmp_path: Path) -> None:
    file = str(tmp_path / "a.gc3")
    wanted = ["synth", "allgather", "-t", "ring:R=5,without=0-4", "--steps", "least", "--run", "-o", file]
    done = CliRunner().invoke(main, [*wanted, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["topology"].endswith(":without=0-4")
    for machine, code in (("ring:R=5,without=4-0", 0), ("ring:R=5,without=1-2", 1)):
        assert CliRunner().invoke(main, ["verify", file, "-t", machine]).exit_code == code


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ("dgx1:without=0-8", "GC3-L007", "8 of 8 ranks"),
        ("dgx1:without=0-5", "GC3-L017", "link 0-5 of 'dgx1': no link joins these ranks"),
        ("dgx1:without=2-2", "GC3-L017", "link 2 of 'dgx1': no link joins these ranks"),
        ("ndv4:without=0-1", "GC3-L017", "link 0-1 of 'ndv4': a switch joins these ranks; leave out a rank"),
        ("ring:R=2,without=0+1", "GC3-L017", "no rank of 'ring' is left"),
        ("dgx1:without=x", "GC3-L017", "'x'; expected a link such as 0-1 or a rank such as 3"),
        ("dgx1:without=0-1-2", "GC3-L017", "'0-1-2'; expected a link"),
        ("nothing:without=0", "GC3-M004", "'nothing'; expected one of"),
    ],
)
def test_mistakes(spec: str, code: str, text: str) -> None:
    with pytest.raises(gc3.UserError) as caught:
        topologies.load(spec)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
