"""The claims of 000 and 002 about AllReduce on one node."""

from __future__ import annotations

import statistics
from functools import partial

from claims import claim
from claims.bench import GIB, KIB, MIB, Bench, Variant, doubling, sends, variants
from claims.claim import Claim, Outcome, over_nccl
from gc3 import datatypes
from gc3.report.style import short_size
from gc3.sim.nccl import programs, rates
from gc3.sim.nccl.tuning import Choice
from gc3.sim.platform import Platform
from gc3.sim.predict import Simulation

_MACHINE = "ndv4"
_RINGS = [
    v
    for v in variants("ring_allreduce", ("LL", "LL128"), (1, 2, 4, 8, 16, 24, 32), R=8, channels=(1, 2, 4, 8))
    if v.instances * dict(v.parameters)["channels"] <= 32  # noqa: PLR2004  the channels that there are
]
_LARGE_RINGS = [
    v
    for v in variants("ring_allreduce", ("Simple",), (1, 2, 3, 4, 6, 8, 12, 16, 24), R=8, channels=(1, 2, 4, 8))
    if v.instances * dict(v.parameters)["channels"] <= 24  # noqa: PLR2004  as many as NCCL has
]
_PAIRS = variants("allpairs_allreduce", ("LL", "LL128"), (1, 2, 4, 8), R=8)
_PAIRS_OF_16 = variants("allpairs_allreduce", ("LL", "LL128"), (1, 2, 4), R=16)


def _ll128(channels: int, instances: int) -> Variant:
    return Variant("ring_allreduce", "LL128", instances, (("R", 8), ("channels", channels)))


def _ring_beyond(bench: Bench) -> Outcome:
    """Matches NCCL above 32 MB."""
    ratios = [
        bench.nccl_time(_MACHINE, "allreduce", s) / bench.fastest(_MACHINE, _LARGE_RINGS, s)[0]
        for s in doubling(64 * MIB, GIB)
    ]
    worst = max(ratios, key=lambda r: abs(r - 1))
    return claim.ratio_of_one(worst, 0.1, f"worst of {len(ratios)} sizes from 64 MiB to 1 GiB")


def _ring_parallel(bench: Bench) -> Outcome:
    wanted = Variant("ring_allreduce", "Simple", 24, (("R", 8), ("channels", 1)))
    others = [v for v in _LARGE_RINGS if v != wanted]
    sizes = doubling(64 * MIB, GIB)
    ratio = min(bench.fastest(_MACHINE, others, s)[0] / bench.time(_MACHINE, wanted, s) for s in sizes)
    # The paper's "matched" is tested as: no other schedule is faster.
    return Outcome(
        "none faster than 1 channel x 24", f"next best takes {ratio:.2f}x", ratio >= 1.0, "64 MiB to 1 GiB, Simple"
    )


def _allpairs_steps(bench: Bench) -> Outcome:
    pairs = bench.alpha_beta("fully_connected:R=8", Variant("allpairs_allreduce", parameters=(("R", 8),)))
    ring = bench.alpha_beta("ring:R=8", Variant("ring_allreduce", parameters=(("R", 8),)))
    sent = [
        sum(count for *_, count in sends(bench.program(Variant(name, parameters=(("R", 8),)))))
        for name in ("allpairs_allreduce", "ring_allreduce")
    ]
    same = (pairs.steps, ring.steps) == (2, 14) and sent[0] == sent[1]
    return Outcome(
        "2 steps against 14, same volume",
        f"{pairs.steps} steps against {ring.steps}, {sent[0]} chunks against {sent[1]}",
        same,
    )


def _ring_v1_range(bench: Bench) -> Outcome:
    sizes = doubling(128 * KIB, 32 * MIB)
    ratios = {s: bench.nccl_time(_MACHINE, "allreduce", s) / bench.time(_MACHINE, _ll128(8, 4), s) for s in sizes}
    slower = [short_size(s) for s, r in ratios.items() if r < 1]
    return Outcome(
        "faster than NCCL from 128 KiB to 32 MiB",
        f"slower at {', '.join(slower)}" if slower else "faster throughout",
        not slower,
        f"{len(sizes)} sizes",
    )


def _against(bench: Bench, what: str, other: Variant) -> Outcome:
    """Compares the ring of 8 threadblocks x 4 instances with another over the range of the paper's figure."""
    sizes = doubling(128 * KIB, 32 * MIB)
    ratios = [bench.time(_MACHINE, other, s) / bench.time(_MACHINE, _ll128(8, 4), s) for s in sizes]
    detail = f"geometric mean of {len(sizes)} sizes from 128 KiB to 32 MiB; {min(ratios):.2f} to {max(ratios):.2f}"
    return claim.faster(what, statistics.geometric_mean(ratios), detail)


def _nccl_channels(bench: Bench) -> Outcome:
    """More channels make NCCL slower."""
    on = bench.platform(_MACHINE)
    nccl = bench.nccl(_MACHINE, "allreduce")

    def time(channels: int, size: int) -> float:
        program = programs.program(on.topology, nccl.graph, "allreduce", Choice("ring", "LL128", channels, 0.0))
        machine = Platform(on.topology, rates.parameters(on, nccl.rates, channels))
        return Simulation(program, machine).run(size).time_s

    ratio = time(32, 2 * MIB) / time(24, 2 * MIB)
    return claim.faster("24 channels of NCCL faster than 32", ratio, "LL128 at 2 MiB")


