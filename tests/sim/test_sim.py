"""The simulator: closed forms, general properties, and refused input."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

import gc3
from gc3 import _core, algorithms, errors, sim, topologies
from gc3.runtime.program import Program
from gc3.sim import presets

pytestmark = pytest.mark.python_only

KIB, MIB = 1 << 10, 1 << 20
US = 1e-6


def program(name: str, *, protocol: str = "Simple", instances: int = 1, **parameters: int) -> Program:
    return gc3.compile(algorithms.load(name), protocol=protocol, instances=instances, **parameters)


def simulation(p: Program, machine: str, preset: str | sim.Parameters | None = None) -> sim.Simulation:
    return sim.Simulation(p, sim.platform(machine, preset))


# --- alphabeta: S alpha + (R/C) L beta, exactly

ALPHA, BANDWIDTH = 700e-9, 25e9  # of the shapes


def cost(p: Program, machine: str, size: int) -> tuple[int, int, int]:
    found = simulation(p, machine).alpha_beta(size)
    expected = found.steps * ALPHA + found.rounds / found.chunks * size / BANDWIDTH
    assert math.isclose(found.time_s(size), expected, rel_tol=1e-12)
    return found.steps, found.rounds, found.chunks


@pytest.mark.parametrize("R", [2, 3, 5, 8])
def test_ring_and_allpairs_in_alphabeta(R: int) -> None:
    assert cost(program("ring_allreduce", R=R), f"ring:R={R}", MIB) == (2 * (R - 1), 2 * (R - 1), R)
    # All pairs over direct links: all shares at once, twice.
    assert cost(program("allpairs_allreduce", R=R), f"fully_connected:R={R}", MIB) == (2, 2, R)
    assert cost(program("ring_allgather", R=R), f"ring:R={R}", MIB) == (R - 1, R - 1, R)


def test_alphabeta_is_of_line_rates_whatever_kernels_and_engines_reach() -> None:
    p = program("ring_allreduce", R=8)
    for machine in ("ring:R=8", "dgx2"):
        line = topologies.load(machine)
        slow = [replace(c, kernel_efficiency=0.5, dma_efficiency=0.25, message_s=1e-3) for c in line.classes]
        costs = [
            sim.Simulation(p, sim.platform(replace(line, classes=tuple(classes)), "ideal")).alpha_beta(MIB)
            for classes in ([replace(c, kernel_efficiency=1.0, message_s=0.0) for c in line.classes], slow)
        ]
        assert costs[0] == costs[1]
        assert costs[0].time_s(MIB) > 0


def test_the_longest_chunk_is_what_is_timed() -> None:
    """Ten elements in eight chunks: two each except for the last ones, which are shorter or empty."""
    ring = simulation(program("ring_allreduce", R=8), "dgx2")
    assert ring.fit(40) == (40, 8)
    assert ring.fit(43) == (40, 8)
    assert ring.fit(64) == (64, 8)
    assert ring.fit(68) == (68, 12)
    assert ring.fit(20, "float16") == (20, 4)
    assert ring.fit(0) == (0, 0)


@pytest.mark.parametrize("messages", [1, 4, 9])
def test_a_chain_of_broadcast_messages_is_a_pipeline(messages: int) -> None:
    """001 section 5.3: (6+m) alpha + (6+m)/m L beta along eight ranks if long; seven steps at once if short."""

    @gc3.algorithm("broadcast", chunks=lambda m: m, ranks=lambda: 8)
    def chain(m: int) -> None:
        """Chunk by chunk along the ranks."""
        for index in range(m):
            c = gc3.chunk(0, "in", index)
            c.copy(0, "out", index)
            for rank in range(1, 8):
                c = c.copy(rank, "out", index)

    p = gc3.compile(chain, m=messages)
    assert cost(p, "line:R=8", 1 << 30) == (6 + messages, 6 + messages, messages)
    if messages > 1:
        assert cost(p, "line:R=8", 8) == (7, 7 * messages, messages)


# 001 tables 3 to 5: chunks C, steps S, rounds R; of table 3's broadcast, m = 1 to 4.
TABLE_3 = [(6, 7, 7), (48, 14, 14), *((6 * m, 6 + m, 6 + m) for m in range(1, 5))]
TABLE_4 = [
    *[(1, 2, 2), (2, 3, 3), (3, 4, 4), (4, 5, 5), (5, 6, 6), (6, 7, 7), (6, 3, 7), (2, 2, 3)],
    *[(8, 4, 4), (16, 6, 6), (24, 8, 8), (32, 10, 10), (40, 12, 12), (48, 14, 14), (48, 6, 14), (16, 4, 6)],
    *[(2, 2, 2), (6, 3, 3), (12, 4, 4), (18, 5, 5), (6, 3, 5)],
    *[(8, 3, 3), (8, 2, 3), (24, 8, 8), (24, 2, 8)],
]
TABLE_5 = [
    *[(1, 4, 4), (2, 7, 7), (2, 4, 7), (8, 8, 8), (16, 14, 14), (16, 8, 14)],
    *[(2, 4, 4), (4, 5, 5), (6, 6, 6), (8, 7, 7), (10, 8, 8), (8, 4, 8)],
]


def to_and_fro(chunks: int, per_step: list[int]) -> Program:
    """A schedule whose steps carry this many chunks each, between two ranks."""
    opcodes = [["send out[0]", "recv -> out[0]"], ["recv -> out[0]", "send out[0]"]]
    text = ['program "exchange" version 1', f"collective allreduce ranks 2 chunks {chunks} in place"]
    text += ["protocol Simple instances 1 slots 2", ""]
    for rank in range(2):
        text += [f"rank {rank}", f"  tb 0 channel 0 send {1 - rank} recv {1 - rank}"]
        text += [f"    {step} {opcodes[rank][step % 2]} x{count}" for step, count in enumerate(per_step)]
        text += [""]
    return Program(_core.Program.from_text("\n".join(text)))


@pytest.mark.parametrize(("C", "S", "R"), sorted({*TABLE_3, *TABLE_4, *TABLE_5}))
def test_every_row_of_sccls_tables_costs_what_sccl_says(C: int, S: int, R: int) -> None:
    """A schedule of S steps and R rounds over C chunks takes S alpha + R/C L beta."""
    p = to_and_fro(max(C, R), [R // S + (step < R % S) for step in range(S)])
    found = simulation(p, "line:R=2").alpha_beta(MIB)
    assert (found.steps, found.rounds) == (S, R)
    size = MIB * max(C, R) // C  # of which C chunks are L = 1 MiB
    assert found.time_s(size) == pytest.approx(S * ALPHA + R / C * MIB / BANDWIDTH, rel=1e-6)


@pytest.mark.parametrize("N", [2, 3, 4])
def test_alltoall_is_bound_by_the_network(N: int) -> None:
    """000 section 6.1: at most the network's bandwidth times N / (N - 1)."""
    p = program("two_step_alltoall", N=N, G=4)
    found = simulation(p, f"hierarchical:N={N},G=4,nics=4,GBps=1000000,latency_ns=0,nic_latency_ns=0").alpha_beta(
        1 << 30, 25e9
    )
    network_rounds = 4 * (N - 1)
    assert found.chunks / network_rounds == N / (N - 1)
    busy = simulation(p, f"hierarchical:N={N},G=4,nics=4").run(1 << 26)
    assert busy.bound_s == pytest.approx((1 << 26) / (25e9 * N / (N - 1)), rel=1e-6)


