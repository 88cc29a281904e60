"""A topology with the parameters of a preset, on which programs are simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gc3 import _core
from gc3.sim.parameters import Parameters, ProtocolParameters
from gc3.topologies.model import Topology
from gc3.topologies.parts import Resource

# Resources driven by the DMA engine of a NIC or PCIe rather than by a kernel's loads and stores.
_DMA_KINDS = ("nic", "pcie")
_ENGINE_RATE = 1e15  # of a copy engine by itself: what bounds a copy are the links


def memory_name(rank: int) -> str:
    """Returns the name of the resource that is the memory of a rank."""
    return f"rank{rank}.memory"


@dataclass(frozen=True)
class Platform:
    """A machine to simulate on.

    Attributes:
        topology: The ranks and their links.
        parameters: The rates.
        slower: Names of resources with the fraction of their rate that is left; see `gc3.sim.degrade`.
    """

    topology: Topology
    parameters: Parameters
    slower: tuple[tuple[str, float], ...] = ()

    def __repr__(self) -> str:
        """Describes it in one line."""
        return f"<gc3.sim.Platform {self.topology.title}: {self.topology.rank_count} ranks, {self.parameters.name}>"

    @cached_property
    def network_classes(self) -> frozenset[str]:
        """The classes that join nodes."""
        return frozenset(f.link_class for f in self.topology.fabrics if f.across_nodes)

    @cached_property
    def _left(self) -> dict[str, float]:
        return dict(self.slower)

    @cached_property
    def _machines(self) -> dict[str, _core.SimMachine]:
        return {}

    def machine(self, protocol: str) -> _core.SimMachine:
        """Returns the machine with the rates that `protocol` reaches.

        Raises:
            gc3.UserError: The preset does not have the protocol, or the topology lacks a bandwidth.
        """
        made = self._machines.get(protocol)
        if made is None:
            made = self._machines[protocol] = self._make(self.parameters.protocol(protocol))
        return made

    def with_fifos(self, slots: int, slot_bytes: int) -> Platform:
        """Returns the machine with so many slots and bytes of a slot for the protocol Simple; 0: those it has."""
        if not slots and not slot_bytes:
            return self
        p = self.parameters
        timing = p.protocol("Simple")
        timing = replace(timing, slots=slots or timing.slots, slot_bytes=slot_bytes or timing.slot_bytes)
        return replace(self, parameters=replace(p, protocols={**p.protocols, "Simple": timing}))

    def rate(self, resource: Resource, protocol: ProtocolParameters) -> float:
        """Returns the bytes of data per second that a resource carries."""
        wire = self.topology.link_class(resource.link_class)
        line = self.topology.bandwidth(resource) * self._left.get(resource.name, 1.0)
        if resource.kind in _DMA_KINDS:
            return line * wire.dma_efficiency * protocol.network_efficiency
        if protocol.copy_engines:
            return line * wire.dma_efficiency * protocol.link_efficiency
        return line * wire.kernel_efficiency * protocol.link_efficiency

    def resource_names(self, protocol: str) -> list[str]:
        """Returns the names of the resources of `machine(protocol)`: of the topology, memories, egress, engines."""
        timing = self.parameters.protocol(protocol)
        names = [r.name for r in self.topology.all_resources] + [memory_name(rank) for rank in self.with_memory]
        names += [f"rank {rank} egress" for rank in self._limited(timing)]
        engines = range(timing.copy_engines)
        return names + [f"rank {rank} copy engine {k}" for rank in range(self.topology.rank_count) for k in engines]

    @property
    def with_memory(self) -> range:
        """The ranks whose memory is simulated: all where something else uses one, or none.

        Programs by themselves do not reach the rate of a GPU's memory, and simulating it takes time.
        """
        used = any(memory_name(rank) in self._left for rank in range(self.topology.rank_count))
        return range(self.topology.rank_count if used else 0)

    def memory_rate(self, rank: int, protocol: ProtocolParameters) -> float:
        """Returns the bytes/s of data that others leave of a rank's memory."""
        left = self._left.get(memory_name(rank), 1.0)
        return self.parameters.memory_rate * protocol.network_efficiency * left

    def _limited(self, protocol: ProtocolParameters) -> list[int]:
        """The ranks whose direct links together carry less than each by itself."""
        return sorted({link.src for link in self.topology.links}) if protocol.egress_rate > 0 else []

    def latency(self, link_class: str, protocol: ProtocolParameters) -> float:
        """Returns the seconds from the last byte sent to the last byte usable; a wire's unknown latency counts as 0."""
        wire = self.topology.link_class(link_class).latency_s or 0.0
        return wire + (protocol.network_hop_s if link_class in self.network_classes else protocol.hop_s)

    def _make(self, protocol: ProtocolParameters) -> _core.SimMachine:
        topology, p, ranks = self.topology, self.parameters, self.topology.rank_count
        index = {r.name: i for i, r in enumerate(topology.all_resources)}
        number = {c.name: i for i, c in enumerate(topology.classes)}
        resources = [
            (self.rate(r, protocol), topology.link_class(r.link_class).message_s) for r in topology.all_resources
        ]
        memory = [len(resources) + rank for rank in self.with_memory]
        # In bytes on the wire, as messages lie in slots.
        resources += [(self.memory_rate(rank, protocol), 0.0) for rank in self.with_memory]
        classes: list[tuple[float, float, float, bool, float, float, bool]] = []
        for c in topology.classes:
            network = c.name in self.network_classes
            limits = (p.connection_rate, p.connection_message_s) if network else (0.0, 0.0)
            # A proxy sends between nodes. Requests are in bytes of data, as the rates of resources are.
            engines = protocol.copy_engines > 0 and not network
            requests = 0.0 if network else protocol.request_part * c.kernel_efficiency * protocol.link_efficiency
            # Switches add up plain data that is pushed, without the flags of LL and LL128.
            pushed = not (protocol.cut_through or engines or requests)
            in_switch = c.multicast_efficiency if pushed else 0.0
            staged = network and p.staged_network
            latency = self.latency(c.name, protocol)
            classes.append((latency, *limits, staged, in_switch, requests, engines))
        links: list[tuple[int, int, int, list[int]]] = []
        egress = {rank: len(resources) + i for i, rank in enumerate(self._limited(protocol))}
        resources += [(protocol.egress_rate, 0.0)] * len(egress)
        own = protocol.copy_engines
        first = len(resources)
        moving = [[first + own * rank + k for k in range(own)] for rank in range(ranks)] if own else []
        resources += [(_ENGINE_RATE, protocol.copy_s)] * (own * ranks)
        wire = len(topology.resources)
        for link in topology.links:
            own = [wire] if link.lanes else []
            wire += len(own)
            if link.src in egress:
                own.append(egress[link.src])
            links.append((link.src, link.dst, number[link.link_class], own + [index[name] for name in link.via]))
        fabrics = [
            (
                number[f.link_class],
                f.across_nodes,
                [(port.rank, [index[n] for n in port.out], [index[n] for n in port.into]) for port in f.ports],
            )
            for f in topology.fabrics
        ]
        return _core.SimMachine(
            [r.node for r in topology.ranks],
            resources,
            classes,
            links,
            fabrics,
            p.cores,
            p.cores_dealt,
            p.core_switch_s,
            memory,
            moving,
            protocol.submit_s,
        )
