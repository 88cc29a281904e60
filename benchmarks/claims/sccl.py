"""What 001 (SCCL) claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TypeAlias

from claims import claim, synthesized
from claims.bench import GIB, KIB, MIB, Bench, doubling
from claims.claim import Claim, Outcome
from gc3 import _core, algorithms, lang
from gc3.lang import Algorithm, algorithm, chunk
from gc3.report.style import short_size
from gc3.runtime.program import Program
from gc3.sim import AlphaBeta, Simulation
from gc3.sim.nccl import programs, rates
from gc3.sim.nccl.graphs import graph, orders
from gc3.sim.nccl.tuning import Choice
from gc3.sim.platform import Platform
from gc3.topologies import load

_R = 8
# Chunks C, steps S, rounds R of tables 3, 4 and 5; of the pipelined broadcast of table 3, m = 1 to 4.
_TABLE_3 = ((6, 7, 7), (48, 14, 14), *((6 * m, 6 + m, 6 + m) for m in range(1, 5)))
_TABLE_4 = (
    *((1, 2, 2), (2, 3, 3), (3, 4, 4), (4, 5, 5), (5, 6, 6), (6, 7, 7), (6, 3, 7), (2, 2, 3)),
    *((8, 4, 4), (16, 6, 6), (24, 8, 8), (32, 10, 10), (40, 12, 12), (48, 14, 14), (48, 6, 14), (16, 4, 6)),
    *((2, 2, 2), (6, 3, 3), (12, 4, 4), (18, 5, 5), (6, 3, 5)),
    *((8, 3, 3), (8, 2, 3), (24, 8, 8), (24, 2, 8)),
)
_TABLE_5 = (
    *((1, 4, 4), (2, 7, 7), (2, 4, 7), (8, 8, 8), (16, 14, 14), (16, 8, 14)),
    *((2, 4, 4), (4, 5, 5), (6, 6, 6), (8, 7, 7), (10, 8, 8), (8, 4, 8)),
)
_ALPHA, _LANE = 700e-9, 25e9  # of the shape `line`
_SMALL = doubling(KIB, 64 * KIB)
_LARGE = (64 * MIB, 256 * MIB)
Lowered: TypeAlias = "Callable[[int], float]"  # seconds by the bytes of a rank's input


# --- alpha-beta costs


def _structure(chunks: int, steps: int, rounds: int) -> Program:
    """A schedule of this many steps between two ranks, back and forth, that carry the rounds between them."""
    opcodes = (("send out[0]", "recv -> out[0]"), ("recv -> out[0]", "send out[0]"))
    places = max(chunks, rounds)
    text = ['program "structure" version 1', f"collective allreduce ranks 2 chunks {places} in place"]
    text += ["protocol Simple instances 1 slots 2", ""]
    for rank in range(2):
        text += [f"rank {rank}", f"  tb 0 channel 0 send {1 - rank} recv {1 - rank}"]
        per_step = (rounds // steps + (step < rounds % steps) for step in range(steps))
        text += [f"    {step} {opcodes[rank][step % 2]} x{count}" for step, count in enumerate(per_step)]
        text += [""]
    return Program(_core.Program.from_text("\n".join(text)))


def _rows(bench: Bench) -> Outcome:
    """T = S alpha + R/C L beta of every row, from a program of that structure."""
    rows = sorted({*_TABLE_3, *_TABLE_4, *_TABLE_5})
    on = bench.platform("line:R=2")
    right = 0
    for chunks, steps, rounds in rows:
        cost = Simulation(_structure(chunks, steps, rounds), on).alpha_beta(MIB)
        size = MIB * max(chunks, rounds) // chunks  # of which `chunks` chunks are L = 1 MiB
        expected = steps * _ALPHA + rounds / chunks * MIB / _LANE
        right += math.isclose(cost.time_s(size), expected, rel_tol=1e-6)
    return Outcome(f"{len(rows)} rows", f"{right} rows", right == len(rows), "of tables 3, 4 and 5, each once")


def _nccl_allgather(bench: Bench) -> Outcome:
    topology = load("dgx1")
    program = programs.program(topology, graph(topology), "allgather", Choice("ring", "Simple", 6, 0.0))
    cost = Simulation(program, bench.platform("dgx1")).alpha_beta(GIB, _LANE)
    of_input = cost.rounds / (cost.chunks // _R)
    same = cost.steps == 7 and math.isclose(of_input, 7 / 6)  # noqa: PLR2004  the paper's numbers
    return Outcome("7 alpha + 7/6 L beta", f"{cost.steps} alpha + {of_input:.4f} L beta", same, "six rings on a DGX-1")


def _two_step_allgather(bench: Bench) -> Outcome:
    """A schedule of two steps on the links of a DGX-1 exists, and costs 2 alpha + 2 L beta."""
    program = lang.compile(_allgather())
    cost = Simulation(program, bench.platform("dgx1")).alpha_beta(GIB, _LANE)
    same = (cost.steps, cost.rounds, cost.chunks // _R) == (2, 2, 1)
    return Outcome("(C,S,R) = (1,2,2)", f"({cost.chunks // _R},{cost.steps},{cost.rounds})", same, "DGX-1")


def _synthesized_costs(_: Bench) -> Outcome:
    """The formulas of section 2 from the steps and rounds of table 4."""
    size, alpha, lane = 1 << 20, 1e-6, _LANE
    expected = {(6, 3, 7): 3 * alpha + 7 / 6 * size / lane, (2, 2, 3): 2 * alpha + 3 / 2 * size / lane}
    worst = max(abs(AlphaBeta(s, r, c, s * alpha, lane).time_s(size) / expected[c, s, r] - 1) for c, s, r in expected)
    return Outcome("3 alpha + 7/6 L beta, 2 alpha + 3/2 L beta", f"the same within {worst:.0e}", worst < 1e-12)  # noqa: PLR2004


def _broadcast(bench: Bench) -> Outcome:
    """Six pipelines over the rings of a DGX-1."""
    found: list[str] = []
    same = True
    for m in (1, 2, 4, 8):
        program = lang.compile(_pipelines(m))
        cost = Simulation(program, bench.platform("dgx1")).alpha_beta(GIB, _LANE)
        found.append(f"m={m}: {cost.steps} alpha + {cost.rounds}/{cost.chunks} L beta")
        same &= (cost.steps, cost.rounds, cost.chunks) == (6 + m, 6 + m, 6 * m)
    return Outcome("(6+m) alpha + (6+m)/(6m) L beta", "; ".join(found), same)


def _pipelines(m: int) -> Algorithm:
    """As many as m chunks one after the other along each of the six rings, from GPU 0."""
    topology = load("dgx1")
    rings = orders(found := graph(topology), found.ring, 6)

    @algorithm("broadcast", chunks=lambda: 6 * m, ranks=lambda: _R)
    def pipelined_broadcast() -> None:
        """Chunks follow one another."""
        for part in range(m):
            for k, ring in enumerate(rings):
                index, first = part * 6 + k, ring.index(0)
                c = chunk(0, "in", index)
                c.copy(0, "out", index)
                for r in range(1, _R):
                    c = c.copy(ring[(first + r) % _R], "out", index, ch=k)

    return pipelined_broadcast


# --- measured on a DGX-1


@cache
def _links() -> dict[tuple[int, int], int]:
    return {(link.src, link.dst): link.lanes for link in load("dgx1").links}


@cache
def _relays(receiver: int) -> dict[int, int]:
    """The neighbour that sends a GPU without a link to an owner its chunk in the second step: one chunk per lane."""
    lanes = _links()
    near = [g for g in range(_R) if (g, receiver) in lanes]
    far = [g for g in range(_R) if g != receiver and g not in near]
    for chosen in product(near, repeat=len(far)):
        linked = all((owner, via) in lanes for owner, via in zip(far, chosen, strict=True))
        if linked and all(chosen.count(via) <= lanes[via, receiver] for via in near):
            return dict(zip(far, chosen, strict=True))
    raise AssertionError("a DGX-1 has such relays")


def _two_steps() -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """The sends of an AllGather, as (owner of the chunk, from, to): to neighbours, then from them to the others."""
    near = [(owner, owner, r) for owner in range(_R) for r in range(_R) if (owner, r) in _links()]
    far = [(owner, via, r) for r in range(_R) for owner, via in _relays(r).items()]
    return near, far


def _allgather() -> Algorithm:
    """(C,S,R) = (1,2,2): to the neighbours, and from them on."""
    near, far = _two_steps()

    @algorithm("allgather", ranks=lambda: _R, in_place=True)
    def dgx1_allgather() -> None:
        """Every GPU sends its chunk to its neighbours, and each of them to one that is no neighbour."""
        for owner, src, dst in (*near, *far):
            chunk(src, "out", owner).copy(dst, "out", owner)

    return dgx1_allgather


def _allreduce() -> Algorithm:
    """(C,S,R) = (8,4,4): the AllGather backwards, adding, and then forwards."""
    near, far = _two_steps()

    @algorithm("allreduce", chunks=lambda: _R, ranks=lambda: _R, in_place=True)
    def dgx1_allreduce() -> None:
        """Chunk i is summed at GPU i over its neighbours, and given out the same way."""
        for owner, src, dst in (*far, *near):
            chunk(src, "in", owner).reduce(chunk(dst, "in", owner))
        for owner, src, dst in (*near, *far):
            chunk(src, "in", owner).copy(dst, "in", owner)

    return dgx1_allreduce


def _alltoall() -> Algorithm:
    """Two steps: blocks for GPUs without a link go through a neighbour of both."""
    lanes = _links()

    @algorithm("alltoall", ranks=lambda: _R)
    def dgx1_alltoall() -> None:
        """Straight to neighbours, and in two steps to others."""
        for src in range(_R):
            for dst in range(_R):
                c = chunk(src, "in", dst)
                if src != dst and (src, dst) not in lanes:
                    via = _relays(dst)[src]
                    c = c.copy(via, "sc", src * _R + dst)
                c.copy(dst, "out", src)

    return dgx1_alltoall


def _simple_nccl(bench: Bench, collective: str, size: int) -> float:
    """NCCL's rings with Simple, and as many channels as are best: the paper searched too."""
    on = bench.platform("dgx1")
    found = graph(on.topology)
    times: list[float] = []
    for channels in (1, 2, 3, 6, 12):
        program = programs.program(on.topology, found, collective, Choice("ring", "Simple", channels, 0.0))
        machine = Platform(on.topology, rates.parameters(on, rates.of(found), channels))
        times.append(Simulation(program, machine).run(size).time_s)
    return min(times)


