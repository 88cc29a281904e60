"""The alpha-beta cost of programs, whose steps take latencies and line rates alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from gc3 import _core, collectives
from gc3.sim import presets
from gc3.sim.platform import Platform
from gc3.topologies.model import Topology


class Simulated(Protocol):
    """A `gc3.sim.Simulation`."""

    platform: Platform

    @property
    def messages(self) -> _core.Program:
        """The program."""
        ...


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """The alpha-beta cost of a program: `steps` latencies and `rounds` times the time of a chunk.

    Attributes:
        steps: S.
        rounds: R.
        chunks: C, the chunks of the buffer that the size S counts.
        latency_s: Seconds of latency of all steps together: S * alpha where all links are alike.
        round_bytes_per_s: The rate that carries one chunk per round: 1 / beta.
    """

    steps: int
    rounds: int
    chunks: int
    latency_s: float
    round_bytes_per_s: float

    def time_s(self, size: int) -> float:
        """Returns S alpha + R/C L beta in seconds for a buffer of L = `size` bytes."""
        return self.latency_s + self.rounds * size / self.chunks / self.round_bytes_per_s


def alpha_beta(
    simulation: Simulated,
    size: int = 1 << 20,
    round_bytes_per_s: float | None = None,
    *,
    step_channels: bool = False,
) -> AlphaBeta:
    """Returns the alpha-beta cost, of whichever reading of the program's steps is faster at this size.

    Line rates and latencies are those of the topology; nothing else takes time.

    Args:
        simulation: Of the program.
        size: Where the two readings differ (see gc3/sim/alpha_beta.h), L in bytes decides.
        round_bytes_per_s: What carries a chunk per round; None: the slowest lane in use.
        step_channels: Whether channel k carries what is sent in step k, as in `gc3.synth.Result.algorithm`.

    Raises:
        gc3.UserError: The program cannot proceed in these steps.
    """
    ideal = presets.get("ideal").protocols["Simple"]
    line = Platform(_lossless(simulation.platform.topology), presets.get("ideal"))
    machine = line.machine("Simple")
    topology = line.topology
    program = simulation.messages
    used = {i for src, _, dst, channel, _ in program.sends() for i in _resources(topology, src, dst, channel)}
    lanes = [line.rate(topology.all_resources[i], ideal) / topology.all_resources[i].lanes for i in used]
    unit = round_bytes_per_s or min(lanes, default=1.0)
    model = program.collective
    chunks = collectives.size_blocks(model) * model.chunks
    core = _core.Simulator(program, machine)
    if step_channels:
        first = list(accumulate(program.threadblocks_per_rank, initial=0))
        step_of = [0] * program.threadblock_count
        for rank, tb, _, channel, _ in program.sends():
            step_of[first[rank] + tb] = channel + 1
        count, rounds, latency = core.alpha_beta_by(unit, step_of)
        return AlphaBeta(count, rounds, chunks, latency, unit)
    readings = [AlphaBeta(count, rounds, chunks, latency, unit) for count, rounds, latency in core.alpha_beta(unit)]
    return min(readings, key=lambda cost: cost.time_s(size))


def _resources(topology: Topology, src: int, dst: int, channel: int) -> Sequence[int]:
    path = topology.path(src, dst, channel)
    return path.resources if path else ()


def _lossless(topology: Topology) -> Topology:
    """The topology with line rates instead of what kernels and engines reach of them."""
    classes = tuple(replace(c, kernel_efficiency=1.0, dma_efficiency=1.0, message_s=0.0) for c in topology.classes)
    return replace(topology, classes=classes)
