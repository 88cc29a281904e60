"""What notebooks show."""

from __future__ import annotations

import re
from typing import Any

import pytest

import gc3
from gc3 import topologies
from gc3.algorithms import load
from gc3.sim import platform
from gc3.sim.predict import simulate

pytestmark = pytest.mark.python_only


@pytest.fixture(scope="module")
def program() -> gc3.Program:
    """A ring."""
    return gc3.compile(load("ring_allreduce"), R=4, name="<b>ring</b>")


def _shown(value: Any) -> str:
    html: str = value._repr_html_()
    assert html.count("<tr>") == html.count("</tr>")
    return html


def test_a_program(program: gc3.Program) -> None:
    html = _shown(program)
    assert "&lt;b&gt;ring" in html
    assert "<b>ring" not in html
    assert "allreduce" in html
    assert ">28<" in html  # instructions


def test_a_proof_and_its_failure(program: gc3.Program) -> None:
    assert "not proven" not in _shown(gc3.verify(program))
    failed = gc3.verify(program, max_channels=1, max_threadblocks=1, check=False)
    assert failed.ok
    wrong = gc3.Program(type(program.core).from_text(program.text.replace("-> out[0]", "-> out[1]", 1)))
    html = _shown(gc3.verify(wrong, check=False))
    assert "not proven" in html
    assert "GC3-V" in html


def test_a_prediction_with_its_causes(program: gc3.Program) -> None:
    html = _shown(simulate(program, "ndv4", 1 << 20, explain=True))
    assert "1 MiB" in html
    assert "launch" in html
    assert "%" in html
    assert "launch" not in _shown(simulate(program, "ndv4", 1 << 20))


def test_a_machine() -> None:
    html = _shown(topologies.load("ndv4", N=2))
    assert ">16<" in html
    assert "GB/s" in html


def test_texts_are_short() -> None:
    ring = load("ring_allreduce")
    assert repr(ring) == "<gc3.Algorithm ring_allreduce(R, channels=1, G=1, rails=1): allreduce, in place>"
    (block,) = gc3.compile(ring, R=4).threadblocks(0)
    assert repr(block) == "<Threadblock 0 of rank 0: sends to 1, receives from 3, channel 0, 7 steps>"
    chosen = gc3.select("allreduce", ranks=4, size=1024)
    assert repr(chosen) == f"<gc3.Selected {str(chosen.explanation).splitlines()[0]}>"
    assert repr(chosen.explanation) == str(chosen.explanation)
    swap = gc3.collectives.custom("swap", inputs=[99, 99], outputs=[99, 99], expect=lambda r, i: (1 - r, i))
    assert repr(swap) == "<gc3.collectives.Collective swap: custom, 2 ranks>"
    assert repr(platform("ndv4:N=2")) == "<gc3.sim.Platform ndv4 of 2 nodes: 16 ranks, a100>"
    why = simulate(gc3.compile(ring, R=8), "ndv4", 1 << 20, explain=True).explanation
    assert re.fullmatch(r"<gc3\.sim\.Explanation threadblock [\d.]+ us, launch [\d.]+ us, .*>", repr(why))
    for name in ("dgx1", "gb200_nvl72", "summit", "cpu:R=4"):
        assert len(repr(topologies.load(name)).splitlines()) <= 12
    assert repr(topologies.load("ndv4:N=2")).startswith("<gc3.Topology ndv4\n  ranks: 16\n  nodes: 2\n")