def _over_nccl(
    bench: Bench,
    expected: float,
    source: Algorithm,
    sizes: Sequence[int] = _SMALL,
    most: int = 4,
    detail: str = "at {}",
) -> Outcome:
    on = bench.platform("dgx1")
    collective = source.collective_name
    ours = [Simulation(lang.compile(source, instances=i), on) for i in (1, 2, 4) if i <= most]
    scale = _R if collective == "allgather" else 1  # the paper counts the input of an AllGather

    def theirs(size: int) -> float:
        """Of an AllToAll sends and receives; between GPUs without an NVLink over PCIe and the CPUs."""
        if collective == "alltoall":
            return bench.nccl_time("dgx1:pcie=1", collective, size)
        return _simple_nccl(bench, collective, size)

    ratios = {s: theirs(s * scale) / min(o.run(s * scale).time_s for o in ours) for s in sizes}
    return claim.greatest(expected, ratios, detail)


def _lowered(bench: Bench, protocol: str) -> Lowered:
    """(6,7,7) in one kernel that pushes or pulls, with the best number of instances; or by copy engines.

    The paper searched for the best kernel, too.
    """
    result = synthesized.found("dgx1", ("allgather", 6, 7, 7))
    ways = ((0, 1),) if protocol == "Copy" else ((0, 1), (0, 2), (2, 4))  # lanes and instances
    programs = [replace(result, lanes=lanes).program(protocol=protocol, instances=n) for lanes, n in ways]
    simulations = [Simulation(program, bench.platform("dgx1")) for program in programs]
    return lambda size: min(s.run(size * _R).time_s for s in simulations)  # the paper counts the input


