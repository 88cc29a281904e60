"""Generic shapes with switches: fat trees, and nodes of GPUs that share NICs."""

from __future__ import annotations

from dataclasses import replace

from gc3 import errors
from gc3.topologies._clusters import gpu_nodes, leaf_spine, network, switched
from gc3.topologies.build import Builder
from gc3.topologies.generic import wire
from gc3.topologies.model import Topology
from gc3.topologies.parts import Port
from gc3.topologies.preset import require, topology
from gc3.topologies.processors import IDEAL

_SOURCE = "a shape; bandwidth and latency are parameters"
_MOST = 65536


@topology(source=_SOURCE, generic=True)
def fat_tree(R: int, leaf: int = 4, taper: int = 1, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """R ranks on leaf switches of `leaf` ports under a core; a leaf's uplink carries 1/taper of its ports."""
    require("R", R, 1, _MOST)
    require("leaf", leaf, 1, _MOST)
    require("taper", taper, 1, leaf)
    if leaf % taper:
        raise errors.error("BadArgument", f"taper={taper}; expected a divisor of leaf={leaf}")
    build = Builder("fat_tree", processor=IDEAL)
    link = wire(GBps, latency_ns)
    ends: list[tuple[str, str]] = []
    for r in range(R):
        build.rank(f"rank{r}", node=r // leaf)
        ends.append((build.resource(f"rank{r}.out", "egress", link), build.resource(f"rank{r}.in", "ingress", link)))
    leaves = range(-(-R // leaf))
    for n in leaves:
        ports = [Port(r, ends[r][:1], ends[r][1:]) for r in range(n * leaf, min(R, (n + 1) * leaf))]
        build.fabric(f"leaf{n}", link, ports)
    # A path through the core passes two more switches, so it has three wires instead of one: up, across and down.
    core = replace(link, name="core", latency_s=3 * (link.latency_s or 0.0))
    uplinks = [build.duplex(f"leaf{n}.up", "switch", link, leaf // taper) for n in leaves]
    build.fabric(
        "core",
        core,
        [Port(r, (ends[r][0], uplinks[r // leaf][0]), (uplinks[r // leaf][1], ends[r][1])) for r in range(R)],
    )
    return build.build()


@topology(source=_SOURCE, generic=True)
def hierarchical(
    N: int,
    G: int,
    nics: int = 1,
    GBps: int = 300,
    latency_ns: int = 700,
    nic_GBps: int = 25,
    nic_latency_ns: int = 2600,
    rack: int = 0,
    taper: int = 1,
    spine_latency_ns: int = 2600,
) -> Topology:
    """N nodes of G ranks on a switch, with NICs; with rack > 0, racks of nodes on leaf switches under a spine."""
    require("N", N, 1, _MOST)
    require("G", G, 1, _MOST)
    require("N*G", N * G, 1, _MOST)
    require("nics", nics, 1, 1024)
    require("rack", rack, 0, N)
    require("taper", taper, 1, max(rack * nics, 1))
    if rack * nics % taper:
        raise errors.error("BadArgument", f"taper={taper}; expected a divisor of rack*nics={rack * nics}")
    build = Builder("hierarchical", processor=IDEAL)
    link = wire(GBps, latency_ns)
    nic = replace(wire(nic_GBps, nic_latency_ns), name="nic", source="parameters nic_GBps and nic_latency_ns")
    gpus = gpu_nodes(build, N, G, 1)
    for n, ranks in enumerate(gpus):
        switched(build, f"node{n}.switch", ranks, link, 1)

    def rails(g: int) -> list[int]:
        if nics <= G:
            return [g * nics // G]
        return list(range(g * nics // G, (g + 1) * nics // G))

    if rack:
        spine = replace(
            wire(nic_GBps, spine_latency_ns), name="spine", source="parameters nic_GBps and spine_latency_ns"
        )
        leaf_spine(build, gpus, nic, nics, rails, rack=rack, lanes=rack * nics // taper, spine=spine)
    else:
        network(build, gpus, nic, nics, rails)
    return build.build()