def test_relation_of_rates_decides_how_much_a_round_carries() -> None:
    found = simulation(program("direct_allgather", R=8), "ndv4").alpha_beta(MIB)
    assert (found.steps, found.rounds) == (1, 1)  # twelve lanes carry twelve chunks, and seven are sent
    with pytest.raises(gc3.UserError, match="GC3-S001"):
        simulation(program("ring_allreduce", R=8), "ring:R=8").alpha_beta(MIB, 1e12)


# --- slot: exact where it can be computed by hand


def parameters(*, rate: float = 5e9, op_s: float = 1e-6, hop_s: float = 2e-6, slots: int = 8) -> sim.Parameters:
    factors = sim.opcode_factors(1, 1, 1, 1)
    timing = sim.ProtocolParameters(rate, 1.0, 1.0, op_s, hop_s, hop_s, slot_bytes=MIB, slots=slots, factors=factors)
    protocols = {name: timing for name in ("Simple", "LL", "LL128")}
    return sim.Parameters("test", protocols, 10e-6, sim.Evidence("made up"), staged_network=False)


@pytest.mark.parametrize("R", [2, 4, 8])
def test_a_ring_of_one_slice_is_exact(R: int) -> None:
    """Each chunk on its own threadblocks: 2R - 1 operations and 2R - 2 hops, one after the other."""
    size = 64 * KIB
    p = simulation(program("ring_allreduce", R=R, channels=R), f"ring:R={R},GBps=1000,latency_ns=0", parameters())
    operation = 1e-6 + size / R / 5e9
    found = p.run(size)
    assert found.time_s == pytest.approx(10e-6 + (2 * R - 1) * operation + (2 * R - 2) * 2e-6, abs=1e-11)


