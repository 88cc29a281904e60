"""Training steps: Chakra execution traces, and their simulation."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gc3
from gc3 import algorithms, sim
from gc3.cli.main import main
from gc3.sim import step
from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, COMPUTE, RECEIVE, SEND, Node
from gc3.sim.step import Chosen

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).resolve().parents[2]
MIB, US = 1 << 20, 1e-6


def gc3_sim(line: str, *, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["sim", *line.split()])
    assert result.exit_code == code, result.output
    return result


# --- the format


def field(number: int, content: bytes | int) -> bytes:
    """A field of a message as the format has it: a varint, or bytes after their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def message(*fields: bytes) -> bytes:
    text = b"".join(fields)
    return varint(len(text)) + text


METADATA = message(field(1, b"0.0.4"), field(2, field(1, b"schema")))


def attribute(name: bytes, number: int, content: bytes | int) -> bytes:
    return field(10, field(1, name) + field(number, content))


ALLREDUCE = message(
    field(1, 300),
    field(2, b"ncclDevKernel_AllReduce"),
    field(3, 7),
    field(4, b"\x07"),  # packed control dependencies: [7]
    field(5, varint(7) + varint(9)),
    field(6, 12),
    field(7, 34),
    field(8, field(1, b"[1, 2]")),  # inputs, which are skipped
    attribute(b"is_cpu_op", 27, 0),
    attribute(b"comm_type", 9, 0),
    attribute(b"comm_size", 13, 1 << 20),
    attribute(b"pg_name", 29, b"tp"),
    attribute(b"involved_dim", 28, field(1, b"\x01\x01")),  # a list, which is skipped
)


def compute(number: int, *more: bytes) -> bytes:
    return message(field(1, number), field(2, b"gemm"), field(3, 4), field(7, 1500), *more)


