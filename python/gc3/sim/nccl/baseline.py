"""NCCL as a column of a table."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from gc3 import collectives, errors
from gc3.runtime.program import Program
from gc3.sim.nccl import graphs, in_switch, programs, rates, sends, tuning
from gc3.sim.nccl.rates import Rates
from gc3.sim.nccl.system import completed, idle
from gc3.sim.nccl.tables import ALL_PAIRS, TREE, constants, said
from gc3.sim.nccl.tuning import Choice
from gc3.sim.parameters import Parameters
from gc3.sim.platform import Platform
from gc3.sim.predict import UNDISTURBED, Disturbance, Prediction, Simulation
from gc3.sim.sweep import Cell

SEND_RECEIVE = ("alltoall", "alltonext")
_STEPS = 8  # of a FIFO
_MOST_SLICES = 1 << 12  # of a message in the simulator
_MOST_SLOT_BYTES = 1 << 30  # the same of a slot


class Nccl:
    """NCCL on a machine.

    >>> from gc3.sim import platform
    >>> nccl = Nccl(platform("ndv4"), "allreduce")
    >>> nccl(1 << 20).cause
    'ring LL, 24 channels; its own model: 41.4 us'
    """

    def __init__(
        self,
        on: Platform,
        collective: str,
        version: str | None = None,
        own: Rates | None = None,
        found: graphs.Graph | None = None,
    ) -> None:
        """Looks up what NCCL finds on the machine.

        Args:
            on: The machine; only the links and NICs of its preset are used.
            collective: The collective.
            version: Of NCCL; None: that of the published measurements of this machine.
            own: NCCL's rates; None: those of the machine's GPUs.
            found: What NCCL found there, as a log says; None: what it would find by its rules.

        Raises:
            gc3.UserError: NCCL does not have the collective, or does not run on this machine.
        """
        known = (*tuning.COLLECTIVES, *SEND_RECEIVE)
        if collective not in known:
            raise errors.error("BadSimulation", f"NCCL has no {collective}; it has {', '.join(known)}")
        self.collective = collective
        self.graph = found or graphs.graph(on.topology, version)
        self.on = replace(on, topology=completed(on.topology, self.graph.nodes))
        self.version = self.graph.version
        self.model = constants(self.version)
        self.rates = own or rates.of(self.graph)
        self._programs: dict[tuple[str, str, int], Program] = {}

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{'RCCL' if self.graph.rccl else 'NCCL'} {self.version}"

    def with_rates(self, own: Rates | None = None, on: Platform | None = None) -> Nccl:
        """Returns the same with other rates of NCCL, or on a machine that differs only in its rates."""
        other = Nccl(on or self.on, self.collective, self.version, own or self.rates, self.graph)
        other._programs = self._programs
        return other

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of these GPUs and this version, what is taken instead, and which NICs are not used."""
        unused = idle(self.on.topology) if len(self.graph.nodes) > 1 else ()
        return (*self.graph.notes, *(() if self.graph.rccl else said(self.version)), *unused)

    def choice(self, size: int) -> Choice | None:
        """Returns NCCL's choice for S = `size` bytes; None for sends and receives, which have no choice."""
        if self.collective in SEND_RECEIVE:
            return None
        return tuning.best(self.graph, self.collective, size)

    def run(self, size: int, disturbance: Disturbance = UNDISTURBED) -> Prediction | None:
        """Returns the simulation of NCCL's choice; None if its program would be too large to compile."""
        return self.run_choice(self.choice(size), size, disturbance)

    def run_choice(self, choice: Choice | None, size: int, disturbance: Disturbance = UNDISTURBED) -> Prediction | None:
        """Returns the simulation of what NCCL does by a choice, which need not be its own; see `run` and `choice`."""
        if not self._simulates(choice):
            return None
        if choice is not None and choice.in_switch and self.model.in_switch is not None:
            busiest, model = self._busiest, self.model.in_switch
            return in_switch.prediction(self.on, busiest, self.graph, model, choice, self.collective, size, disturbance)
        if choice is None:
            message, pieces = self._message(size)
            if ("send", "", pieces) not in self._programs:
                self._programs["send", "", pieces] = self._sends(pieces)
            program = self._programs["send", "", pieces]
            return Simulation(program, self.sending(message // pieces)).run(size, disturbance=disturbance)
        program = self._program(choice.algorithm, choice.protocol, choice.channels)
        return self._simulation(program, choice, size).run(size, disturbance=disturbance)

    def simulates(self, size: int) -> bool:
        """Returns whether its time at a size is simulated; else its program would be too large: see `run`."""
        return self._simulates(self.choice(size))

    def _simulates(self, choice: Choice | None) -> bool:
        if choice is None or (choice.in_switch and self.model.in_switch is not None):
            return True
        return programs.operations(self.on.topology, self.collective, choice) <= programs.MOST_OPERATIONS

    def __call__(self, size: int, *, disturbance: Disturbance = UNDISTURBED) -> Cell:
        """Returns the cell of a table."""
        choice, found = self.choice(size), self.run(size, disturbance)
        how = "send and receive" if choice is None else f"{choice}; {choice.told}"
        if found is not None:
            algbw, busbw = found.algbw, found.busbw
            return Cell(self.label, found.size, found.time_s, algbw, busbw, found.bound_s, found.bound_by, how, 1.0)
        assert choice is not None  # noqa: S101  sends always run
        algbw = size / choice.time_s / 1e9
        busbw = algbw * collectives.get(self.collective).factor(self.on.topology.rank_count)
        return Cell(self.label, size, choice.time_s, algbw, busbw, 0.0, "", f"{choice}; by its own model only", 1.0)

    @cached_property
    def _busiest(self) -> in_switch.Load:
        return in_switch.busiest_load(self.on, self.graph, self.collective)

    def _program(self, algorithm: str, protocol: str, channels: int) -> Program:
        key = (algorithm, protocol, channels)
        if key not in self._programs:
            self._programs[key] = programs.program(self.on.topology, self.graph, self.collective, Choice(*key, 0.0))
        return self._programs[key]

    def _parameters(self, choice: Choice, size: int) -> Parameters:
        """The preset for a choice: of a tree with LL128, messages are as short as NCCL makes them."""
        if choice.algorithm == ALL_PAIRS:
            return replace(self.on.parameters, launch_s=self.rates.launch_s)
        found = rates.parameters(self.on, self.rates, choice.channels)
        # Of a ring's channels each has links of its own; RCCL on MI300X passes what programs send over all together.
        free = {name: replace(timing, egress_rate=0.0) for name, timing in found.protocols.items()}
        found = replace(found, protocols=free)
        if (choice.algorithm, choice.protocol) != (TREE, "LL128"):
            return found
        topology, ll128 = self.on.topology, found.protocol("LL128")
        chunk = programs.tree_chunk_bytes(
            ll128.slot_bytes, size, choice.channels, topology.rank_count, len(self.graph.nodes)
        )
        return replace(found, protocols={**found.protocols, "LL128": replace(ll128, slot_bytes=chunk)})

    def _simulation(self, program: Program, choice: Choice, size: int) -> Simulation:
        topology, post = self.on.topology, 1.0 if choice.protocol == "Simple" else self.rates.post
        across = self.on.network_classes if post != 1 else ()
        classes = (replace(c, message_s=c.message_s * post) if c.name in across else c for c in topology.classes)
        on = replace(self.on, topology=replace(topology, classes=tuple(classes))) if across else self.on
        return Simulation(program, replace(on, parameters=self._parameters(choice, size)))

    def _message(self, size: int) -> tuple[int, int]:
        """The bytes of a message of a group of sends, and its parts."""
        topology = self.on.topology
        message = size if self.collective == "alltonext" else -(-size // topology.rank_count)
        most = sends.channels(self.graph)
        return message, sends.parts(message, topology.rank_count, len(self.graph.nodes), most)

    def _sends(self, pieces: int) -> Program:
        ranks = self.on.topology.rank_count
        if self.collective == "alltonext":
            return sends.alltonext(ranks, pieces)
        return sends.alltoall(ranks, sends.channels(self.graph), pieces, self.model.peers_at_once)

    def sending(self, message: int) -> Platform:
        """Returns the machine for NCCL's sends of so many bytes each.

        In an AllToAll, whose turns need that, a message is in one FIFO slot, or in several of 1 GiB, and travels in
        steps, and a NIC is busy with each message besides its steps; this time is added to each step in equal parts.
        """
        topology, own = self.on.topology, self.rates
        step = sends.step_bytes(len(self.graph.nodes))
        parameters = rates.parameters(self.on, own, 1)
        simple = replace(parameters.protocol("Simple"), slot_bytes=step, slots=_STEPS, slices=1, min_slice_bytes=step)
        if self.collective == "alltoall":
            step = max(step, -(-message // _MOST_SLICES))
            steps = max(-(-message // step), 1)
            slots = -(-steps * step // _MOST_SLOT_BYTES)
            each = -(-steps // slots)
            simple = replace(simple, slot_bytes=each * step, slots=slots, slices=each, min_slice_bytes=step)
            busy = (own.peer_s + own.first_step_s * min(message / step, 1.0)) / steps
            across = self.on.network_classes
            classes = (replace(c, message_s=c.message_s + busy) if c.name in across else c for c in topology.classes)
            topology = replace(topology, classes=tuple(classes))
        # NCCL serves peers in turn, at most 32 channels at once; the program here has a threadblock for each message.
        parameters = replace(parameters, protocols={"Simple": simple}, threadblocks=0)
        return replace(self.on, topology=topology, parameters=parameters)
