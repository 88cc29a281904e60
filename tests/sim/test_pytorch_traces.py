"""Steps that PyTorch recorded, as Chakra execution traces.

The data are made here, in the form that PyTorch writes: torch/csrc/profiler/standalone/execution_trace_observer.cpp
(schemas 1.0.2-chakra.0.0.4 to 1.1.1-chakra.0.0.4), the profiler's JSON, and the nodes record_param_comms of
torch/csrc/distributed/c10d/ParamCommsUtils.cpp. tests/pytorch/test_torch_recording.py records real steps.
"""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

import gc3
from gc3.cli.main import main
from gc3.sim.read import chakra, pytorch_traces
from gc3.sim.read.chakra import COLLECTIVE, COMPUTE, RECEIVE, SEND, Node

pytestmark = pytest.mark.python_only

US = 1e-6
WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3], "pg_size": 4}
PAIR = {"pg_name": "7", "pg_desc": "tp", "ranks": [1, 3], "pg_size": 2}
OBJECT = ("<Object>", "Object")
Value = tuple[Any, str]


def tensor(storage: int, elements: int) -> Value:
    """A tensor of float32; the first number is its own, which nothing reads."""
    return [1000 + storage, storage, 0, elements, 4, "cpu"], "Tensor(float)"


def tensors(*of: Value) -> Value:
    return [value for value, _ in of], f"GenericList[{','.join(kind for _, kind in of)}]"


def flag(value: bool) -> Value:
    return value, "Bool"


def integer(value: int) -> Value:
    return value, "Int"


class Recording:
    """What the observer and the profiler write of one thread; times are in microseconds."""

    def __init__(self, *groups: dict[str, Any], rank: int = 1, schema: str = "1.1.1-chakra.0.0.4") -> None:
        """Begins the step of a rank in a job of four."""
        self.nodes: list[Any] = []
        self.events: list[Any] = []
        self.schema = schema
        self.about = {"rank": rank, "world_size": 4, "backend": "gloo", "pg_config": list(groups or (WORLD,))}
        self.node("[pytorch|profiler|execution_trace|process]", 1, operator=False)
        self.thread = self.node("[pytorch|profiler|execution_trace|thread]", 1, operator=False)

    def node(self, name: str, above: int, *values: Value, operator: bool = True, thread: int = 1, **more: Any) -> int:
        """A node of the execution trace; returns its number."""
        number = len(self.nodes) + 1
        attributes = {"rf_id": number, "tid": thread, "op_schema": f"{name}(...)" if operator else "", **more}
        self.nodes.append(
            {
                "id": number,
                "name": name,
                "ctrl_deps": above,
                "inputs": {"values": [v for v, _ in values], "types": [kind for _, kind in values]},
                "outputs": {"values": [], "types": []},
                "attrs": [{"name": key, "type": "", "value": value} for key, value in attributes.items()],
            }
        )
        return number

    def event(self, name: str, start: float, dur: float, cat: str = "cpu_op", thread: int = 50, **more: Any) -> None:
        """An event of the profile."""
        args = {"External id": len(self.events) + 1, "Ev Idx": len(self.events), **more}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "tid": thread, "ts": 1e9 + start, "dur": dur, "args": args}
        )

    def operator(self, name: str, start: float, dur: float, *values: Value, above: int = 0) -> int:
        """Both."""
        self.event(name, start, dur)
        return self.node(name, above or self.thread, *values)

    def files(self) -> tuple[Any, Any]:
        """The contents of both files."""
        profile = {"schemaVersion": 1, "distributedInfo": self.about, "traceEvents": list(reversed(self.events))}
        return {"schema": self.schema, "nodes": list(reversed(self.nodes))}, profile

    def trace(self) -> tuple[Node, ...]:
        """What they are converted to."""
        return pytorch_traces.convert(*self.files()).trace


def allreduce(recording: Recording, start: float, dur: float, storage: int, *, waits: bool, group: str = "") -> int:
    values = (tensors(tensor(storage, 256)), OBJECT, OBJECT, ("<None>", "None"), flag(not waits), integer(-1))
    number = recording.operator("c10d::allreduce_", start, dur, *values)
    if group:  # as gc3.torch.record notes it: the call once more, inside a mark, and only in the observed step
        mark = recording.node(f"{pytorch_traces.GROUP_MARK}{group}", number, operator=False)
        again = recording.node("c10d::allreduce_", mark, *values)
        recording.operator("aten::detach", start, 0.5, tensor(storage, 256), above=again)
    return number


def computing(number: int, name: str, us: int, *after: int, on_cpu: bool = False) -> Node:
    return Node(number, name, COMPUTE, after, cast("float", pytest.approx(us * US)), on_cpu=on_cpu)