def test_a_trace_is_read_as_its_definition_says(tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    host = attribute(b"is_cpu_op", 27, 1)
    weight = attribute(b"weight", 3, 0)[:0] + field(10, field(1, b"w") + varint(3 << 3 | 1) + struct.pack("<d", 1.5))
    path.write_bytes(METADATA + ALLREDUCE + compute(9, host, weight) + compute(7))
    seven, nine, reduced = chakra.read(str(path))
    assert seven == Node(7, "gemm", COMPUTE, duration_s=pytest.approx(1500 * US))
    assert nine.on_cpu
    assert reduced == Node(
        300,
        "ncclDevKernel_AllReduce",
        COLLECTIVE,
        (7, 9),
        pytest.approx(34 * US),
        pytest.approx(12 * US),
        collective="allreduce",
        size=MIB,
        group="tp",
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    trace = (
        Node(0, "forward", COMPUTE, duration_s=1e-3),
        Node(1, "host", COMPUTE, (0,), duration_s=2e-3, start_s=5e-3, on_cpu=True),
        *(
            Node(2 + k, name, COLLECTIVE, (0, 1), collective=name, size=1 << k, group="g")
            for k, name in enumerate(dict.fromkeys(chakra.COLLECTIVES.values()))
        ),
        Node(20, "to", SEND, (3,), size=1 << 40, peer=5, tag=7),
        Node(21, "from", RECEIVE, (), size=8, peer=3),
    )
    chakra.write_all(str(tmp_path / "t"), [trace, trace[:2]])
    assert chakra.read_all(str(tmp_path / "t"), 2) == [trace, trace[:2]]
    assert chakra.read_all(str(tmp_path / "t.1.et"), 3) == [trace[:2]] * 3
    chakra.write_groups(str(tmp_path / "g.json"), {"g": range(2)})
    assert chakra.read_groups(str(tmp_path / "g.json")) == {"g": [0, 1]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (METADATA[:-1], "it ends within a node"),
        (METADATA + b"\x80", "it ends within a length"),
        (METADATA + b"\xff" * 9, "it ends within a length"),
        (METADATA + message(b"\xff\xff\xff"), "is not a Chakra execution trace"),
        (METADATA + compute(7) + compute(7), "two nodes have one number"),
        (METADATA + ALLREDUCE, "node 300 waits for node 7, which does not exist"),
        (METADATA + message(field(3, 7), attribute(b"comm_type", 9, 10)), "comm_type 10 is not known here"),
        (METADATA + message(field(3, 7), attribute(b"comm_type", 9, 0)), "comm_size is missing or invalid"),
        (METADATA + message(field(3, 5), attribute(b"comm_size", 29, b"x")), "comm_size is missing or invalid"),
        (METADATA + message(field(3, 5), attribute(b"comm_size", 9, 8)), "comm_dst is missing or invalid"),
        (METADATA + message(field(3, 6), attribute(b"comm_size", 9, 8)), "comm_src is missing or invalid"),
    ],
)
def test_files_that_are_no_traces_are_refused(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.et"
    path.write_bytes(data)
    with pytest.raises(gc3.UserError, match=r"bad\.et") as caught:
        chakra.read(str(path))
    assert caught.value.code == "GC3-S005"
    assert says in caught.value.message


def test_forms_of_other_tools_are_read(tmp_path: Path) -> None:
    """The attributes that public tools write; the data are made here.

    ASTRA-sim (MIT), examples/workload/microbenchmarks/generator_scripts/all_gather.py; its symbolic_tensor_graph,
    chakra_00_4_backend.py; MLCommons Chakra (MIT), src/converter/text_converter.py and mpi_converter.py.
    """
    schema = message(field(2, field(1, b"schema") + field(29, b"1.0.2-chakra.0.0.4")))  # metadata without a version
    everywhere = attribute(b"involved_dim", 28, field(1, b"\x01\x01\x01"))
    nodes = {
        "benchmark": (
            message(field(2, b"all_gather_4npus_1MB"), field(3, 7), attribute(b"is_cpu_op", 27, 0),
                    attribute(b"comm_type", 9, 2), attribute(b"comm_size", 9, MIB)),
            Node(0, "all_gather_4npus_1MB", COLLECTIVE, collective="allgather", size=MIB),
        ),
        "mlcommons": (
            message(field(1, 2), field(2, b"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), field(3, 7),
                    attribute(b"comm_size", 9, 8)),
            Node(2, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", COLLECTIVE, collective="reducescatter", size=8),
        ),
        "text": (
            message(field(1, 3), field(3, 7), attribute(b"comm_type", 9, 6), attribute(b"comm_size", 9, 8)),
            Node(3, "", COLLECTIVE, collective="alltoall", size=8),
        ),
        "symbolic": (
            message(field(1, 4), field(3, 7), attribute(b"comm_size", 13, 64), attribute(b"comm_type", 9, 7),
                    everywhere),
            Node(4, "", COLLECTIVE, collective="reducescatter", size=64),
        ),
        "symbolic compute": (
            message(field(1, 5), field(3, 4), attribute(b"num_ops", 13, 10**12), attribute(b"tensor_size", 13, 10)),
            Node(5, "", COMPUTE),
        ),
        "symbolic message": (
            message(field(1, 6), field(3, 5), attribute(b"comm_size", 13, 64), attribute(b"comm_tag", 11, 9),
                    attribute(b"comm_dst", 11, 2)),
            Node(6, "", SEND, size=64, peer=2, tag=9),
        ),
        "mpi receive": (
            message(field(1, 7), field(3, 6), attribute(b"comm_size", 13, 64), attribute(b"comm_dst", 9, 1),
                    attribute(b"comm_src", 9, 3), attribute(b"comm_tag", 13, 9), attribute(b"comm_group", 9, 0)),
            Node(7, "", RECEIVE, size=64, peer=3, tag=9),
        ),
        "mpi barrier": (  # its size is an identifier, or a time
            message(field(1, 8), field(3, 7), attribute(b"comm_type", 9, 9), attribute(b"comm_size", 13, 10**9)),
            Node(8, "", COLLECTIVE, collective="allreduce", size=4),
        ),
    }  # fmt: skip
    (tmp_path / "t.et").write_bytes(schema + b"".join(text for text, _ in nodes.values()))
    assert chakra.read(str(tmp_path / "t.et")) == tuple(node for _, node in nodes.values())


def test_missing_files_are_named(tmp_path: Path) -> None:
    chakra.write_all(str(tmp_path / "t"), [(), ()])
    with pytest.raises(gc3.UserError, match=r"t.2.et'; the machine has 3 ranks"):
        chakra.read_all(str(tmp_path / "t"), 3)
    with pytest.raises(gc3.UserError, match="of more ranks than the machine, which has 1"):
        chakra.read_all(str(tmp_path / "t"), 1)
    (tmp_path / "t.json").write_text('{"schema": "1.0.2-chakra.0.0.4", "nodes": []}')
    with pytest.raises(gc3.UserError, match=r"t.json' is JSON, and gc3 sim step reads .*: gc3 sim convert reads it"):
        chakra.read_all(str(tmp_path / "t.json"), 2)
    for text in ("[]", '{"a": []}', '{"a": [0, 0]}', '{"a": [-1]}', '{"a": 3}'):
        (tmp_path / "g.json").write_text(text)
        with pytest.raises(gc3.UserError, match="it is not an object of names with lists of different ranks"):
            chakra.read_groups(str(tmp_path / "g.json"))


def test_protobuf_comes_with_gc3() -> None:
    needed = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]")[0]
    assert '"protobuf>=' in needed


# --- the step

ON = sim.platform("ndv4")
RING = gc3.compile(algorithms.load("ring_allreduce"), R=8, instances=8)


def ring(what: str, ranks: tuple[int, ...], size: int) -> Chosen:
    """Executes every collective by a ring."""
    assert (what, size) == ("allreduce", 16 * MIB)
    program = RING if len(ranks) == 8 else gc3.compile(algorithms.load("ring_allreduce"), R=len(ranks), instances=8)
    return Chosen("ring", sim.Simulation(program, ON, ranks=ranks))


def fixed(what: str, ranks: tuple[int, ...], size: int) -> Chosen:
    """Every collective takes 100 us."""
    del what, ranks, size
    return Chosen("fixed", None, 100 * US)


def work(number: int, us: float, *after: int, **more: bool) -> Node:
    return Node(number, f"work {number}", COMPUTE, after, duration_s=us * US, **more)


def reduction(number: int, *after: int, group: str = "", size: int = 16 * MIB) -> Node:
    return Node(number, f"reduce {number}", COLLECTIVE, after, collective="allreduce", size=size, group=group)


def test_a_collective_begins_when_its_rank_calls_it() -> None:
    alone = sim.Simulation(RING, ON).run(16 * MIB).time_s
    found = step.simulate(ON, [(work(0, 500), reduction(1, 0), work(2, 300, 1))] * 8, ring)
    assert found.time_s == pytest.approx(800 * US + alone, abs=1e-9)
    assert found.exposed_s == pytest.approx(alone, abs=1e-9)
    (call,) = found.calls
    assert (call.program, call.what, call.size, call.ranks) == ("ring", "allreduce", 16 * MIB, tuple(range(8)))
    assert (call.first_s, call.last_s) == (pytest.approx(500 * US), pytest.approx(500 * US))
    assert found.ranks[3].compute_s == pytest.approx(800 * US)
    assert found.traces[3][2].start_s == pytest.approx(500 * US + alone, abs=1e-9)
    for name, blocks in (("allgather", 4), ("gather", 4), ("alltoall", 1)):  # traces give a rank's input
        halves = [(replace(reduction(0, size=MIB, group=f"of {rank // 4}"), collective=name),) for rank in range(8)]
        assert [call.size for call in step.simulate(ON, halves, fixed).calls] == [blocks * MIB] * 2


def test_compute_beside_communication_hides_it() -> None:
    alone = sim.Simulation(RING, ON).run(16 * MIB).time_s
    found = step.simulate(ON, [(reduction(0), work(1, 100), work(2, 10, 0, 1))] * 8, ring)
    assert found.time_s == pytest.approx(alone + 10 * US, abs=1e-9)
    assert found.exposed_s == pytest.approx(alone - 100 * US, abs=1e-9)
    assert found.calls[0].exposed_s == pytest.approx(alone - 100 * US, abs=1e-9)


def test_ranks_wait_for_the_last_one() -> None:
    traces = [(work(0, 50 if rank else 400), reduction(1, 0)) for rank in range(8)]
    alone = sim.Simulation(RING, ON).run(16 * MIB, disturbance=sim.Disturbance({0: 350 * US})).time_s
    found = step.simulate(ON, traces, ring)
    assert found.time_s == pytest.approx(50 * US + alone, abs=1e-9)
    assert found.ranks[1].exposed_s > found.ranks[0].exposed_s + 300 * US
    late = step.simulate(ON, traces, fixed)
    assert late.time_s == pytest.approx(500 * US)
    assert late.ranks[1].exposed_s == pytest.approx(450 * US)


def test_collectives_of_a_group_follow_each_other_and_those_of_others_overlap() -> None:
    one = [(reduction(0), reduction(1))] * 8
    both = [(reduction(0, group="a"), reduction(1, group="b"))] * 8
    assert step.simulate(ON, one, fixed).time_s == pytest.approx(200 * US)
    assert step.simulate(ON, both, fixed).time_s == pytest.approx(100 * US)
    # Although node 0 is ready later, it is called first: all ranks have this order.
    late = step.simulate(ON, [(reduction(0, 2), reduction(1), work(2, 30))] * 8, fixed)
    assert [call.name for call in late.calls] == ["reduce 0", "reduce 1"]
    assert late.time_s == pytest.approx(230 * US)


def test_collectives_under_way_at_once_share_the_links() -> None:
    wide = gc3.compile(algorithms.load("ring_allreduce"), R=8, instances=24)
    alone = sim.Simulation(wide, ON).run(64 * MIB).time_s

    def choose(_what: str, ranks: tuple[int, ...], _size: int) -> Chosen:
        return Chosen("wide", sim.Simulation(wide, ON, ranks=ranks))

    both = [(reduction(0, group="a", size=64 * MIB), reduction(1, group="b", size=64 * MIB))] * 8
    assert step.simulate(ON, both, choose).time_s > 1.8 * alone


def test_groups_are_of_the_ranks_that_name_them_or_of_a_file() -> None:
    traces = [(reduction(0, group="low" if rank < 4 else "high"),) for rank in range(8)]
    found = step.simulate(ON, traces, ring)
    assert sorted(call.ranks for call in found.calls) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    order = {"low": [3, 2, 1, 0], "high": [4, 5, 6, 7]}
    assert (3, 2, 1, 0) in [call.ranks for call in step.simulate(ON, traces, ring, order).calls]
    with pytest.raises(gc3.UserError, match="no ranks are given for group 'high'"):
        step.simulate(ON, traces, ring, {"low": [0, 1, 2, 3]})


def test_a_collective_of_one_rank_takes_no_time(tmp_path: Path) -> None:
    traces = [(work(0, 10), reduction(1, 0, group=f"only {rank}"), work(2, 5, 1)) for rank in range(8)]

    def never(what: str, ranks: tuple[int, ...], size: int) -> Chosen:
        raise AssertionError((what, ranks, size))

    found = step.simulate(ON, traces, never)
    assert found.time_s == pytest.approx(15 * US)
    assert found.exposed_s == 0
    assert [call.ranks for call in found.calls] == [(rank,) for rank in range(8)]
    base = str(tmp_path / "t")
    chakra.write_all(base, [(*trace, reduction(3, 2)) for trace in traces])
    for more in ("", "--use allreduce=ring_allreduce:instances=8"):
        data = json.loads(gc3_sim(f"step {base} -t ndv4 --json {more}").stdout)
        alone, together = sorted(data["collectives"], key=lambda row: row["ranks"])
        assert (alone["calls"], alone["ranks"], alone["program"]) == (8, 1, "nothing to do")
        assert (alone["alone_us"], alone["mean_us"], alone["exposed_us"]) == (0, 0, 0)
        assert together["mean_us"] > 0


def test_one_node_computes_at_a_time_on_gpu_and_host() -> None:
    found = step.simulate(ON, [(work(0, 10), work(1, 20), work(2, 25, on_cpu=True))] * 8, fixed)
    assert found.time_s == pytest.approx(30 * US)
    assert found.ranks[0].compute_s == pytest.approx(30 * US)
    assert [node.start_s for node in found.traces[0]] == pytest.approx([0, 10 * US, 0])
    none = step.simulate(ON, [(work(0, 0), work(1, 5, 0))] * 8, fixed)
    assert none.untimed == 8
    assert none.time_s == pytest.approx(5 * US)


def test_slow_and_late_ranks_hold_up_the_others() -> None:
    traces = [(work(0, 100), reduction(1, 0))] * 8
    for rank in (0, 7):  # also where the collective is the first that they do
        late = step.simulate(ON, [(reduction(0),)] * 8, fixed, disturbance=sim.Disturbance({rank: 50 * US}))
        assert late.time_s == pytest.approx(150 * US)
        assert late.ranks[3].communication_s == pytest.approx(150 * US)
    for disturbance, us in ((sim.Disturbance(slowdown={5: 2.0}), 300), (sim.Disturbance({2: 30e-6}), 230)):
        found = step.simulate(ON, traces, fixed, disturbance=disturbance)
        assert found.time_s == pytest.approx(us * US)
    example = f"step {ROOT}/examples/transformer.et -t ndv4"
    changes = "--what-if straggler=3:1.2 --what-if background=nvlink3:0.5"
    plain, slow = (json.loads(gc3_sim(f"{example} {more} --json").stdout) for more in ("", changes))
    assert slow["ranks"][3]["compute_us"] == pytest.approx(1.2 * plain["ranks"][3]["compute_us"])
    assert slow["ranks"][0]["compute_us"] == pytest.approx(plain["ranks"][0]["compute_us"])
    assert slow["collectives"][0]["mean_us"] > plain["collectives"][0]["mean_us"]
    assert "changed: nvlink3 with 50% of other traffic" in gc3_sim(f"{example} {changes}").stdout


def test_a_step_has_an_end() -> None:
    with pytest.raises(gc3.UserError, match="takes longer than 1000000 s"):
        step.simulate(ON, [(work(0, 0.9e12), work(1, 0.9e12, 0))], fixed)
    with pytest.raises(gc3.UserError, match="begins after 1e\\+07 s; the most is 1000000 s"):
        step.simulate(ON, [(reduction(0),)] * 8, fixed, disturbance=sim.Disturbance({1: 1e7}))


def test_messages_go_from_rank_to_rank() -> None:
    pair = gc3.compile(algorithms.load("alltonext"), N=1, G=2)

    def choose(what: str, ranks: tuple[int, ...], _size: int) -> Chosen:
        assert what == step.MESSAGE
        return Chosen("send", sim.Simulation(pair, ON, ranks=ranks))

    first = (work(0, 100), Node(1, "send", SEND, (0,), size=MIB, peer=1))
    second = (Node(0, "receive", RECEIVE, (), size=MIB, peer=0), work(1, 50, 0))
    found = step.simulate(ON, [first, second], choose)
    late = sim.Disturbance({0: 100 * US})
    assert found.time_s == pytest.approx(50 * US + sim.Simulation(pair, ON).run(MIB, disturbance=late).time_s, abs=1e-9)
    with pytest.raises(gc3.UserError, match="rank 0 sends 1 messages with tag 0 to rank 1, which receives 0"):
        step.simulate(ON, [first, ()], choose)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ((), "do not call the same number of collectives of all ranks"),
        ((reduction(0, size=8),), "rank 0 calls allreduce of 16777216 B (node 0), rank 1 allreduce of 8 B (node 0)"),
        ((replace(reduction(0), collective="alltoall"),), "rank 1 alltoall of"),
    ],
)
def test_ranks_that_disagree_are_refused(other: tuple[Node, ...], says: str) -> None:
    with pytest.raises(gc3.UserError) as caught:
        step.simulate(ON, [(reduction(0),), other], fixed)
    assert caught.value.code == "GC3-S005"
    assert says in caught.value.message


def test_ranks_that_wait_in_a_circle_are_named() -> None:
    with pytest.raises(gc3.UserError, match="rank 0 never comes to node 0 'work 0'"):
        step.simulate(ON, [(work(0, 1, 1), work(1, 1, 0))], fixed)
    crossed = [
        (reduction(0, group="a"), reduction(1, 0, group="b")),
        (reduction(0, 1, group="a"), reduction(1, group="b")),
    ]
    for choose in (fixed, ring):
        with pytest.raises(gc3.UserError, match="rank 0 never comes to node 0"):
            step.simulate(ON, crossed, choose)


# --- the command


def test_uses_and_rows_are_those_of_the_traces(tmp_path: Path) -> None:
    path = str(tmp_path / "one.et")
    chakra.write(path, (reduction(0),))
    line = f"step {path} -t ndv4 --use"
    wrong = gc3_sim(f"{line} allreduce=direct_alltoall", code=2)
    assert "--use allreduce=direct_alltoall: this is a program for alltoall" in wrong.output
    twice = gc3_sim(f"{line} allreduce=ring_allreduce --use allreduce=allpairs_allreduce", code=2)
    assert "two programs for allreduce" in twice.output
    assert "the traces have no broadcast" in gc3_sim(f"{line} broadcast=ring_broadcast").output
    # Groups side by side: their row is the mean over all ranks, as the time of the step is.
    base = str(tmp_path / "pairs")
    groups = str(tmp_path / "groups.json")
    chakra.write_all(base, [(reduction(0, group=str(rank // 2)),) for rank in range(8)])
    chakra.write_groups(groups, {str(n): [2 * n, 2 * n + 1] for n in range(4)})
    found = json.loads(gc3_sim(f"step {base} -t ndv4 --groups {groups} --use allreduce=ring_allreduce --json").stdout)
    assert found["collectives"][0]["calls"] == 4
    assert found["collectives"][0]["exposed_us"] == pytest.approx(found["exposed_us"])
    assert found["exposed_us"] <= found["time_us"]


def test_the_example_is_what_its_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import transformer_step  # noqa: PLC0415

    chakra.write(str(tmp_path / "t.et"), transformer_step.trace(transformer_step.Model()))
    assert (tmp_path / "t.et").read_bytes() == (ROOT / "examples" / "transformer.et").read_bytes()


def test_the_command_simulates_the_step_that_was_recorded() -> None:
    example = ROOT / "examples" / "torch"
    traces = chakra.read_all(str(example), 2)
    compute_us = [1e6 * sum(node.duration_s for node in trace) for trace in traces]
    reduced = [node.size for node in traces[0] if node.kind == COLLECTIVE]
    times: dict[str, float] = {}
    for machine in ("ethernet_hosts:N=2,G=1", "infiniband_hosts:N=2,G=1"):
        line = f"step {example} -t {machine} --use allreduce=ring_allreduce --json"
        data = json.loads(gc3_sim(line).stdout)
        assert [call["size"] for call in data["calls"]] == reduced
        assert [rank["compute_us"] for rank in data["ranks"]] == pytest.approx(compute_us)
        assert data["untimed_nodes"] == 0
        assert max(compute_us) < data["time_us"] < sum(compute_us)
        assert data["exposed_us"] < sum(rank["communication_us"] for rank in data["ranks"]) / 2
        times[machine] = data["time_us"]
    ethernet, infiniband = times.values()
    assert infiniband < ethernet


def test_the_command_simulates_the_example(tmp_path: Path) -> None:
    example = ROOT / "examples" / "transformer.et"
    text = gc3_sim(f"step {example} -t ndv4").stdout
    assert "# step: " in text
    assert "allreduce, NCCL 2.8.4" in text
    # What these times are worth.
    assert "NCCL 2.8.4, simulated; error 6% at 2672 KiB (in sample), 37% at 25 MiB (in sample)" in text
    use = "--use allreduce=ring_allreduce:channels=4,instances=8"
    data = json.loads(gc3_sim(f"step {example} -t ndv4 {use} -o {tmp_path}/s --json").stdout)
    trace = chakra.read(str(example))
    assert len(data["calls"]) == sum(node.kind == COLLECTIVE for node in trace)
    compute_us = 1e6 * sum(node.duration_s for node in trace)
    assert [rank["compute_us"] for rank in data["ranks"]] == pytest.approx([compute_us] * 8)
    assert data["time_us"] == pytest.approx(compute_us + data["exposed_us"])
    assert data["collectives"][0]["mean_us"] == pytest.approx(data["collectives"][0]["alone_us"])
    written = chakra.read_all(f"{tmp_path}/s", 8)
    ends = [max(node.start_s + node.duration_s for node in trace) for trace in written]
    assert ends == pytest.approx([1e-6 * data["time_us"]] * 8, abs=2 * US)
    again = gc3_sim(f"step {example} -t ndv4 {use} --json").stdout
    assert json.loads(again) == data


def test_collectives_whose_program_is_not_known_are_an_error() -> None:
    example = ROOT / "examples" / "transformer.et"
    result = gc3_sim(f"step {example} -t cpu:R=8", code=1)
    assert "name a program: --use allreduce=PROGRAM, or --table FILE" in result.output
    result = gc3_sim(f"step {example} -t mi300x --use sum=ring_allreduce", code=2)
    assert "'sum=ring_allreduce' is not COLLECTIVE=PROGRAM; collectives are allreduce" in result.output
    assert "GC3-S005" in gc3_sim("step nothing -t ndv4", code=1).output
