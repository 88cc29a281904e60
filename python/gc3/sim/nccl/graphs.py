"""What NCCL finds on a machine: the orders of its rings and trees, their number and bandwidth.

All follows from the machine's description by the rules of NCCL's search (`gc3.sim.nccl.search`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gc3.sim.nccl import rccl, search
from gc3.sim.nccl.search import Found
from gc3.sim.nccl.system import NVB, NVL, PXN, Nodes, System, completed, nodes, system
from gc3.sim.nccl.tables import minor_of
from gc3.topologies.model import Topology
from gc3.topologies.parts import Path
from gc3.topologies.processors import PROCESSORS

# A ring over the double NVLinks of a hybrid cube mesh.
CUBE_MESH_RING = (0, 1, 3, 2, 6, 7, 5, 4)


@dataclass(frozen=True, slots=True)
class _Generation:
    """What NCCL takes for a generation of GPUs: capability, whether its hosts have AMD's CPUs, and a usual version."""

    capability: int
    amd: bool
    version: str


_VOLTA, _AMPERE, _HOPPER, _BLACKWELL, _CDNA3 = "volta", "ampere", "hopper", "blackwell", "cdna3"
_GENERATIONS: Mapping[str, _Generation] = MappingProxyType(
    {
        _VOLTA: _Generation(70, False, "2.8.4"),
        _AMPERE: _Generation(80, True, "2.8.4"),
        _HOPPER: _Generation(90, False, "2.18.3"),
        _BLACKWELL: _Generation(100, False, "2.28.3"),
        _CDNA3: _Generation(90, True, "2.20.3"),
    }
)
# Of GPUs that NCCL does not know: RCCL, a fork for AMD's GPUs, has rings and constants of its own.
_NEAREST = MappingProxyType({"gcn": _VOLTA, "cdna2": _CDNA3})
_MOST_HEADS = 32  # NCCL_MAX_NVLS_ARITY
_FIRST_BLACKWELL = 26  # the first 2.x with its constants
_WIDE = 25  # the first 2.x with 64 channels instead of 32


@dataclass(frozen=True, slots=True)
class Graph:
    """What NCCL finds."""

    gpu: str  # generation of the GPUs whose constants are used
    kernels: str  # generation whose kernels' rates are used
    amd: bool  # whether the CPUs are AMD's
    nodes: Nodes  # the ranks of each of NCCL's nodes
    ring: Found  # the result of the search for rings
    tree: Found  # that for trees
    running: int  # channels in use, which are copies of those of the search
    # GPUs of a node that each add up and multicast their share in its switches (NVLS); 0: the switches cannot
    heads: int = 0
    head_rate: float = 0.0  # GB/s of each inside the node
    version: str = "2.8.4"  # the version of NCCL
    notes: tuple[str, ...] = ()  # what was not known, and what is taken instead
    rings: tuple[tuple[int, ...], ...] = ()  # the ranks of each ring in use, if a log says so
    # choices of a log: collective, S in bytes, algorithm, protocol, and channels, 0 if it does not say
    chosen: tuple[tuple[str, int, str, str, int], ...] = ()
    rccl: bool = False  # whether rings and choices are RCCL's own

    @property
    def channels(self) -> int:
        """Channels of the search."""
        return min(self.ring.channels, self.tree.channels)

    @property
    def rate(self) -> float:
        """Bandwidth of a ring."""
        return self.ring.across if len(self.nodes) > 1 else self.ring.inside

    @property
    def tree_rate(self) -> float:
        """Bandwidth of a tree: on two nodes, that inside a node."""
        return self.tree.inside if len(self.nodes) <= 2 else self.tree.across  # noqa: PLR2004

    @property
    def capability(self) -> int:
        """Compute capability of the GPUs, times ten."""
        return _GENERATIONS[self.gpu].capability

    def ll128(self, found: Found) -> bool:
        """Whether NCCL uses LL128 on the paths of a result: all over NVLink, and NICs not beyond a CPU.

        A path over NVLink to the GPU of a NIC is taken for one over PCIe switches, which a topology does not show.
        """
        return not self.rccl and found.type_inside <= NVB and (len(self.nodes) == 1 or found.type_across <= PXN)

    @property
    def nvlink(self) -> bool:
        """Whether rings stay on NVLink inside a node."""
        return self.ring.type_inside == NVL


def generation(topology: Topology) -> tuple[str, str]:
    """Returns the generation of the GPUs whose constants fit best, and what is said about it.

    >>> from gc3 import topologies
    >>> generation(topologies.load("ndv4")), generation(topologies.load("ring", R=4))[0]
    (('ampere', ''), 'ampere')
    """
    name = topology.processor or ""
    known = PROCESSORS.get(name)
    own = known.generation if known else ""
    if own in _GENERATIONS and known and not known.capabilities[0].startswith("gfx"):
        return own, ""
    if own in _GENERATIONS or own in _NEAREST:
        nearest = _NEAREST.get(own, own)
        told = "" if nearest == own else f", with rates of {nearest}"
        return nearest, f"{name} runs RCCL, whose rings and constants are its own: those of NCCL are used{told}"
    digits = name.removeprefix("sm")
    capability = int(digits) if digits.isdecimal() and digits != name else 80
    fits = max(
        (g for g in (_VOLTA, _AMPERE, _HOPPER, _BLACKWELL) if _GENERATIONS[g].capability <= capability),
        key=lambda g: _GENERATIONS[g].capability,
        default=_VOLTA,
    )
    return fits, f"NCCL's constants for GPUs of class '{name or 'unknown'}' are not known: those of {fits} are used"


