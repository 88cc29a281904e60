"""RCCL, AMD's fork of NCCL, on nodes of 8 MI300X: its rings are in tables, and its tuning model is its own.

From RCCL 2.21.5 (github.com/ROCm/rccl, commit 0cbce2a): models 79 and 81 of src/graph/rome_models.cc, `tuning_model_5`
of src/graph/tuning.cc, src/graph/connect.cc, and the programs of tools/msccl-algorithms, which serve AllReduces up to
16 MiB on one node. Those for AllToAll are not modelled. Microseconds and GB/s, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gc3.sim.nccl.search import RING as RING_PATTERN
from gc3.sim.nccl.search import TREE as TREE_PATTERN
from gc3.sim.nccl.search import Found
from gc3.sim.nccl.system import NVL, PIX, System
from gc3.sim.nccl.tables import RING, TREE

VERSION = "2.21.5"
GPUS = 8
THREADS = 256  # of a threadblock: NCCL_MAX_NTHREADS

# The rings of one node, which are in the table twice, and those of several with a NIC for each GPU: one begins at each
# NIC and one ends there, and together they use each link once in each direction.
_INSIDE = """
    01234567 01234576 02413657 02461735 03152746 03516274 04173625
    76543210 67543210 75631420 53716420 64725130 47261530 52637140
"""
_ACROSS = "01234567 10243576 25036174 37042165 46273051 54713260 63140752 72064153"
_COPIES, _MOST = 4, 64  # of each ring of one node; channels of several nodes

# Up to which size a program of all pairs serves an AllReduce, its protocol and its instances.
_PROGRAMS = ((64 << 10, "LL", 4), ((512 << 10) - 1, "LL", 8), (16 << 20, "Simple", 8))
CHUNKS = 8  # of each rank's share, in each instance

_BASE = {"LL": 12.0, "Simple": 17.0}  # of a call
_INSIDE_US = {TREE: {"LL": 0.9, "Simple": 2.3}, RING: {"LL": 0.8, "Simple": 2.1}}  # of a hop
_ACROSS_US = {TREE: {"LL": 10.5, "Simple": 25.0}, RING: {"LL": 9.5, "Simple": 320.0}}
# The part of the bandwidth of all channels that is reached on up to two nodes, and on more.
_PARTS: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {TREE: {"LL": (0.06, 0.06), "Simple": (0.11, 0.59)}, RING: {"LL": (0.08, 0.08), "Simple": (1.0, 1.0)}}
)
_NET_POST = 2.0  # of AMD's processors; three times as much with Simple
_COPYING = 1.65  # how much better LL is in a Broadcast or a Reduce on one node
# Corrections of the bandwidth by size: powers of two from 64 B on. Those of rings are for several nodes.
_CORRECTIONS: Mapping[str, Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        TREE: {
            "LL": (*(0.1,) * 6, *(1.0,) * 5, 0.6, 1.0, 0.9, 1.0, 1.0, *(0.1,) * 11),
            "Simple": (*(0.1,) * 15, 0.7, *(1.0,) * 10, 0.8),
        },
        RING: {
            "LL": (*(0.1,) * 11, 1.0, 0.2, 1.0, 0.4, 0.4, 0.1, 0.2, 0.2, *(0.1,) * 8),
            "Simple": (*(0.1,) * 23, 0.8, 1.0, 1.0, 1.0),
        },
    }
)


def has_tables(on: System) -> bool:
    """Returns whether a node of MI300X is in the tables: all pairs of 8 GPUs are linked, and each has a NIC or none."""
    linked = all(way is None or way.kind == NVL for row in on.routes for way in row)
    return on.gpus == GPUS and linked and not on.switched and (not on.several or len(on.nics) == GPUS)


def found(on: System) -> tuple[Found, Found, int]:
    """Returns the rings, the trees, which are chains in the orders of the rings, and the channels in use."""
    rings = [tuple(map(int, ring)) for ring in (_ACROSS if on.several else _INSIDE).split()]
    orders = tuple(rings * (_MOST // len(rings) if on.several else _COPIES))
    cards = tuple((order[0], order[-1]) if on.several else (-1, -1) for order in orders)
    rate = on.total / len(orders)
    ring = Found(RING_PATTERN, rate, rate, NVL, PIX, orders=orders, cards=cards)
    return ring, Found(TREE_PATTERN, rate, rate, NVL, PIX, orders=orders, cards=cards), len(orders)


def program(collective: str, nodes: int, size: int) -> tuple[str, int] | None:
    """Returns the protocol and the instances of the program of all pairs that serves a call; None: none does."""
    if (collective, nodes) != ("allreduce", 1):
        return None
    return next(((protocol, instances) for most, protocol, instances in _PROGRAMS if size <= most), None)


def times(
    bus: float, collective: str, steps: int, ranks: int, nodes: int, size: int
) -> Iterator[tuple[str, str, float]]:
    """Yields each algorithm and protocol that RCCL may choose, with the microseconds that its model predicts.

    Args:
        bus: Bandwidth of all channels together.
        collective: The collective.
        steps: Of a ring.
        ranks: Number of ranks.
        nodes: Number of nodes.
        size: S in bytes.
    """
    power = min(max(size >> 6, 1).bit_length() - 1, len(_CORRECTIONS[RING]["LL"]) - 1)
    for algorithm in (RING, TREE) if collective == "allreduce" else (RING,):
        for protocol in _BASE:
            if (algorithm, protocol, nodes) == (TREE, "Simple", 1):
                continue
            rate = bus * _PARTS[algorithm][protocol][nodes > 2]  # noqa: PLR2004
            rate *= ranks / steps if algorithm == RING else 0.5
            if nodes > 1 or algorithm == TREE:
                rate *= _CORRECTIONS[algorithm][protocol][power]
            if nodes == 1 and protocol == "LL" and collective in ("broadcast", "reduce"):
                rate *= _COPYING
            yield (
                algorithm,
                protocol,
                _latency(algorithm, protocol, collective, steps, ranks, nodes) + size / (1e3 * rate),
            )


def _latency(algorithm: str, protocol: str, collective: str, steps: int, ranks: int, nodes: int) -> float:
    inside, across = _INSIDE_US[algorithm][protocol], _ACROSS_US[algorithm][protocol]
    if algorithm == TREE:
        return _BASE[protocol] + 2 * ((ranks // nodes - 1) * inside + (nodes.bit_length() - 1) * across)
    if collective in ("broadcast", "reduce"):
        return _BASE[protocol] + (inside if nodes == 1 else across)
    crossings = 0
    if nodes > 1:
        inside = max(inside, _NET_POST * (3 if protocol == "Simple" else 1))
        crossings = 2 * nodes if collective == "allreduce" else nodes - 1
    return _BASE[protocol] + (steps - crossings) * inside + crossings * across
