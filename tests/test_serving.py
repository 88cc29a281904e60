"""Which program serves a call: loaded ones before the table, the last one loaded first, each made ready once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gc3
from gc3 import _core, algorithms
from gc3.comm.selection import FORMAT, Spec, Table, parse
from gc3.comm.serving import Explanation, Serving

FLOAT = np.dtype(np.float32)
R = {"R": "ranks"}
ROWS = [
    {"collective": "allreduce", "size": [0, 100], "program": {"algorithm": "allpairs_allreduce", "parameters": R}},
    {"collective": "allreduce", "program": {"algorithm": "ring_allreduce", "parameters": R, "protocol": "LL"}},
    {"collective": "broadcast", "program": {"algorithm": "chain_broadcast", "parameters": {**R, "root": "root"}}},
]


class Core:
    """Stands for the communicator of three ranks: a program made ready is its number."""

    size = 3

    def __init__(self) -> None:
        """Nothing is made yet."""
        self.made: list[_core.Program] = []
        self.settings: list[tuple[int, int]] = []

    def prepare(self, program: _core.Program, slots: int = 0, slot_bytes: int = 0) -> str:
        """Notes what is asked for."""
        self.made.append(program)
        self.settings.append((slots, slot_bytes))
        return f"made {len(self.made)}"


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def serving(core: Core) -> Serving[str]:
    return Serving(core, Table(parse(json.dumps({"format": FORMAT, "rows": ROWS}), "t.json")))


def load(serving: Serving[str], name: str, *, in_place: bool = False, sizes: tuple[int, int | None] = (0, None)) -> str:
    program = gc3.compile(algorithms.load("ring_allreduce"), R=3, in_place=in_place)
    serving.add(program, lambda: name, sizes)
    return name


def chosen(serving: Serving[str], count: int = 10, name: str = "allreduce", **call: Any) -> str:
    return serving.program(name, count, FLOAT, **{"in_place": False, "root": 0, **call})


def explained(serving: Serving[str], count: int = 10, name: str = "allreduce", **call: Any) -> Explanation:
    return serving.explain(name, count, FLOAT, **{"in_place": False, "root": 0, **call})


def test_the_program_loaded_last_serves_and_is_the_one_explained(serving: Serving[str]) -> None:
    assert chosen(serving) == "made 1"
    assert explained(serving).source == "t.json row 1"
    for name in ("first", "second", "third"):
        load(serving, name)
        assert chosen(serving) == name  # also where the choice was remembered
    assert explained(serving).source.startswith("the loaded program")
    assert explained(serving).passed_over == ()


def test_sizes_and_modes_that_a_loaded_program_is_for(serving: Serving[str]) -> None:
    load(serving, "all")
    load(serving, "some", sizes=(40, 80))
    load(serving, "in place", in_place=True)
    assert [chosen(serving, count) for count in (9, 10, 19, 20)] == ["all", "some", "some", "all"]
    assert chosen(serving, 10, in_place=True) == "in place"
    told = explained(serving, 20)
    assert [why for _, why in told.passed_over] == [
        "it works in place, the call does not",
        "loaded for sizes from 40 to below 80 bytes",
    ]
    told = explained(serving, 10, in_place=True)
    assert told.passed_over == ()
    assert "loaded program" not in explained(serving, 10, "broadcast").source


def test_rows_are_compiled_on_their_first_use_once_for_each_root_and_mode(serving: Serving[str], core: Core) -> None:
    assert chosen(serving, 24) == "made 1"
    assert chosen(serving, 25) == "made 2"  # 100 bytes: the second row
    assert core.made[0] != core.made[1]
    assert [chosen(serving, count) for count in (1, 24, 25, 1000)] == ["made 1", "made 1", "made 2", "made 2"]
    assert chosen(serving, 1, in_place=True) == "made 3"
    assert [core.made[i].collective.in_place for i in range(3)] == [False, False, True]
    roots = [chosen(serving, 1, "broadcast", root=root) for root in (0, 1, 0, 2, 1)]
    assert roots == ["made 4", "made 5", "made 4", "made 6", "made 5"]
    assert [p.collective.root for p in core.made[3:]] == [0, 1, 2]
    assert {p.collective.ranks for p in core.made} == {3}
    assert len(core.made) == 6


def test_a_loaded_program_of_another_root_is_passed_over(serving: Serving[str]) -> None:
    program = gc3.compile(algorithms.load("chain_broadcast"), R=3, root=2)
    serving.add(program, lambda: "own", (0, None))
    mode = program.in_place
    assert chosen(serving, 1, "broadcast", root=2, in_place=mode) == "own"
    assert chosen(serving, 1, "broadcast", root=1, in_place=mode) == "made 1"
    assert explained(serving, 1, "broadcast", root=1, in_place=mode).passed_over[0][1] == "its root is rank 2"
    assert chosen(serving, 1, in_place=mode) == "made 2"  # another collective


def test_what_is_described_is_made_ready_as_the_row_says() -> None:
    core, ring = Core(), Spec("ring_allreduce", (("R", "ranks"),))
    serving: Serving[str] = Serving(core, Table(()))
    assert serving.described(replace(ring, slots=4, slot_bytes=8192), in_place=False, root=0) == "made 1"
    assert serving.described(ring, in_place=False, root=0) == "made 2"
    assert serving.described(ring, in_place=False, root=0) == "made 2"
    assert core.settings == [(4, 8192), (0, 0)]


def test_what_is_remembered_is_bounded_and_forgetting_makes_nothing_anew(
    serving: Serving[str], core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc3.comm.serving._MOST_REMEMBERED", 3)
    for _ in range(2):
        for count in range(1, 20):
            assert chosen(serving, count) == "made 1"
            assert len(serving._remembered) <= 3
    assert len(core.made) == 1
