"""Ranks on the processors of one host, and of hosts that are joined by Ethernet or InfiniBand."""

from __future__ import annotations

from gc3.topologies._clusters import network
from gc3.topologies.build import Builder
from gc3.topologies.generic import wire
from gc3.topologies.model import Topology
from gc3.topologies.parts import LinkClass, Port
from gc3.topologies.preset import require, topology
from gc3.topologies.processors import CPU, CPU_ETHERNET, CPU_INFINIBAND

_SOURCE = "a shape; the rate of a host's NIC is a parameter, latencies are assumed"
_MOST = 65536


@topology(source="a shape; bandwidth and latency are parameters", generic=True)
def cpu(R: int, GBps: int = 1000000, latency_ns: int = 0) -> Topology:
    """R ranks of the CPU engines on one host, which send through its memory."""
    require("R", R, 1, 65536)
    build = Builder("cpu", processor=CPU)
    memory = wire(GBps, latency_ns)
    ranks = [build.rank(f"rank{r}", kind="cpu") for r in range(R)]
    build.fabric("memory", memory, [Port(r, (build.resource(f"rank{r}.out", "memory", memory),), ()) for r in ranks])
    return build.build()


@topology(source=_SOURCE, generic=True)
def ethernet_hosts(N: int, G: int, Gbps: int = 25) -> Topology:
    """N hosts of G ranks on CPUs, each host with one Ethernet NIC of Gbps Gbit/s that carries TCP."""
    nic = LinkClass(
        "ethernet",
        Gbps * 1e9 / 8,
        latency_s=5e-6,
        dma_efficiency=0.94,
        source="parameter Gbps; 1460 bytes of data in 1538 on the wire, less acknowledgements; 5 us of two NICs and a "
        "switch: assumed",
    )
    return _hosts("ethernet_hosts", CPU_ETHERNET, N, G, Gbps, nic)


@topology(source=_SOURCE, generic=True)
def infiniband_hosts(N: int, G: int, Gbps: int = 200) -> Topology:
    """N hosts of G ranks on CPUs, each host with one InfiniBand NIC of Gbps Gbit/s."""
    nic = LinkClass(
        "infiniband",
        Gbps * 1e9 / 8,
        latency_s=1e-6,
        dma_efficiency=0.95,
        message_s=0.1e-6,
        source="parameter Gbps; usable part: that of HDR; 1 us one way and 0.1 us a message: assumed for RDMA by CPUs",
    )
    return _hosts("infiniband_hosts", CPU_INFINIBAND, N, G, Gbps, nic)


def _hosts(name: str, processor: str, hosts: int, each: int, Gbps: int, nic: LinkClass) -> Topology:
    require("N", hosts, 1, _MOST)
    require("G", each, 1, _MOST)
    require("N*G", hosts * each, 1, _MOST)
    require("Gbps", Gbps, 1, 1000000)
    build = Builder(name, processor=processor)
    memory = wire(1000000, 0)  # the preset's rates of a core limit what a rank moves
    ranks = [[build.rank(f"host{n}.rank{g}", node=n, kind="cpu") for g in range(each)] for n in range(hosts)]
    for n, here in enumerate(ranks):
        ends = [build.duplex(f"host{n}.rank{g}", "memory", memory) for g in range(each)]
        build.fabric(f"host{n}.memory", memory, [Port(r, end[:1], end[1:]) for r, end in zip(here, ends, strict=True)])
    network(build, ranks, nic, 1, lambda _: [0])
    return build.build()