def reducing(number: int, *after: int, group: str = "", size: int = 1024) -> Node:
    return Node(number, "c10d::allreduce_", COLLECTIVE, after, collective="allreduce", size=size, group=group)


def test_operators_wait_for_the_calls_whose_storages_they_have() -> None:
    step = Recording()
    step.operator("aten::mm", 10, 100, tensor(1, 256))
    allreduce(step, 120, 30, 1, waits=False)
    step.operator("aten::relu", 160, 40, tensor(2, 64))
    step.operator("aten::add_", 900, 20, tensor(3, 64), tensor(1, 256))
    step.operator("aten::mul", 925, 5, tensor(1, 256))
    assert step.trace() == (
        computing(0, "aten::mm", 100),
        computing(1, "before c10d::allreduce_", 10, 0),
        reducing(2, 1),
        computing(3, "aten::relu", 50, 1),  # with the 10 us before it, in which the host did something else
        computing(4, "aten::add_", 20, 2, 3),  # without the 700 us in which it waited
        computing(5, "aten::mul", 10, 4),
    )


def test_the_next_operator_waits_for_a_call_that_waits() -> None:
    step = Recording()
    allreduce(step, 0, 400, 1, waits=True)
    step.operator("aten::relu", 450, 40, tensor(2, 64))
    allreduce(step, 500, 400, 2, waits=True)
    allreduce(step, 950, 400, 3, waits=True)
    assert step.trace() == (
        reducing(0),
        computing(1, "aten::relu", 40, 0),
        computing(2, "before c10d::allreduce_", 10, 1),
        reducing(3, 2),
        reducing(4, 2, 3),
    )


def test_functional_collectives_wait_where_they_say() -> None:
    step = Recording()
    outer = step.operator("_c10d_functional::all_reduce", 0, 50, tensor(1, 256))
    step.operator("aten::clone", 5, 20, tensor(1, 256), above=outer)
    values = (tensors(tensor(2, 256)), OBJECT, OBJECT, ("<None>", "None"), flag(True), integer(-1))
    step.operator("c10d::allreduce_", 30, 15, *values, above=outer)
    step.operator("_c10d_functional::wait_tensor", 60, 500, tensor(2, 256))
    step.operator("aten::relu", 570, 5, tensor(4, 8))
    assert step.trace() == (
        computing(0, "aten::clone", 20),
        computing(1, "before c10d::allreduce_", 5, 0),
        reducing(2, 1),
        computing(3, "aten::relu", 15, 1, 2),
    )


def test_times_shorter_than_the_format_has_are_not_lost() -> None:
    step = Recording()
    for number in range(1000):
        step.operator("aten::view", 0.3 * number, 0.3, tensor(1, 8))
    trace = step.trace()
    assert sum(node.duration_s for node in trace) == pytest.approx(300 * US)
    assert all(node.duration_s >= 0.99 * US for node in trace)
    assert [node.after for node in trace[1:]] == [(node.number,) for node in trace[:-1]]


def test_threads_of_the_backward_pass_compute_and_those_of_the_backend_do_not() -> None:
    step = Recording()
    step.operator("aten::mm", 0, 10, tensor(1, 4))
    other = step.node("[pytorch|profiler|execution_trace|thread]", 1, operator=False, thread=2)
    engine = step.node("autograd::engine::evaluate_function: MmBackward0", other, operator=False, thread=2)
    step.event("autograd::engine::evaluate_function: MmBackward0", 12, 30, thread=51)
    step.node("aten::mm", engine, tensor(1, 4), thread=2)
    step.event("aten::mm", 20, 20, thread=51)
    worker = step.node("[pytorch|profiler|execution_trace|thread]", 1, operator=False, thread=3)
    step.node("aten::mm", worker, tensor(1, 4), thread=3)
    step.event("aten::mm", 5, 7, thread=52)
    assert step.trace() == (computing(0, "aten::mm", 10), computing(1, "aten::mm", 30, 0))