def _allgather_large(bench: Bench) -> Outcome:
    size = _LARGE[-1]
    theirs = _lowered(bench, "Copy")(size)
    return claim.speedup(
        1.14, _simple_nccl(bench, "allgather", size * _R) / theirs, f"(6,7,7) by copies, {short_size(size)}"
    )


def _lowerings(bench: Bench) -> Outcome:
    """Figure 4: of the two versions of (6,7,7), the kernel is faster at first, and copies are in the end."""
    sizes = doubling(KIB, 256 * MIB)
    kernel, copies = (list(map(_lowered(bench, protocol), sizes)) for protocol in ("Simple", "Copy"))
    ahead = [c < k for k, c in zip(kernel, copies, strict=True)]
    at = ahead.index(True) if any(ahead) else len(sizes)
    once = ahead == [i >= at for i in range(len(sizes))] and 0 < at < len(sizes)
    small, large = copies[0] / kernel[0], kernel[-1] / copies[-1]
    same = once and min(small, large) > claim.FASTER
    where = f"copies ahead from {short_size(sizes[at])} on" if once else "not one crossing"
    return Outcome(
        "kernel faster at small sizes, copies at large",
        f"{small:.2f}x at {short_size(sizes[0])}, {large:.2f}x at {short_size(sizes[-1])}",
        same,
        where,
    )


