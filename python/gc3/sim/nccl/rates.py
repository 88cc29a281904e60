"""The rates of NCCL's own kernels, as far as they do not depend on the machine.

Links and NICs carry the same for NCCL as for compiled programs. The rate of a threadblock, the time of a hop inside a
node and the time of a launch differ. NCCL's single threadblock per channel is slower at LL and LL128 than the many of a
compiled program, and its time grows with the channels in use even if each has the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gc3 import errors
from gc3.sim.nccl.graphs import Graph
from gc3.sim.parameters import Evidence, Parameters
from gc3.sim.platform import Platform


@dataclass(frozen=True, slots=True)
class Rates:
    """NCCL's parameters on a generation of GPUs.

    Attributes:
        rate: Bytes of data per second of one threadblock that sends, by protocol.
        hop_s: Seconds that a hop inside a node takes besides the latency of its wire, by protocol.
        launch_s: Seconds until threadblocks begin.
        channel_s: Seconds that every channel after the first adds to that.
        peer_s: Seconds that a NIC is busy with a message between hosts besides its steps, if it is short.
        first_step_s: Seconds that the first step of a message adds to that, in proportion to its length.
        evidence: The source of these numbers.
    """

    rate: Mapping[str, float]
    hop_s: Mapping[str, float]
    launch_s: float
    channel_s: float
    evidence: Evidence
    # Fitted by benchmarks/nccl_sends.py to AllToAll by NCCL 2.8.4 on 64 NDv4 (microsoft/msccl-leaderboard).
    peer_s: float = 3.1e-6
    first_step_s: float = 10.7e-6


_AMPERE = Rates(
    rate={"LL": 5.53e9, "LL128": 17.5e9, "Simple": 22e9},
    hop_s={"LL": 0.184e-6, "LL128": 1.78e-6, "Simple": 6e-6},
    launch_s=7.77e-6,
    channel_s=1.54e-6,
    evidence=Evidence("8 A100 of an NDv4, AllReduce by NCCL 2.8.4 (microsoft/msccl-leaderboard)", 0.058, 0.069),
)
_HOPPER = Rates(
    # Of Simple, that of MSCCL's programs in preset h100. With half of it, 16 channels of several nodes would be slower
    # than their NICs, which NCCL nearly reaches (nccl issue 1221).
    rate={"LL": 16.8e9, "LL128": 27.6e9, "Simple": 45.2e9},
    hop_s={"LL": 0.16e-6, "LL128": 1.51e-6, "Simple": 6e-6},
    launch_s=4.23e-6,
    channel_s=0.165e-6,
    evidence=Evidence(
        "8 H100 of an ND H100 v5 with CUDA graphs, AllGather and AllReduce by NCCL 2.18.3 (Azure/msccl)", 0.040, 0.043
    ),
    # From one size: 8 MiB on 8 nodes of 8 H800 took 296 and 338 us (nccl issue 1531).
    peer_s=1.5e-6,
    first_step_s=0.0,
)
_VOLTA = replace(
    _AMPERE,
    rate={name: 0.8 * rate for name, rate in _AMPERE.rate.items()},
    evidence=Evidence("NCCL on A100, its threadblocks 0.8 times as fast, which is what preset v100 is to a100"),
)

RATES: Mapping[str, Rates] = MappingProxyType({"volta": _VOLTA, "ampere": _AMPERE, "hopper": _HOPPER})


def of(graph: Graph) -> Rates:
    """Returns NCCL's parameters on the GPUs of a machine.

    Raises:
        gc3.UserError: They are not known for these GPUs.
    """
    try:
        return RATES[graph.gpu]
    except KeyError:
        raise errors.error("BadSimulation", f"NCCL's rates on {graph.gpu} GPUs are not known") from None


def parameters(on: Platform, rates: Rates, channels: int) -> Parameters:
    """Returns the preset with which a choice of NCCL's is simulated: the machine's, with NCCL's kernels."""
    base = on.parameters
    protocols = {
        name: replace(timing, rate=rates.rate[name], hop_s=rates.hop_s[name])
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