def graph(topology: Topology, version: str | None = None) -> Graph:
    """Returns what NCCL finds on a machine.

    Args:
        topology: The machine.
        version: Of NCCL; None: that of the published measurements of its GPUs.

    Raises:
        gc3.UserError: Some ranks or NICs reach nobody, or NCCL does not run there.

    >>> from gc3 import topologies
    >>> graph(topologies.load("ndv4", N=2)).channels
    8
    """
    members = nodes(topology)
    gpu, told = generation(topology)
    about = _GENERATIONS[gpu]
    version = version or about.version
    minor = minor_of(version)
    nvlink = (1.05 if minor < 12 else 1.1 if minor < 18 else 1.0) if about.capability < 90 else 1.0  # noqa: PLR2004
    on = system(completed(topology, members), members, nvlink)
    if gpu == _CDNA3 and rccl.has_tables(on):
        told = (
            f"RCCL's rings, programs and constants are those of {rccl.VERSION}, the rates of its kernels NCCL's on H100"
        )
        return Graph(_HOPPER, gpu, about.amd, members, *rccl.found(on), version=rccl.VERSION, notes=(told,), rccl=True)
    most = 64 if minor >= _WIDE else 32
    ring = search.search(on, search.RING, about.capability, minor, 1, most // 2)
    tree = search.search(on, search.BALANCED_TREE, about.capability, minor, ring.channels, ring.channels)
    heads, rate = _heads(topology, members, on, about.capability, minor)
    running = _running(min(ring.channels, tree.channels), ring, about.capability, minor, most, len(members))
    table = _HOPPER if gpu == _CDNA3 or (gpu == _BLACKWELL and minor < _FIRST_BLACKWELL) else gpu
    if gpu == _BLACKWELL != table:
        told = told or f"NCCL {version} has no constants for {gpu}: those of {table} are used"
    notes = (told,) if told else ()
    return Graph(table, gpu, about.amd, members, ring, tree, running, heads, rate, version, notes)


def _running(channels: int, ring: Found, capability: int, minor: int, most: int, nodes: int) -> int:
    """Each channel twice; of fast ones between nodes of Hopper and newer four times (src/graph/connect.cc)."""
    running = min(2 * channels, most)
    fast = capability >= 90 and minor >= 18 and nodes > 1 and ring.inside > 45.0  # noqa: PLR2004
    return 2 * running if fast and running < (16 if minor >= 20 else 17) else running  # noqa: PLR2004


def _heads(topology: Topology, members: Nodes, on: System, capability: int, minor: int) -> tuple[int, float]:
    """What the search finds for NVLS on the first node: every GPU is a head, between nodes each GPU of a NIC.

    A head's share goes through the port of every GPU once in each direction, and twice through that of the head.
    """
    ports = switch_ports(topology, members[0])
    if not ports:
        return 0, 0.0
    heads = len({near[0][0] for near in on.entry}) if on.several else len(ports)
    heads = min(heads, _MOST_HEADS)
    port = topology.all_resources[ports[0].resources[0]]
    wire = topology.link_class(port.link_class)
    each = topology.bandwidth(port) * wire.kernel_efficiency / 1e9 / (heads + 1)
    rates = search.speeds(capability, max(minor, 18), several=on.several)
    speed = next((s for s in rates if s <= each), 0.0)
    return (heads, speed) if speed else (0, 0.0)


def switch_ports(topology: Topology, members: tuple[int, ...]) -> list[Path]:
    """Returns, for each GPU of a node, a path into the GPU from another one through the node's switches.

    The list is empty if these switches do not add up and multicast data.
    """
    paths = [topology.path(members[i - 1], r) for i, r in enumerate(members)] if len(members) > 1 else []
    if any(path is None or not topology.link_class(path.link_class).multicast_efficiency for path in paths):
        return []
    return [path for path in paths if path is not None]


def nics(topology: Topology) -> int:
    """Returns the number of NICs of the first node."""
    cards = {r.name for r in topology.resources if r.kind == "nic"}
    ports = (p for f in topology.fabrics if f.across_nodes for p in f.ports if topology.ranks[p.rank].node == 0)
    return len({name for port in ports for name in port.out if name in cards})


def orders(found: Graph, what: Found, channels: int) -> list[tuple[int, ...]]:
    """Returns the ranks in the order of the ring, or of the chains in nodes of the tree, of each channel.

    Two rings that leave a node by each other's NIC change places on every other node, so that a NIC sends to its like.
    """
    if found.rings and what is found.ring:
        return [found.rings[c % len(found.rings)] for c in range(channels)]
    count = found.channels
    pairs = what.cross and count % 2 == 0

    def ring(channel: int) -> tuple[int, ...]:
        inside = [what.orders[(channel ^ (n & 1 if pairs else 0)) % count] for n in range(len(found.nodes))]
        return tuple(ranks[g] for ranks, order in zip(found.nodes, inside, strict=True) for g in order)

    different = [ring(c) for c in range(count)]
    return [different[c % count] for c in range(channels)]