@pytest.mark.parametrize(
    ("name", "values", "collective", "size"),
    [
        ("allreduce_coalesced_", (tensors(tensor(1, 8), tensor(2, 4)), OBJECT), "allreduce", 48),
        ("broadcast_", (tensors(tensor(1, 8)), OBJECT, integer(0)), "broadcast", 32),
        ("reduce_", (tensors(tensor(1, 8)), OBJECT), "reduce", 32),
        ("allgather_", (tensors(tensors(tensor(1, 8), tensor(2, 8))), tensors(tensor(3, 8)), OBJECT), "allgather", 32),
        ("_allgather_base_", (tensor(1, 32), tensor(2, 8), OBJECT), "allgather", 32),
        ("gather_", (tensors(), tensors(tensor(2, 8)), OBJECT), "gather", 32),
        ("reduce_scatter_", (tensors(tensor(1, 8)), tensors(tensors(tensor(2, 32))), OBJECT), "reducescatter", 128),
        ("_reduce_scatter_base_", (tensor(1, 8), tensor(2, 32), OBJECT), "reducescatter", 128),
        ("scatter_", (tensors(tensor(1, 8)), tensors(), OBJECT), "scatter", 128),
        ("alltoall_", (tensors(tensor(1, 8)), tensors(tensor(2, 8), tensor(3, 8)), OBJECT), "alltoall", 64),
        ("alltoall_base_", (tensor(1, 16), tensor(2, 16), OBJECT), "alltoall", 64),
        ("barrier", (tensor(1, 1), OBJECT), "allreduce", 4),
    ],
)
def test_sizes_are_the_bytes_that_a_rank_gives(
    name: str, values: tuple[Value, ...], collective: str, size: int
) -> None:
    step = Recording()
    step.operator(f"c10d::{name}", 0, 10, *values, flag(True))
    (node,) = step.trace()
    assert (node.kind, node.collective, node.size, node.after) == (COLLECTIVE, collective, size, ())


def test_messages_name_ranks_of_the_job() -> None:
    step = Recording(WORLD, PAIR, rank=3)
    for name in ("send", "recv_"):
        number = step.operator(f"c10d::{name}", 0, 1, tensors(tensor(1, 8)), OBJECT, integer(0), integer(5))
        step.node("record_param_comms", number, operator=False, pg_name="7")
    sent, received = step.trace()
    assert (sent.kind, sent.peer, sent.tag, sent.size) == (SEND, 1, 5, 32)
    assert (received.kind, received.peer, received.tag, received.after) == (RECEIVE, 1, 5, (0,))


@pytest.mark.parametrize("how", ["mark", "attribute", "pair"])
def test_groups_are_known_by_a_mark_or_from_the_backend(how: str) -> None:
    step = Recording(WORLD, PAIR, schema="1.0.3-chakra.0.0.4" if how == "pair" else "1.1.1-chakra.0.0.4")
    for group in ("7", "0"):
        start = 0 if group == "7" else 20
        if how == "mark":
            allreduce(step, start, 10, int(group) + 1, waits=False, group=group)
            continue
        number = allreduce(step, start, 10, int(group) + 1, waits=False)
        inner = step.node("nccl:all_reduce", number, operator=False)
        values = (tensors(), integer(3), ([group, "tp"], "Tuple[String,String]"), integer(1), ("allreduce", "String"))
        more: dict[str, Any] = {"pg_name": group} if how == "attribute" else {}
        step.node("record_param_comms", inner, *values, operator=False, **more)
    found = pytorch_traces.convert(*step.files())
    assert (found.rank, found.ranks, found.groups) == (1, 4, {"7": [1, 3]})
    assert [node.group for node in found.trace if node.kind == COLLECTIVE] == ["7", ""]


def test_kernels_are_the_compute_of_a_gpu() -> None:
    """As with NCCL: the host asks for kernels, and its wait() makes only the stream wait."""
    step = Recording()
    step.operator("aten::mm", 0, 10, tensor(1, 256))
    step.event("ampere_sgemm", 500, 300, "kernel", **{"External id": step.events[-1]["args"]["External id"]})
    call = allreduce(step, 12, 8, 1, waits=True)
    step.node("record_param_comms", call, operator=False, pg_name="0")
    step.event("ncclDevKernel_AllReduce", 800, 900, "kernel", **{"External id": step.events[-1]["args"]["External id"]})
    step.operator("aten::relu", 25, 5, tensor(2, 8))
    step.event("relu_kernel", 1700, 50, "kernel", **{"External id": step.events[-1]["args"]["External id"]})
    step.operator("aten::item", 32, 2000, tensor(2, 8))
    step.event("cudaStreamSynchronize", 40, 1990, "cuda_runtime")
    step.operator("aten::add", 2040, 4, tensor(9, 8))
    assert step.trace() == (
        computing(0, "aten::mm", 10, on_cpu=True),
        computing(1, "aten::mm", 300, 0),
        computing(2, "before c10d::allreduce_", 2, 0, on_cpu=True),
        reducing(3, 1, 2),
        computing(4, "aten::relu", 10, 2, on_cpu=True),
        computing(5, "aten::relu", 50, 1, 3, 4),
        computing(6, "aten::item", 12, 4, 5, on_cpu=True),
        computing(7, "aten::add", 12, 6, on_cpu=True),
    )


def unusable(step: Recording) -> str:
    with pytest.raises(gc3.UserError) as caught:
        step.trace()
    assert caught.value.code == "GC3-S005"
    return caught.value.message


