"""Documents with one value replaced: each reader says so as the user's mistake, or accepts one of the same type."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
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
from gc3.comm.selection import Table
from gc3.comm.spec import Spec
from gc3.sim import preset_file, presets, v_counts
from gc3.sim.fit import calibrate
from gc3.sim.read import chakra, nccl_tests, pytorch_traces
from gc3.synth import problem
from gc3.topologies import document
from gc3.tune.goal import Measured, Own
from gc3.tune.record import Record

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
    if told.exit_code:
        raise click.UsageError(told.output)


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


def preset() -> dict[str, Any]:
    """A preset of one protocol: those of the others have the same members."""
    whole = json.loads(preset_file.dumps(presets.get("a100")))
    return whole | {"protocols": {"LL": whole["protocols"]["LL"]}}


def recorded() -> dict[str, Any]:
    """What `Record` writes on this machine."""
    spec = Spec("ring_allreduce", (("R", "ranks"),), thresholds=(("spins", 3),), order=(0, 1))
    point = Measured("allreduce", 2, 1024, False, ((spec, 1.0),), spec, 3, own=(Own("a.py:f", "allreduce", "1"),))
    with tempfile.TemporaryDirectory() as folder:
        kept = Record(f"{folder}/t.json", fresh=False)
        kept.write([point])
        return json.loads(kept.path.read_text())


def step() -> tuple[Any, Any]:
    """What PyTorch's observer and profiler write of a computation, a call, a message and a kernel."""
    nodes: list[Any] = []
    events: list[Any] = []

    def tensor(storage: int) -> list[Any]:
        return [storage + 1000, storage, 0, 256, 4, "cpu"]

    for name, values, kinds in (
        ("aten::mm", [tensor(1)], ["Tensor(float)"]),
        ("c10d::allreduce_", [[tensor(1)], False], ["GenericList[Tensor(float)]", "Bool"]),
        ("c10d::send", [[tensor(2)], 1, 7], ["GenericList[Tensor(float)]", "Int", "Int"]),
    ):
        number = 2 * len(events) + 1
        for inner in (False, True):
            told = {"tid": 1, "op_schema": "" if inner else f"{name}(...)", **({"pg_name": "0"} if inner else {})}
            nodes.append(
                {
                    "id": number + inner,
                    "name": "record_param_comms" if inner else name,
                    "ctrl_deps": number if inner else 0,
                    "inputs": {"values": [] if inner else values, "types": [] if inner else kinds},
                    "outputs": {"values": [], "types": []},
                    "attrs": [{"name": key, "value": value} for key, value in told.items()],
                }
            )
        args = {"External id": number, "Ev Idx": number}
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "tid": 5, "ts": 9.0 * number, "dur": 8.0, "args": args}
        )
    events.append({**events[0], "cat": "kernel", "name": "gemm", "args": {"External id": 1}})
    world = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}
    job = {"rank": 1, "world_size": 2, "pg_config": [world]}
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}, {"distributedInfo": job, "traceEvents": events}


def converted(path: Path) -> None:
    whole = dict(zip(("o.json", "p.json"), step(), strict=True))
    for name in whole.keys() - {path.name}:
        path.with_name(name).write_text(json.dumps(whole[name]))
    pytorch_traces.read(*(str(path.with_name(name)) for name in whole))