def test_links_are_shared_in_turn() -> None:
    """All pairs into one port: the port's bandwidth is the bound, and nearly the time."""
    p = program("direct_allgather", R=8)
    found = simulation(p, "hierarchical:N=1,G=8,GBps=1,latency_ns=0", parameters(rate=1e12, op_s=0, hop_s=0)).run(
        8 * MIB
    )
    assert found.bound_s == pytest.approx(7 * MIB / 1e9)
    assert found.bound_s < found.time_s - 10e-6 < 1.01 * found.bound_s


def test_a_gpu_sends_less_than_its_links_carry_together() -> None:
    """Published for MI300X: 47 to 48 GB/s to one peer, about 250 GB/s to all seven."""
    gather = simulation(program("direct_allgather", R=8, instances=8), "mi300x").run(1 << 30)
    assert 0.95 * 251 < gather.busbw < 251
    assert gather.bound_by == "rank 0 egress"
    one = simulation(program("alltonext", N=2, G=4), "mi300x").run(1 << 28)
    assert "egress" not in one.bound_by


PROGRAMS = [
    ("ring_allreduce", {"R": 8}, "ndv4"),
    ("allpairs_allreduce", {"R": 8}, "dgx_h100"),
    ("direct_alltoall", {"R": 16}, "ndv4:N=2"),
    ("hierarchical_allreduce", {"N": 2, "G": 8}, "ndv4:N=2"),
    ("binomial_broadcast", {"R": 8}, "mi300x"),
]


@pytest.mark.parametrize(("name", "given", "machine"), PROGRAMS)
@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
def test_what_every_prediction_obeys(name: str, given: dict[str, int], machine: str, protocol: str) -> None:
    p = program(name, protocol=protocol, **given)
    s = simulation(p, machine)
    times = [s.run(size, explain=True) for size in (0, 64, 4 * KIB, 256 * KIB, 4 * MIB)]
    assert times[0].time_s == pytest.approx(s.platform.parameters.launch_s)
    for before, after in itertools.pairwise(times):
        assert after.time_s > before.time_s
    for t in times:
        assert t.time_s >= t.bound_s
        assert t.explanation is not None
        assert sum(t.explanation.causes.values()) == pytest.approx(t.time_s, rel=1e-9)
        path = t.explanation.path
        assert path[0].from_s == 0
        assert path[-1].to_s == pytest.approx(t.time_s)
        assert all(a.to_s == b.from_s for a, b in itertools.pairwise(path))
        assert s.run(t.size).time_s == t.time_s  # the same in every run, recorded or not


@pytest.mark.parametrize(("name", "given", "machine"), PROGRAMS)
def test_scaling_all_times_scales_the_result(name: str, given: dict[str, int], machine: str) -> None:
    p = program(name, **given)
    topology = topologies.load(machine)
    base = presets.for_topology(topology)
    slower = replace(
        base,
        launch_s=3 * base.launch_s,
        connection_rate=base.connection_rate / 3,
        protocols={
            key: replace(
                t,
                rate=t.rate / 3,
                egress_rate=t.egress_rate / 3,
                op_s=3 * t.op_s,
                hop_s=3 * t.hop_s,
                network_hop_s=3 * t.network_hop_s,
            )
            for key, t in base.protocols.items()
        },
    )
    slow_wires = replace(
        topology,
        classes=tuple(
            replace(
                c,
                bandwidth_bytes_per_s=(c.bandwidth_bytes_per_s or 0) / 3,
                latency_s=3 * (c.latency_s or 0),
                message_s=3 * c.message_s,
            )
            for c in topology.classes
        ),
    )
    fast = sim.Simulation(p, sim.Platform(topology, base)).run(MIB).time_s
    slow = sim.Simulation(p, sim.Platform(slow_wires, slower)).run(MIB).time_s
    assert slow == pytest.approx(3 * fast, rel=1e-6)


@pytest.mark.parametrize("protocol", ["Simple", "LL128"])
@pytest.mark.parametrize(
    ("name", "given", "machine"),
    [
        ("ring_allreduce", {"R": 8, "channels": 8}, "ndv4"),
        ("direct_allgather", {"R": 8}, "ndv4"),
        ("direct_alltoall", {"R": 6}, "summit"),
    ],
)
def test_serial_and_max_min_agree_on_symmetric_programs(
    name: str, given: dict[str, int], machine: str, protocol: str
) -> None:
    s = simulation(program(name, protocol=protocol, **given), machine)
    serial, fair = (s.run(16 * MIB, sharing=how).time_s for how in sim.predict.SHARING)
    assert fair == pytest.approx(serial, rel=0.02)


# --- what is refused


def test_a_program_that_does_not_fit_the_machine() -> None:
    with pytest.raises(gc3.UserError, match="GC3-M008"):
        simulation(program("ring_allreduce", R=9), "ndv4")
    with pytest.raises(gc3.UserError, match="GC3-M007"):
        simulation(program("allpairs_allreduce", R=8), "dgx1")


