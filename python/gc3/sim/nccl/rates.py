"""The rates of NCCL's own kernels, as far as they do not depend on the machine.

Links and NICs carry the same for NCCL as for compiled programs. The rate of a threadblock, the time of a hop inside a
node and the time of a launch differ. NCCL's single threadblock per channel is slower at LL and LL128 than the many of a
compiled program, and its time grows with the channels in use even if each has the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gc3.sim.nccl.graphs import Graph
from gc3.sim.parameters import Evidence, Parameters, Scope
from gc3.sim.platform import Platform


@dataclass(frozen=True, slots=True)
class Rates:
    """NCCL's parameters on a generation of GPUs."""

    rate: Mapping[str, float]  # bytes of data per second of one threadblock that sends, by protocol
    hop_s: Mapping[str, float]  # seconds that a hop inside a node takes besides the latency of its wire, by protocol
    launch_s: float  # seconds until threadblocks begin
    channel_s: float  # seconds that every channel after the first adds to that
    evidence: Evidence  # the source of these numbers, which is on one node
    # Fitted by benchmarks/nccl_sends.py to AllToAll by NCCL 2.8.4 on 64 NDv4 (microsoft/msccl-leaderboard).
    peer_s: float = 3.1e-6  # seconds that a NIC is busy with a message between hosts besides its steps, if it is short
    first_step_s: float = 10.7e-6  # seconds that the first step of a message adds to that, in proportion to its length
    post: float = 1.0  # the part of a NIC's time for a message that one of a ring or tree with LL or LL128 takes
    # seconds that a hop through NICs takes in addition to the machine's, by protocol
    across_s: Mapping[str, float] = field(default_factory=dict[str, float])


def _scope(**sizes: tuple[int, int]) -> Scope:
    """What measurements of NCCL's own choice on one node of 8 GPUs cover."""
    return Scope((8, 8), ("",), sizes)  # "": whatever protocol NCCL has chosen


_AMPERE = Rates(
    rate={"LL": 3.94e9, "LL128": 16.9e9, "Simple": 22e9},
    hop_s={"LL": 0.183e-6, "LL128": 2.16e-6, "Simple": 6e-6},
    launch_s=7.59e-6,
    channel_s=1.49e-6,
    evidence=Evidence(
        "8 A100 of an NDv4, AllReduce by NCCL 2.8.4 (microsoft/msccl-leaderboard)",
        0.061,
        0.078,
        _scope(allreduce=(128, 32 << 20)),
    ),
    # Fitted to rings on 2 DGX A100 (NVIDIA/deepops), where each of 30 hops is a message of one NIC, and to the trees of
    # ABCI 2.0, whose error is 6.3 instead of 6.6 % with it.
    post=0.5,
    across_s={"LL": 1e-6, "LL128": 1e-6},
)
_HOPPER = Rates(
    # Of Simple, that of MSCCL's programs in preset h100. With half of it, 16 channels of several nodes would be slower
    # than their NICs, which NCCL nearly reaches (nccl issue 1221).
    rate={"LL": 8.29e9, "LL128": 28.1e9, "Simple": 45.2e9},
    hop_s={"LL": 0.103e-6, "LL128": 2.54e-6, "Simple": 6e-6},
    launch_s=4.4e-6,
    channel_s=0.105e-6,
    evidence=Evidence(
        "8 H100 of an ND H100 v5 with CUDA graphs, AllGather and AllReduce by NCCL 2.18.3 (Azure/msccl)",
        0.044,
        0.052,
        _scope(allgather=(1 << 10, 1 << 30), allreduce=(1 << 10, 1 << 30)),
    ),
    # Fitted by benchmarks/nccl_nodes.py to AllToAll on 2 and 10 nodes of H100 and 8 of H800.
    peer_s=2e-6,
    first_step_s=0.0,
)
_VOLTA = replace(
    _AMPERE,
    post=1.0,
    across_s={},
    rate={name: 0.8 * rate for name, rate in _AMPERE.rate.items()},
    evidence=Evidence("NCCL on A100, its threadblocks 0.8 times as fast, which is what preset v100 is to a100"),
)

_BLACKWELL = replace(_HOPPER, evidence=Evidence("NCCL on H100, on the links of this machine"))
_CDNA3 = replace(
    _BLACKWELL,
    launch_s=6.5e-6,  # that of the preset
    evidence=Evidence("NCCL on H100, on the links of this machine"),
)

RATES: Mapping[str, Rates] = MappingProxyType(
    {"volta": _VOLTA, "ampere": _AMPERE, "hopper": _HOPPER, "blackwell": _BLACKWELL, "cdna3": _CDNA3}
)


# Bytes of data after which a threadblock passes on what it receives. Where a protocol has flags, each warp waits for
# those of its own lines (prims_ll.h and prims_ll128.h of NCCL), and a multiprocessor issues for four warps at a time.
# With lines of whole threadblocks, trees on several nodes were up to 1.5 times as slow as measured.
_LINE_BYTES: Mapping[str, int] = MappingProxyType({"LL": 4 * 256, "LL128": 4 * 1920})


def of(graph: Graph) -> Rates:
    """Returns NCCL's parameters on the GPUs of a machine."""
    return RATES[graph.kernels]


def parameters(on: Platform, rates: Rates, channels: int) -> Parameters:
    """Returns the preset with which a choice of NCCL's is simulated: the machine's, with NCCL's kernels."""
    base = on.parameters
    protocols = {
        name: replace(
            timing,
            rate=rates.rate[name],
            hop_s=rates.hop_s[name],
            network_hop_s=timing.network_hop_s + rates.across_s.get(name, 0.0),
            line_bytes=_LINE_BYTES.get(name, timing.line_bytes),
        )
        for name, timing in base.protocols.items()
        if name in rates.rate
    }
    return replace(
        base,
        name=f"nccl on {base.name}",
        protocols=protocols,
        launch_s=rates.launch_s + (channels - 1) * rates.channel_s,
        evidence=rates.evidence,
    )