def _ll128_plateau(bench: Bench) -> Outcome:
    found = max(s / bench.time(_MACHINE, _ll128(8, 4), s) / 1e9 for s in doubling(64 * MIB, GIB))
    return claim.plateau(100, found, "GB/s", "algbw, 64 MiB to 1 GiB")


def _one_threadblock(bench: Bench) -> Outcome:
    on = bench.platform(_MACHINE)
    rate = max(on.parameters.protocols[name].rate for name in datatypes.FORMATS)
    egress = next(r for r in on.topology.all_resources if r.kind == "egress")
    link = on.rate(egress, on.parameters.protocol("Simple"))
    return claim.faster(
        "one threadblock is slower than the link", link / rate, "rate of the link over that of a sender"
    )


def _protocol_parts(bench: Bench) -> Outcome:
    protocols = bench.platform(_MACHINE, "ideal").parameters.protocols
    found = {name: protocols[name].link_efficiency for name in ("LL", "LL128")}
    same = found["LL"] == 0.5 and round(found["LL128"], 2) == 0.94  # noqa: PLR2004  the paper's numbers
    return Outcome("LL 50%, LL128 94%", f"LL {found['LL']:.0%}, LL128 {found['LL128']:.1%}", same)


def _tile(bench: Bench) -> Outcome:
    timing = bench.platform(_MACHINE).parameters.protocol("Simple")
    found = timing.slot_bytes * timing.slots, timing.slices * timing.slots
    return Outcome(
        "4 MiB, 4 slices",
        f"{short_size(found[0])}, {found[1]} slices",
        found == (4 * MIB, 4),
        "of Simple, per connection",
    )


def claims() -> list[Claim]:
    """Returns the claims in the order of the papers' sections."""
    return [
        Claim("000-4-tile", "A", "A connection buffers a tile of 4 MB in 4 slices", _tile),
        Claim("000-4-threadblock", "B", "One threadblock cannot saturate a connection of an A100", _one_threadblock),
        Claim("000-4-protocols", "A", "LL carries 50 % and LL128 94 % of what is sent as data", _protocol_parts),
        Claim(
            "000-6.2-ring",
            "B",
            "8 A100: ring of 8 threadblocks x 4 instances, LL128, up to 48 % faster "
            "than NCCL 2.8.4 between 128 KB and 32 MB",
            over_nccl(1.48, _MACHINE, "allreduce", [_ll128(8, 4)], doubling(128 * KIB, 32 * MIB)),
        ),
        Claim(
            "000-6.2-range", "B", "The same ring is faster than NCCL from 128 KB to 32 MB", _ring_v1_range, _WHY_RANGE
        ),
        Claim(
            "000-6.2-threadblocks",
            "B",
            "8 threadblocks per ring x 4 instances outperform 1 threadblock per ring x 32",
            partial(_against, what="8 threadblocks x 4 faster than 1 x 32", other=_ll128(1, 32)),
            _WHY_THREADBLOCKS,
        ),
        Claim(
            "000-6.2-channels",
            "B",
            "Forcing the schedule from 32 to 24 channels lowers performance",
            partial(_against, what="32 channels faster than 24", other=_ll128(8, 3)),
        ),
        Claim("000-6.2-nccl-channels", "B", "Forcing NCCL from 24 to more channels lowers performance", _nccl_channels),
        Claim("000-6.2-plateau", "B", "Above 32 MB the LL128 ring levels out around 100 GB/s algbw", _ll128_plateau),
        Claim(
            "002-7.1.1-ring",
            "B",
            "8 A100: rings up to 1.9x NCCL's between 32 KB and 3 MB",
            over_nccl(1.9, _MACHINE, "allreduce", _RINGS, [*doubling(32 * KIB, 2 * MIB), 3 * MIB]),
        ),
        Claim("002-7.1.1-large", "B", "Above 32 MB the best rings match NCCL", _ring_beyond),
        Claim("002-7.1.1-schedule", "B", "Above 32 MB the best ring has 1 channel x 24 instances", _ring_parallel),
        Claim("002-7.1.2-steps", "A", "All Pairs takes 2 steps and a ring 2R-2, for the same volume", _allpairs_steps),
        Claim(
            "002-7.1.2-allpairs",
            "B",
            "8 A100: All Pairs up to 1.8x NCCL from 1 KB to 1 MB",
            over_nccl(1.8, _MACHINE, "allreduce", _PAIRS, doubling(KIB, MIB)),
        ),
        Claim(
            "003-allpairs-dgx2",
            "B",
            "16 V100 of a DGX-2: All Pairs up to 3.0x NCCL for small buffers",
            over_nccl(3.0, "dgx2", "allreduce", _PAIRS_OF_16, doubling(KIB, 4 * MIB)),
            section="results (002 figure 7)",
        ),
    ]


_WHY_RANGE = (
    "At 16 MiB NCCL turns to Simple, which is simulated a quarter too fast there (docs/simulator.md); against the "
    "measured 255 us the ring is ahead. At 32 MiB it is behind either way, by the plateau of LL128 that the "
    "preset has: see 000-6.2-plateau."
)
_WHY_THREADBLOCKS = (
    "A threadblock of the 1 x 32 ring passes on pieces an eighth as large, so that each of its 14 steps takes "
    "less, and that decides in the model up to 2 MiB. The paper attributes the opposite to sends and receives "
    "that overlap better in 8 threadblocks; here a threadblock that waits costs others nothing, on either "
    "schedule."
)