def test_names_and_numbers_that_do_not_exist() -> None:
    p = program("ring_allreduce", R=8)
    only_simple = replace(parameters(), protocols={"Simple": parameters().protocols["Simple"]})
    for wrong in (
        lambda: sim.platform("ndv4", "abacus"),
        lambda: simulation(program("ring_allreduce", R=8, protocol="LL"), "ndv4", only_simple),
        lambda: simulation(p, "ndv4").run(KIB, sharing="none"),
        lambda: simulation(p, "ndv4").run(KIB, disturbance=sim.Disturbance({8: 1.0})),
        lambda: simulation(p, "ndv4", replace(parameters(), launch_s=-1.0)).run(KIB),
    ):
        with pytest.raises(errors.UserError, match="GC3-S001"):
            wrong()


BURST = """program "burst" version 1
collective allreduce ranks 2 chunks 2 in place
protocol Simple instances 1 slots 2

rank 0
  tb 0 channel 0 send 1 recv 1
    0 send out[0]
    1 send out[1]
    2 recv -> out[0]
    3 recv -> out[1]

rank 1
  tb 0 channel 0 send 0 recv 0
    0 send out[0]
    1 send out[1]
    2 recv -> out[0]
    3 recv -> out[1]
"""


def test_too_few_slots_show_the_cycle() -> None:
    p = Program(_core.Program.from_text(BURST))
    assert simulation(p, "line:R=2", parameters(slots=2)).run(KIB).time_s > 0
    with pytest.raises(gc3.UserError, match="GC3-S002") as caught:
        simulation(p, "line:R=2", parameters(slots=1)).run(KIB)
    assert "rank 0 threadblock 0 step 1 (s) in tile 0 waits for a free slot of rank 1" in str(caught.value)


def test_stragglers() -> None:
    s = simulation(program("ring_allreduce", R=8), "ndv4")
    alone = s.run(MIB).time_s
    late = s.run(MIB, disturbance=sim.Disturbance(delay_s={3: 50 * US})).time_s
    slow = s.run(MIB, disturbance=sim.Disturbance(slowdown={3: 2.0})).time_s
    assert alone < late < alone + 51 * US
    assert slow > alone


def test_instructions_of_several_chunks_send_messages_of_one_slot_as_msccl_does() -> None:
    """A tile of a chunk fills a slot; with GC3's own tiles, one of eight chunks does."""
    on = sim.platform("ndv4:N=3")
    program = gc3.compile(algorithms.load("alltonext"), N=3, G=8, protocol="LL")
    slot = on.parameters.protocols["LL"].slot_bytes
    protocols = {name: replace(timing, split=False) for name, timing in on.parameters.protocols.items()}
    short = replace(on, parameters=replace(on.parameters, protocols=protocols))
    msccl, gc3_own = (sim.Simulation(program, machine) for machine in (on, short))
    assert msccl.core.most_chunks == 8
    assert msccl.run(8 * slot).slice_ops == sum(
        step["count"] if step["opcode"] not in ("copy", "reduce", "nop") else 1
        for rank in program.core.as_dict()["ranks"]
        for tb in rank["threadblocks"]
        for step in tb["steps"]
    )
    assert gc3_own.run(8 * slot).slice_ops == 8 * sum(
        len(tb["steps"]) for rank in program.core.as_dict()["ranks"] for tb in rank["threadblocks"]
    )
    for size in (KIB, slot // 8 * 8):  # eight chunks fit a slot together
        assert msccl.run(size).time_s == gc3_own.run(size).time_s


def test_a_program_that_needs_more_slots_for_single_chunks_keeps_short_tiles() -> None:
    """Fused steps of two chunks around a ring need a third slot: MSCCL's kernels would hang."""
    on = sim.platform("ndv4:N=2")
    program = gc3.compile(algorithms.load("hierarchical_allreduce"), N=2, G=8)
    protocols = {name: replace(timing, split=False) for name, timing in on.parameters.protocols.items()}
    short = replace(on, parameters=replace(on.parameters, protocols=protocols))
    assert sim.Simulation(program, on).run(64 * MIB) == sim.Simulation(program, short).run(64 * MIB)
    slots = {name: replace(timing, slots=3) for name, timing in on.parameters.protocols.items()}
    more = replace(on, parameters=replace(on.parameters, protocols=slots))
    own = replace(
        more, parameters=replace(more.parameters, protocols={n: replace(t, split=False) for n, t in slots.items()})
    )
    assert sim.Simulation(program, more).run(64 * MIB).time_s != sim.Simulation(program, own).run(64 * MIB).time_s