def _push(bench: Bench) -> Outcome:
    """Two GPUs send each other as much."""
    source, size = algorithms.load("direct_alltoall"), _LARGE[-1]
    push, pull = (
        Simulation(lang.compile(source, protocol=protocol, instances=8, R=2), bench.platform("dgx1")).run(size).time_s
        for protocol in ("Simple", "Pull")
    )
    return claim.speedup(1.1, pull / push, f"two GPUs exchange {short_size(size)}")


def _allreduce_large(bench: Bench) -> Outcome:
    """(48,14,14): the same six rings, compiled."""
    on = bench.platform("dgx1")
    found = graph(on.topology)
    ours = [
        Simulation(programs.program(on.topology, found, "allreduce", Choice("ring", "Simple", channels, 0.0)), on)
        for channels in (6, 12, 24)
    ]
    ratios = {s: _simple_nccl(bench, "allreduce", s) / min(o.run(s).time_s for o in ours) for s in _LARGE}
    return claim.greatest(1.06, ratios)


def _copies(bench: Bench) -> Outcome:
    wire = bench.platform("dgx1").topology.link_class("nvlink2")
    faster = wire.dma_efficiency / wire.kernel_efficiency
    return claim.plateau(1.1, faster, "x", "payload of a packet of NVLink 2, as the topology has it")


def _z52(bench: Bench) -> Outcome:
    """(1,4,4) is better for small inputs, (2,7,7) for large ones."""
    on = bench.platform("z52")
    alpha = on.parameters.protocol("Simple").hop_s
    rate = min(c.bandwidth_bytes_per_s or math.inf for c in on.topology.classes)
    short, wide = AlphaBeta(4, 4, 1, 4 * alpha, rate), AlphaBeta(7, 7, 2, 7 * alpha, rate)
    small, large = KIB, 256 * MIB
    same = short.time_s(small) < wide.time_s(small) and short.time_s(large) > wide.time_s(large)
    at = next(s for s in doubling(KIB, GIB) if wide.time_s(s) < short.time_s(s))
    return Outcome("(1,4,4) better for small inputs, (2,7,7) for large", f"(2,7,7) from {short_size(at)} on", same)


