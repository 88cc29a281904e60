"""Programs that compute on machines: costs of operations, overlap, lanes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import computing_programs
import gc3
from computing_programs import Case, expert
from gc3 import _core, chunk, collectives, sim
from gc3.cli.main import main
from gc3.sim import run_timeline, settings
from gc3.sim.predict import Prediction, Simulation, platform, simulate

SHAPES = {"x": (64, 256), "w": (256, 128), "y": (64, 128)}
PROGRAM = '''
import gc3
from gc3 import chunk, collectives

matmul = gc3.op("matmul"{cost})


def products(R):
    return collectives.custom("products", ranks=R, inputs={{"x": 2}}, outputs={{"y": 2}},
        expect=lambda v, rank, output, i: matmul(v((rank - 1) % R, "x", i)))


@gc3.algorithm(products, scratch=["part"])
def shift(R):
    """Each product is on its way while the next is computed."""
    for i in range(2):
        for rank in range(R):
            matmul(chunk(rank, "x", i), out=(rank, "part", i)).copy((rank + 1) % R, "y", i)
'''


def predicted(cost: float) -> Prediction:
    program = gc3.compile(computing_programs.gemm_ring, R=4)
    return simulate(program, "ndv4", SHAPES, costs={"matmul": cost}, explain=True)


def test_compute_hides_messages_and_is_a_cause_of_its_own() -> None:
    free, short, long_ = (predicted(cost) for cost in (0.0, 1e-6, 1e-3))
    assert free.time_s < short.time_s < free.time_s + 4.1e-6, "a rank has 4 products, and some hide behind messages"
    assert long_.explanation is not None
    assert 4e-3 < long_.time_s < 4e-3 + free.time_s, "messages hide behind products, but for the last"
    assert next(iter(long_.explanation.causes)) == "compute"
    assert long_.explanation.causes["compute"] == pytest.approx(4e-3, rel=1e-2)
    assert any("(apply matmul, computing_programs.py:" in part.where for part in long_.explanation.path)


def test_max_min_sharing_counts_the_same() -> None:
    program = gc3.compile(computing_programs.gemm_ring, R=4)
    made = Simulation(program, platform("ndv4"), costs={"matmul": 1e-3}).run(1 << 16, sharing="max-min", explain=True)
    assert made.explanation is not None
    assert made.explanation.causes["compute"] == pytest.approx(4e-3, rel=1e-2)


def test_a_slow_rank_computes_slowly() -> None:
    simulation = Simulation(gc3.compile(computing_programs.experts, R=2), platform("ndv4"), costs={"expert": 1e-3})
    plain = simulation.run(1 << 16).time_s
    slow = simulation.run(1 << 16, disturbance=sim.predict.Disturbance(slowdown={1: 2.0})).time_s
    assert slow == pytest.approx(plain + 2e-3, rel=0.02)


def both(R: int) -> collectives.Collective:
    """Two operations of each rank that need nothing of each other."""
    return collectives.custom(
        "both", ranks=R, inputs={"x": 2}, outputs={"y": 2}, expect=lambda v, rank, _, i: expert(v(rank, "x", i))
    )


@gc3.algorithm(both)
def one_block(R: int) -> None:
    """As the compiler places them."""
    for rank in range(R):
        for i in range(2):
            expert(chunk(rank, "x", i), out=(rank, "y", i))


@pytest.mark.parametrize("sharing", sim.predict.SHARING)
def test_a_rank_computes_one_operation_at_a_time(sharing: str) -> None:
    """Also where a file has them in two threadblocks."""
    text = gc3.compile(one_block, R=2).core.to_text()
    apart = text.replace("  tb 1 channel 0\n    0 apply", "    0 apply").replace(
        "    1 apply", "  tb 1 channel 0\n    0 apply"
    )
    program = gc3.Program(_core.Program.from_text(apart))
    assert [len(block.steps) for block in program.threadblocks(0)] == [1, 1]
    for machine in ("ndv4", "cpu:R=2"):
        made = Simulation(program, platform(machine), costs={"expert": 1e-3}).run(
            1 << 10, sharing=sharing, explain=True
        )
        assert made.time_s == pytest.approx(2e-3, rel=0.05)
        assert made.explanation is not None
        assert made.explanation.causes["compute"] == pytest.approx(2e-3, rel=0.01), "also of the one that waits"


def test_what_processes_send_is_lent() -> None:
    """As the engine does, from 32 KiB on; operations take no time here."""
    program = gc3.compile(computing_programs.experts, R=2)

    def time_s(lend: str, size: int) -> float:
        on = settings.apply(platform("cpu:R=2", "cpu-processes"), [settings.parse(f"Simple.lend_bytes={lend}")])
        return Simulation(program, on, costs={"expert": 0.0}).run(size).time_s

    assert time_s("32KiB", 1 << 20) < 0.95 * time_s("1024MiB", 1 << 20)
    assert time_s("32KiB", 1 << 12) == time_s("1024MiB", 1 << 12)


def test_costs_of_all_forms() -> None:
    on = settings.apply(platform("ndv4"), [settings.parse(text) for text in ("flop.rate=1e12", "memory.rate=1GB/s")])
    times: list[float] = []
    for cost in (
        1e-3,
        lambda a, b, out: 1e-3 if (a, b, out) == (64 * 256, 256 * 128, 64 * 128) else 9.0,
        (1e9, 0),
        (0, 1e6),
        (1e9, 1e6),
    ):
        op = gc3.op("matmul", cost=cost)  # pyright: ignore[reportUnknownArgumentType]
        computing = gc3.Program(gc3.compile(computing_programs.gemm_ring, R=2).core, declared={"matmul": op})
        counts = [64 * 256, 256 * 128, 64 * 128]
        size = sim.v_counts.size_of(computing.collective, counts, 4)
        times.append(Simulation(computing, on, counts).run(size).time_s)
    assert times == [times[0]] * 5


def test_costs_measured_by_runs() -> None:
    case = Case(computing_programs.gemm_ring, 2, rows=64)
    bound = case.program.bind(case.functions)
    assert bound.costs == {}
    assert bound.shapes == {}
    bound.run(case.inputs, shapes=case.shapes)
    cost = bound.costs["matmul"]
    assert callable(cost)
    sizes = (64 * 4, 4 * 6, 64 * 6)
    assert cost(*(2 * size for size in sizes)) == pytest.approx(2 * cost(*sizes)), "in proportion to the elements"
    given = {"x": (64, 4), "w": (4, 6), "y": (64, 6)}
    assert bound.shapes == given
    assert simulate(case.program, "ndv4", bound.shapes, costs=bound.costs).time_s > 2 * cost(*sizes)


@pytest.mark.parametrize(
    ("cost", "why"),
    [
        (-1.0, "the cost of 'f' is -1.0; expected seconds"),
        ((1.0, 2.0, 3.0), "expected seconds, or (FLOP, bytes)"),
        ("fast", "the cost of 'f' is 'fast'"),
        (float("nan"), "is nan"),
    ],
)
def test_costs_that_are_none(cost: object, why: str) -> None:
    with pytest.raises(gc3.UserError) as caught:
        gc3.op("f", cost=cost)  # pyright: ignore[reportArgumentType]
    assert why in str(caught.value)


def test_what_is_missing_is_said() -> None:
    program = gc3.compile(computing_programs.gemm_ring, R=2)
    flop = {"matmul": (1e9, 0.0)}
    for attempt, why in (
        (lambda: simulate(program, "ndv4", SHAPES), "the operation 'matmul' has no cost"),
        (lambda: simulate(program, "ndv4", SHAPES, costs=flop), "needs flop.rate, which preset 'a100' has not"),
        (lambda: simulate(program, "ndv4", {**SHAPES, "z": (1,)}, costs=flop), "there is no 'z', but"),
        (lambda: simulate(program, "ndv4", {"x": (1,)}, costs=flop), "the shape of a chunk of 'w' is missing"),
        (lambda: Simulation(program, platform("ndv4"), [1, 2]), "2 counts; gemm_ring (x, w, y) has 3"),
        (lambda: simulate(program, "ndv4", {**SHAPES, "x": (1 << 31,)}, costs={"matmul": 0.0}), "less than 4 GiB"),
        (lambda: Simulation(program, platform("ndv4")).alpha_beta(), "GC3-C004"),
    ):
        with pytest.raises(gc3.UserError) as caught:
            attempt()
        assert why in str(caught.value)


def test_only_scratch_has_elements() -> None:
    f = gc3.op("f", cost=1e-6)

    def twice(R: int) -> collectives.Collective:
        return collectives.custom(
            "twice", ranks=R, inputs={"x": 1}, outputs={"y": 1}, expect=lambda v, r, *_: f.term(f.term(v(r, "x", 0)))
        )

    @gc3.algorithm(twice, scratch=["s"])
    def staged(R: int) -> None:
        for rank in range(R):
            f(f(chunk(rank, "x", 0), out=(rank, "s", 0)), out=(rank, "y", 0))

    program = gc3.compile(staged, R=2)
    with pytest.raises(gc3.UserError, match="all inputs and outputs have 0 elements"):
        simulate(program, "ndv4", {"x": (0,), "y": (0,), "s": (5,)})
    assert simulate(program, "ndv4", {"x": (0,), "y": (1,), "s": (5,)}).time_s > 2e-6


def test_lanes_of_operations() -> None:
    simulation = Simulation(gc3.compile(computing_programs.gemm_ring, R=2), platform("ndv4"), costs={"matmul": 1e-3})
    made = run_timeline.timeline(run_timeline.simulated(simulation, simulation.run(1 << 16, explain=True)))
    lane = next(tb for tb, name in made.tb_names.items() if name.endswith(" computes"))
    spans = [span for span in made.spans if (span.rank, span.tb) == lane]
    assert next(span.name for span in spans) == "matmul input[1] input[2] -> scratch[1]"
    assert all(span.end_s - span.start_s == pytest.approx(1e-3, rel=0.01) for span in spans)
    block = next(b for b in gc3.compile(computing_programs.gemm_ring, R=2).threadblocks(0) if b.computes)
    assert repr(block) == f"<Threadblock {block.index} of rank 0: computes, 2 steps>"
    assert block.steps[0].writes == (("scratch", 1),)


def test_commands_show_compute(tmp_path: Path) -> None:
    """gc3 sim, trace, report and show of a program whose operation has a cost, and of one whose has none."""
    given, none = tmp_path / "given.py", tmp_path / "none.py"
    given.write_text(PROGRAM.format(cost=", cost=lambda x, out: 1e-8 * x"))
    none.write_text(PROGRAM.format(cost=""))
    counts = tmp_path / "counts.json"
    counts.write_text("[65536, 65536]")

    def said(*arguments: str, rc: int = 0) -> str:
        found = CliRunner().invoke(main, list(arguments))
        assert found.exit_code == rc, found.output
        return found.output

    program = f"{given}:shift:R=4"
    data = json.loads(said("sim", program, "-t", "ndv4", "--counts", str(counts), "--json"))
    (row,) = data["rows"]
    assert row["size"] == 2 * 65536 * 4
    assert " 1350." in said("sim", program, "-t", "ndv4", "-b", "512KiB", "-e", "512KiB"), "ms: two products of 0.66 ms"
    explained = said("sim", program, "-t", "ndv4", "-b", "512KiB", "-e", "512KiB", "--mode", "explain")
    assert "compute" in explained
    assert "apply matmul" in explained
    files = ("-o", f"{tmp_path}/t.json", "--picture", f"{tmp_path}/t.svg")
    said("trace", program, "-t", "ndv4", "--size", "512KiB", *files)
    text = (tmp_path / "t.json").read_text()
    assert "computes" in text
    assert "matmul input[0] -> scratch[0]" in text
    assert "computes" in (tmp_path / "t.svg").read_text()
    said("report", program, "-t", "ndv4", "-o", f"{tmp_path}/r.html")
    assert "compute" in (tmp_path / "r.html").read_text()
    said("show", f"{none}:shift:R=4", "--picture", f"{tmp_path}/p.svg")
    assert "the operation 'matmul' has no cost" in said("sim", f"{none}:shift:R=4", "-t", "ndv4", rc=1)


def test_programs_of_tensors_without_operations() -> None:
    shift = collectives.custom(
        "shift", ranks=2, inputs={"x": 1}, outputs={"y": 1}, expect=lambda v, rank, _, __: v(1 - rank, "x", 0)
    )

    @gc3.algorithm(shift)
    def swap() -> None:
        for rank in range(2):
            chunk(rank, "x", 0).copy(1 - rank, "y", 0)

    program = gc3.compile(swap)
    assert simulate(program, "ndv4", {"x": (1 << 20,)}).size == 4 << 20
    with pytest.raises(gc3.UserError, match="a chunk of 'y' has 3 elements, and one of 'x' 2"):
        simulate(program, "ndv4", {"x": (2,), "y": (3,)})
