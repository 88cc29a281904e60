"""A machine as importers find it: GPUs and NICs on cables to a CPU, and links between GPUs. It becomes a topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gc3 import errors
from gc3.topologies._clusters import nearest
from gc3.topologies.build import Builder
from gc3.topologies.model import Topology
from gc3.topologies.parts import LinkClass, Port


@dataclass(frozen=True, slots=True)
class Cable:
    """A section of the path from a device to its CPU; devices below the same bridge share it."""

    name: str
    link_class: LinkClass
    lanes: int


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU: its host, its NUMA domain, and the class of its connection to other CPUs of the host."""

    name: str
    host: int
    numa: int
    crossing: LinkClass


@dataclass(slots=True)
class Gpu:
    """A GPU: its CPU, the cables from the GPU to the CPU, its lanes to switches, and its class."""

    name: str
    cpu: int
    chain: tuple[Cable, ...]
    switch: LinkClass | None = None
    switch_lanes: int = 0
    processor: str = ""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC: its CPU, the cables from the NIC to the CPU, and its link class."""

    name: str
    cpu: int
    chain: tuple[Cable, ...]
    wire: LinkClass


@dataclass(slots=True)
class Machine:
    """What an importer found."""

    cpus: list[Cpu] = field(default_factory=list[Cpu])  # the CPUs
    gpus: list[Gpu] = field(default_factory=list[Gpu])  # the GPUs, which become the ranks in this order
    nics: list[Nic] = field(default_factory=list[Nic])  # the NICs
    # direct links, each in one direction: from GPU, to GPU, class, lanes
    links: list[tuple[int, int, LinkClass, int]] = field(default_factory=list[tuple[int, int, LinkClass, int]])

    def reorder(self, order: Sequence[int]) -> None:
        """Puts the GPUs in another order: `order` lists their current indices."""
        place = {old: new for new, old in enumerate(order)}
        self.gpus = [self.gpus[old] for old in order]
        self.links = [(place[a], place[b], wire, lanes) for a, b, wire, lanes in self.links]


def assemble(machine: Machine, *, name: str, source: str, copies: int = 1, slow_paths: bool = True) -> Topology:
    """Returns the topology of some copies of a machine, joined by their NICs.

    Args:
        machine: The machine.
        name: Name of the topology.
        source: Where the description comes from.
        copies: The number of copies.
        slow_paths: Whether GPUs without a link or switch between them reach each other over PCIe and CPUs.
    """
    build = Builder(name, summary=f"{len(machine.gpus) * copies} GPUs, imported", source=source)
    ports: list[Port] = []
    for copy in range(copies):
        ports += _Copy(build, machine, copy, copies).add(slow_paths=slow_paths)
    if ports:
        build.fabric("network", machine.nics[0].wire, ports, across_nodes=True)
    return build.build()


class _Copy:
    """One copy of the machine in the topology under construction."""

    def __init__(self, build: Builder, machine: Machine, copy: int, copies: int) -> None:
        self._build = build
        self._machine = machine
        self._prefix = f"copy{copy}." if copies > 1 else ""
        self._hosts = 1 + max(cpu.host for cpu in machine.cpus)
        self._first_node = copy * self._hosts
        self._made: set[str] = set()
        self._ranks: list[int] = []

    def add(self, *, slow_paths: bool) -> list[Port]:
        """Adds the copy and returns its ports to the network."""
        machine, build = self._machine, self._build
        for gpu in machine.gpus:
            cpu = machine.cpus[gpu.cpu]
            name = f"{self._prefix}{gpu.name}" if self._hosts == 1 else f"{self._prefix}host{cpu.host}.{gpu.name}"
            self._ranks.append(
                build.rank(
                    errors.shown(name),
                    node=self._first_node + cpu.host,
                    socket=cpu.numa,
                    processor=gpu.processor,
                )
            )
        linked: set[tuple[int, int]] = set()
        lanes_of: dict[tuple[int, int, LinkClass], int] = {}
        for a, b, wire, lanes in machine.links:
            lanes_of[a, b, wire] = lanes_of.get((a, b, wire), 0) + lanes
        for (a, b, wire), lanes in lanes_of.items():
            if (a, b) not in linked:
                build.link(self._ranks[a], self._ranks[b], wire, lanes=lanes)
                linked.add((a, b))
        switched = self._switch()
        for a, gpu in enumerate(machine.gpus):
            for b, other in enumerate(machine.gpus):
                near = machine.cpus[gpu.cpu].host == machine.cpus[other.cpu].host
                if slow_paths and a != b and near and (a, b) not in linked and not {a, b} <= switched:
                    self._slow_link(a, b)
        return self._network()

    def _resource(self, name: str, kind: str, link_class: LinkClass, lanes: int = 1) -> str:
        name = errors.shown(self._prefix + name)
        if name not in self._made:
            self._made.add(name)
            self._build.resource(name, kind, link_class, lanes)
        return name

    def _switch(self) -> set[int]:
        """Adds a fabric of the GPUs that have lanes to switches; returns these GPUs."""
        members = [(i, gpu.switch, gpu.switch_lanes) for i, gpu in enumerate(self._machine.gpus) if gpu.switch]
        ports: list[Port] = []
        for i, wire, lanes in members:
            out = self._resource(f"switch.port{i}.out", "egress", wire, lanes)
            into = self._resource(f"switch.port{i}.in", "ingress", wire, lanes)
            ports.append(Port(self._ranks[i], (out,), (into,)))
        if members:
            self._build.fabric(f"{self._prefix}switch", members[0][1], ports)
        return {i for i, _, _ in members}

    def _slow_link(self, a: int, b: int) -> None:
        gpu, other = self._machine.gpus[a], self._machine.gpus[b]
        via = self._way(gpu.chain, gpu.cpu, other.chain, other.cpu)
        if not via:
            return
        crossing = self._machine.cpus[gpu.cpu].crossing
        wire = crossing if gpu.cpu != other.cpu or not gpu.chain else gpu.chain[0].link_class
        self._build.link(self._ranks[a], self._ranks[b], wire, lanes=0, via=via)

    def _way(self, up: tuple[Cable, ...], cpu: int, down: tuple[Cable, ...], other_cpu: int) -> list[str]:
        """The resources from one device to another: up to a bridge above both or through the CPUs, and down."""
        shared = {cable.name for cable in up} & {cable.name for cable in down}
        way = [self._resource(f"{c.name}.up", "pcie", c.link_class, c.lanes) for c in up if c.name not in shared]
        if cpu != other_cpu:
            names = (self._machine.cpus[cpu].name, self._machine.cpus[other_cpu].name)
            way.append(self._resource(f"{names[0]}->{names[1]}", "xbus", self._machine.cpus[cpu].crossing))
        below = [c for c in down if c.name not in shared]
        return way + [self._resource(f"{c.name}.down", "pcie", c.link_class, c.lanes) for c in reversed(below)]

    def _network(self) -> list[Port]:
        ports: list[Port] = []
        for i, gpu in enumerate(self._machine.gpus):
            host = self._machine.cpus[gpu.cpu].host
            cards = {n: nic for n, nic in enumerate(self._machine.nics) if self._machine.cpus[nic.cpu].host == host}
            least = min((_distance(gpu, nic) for nic in cards.values()), default=None)
            near = [n for n, nic in cards.items() if _distance(gpu, nic) == least]
            if not near:
                continue
            sharing = self._nearest_gpus(cards[near[0]])
            place = sharing.index(i) if i in sharing else i % len(sharing)
            for n in (near[k] for k in nearest(place, len(sharing), len(near))):
                nic = cards[n]
                out = self._resource(f"nic{n}.{nic.name}.tx", "nic", nic.wire)
                into = self._resource(f"nic{n}.{nic.name}.rx", "nic", nic.wire)
                there = self._way(gpu.chain, gpu.cpu, nic.chain, nic.cpu)
                back = self._way(nic.chain, nic.cpu, gpu.chain, gpu.cpu)
                ports.append(Port(self._ranks[i], (*there, out), (into, *back)))
        return ports

    def _nearest_gpus(self, nic: Nic) -> list[int]:
        """The GPUs of a NIC's host that are nearest to the NIC."""
        cpus, gpus = self._machine.cpus, self._machine.gpus
        host = [i for i, gpu in enumerate(gpus) if cpus[gpu.cpu].host == cpus[nic.cpu].host]
        least = min(_distance(gpus[i], nic) for i in host)
        return [i for i in host if _distance(gpus[i], nic) == least]


def _distance(gpu: Gpu, nic: Nic) -> tuple[bool, bool, int]:
    """The distance of a NIC from a GPU: whether the path crosses two CPUs, whether any, and the number of cables."""
    shared = {cable.name for cable in gpu.chain} & {cable.name for cable in nic.chain}
    return gpu.cpu != nic.cpu, not shared, len(gpu.chain) + len(nic.chain) - 2 * len(shared)