LOG = """# nccl version 2.20.5
#       size  count  type  redop  root  time  algbw  busbw #wrong
#        (B)  (elements)             (us)  (GB/s) (GB/s)
        1024    256 float    sum    -1   17.3    0.06   0.10      0
"""
SETTINGS = {"dtype": "float32", "op": "sum", "warmup": 1, "iterations": 3, "check": True, "engine": "threads"}
KINDS: dict[str, tuple[str, Callable[[], Any], Callable[[Path], object]]] = {
    "log of NCCL": (
        "gc3-nccl-1.json",
        lambda: {
            "format": "gc3-nccl-log-2",
            "host": "a",
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
    "preset": ("p.json", preset, lambda path: preset_file.dumps(preset_file.read(str(path)))),
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
        lambda path: problem.read(str(path)),
    ),
    "operators": ("o.json", lambda: step()[0], converted),
    "profile": ("p.json", lambda: step()[1], converted),
    "groups": ("g.json", lambda: {"g": [0, 1]}, lambda path: chakra.read_groups(str(path))),
    "counts": ("n.json", lambda: [[1, 2], [3, 4]], lambda path: v_counts.read(str(path))),
}
# What these hold gets to the core; the other documents are read by Python alone.
OF_THE_CORE = {"table", "algorithm", "collective"}
# The members that a reader does not need, or takes in several types: null as "none", true as 1.
EITHER = {
    "bench": r"settings\.(warmup|check)|quarter|rows\[\]\.out_of_place$",
    "table": r"\.(ranks|size|nodes|skew|ranks_per_node|in_place|root|transport|adapt|R)(\[\])?$",
    "record": r"machine\.|\.(default|reference|within)$",
    "topology": r"\.(position|bounds|bandwidth_bytes_per_s|latency_s)$",
    "preset": r"gc3_sim_preset|\.(in_sample|held_out|scope|median|p90)$|scope\.(ranks|sizes)",
    "algorithm": r"name$|msccl_type|instance|rounds|^\.topology$",
    "collective": r"^\.name$|root$",
    "operators": r"outputs\.types|attrs\[\]\.value|inputs\.values\[\]",
    "profile": r"traceEvents\[\]\.(name|args)",
}


def damaged(data: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """The document with each value replaced by each wrong one, and with each member left out.

    With each the member whose value is of another type, and "" where it is not.
    """
    for wrong in WRONG:
        same = type(wrong) is type(data) or {type(wrong), type(data)} == {int, float}
        yield "" if same else at, wrong
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in cast("Any", items):
        for member, other in damaged(value, f"{at}.{key}" if isinstance(data, dict) else f"{at}[]"):
            changed = dict(cast("Any", data)) if isinstance(data, dict) else list(cast("Any", data))
            changed[key] = other
            yield member, changed
        if isinstance(data, dict):
            yield "", {name: each for name, each in cast("Any", data).items() if name != key}


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.nightly)], ids=["share", "whole"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in OF_THE_CORE else pytest.mark.python_only) for kind in KINDS]
)
def test_a_damaged_document_is_the_users_mistake(kind: str, share: int, tmp_path: Path) -> None:
    """A share: every third document, so that each member has a third of the wrong values."""
    name, make, use = KINDS[kind]
    whole = make()
    path = tmp_path / name
    path.write_text(json.dumps(whole))
    use(path)
    accepted: set[str] = set()
    for member, document_ in islice(damaged(whole), None, None, share):
        path.write_text(json.dumps(document_))
        try:
            use(path)
            accepted.add(member)
        except (errors.UserError, click.UsageError):
            continue
        except Exception as problem:
            raise AssertionError(f"{problem!r} of {json.dumps(document_)[:2000]}") from problem
    assert {member for member in accepted - {""} if not re.search(EITHER.get(kind, "^$"), member)} == set()


@pytest.mark.python_only
@pytest.mark.parametrize("text", ["x", "-1", "1e999", "nan", "0x10", "1_0", "1,5", "9" * 30, "\0", "é"])
def test_damaged_measurements_are_the_users_mistake(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    for whole, use in (
        ("# a\nbytes,us\n1024,{0}\n2048,2\n", lambda: calibrate.read_csv(str(path), "us")),
        ("bytes,us\n{0},1.5\n2048,2\n", lambda: calibrate.read_csv(str(path), "us")),
        (LOG.replace(" 17.3", " {0}"), lambda: nccl_tests.read(str(path))),
        (LOG.replace(" 1024", "{0} "), lambda: nccl_tests.read(str(path))),
    ):
        path.write_text(whole.format(text))
        with pytest.raises(errors.UserError):
            use()


@pytest.mark.python_only
def test_a_damaged_trace_is_the_users_mistake(tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    nodes = (
        chakra.Node(1, "a", chakra.COMPUTE, (), 1e-6),
        chakra.Node(2, "b", chakra.COLLECTIVE, (1,), collective="allreduce", size=4, group="g"),
        chakra.Node(3, "c", chakra.SEND, (2,), size=4, peer=1, tag=2),
    )
    chakra.write(str(path), nodes)
    whole = path.read_bytes()
    assert chakra.read(str(path)) == nodes
    for place in range(len(whole)):
        for new in (b"", b"\0", b"\x7f", b"\xff", bytes([whole[place] ^ 1])):
            path.write_bytes(whole[:place] + new + whole[place + 1 :])
            with suppress(errors.UserError):
                chakra.read(str(path))
