"""JSON documents with one value replaced: each reader accepts it, or says so as the user's mistake."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

import gc3
from gc3 import errors, topologies
from gc3.algorithms import load
from gc3.cli.bench_compare import Earlier
from gc3.cli.main import main
from gc3.comm.selection import Spec, Table
from gc3.sim import chakra, preset_file, presets, v_counts
from gc3.synth import custom
from gc3.topologies import document
from gc3.tune.record import Record
from gc3.tune.search import Measured, Own

WRONG: tuple[Any, ...] = ("x", "", [], ["a"], {}, {"a": 1}, None, True, -1, 1 << 70, 10**400, 0.5, 1e308)
CALL = {"function": "ncclAllReduce", "from": 1, "to": 9, "calls": 3}
ALGORITHM = {
    "msccl_type": "algorithm",
    "name": "a",
    "instance": {"msccl_type": "instance", "steps": 1, "chunks": 1},
    "input_map": {"0": [0], "1": [1]},
    "output_map": {"0": [0, 1], "1": [0, 1]},
    "steps": [{"msccl_type": "step", "rounds": 1, "sends": [[0, 0, 1], [1, 1, 0]]}],
    "collective": {
        "name": "Allgather",
        "nodes": 2,
        "chunks": [{"pre": [0], "post": [0, 1], "addr": 0}, {"pre": [1], "post": [0, 1], "addr": 1}],
    },
    "topology": {"name": "t", "links": [[0, 1], [1, 0]]},
}
ROW = {
    "collective": "allreduce",
    "ranks": [2, 4],
    "size": [0, 1024],
    "in_place": None,
    "root": None,
    "nodes": [2, None],
    "ranks_per_node": [1, 2],
    "transport": "tcp",
    "skew": [1, 2.5],
    "note": "n",
    "adapt": True,
    "measured_on": ["here"],
    "program": {
        "algorithm": "ring_allreduce",
        "parameters": {"R": "ranks"},
        "instances": 1,
        "protocol": "Simple",
        "slots": 0,
        "slot_bytes": 0,
        "thresholds": {"spins": 3, "read_moved": None},
        "threadblocks": 4,
        "order": [1, 0],
    },
}
TIMES = {"median_us": 1.0, "quarter_us": 0.9, "three_quarters_us": 1.2}


def explained(path: Path) -> None:
    told = CliRunner().invoke(main, ["nccl", "explain", str(path.parent)])
    assert "GC3-X001" not in told.output, told.output
    assert told.exception is None or isinstance(told.exception, SystemExit), repr(told.exception)


def compared(path: Path) -> None:
    earlier = Earlier([str(path)])
    earlier.check({"in_place": None, "out_of_place": {"collective": "allreduce", "ranks": 2}}, SETTINGS)
    list(earlier.differences([], lambda row, mode: 1.0))
    earlier.series()


def table(path: Path) -> None:
    for row in Table.read(path).rows:
        assert row.spec.data()


def record(path: Path) -> None:
    for point in Record(str(path).removesuffix(".points"), fresh=False).points:
        assert point.best


def algorithm(path: Path) -> None:
    gc3.compile(load(str(path)))


def recorded() -> dict[str, Any]:
    """What `Record` writes on this machine."""
    spec = Spec("ring_allreduce", (("R", "ranks"),), thresholds=(("spins", 3),), order=(0, 1))
    point = Measured("allreduce", 2, 1024, False, ((spec, 1.0),), spec, 3, own=(Own("a.py:f", "allreduce", "1"),))
    with tempfile.TemporaryDirectory() as folder:
        kept = Record(f"{folder}/t.json", fresh=False)
        kept.write([point])
        return json.loads(kept.path.read_text())


SETTINGS = {"dtype": "float32", "op": "sum", "warmup": 1, "iterations": 3, "check": True, "engine": "threads"}
KINDS: dict[str, tuple[str, Callable[[], Any], Callable[[Path], object]]] = {
    "log of NCCL": (
        "gc3-nccl-1.json",
        lambda: {
            "format": "gc3-nccl-log-1",
            "process": 7,
            "nccl": "libnccl.so.2",
            "served": [{**CALL, "program": "ring", "host_ns": 900}],
            "left": [CALL],
            "reasons": [{"function": "ncclBcast", "why": "no program", "calls": 1}],
        },
        explained,
    ),
    "bench": (
        "b.json",
        lambda: {
            "programs": {"out_of_place": {"collective": "allreduce", "ranks": 2}, "in_place": None},
            "settings": SETTINGS,
            "rows": [{"size": 1024, "out_of_place": TIMES, "in_place": None}],
        },
        compared,
    ),
    "table": (
        "t.json",
        lambda: {"format": "gc3-selection-1", "measured_on": ["x"], "engine": "sim", "rows": [ROW]},
        table,
    ),
    "record": ("t.json.points", recorded, record),
    "topology": (
        "m.json",
        lambda: json.loads(document.dumps(topologies.load("ring", R=2))),
        lambda path: document.read(str(path)),
    ),
    "preset": (
        "p.json",
        lambda: json.loads(preset_file.dumps(presets.get("a100"))),
        lambda path: preset_file.dumps(preset_file.read(str(path))),
    ),
    "algorithm": ("a.json", lambda: ALGORITHM, algorithm),
    "collective": (
        "c.json",
        lambda: {
            "name": "c",
            "nodes": 2,
            "chunks": [{"pre": [0], "post": [1]}],
            "groups": [{"collective": "broadcast", "ranks": [0, 1], "chunks": 1, "root": 0}],
            "counts": [[0, 1], [1, 0]],
        },
        lambda path: custom.read(str(path)),
    ),
    "groups": ("g.json", lambda: {"g": [0, 1]}, lambda path: chakra.read_groups(str(path))),
    "counts": ("n.json", lambda: [[1, 2], [3, 4]], lambda path: v_counts.read(str(path))),
}


def damaged(data: Any) -> Iterator[Any]:
    """The document with each value replaced by each wrong one, and with each member left out."""
    yield from WRONG
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in cast("Any", items):
        for other in damaged(value):
            changed = dict(cast("Any", data)) if isinstance(data, dict) else list(cast("Any", data))
            changed[key] = other
            yield changed
        if isinstance(data, dict):
            yield {name: each for name, each in cast("Any", data).items() if name != key}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_document_is_the_users_mistake(kind: str, tmp_path: Path) -> None:
    name, make, use = KINDS[kind]
    whole = make()
    path = tmp_path / name
    path.write_text(json.dumps(whole))
    use(path)
    for document_ in damaged(whole):
        path.write_text(json.dumps(document_))
        try:
            use(path)
        except (errors.UserError, click.UsageError):
            continue
        except Exception as problem:
            raise AssertionError(f"{problem!r} of {json.dumps(document_)[:2000]}") from problem