def test_what_cannot_be_converted_is_refused_with_one_message() -> None:
    step = Recording(WORLD, PAIR)
    allreduce(step, 0, 10, 1, waits=False)
    assert "the group of a call of c10d::allreduce_ is not known: record with gc3.torch.record" in unusable(step)
    step = Recording()
    step.operator("c10d::recv_any_source_", 0, 10, tensors(tensor(1, 8)), OBJECT, integer(5))
    assert "c10d::recv_any_source_ is not known here" in unusable(step)
    step = Recording()
    step.operator("aten::mm", 0, 10)
    step.node("aten::relu", step.thread)
    assert "operator 1 is aten::relu in the execution trace, and nothing in the profile" in unusable(step)
    step.event("aten::relu", 20, 1)
    step.event("aten::relu", 30, 1)
    assert "the profile has 3 operators, the execution trace 2: of steps that differ" in unusable(step)
    step = Recording()
    step.operator("aten::mm", 0, 10)
    circle = [step.node("module", step.thread, operator=False) for _ in range(2)]
    step.nodes[circle[0] - 1]["ctrl_deps"] = circle[1]
    step.operator("aten::relu", 20, 10, above=circle[1])
    assert len(step.trace()) == 2  # a file that no PyTorch writes: nothing waits forever
    step = Recording()
    step.about = {}
    assert "it is not of a job of torch.distributed" in unusable(step)
    step = Recording(schema="1.0.1")
    assert "has no schema of Chakra" in unusable(step)
    step.about = {"rank": 0}
    assert "it is not the distributedInfo of a profile: $: 'world_size' is a required property" in unusable(step)
    others: list[Any] = [([], []), (Recording().files()[0], None)]
    for operators, profile in others:
        with pytest.raises(gc3.UserError, match="expected the JSON of PyTorch's ExecutionTraceObserver"):
            pytorch_traces.convert(operators, profile)
    with pytest.raises(gc3.UserError, match=r"two groups are called 'tp': \[0, 1\] and \[2, 3\]"):
        pytorch_traces.merged([{"tp": [0, 1]}, {"tp": [2, 3]}])


def test_numbers_and_texts_outside_the_ranges_of_a_trace_are_refused() -> None:
    for rank in (-5, 4):
        assert f"the profile is of rank {rank} of 4" in unusable(Recording(rank=rank))
    for size, told in ((-1, "-4 B"), (1 << 62, f"{1 << 64} B")):
        step = Recording()
        step.operator("c10d::send", 0, 10, tensors(tensor(1, size)), OBJECT, integer(2), integer(7))
        assert told in unusable(step)
    step = Recording({**WORLD, "ranks": [0, 1, 2, 9]})
    step.operator("c10d::send", 0, 10, tensors(tensor(1, 8)), OBJECT, integer(3), integer(7))
    assert "peer 9" in unusable(step)
    for duration in (1e18, math.inf):  # JSON's 1e400
        step = Recording()
        step.operator("aten::mm", 0, duration)
        assert "trace" in unusable(step)
    step = Recording()
    step.operator("aten::mm", 0, 10)
    step.event("gemm", 20, -1e27, cat="kernel", **{"External id": 1})
    assert "-1e+27 is less than the minimum" in unusable(step)
    step = Recording({**WORLD, "ranks": [], "pg_size": 1 << 60})
    step.about["world_size"] = 1 << 60
    assert "greater than the maximum" in unusable(step)
    step = Recording()
    step.operator("aten::\ud800", 0, 10)
    assert "surrogates not allowed" in unusable(step)


def test_the_command_converts_files(tmp_path: Path) -> None:
    step = Recording(WORLD, PAIR)
    step.operator("aten::mm", 0, 100, tensor(1, 256))
    allreduce(step, 110, 30, 1, waits=True, group="7")
    operators, profile = step.files()
    (tmp_path / "o.json").write_text(json.dumps(operators))
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(json.dumps(profile).encode()))

    def command(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["sim", "convert", *words, "-o", f"{tmp_path}/s"])
        assert result.exit_code == code, result.output
        return result.output

    files = f"{tmp_path}/o.json", f"{tmp_path}/p.json.gz"
    text = command(*files)
    assert "s.1.et: rank 1 of 4, 3 nodes, 1 collectives, 0 messages, 110 us of compute" in text
    data = json.loads(command(*files, "--json"))
    assert (data["rank"], data["collectives"], data["groups"]) == (1, 1, {"7": [1, 3]})
    assert chakra.read(data["file"]) == step.trace()
    assert "GC3-S005" in command(files[0], files[0], code=1)
    (tmp_path / "p.json.gz").write_bytes(b"\x1f\x8bxx")
    assert "is not in the form of gzip" in command(*files, code=1)
    (tmp_path / "p.json.gz").write_bytes(b"\xff{")
    assert "it is not JSON" in command(*files, code=1)
