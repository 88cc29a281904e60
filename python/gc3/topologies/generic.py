"""Generic shapes: any number of ranks on one node, and one kind of wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gc3.topologies._clusters import circle
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import LinkClass
from gc3.topologies.preset import require, topology
from gc3.topologies.processors import IDEAL

_SOURCE = "a shape; bandwidth and latency are parameters"
_MOST = 65536
_MOST_DENSE = 1024


def wire(GBps: int, latency_ns: int) -> LinkClass:
    """Returns the wire of a shape: bandwidth in GB (1e9 bytes) per second and direction, latency in nanoseconds."""
    require("GBps", GBps, 1, 1000000)
    require("latency_ns", latency_ns, 0, 1000000000)
    return LinkClass("wire", GBps * 1e9, latency_ns * 1e-9, source="parameters GBps and latency_ns")


def _shape(
    name: str, positions: Sequence[tuple[float, float]], pairs: Iterable[tuple[int, int]], link: LinkClass
) -> Topology:
    build = Builder(name, processor=IDEAL)
    for r, position in enumerate(positions):
        build.rank(f"rank{r}", position=position)
    for a, b in dict.fromkeys((min(p), max(p)) for p in pairs if p[0] != p[1]):
        build.join(a, b, link)
    return build.build()


@topology(source=_SOURCE, generic=True)
def ring(R: int, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """R ranks, each linked to the next and the last to the first, in both directions."""
    require("R", R, 1, _MOST)
    return _shape(
        "ring", [circle(r, R) for r in range(R)], ((r, (r + 1) % R) for r in range(R)), wire(GBps, latency_ns)
    )


@topology(source=_SOURCE, generic=True)
def line(R: int, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """R ranks, each linked to the next, in both directions."""
    require("R", R, 1, _MOST)
    positions = [(r / max(R - 1, 1), 0.5) for r in range(R)]
    return _shape("line", positions, ((r, r + 1) for r in range(R - 1)), wire(GBps, latency_ns))


@topology(source=_SOURCE, generic=True)
def star(R: int, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """R ranks; rank 0 is linked to every other, in both directions."""
    require("R", R, 1, _MOST)
    positions = [(0.5, 0.5), *(circle(r, R - 1) for r in range(R - 1))]
    return _shape("star", positions, ((0, r) for r in range(1, R)), wire(GBps, latency_ns))


@topology(source=_SOURCE, generic=True)
def fully_connected(R: int, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """R ranks, all pairs linked, in both directions."""
    require("R", R, 1, _MOST_DENSE)
    pairs = ((a, b) for a in range(R) for b in range(a))
    return _shape("fully_connected", [circle(r, R) for r in range(R)], pairs, wire(GBps, latency_ns))


@topology(source=_SOURCE, generic=True)
def hypercube(D: int, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """2^D ranks; two are linked in both directions if their numbers differ in one bit."""
    require("D", D, 0, 16)
    # In the drawing, even bits go right and odd bits up. Each pair of bits puts copies of the previous drawing apart.
    shift = [(0.0, 0.0)] * (1 << D)
    for bit in range(D):
        far = 2.4 ** (bit // 2)
        lean = 0.35 * far * min(bit // 2, 1)  # so that links of different bits do not cover each other
        step = (far, lean) if bit % 2 == 0 else (-lean, far)
        shift = [(x + step[0], y + step[1]) if r >> bit & 1 else (x, y) for r, (x, y) in enumerate(shift)]
    pairs = ((r, r ^ 1 << bit) for r in range(1 << D) for bit in range(D))
    return _shape("hypercube", _fitted(shift), pairs, wire(GBps, latency_ns))


@topology(source=_SOURCE, generic=True)
def torus(X: int, Y: int = 1, Z: int = 1, GBps: int = 25, latency_ns: int = 700) -> Topology:
    """X * Y * Z ranks, linked to their neighbours in each dimension, which wraps around; rank = x + X (y + Y z)."""
    for name, size in (("X", X), ("Y", Y), ("Z", Z)):
        require(name, size, 1, 1024)
    require("X*Y*Z", X * Y * Z, 1, _MOST)
    places = [(x, y, z) for z in range(Z) for y in range(Y) for x in range(X)]
    pairs: list[tuple[int, int]] = []
    for r, (x, y, z) in enumerate(places):
        nearby = (((x + 1) % X, y, z), (x, (y + 1) % Y, z), (x, y, (z + 1) % Z))
        pairs += [(r, a + X * (b + Y * c)) for a, b, c in nearby]
    flat = [(x + 0.35 * z, y + 0.35 * z) for x, y, z in places]
    return _shape("torus", _fitted(flat), pairs, wire(GBps, latency_ns))


def _fitted(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Scales points to the unit square, centred in the shorter dimension."""
    low = [min(p[i] for p in points) for i in (0, 1)]
    size = [max(p[i] for p in points) - low[i] for i in (0, 1)]
    scale = max(*size, 1e-9)
    middle = [(1 - s / scale) / 2 for s in size]
    return [((x - low[0]) / scale + middle[0], (y - low[1]) / scale + middle[1]) for x, y in points]
