"""Ranks on the processors of one host."""

from __future__ import annotations

from gc3.topologies.build import Builder
from gc3.topologies.generic import wire
from gc3.topologies.model import Topology
from gc3.topologies.parts import Port
from gc3.topologies.preset import require, topology
from gc3.topologies.processors import CPU


@topology(source="a shape; bandwidth and latency are parameters", generic=True)
def cpu(R: int, GBps: int = 1000000, latency_ns: int = 0) -> Topology:
    """R ranks of the CPU engines on one host, which send through its memory."""
    require("R", R, 1, 65536)
    build = Builder("cpu", processor=CPU)
    memory = wire(GBps, latency_ns)
    ranks = [build.rank(f"rank{r}", kind="cpu") for r in range(R)]
    build.fabric("memory", memory, [Port(r, (build.resource(f"rank{r}.out", "memory", memory),), ()) for r in ranks])
    return build.build()