_WHY_AR_SMALL = (
    "14 hops of NCCL's against 4: a hop of Simple is 6 us for NCCL (published for newer GPUs) and 3.4 us for "
    "compiled programs (NCCL's own constant). Neither was measured on V100, and the kernels of 2.7.8 are older "
    "than both."
)
_WHY_A2A_SMALL = (
    "One message each way takes little more than a launch, and the launches are estimates: 14.7 us of MSCCL's on "
    "A100 for the synthesized program, 7.8 us of NCCL's."
)


def claims() -> list[Claim]:
    """Returns the claims in the order of the paper's sections."""
    return [
        Claim("001-2.4-nccl", "A", "NCCL's six rings on a DGX-1 gather in 7 alpha + 7/6 L beta", _nccl_allgather),
        Claim(
            "001-2.5-synthesized",
            "A",
            "Synthesized AllGathers take 3 alpha + 7/6 L beta and 2 alpha + 3/2 L beta",
            _synthesized_costs,
            section="2.4, 2.5",
        ),
        Claim("001-4-push", "B", "Pushing is up to 10 % faster than pulling, links used both ways", _push),
        Claim("001-4-copies", "A", "Copy engines are about 10 % faster than kernels on NVLink", _copies),
        Claim("001-5.3-broadcast", "A", "NCCL's broadcast takes (6+m) alpha + (6+m)/(6m) L beta", _broadcast),
        Claim(
            "001-5.4-rows", "A", "Every row of tables 3, 4 and 5 costs S alpha + R/C L beta", _rows, section="5.3, 5.4"
        ),
        Claim(
            "001-5.4-programs",
            "A",
            "Synthesized programs of tables 4 and 5 cost that, simulated in the steps of their schedules",
            synthesized.programs,
        ),
        Claim(
            "001-5.4-latency",
            "A",
            "An AllGather of 2 steps and 1 chunk exists on a DGX-1 (table 4)",
            _two_step_allgather,
        ),
        Claim(
            "001-5.5-allgather-small",
            "B",
            "DGX-1: AllGather up to 2.2x NCCL (Simple) at small sizes",
            partial(_over_nccl, expected=2.2, source=_allgather()),
        ),
        Claim(
            "001-5.5-lowerings",
            "B",
            "DGX-1: AllGather (6,7,7) by cudaMemcpy loses to a kernel at small sizes and wins at large ones (figure 4)",
            _lowerings,
        ),
        Claim("001-5.5-allgather-large", "B", "DGX-1: AllGather 1.14x NCCL (Simple) at large sizes", _allgather_large),
        Claim(
            "001-5.5-allreduce-small",
            "B",
            "DGX-1: AllReduce of 8 chunks up to 1.8x NCCL (Simple) at small sizes",
            partial(_over_nccl, expected=1.8, source=_allreduce()),
            _WHY_AR_SMALL,
        ),
        Claim(
            "001-5.5-allreduce-large",
            "B",
            "DGX-1: AllReduce of 48 chunks 1.06x NCCL (Simple) at large sizes",
            _allreduce_large,
        ),
        Claim(
            "001-5.5-alltoall-small",
            "B",
            "DGX-1: AllToAll over 1.4x NCCL's sends at small sizes",
            partial(_over_nccl, expected=1.4, source=_alltoall(), most=2),
            _WHY_A2A_SMALL,
        ),
        Claim(
            "001-5.5-alltoall-large",
            "B",
            "DGX-1: AllToAll over 6.8x NCCL's sends at large sizes",
            partial(_over_nccl, expected=6.8, source=_alltoall(), sizes=_LARGE, detail="two-step schedule, at {}"),
        ),
        Claim("001-5.5-z52", "A", "Z52: AllGather (1,4,4) is better for small inputs, (2,7,7) for large", _z52),
    ]
