"""Times of programs on machines: one call, or many sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

from gc3 import _core, collectives, computing, datatypes, errors
from gc3.runtime.classes import ClassProgram
from gc3.runtime.program import Program
from gc3.sim import computed, presets, trust, v_counts
from gc3.sim.alpha_beta import alpha_beta
from gc3.sim.parameters import Parameters, ProtocolParameters
from gc3.sim.platform import Platform
from gc3.support import notebook
from gc3.support.sizes import format_size
from gc3.support.words import counted
from gc3.topologies import load
from gc3.topologies.model import Topology

if TYPE_CHECKING:
    from gc3.sim.explanation import Explanation

SHARING = ("serial", "max-min")
_LONGEST_SLOT = 1 << 30  # bytes


class Compiled(Protocol):
    """A compiled program: `gc3.Program` or `gc3.DirectProgram`."""

    @property
    def core(self) -> _core.Program | _core.DirectProgram:
        """The executable form."""
        ...

    @property
    def described(self) -> _core.Program | _core.DirectProgram:
        """The same, or the rank that stands for all."""
        ...


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The differences between ranks.

    Attributes:
        delay_s: Seconds that a rank starts late, by rank.
        slowdown: How many times longer the threadblocks of a rank take, by rank.
    """

    delay_s: Mapping[int, float] = field(default_factory=dict[int, float])
    slowdown: Mapping[int, float] = field(default_factory=dict[int, float])

    def lists(self, ranks: int) -> tuple[list[float], list[float]]:
        """Returns both for all of `ranks` ranks; empty where nothing is disturbed."""
        for rank in (*self.delay_s, *self.slowdown):
            if not 0 <= rank < ranks:
                raise errors.error("BadSimulation", f"rank {rank} does not exist; there are {ranks} ranks")
        delays = [self.delay_s.get(r, 0.0) for r in range(ranks)] if self.delay_s else []
        return delays, [self.slowdown.get(r, 1.0) for r in range(ranks)] if self.slowdown else []


UNDISTURBED = Disturbance()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a call.

    Attributes:
        size: S in bytes, as nccl-tests defines it: the largest buffer of a rank.
        time_s: Seconds from the launch until the last rank is done.
        algbw: S / time in GB/s (1e9 bytes per second).
        busbw: algbw times the factor of the collective.
        bound_s: Seconds that the busiest resource of the machine needs for its share: no schedule of this program
            can be faster.
        bound_by: That resource; empty where nothing is sent.
        slice_ops: Slices of instructions that were simulated.
        explanation: The explanation of the time; None unless requested.
        use: The busy seconds and the carried bytes of each resource of the machine that was used, if explained.
        expected: What the time is worth, if explained; else `Simulation.expected` tells it.
    """

    size: int
    time_s: float
    algbw: float
    busbw: float
    bound_s: float
    bound_by: str
    slice_ops: int
    explanation: Explanation | None = None
    use: Mapping[str, tuple[float, int]] = field(default_factory=dict[str, "tuple[float, int]"])
    expected: trust.Expected | None = None

    @property
    def time_us(self) -> float:
        """The time in microseconds."""
        return 1e6 * self.time_s

    def _repr_html_(self) -> str:
        """Shows it in a notebook."""
        rows = [
            ("size", format_size(self.size)),
            ("time", f"{self.time_us:.2f} us"),
            ("algbw", f"{self.algbw:.4g} GB/s"),
            ("busbw", f"{self.busbw:.4g} GB/s"),
        ]
        rows += [("at least", f"{1e6 * self.bound_s:.2f} us ({self.bound_by})")] if self.bound_s else []
        rows += [("error", self.expected.text)] if self.expected else []
        return notebook.card("prediction", rows, None if self.explanation is None else self.explanation.causes)


def platform(topology: str | Topology, preset: str | Parameters | None = None) -> Platform:
    """Returns a machine to simulate on.

    Args:
        topology: The machine, or its name as `gc3.topologies.load` takes it.
        preset: The rates; None: the preset of that machine.
    """
    machine = load(topology) if isinstance(topology, str) else topology
    if isinstance(preset, str):
        preset = presets.get(preset)
    return Platform(machine, preset or presets.for_topology(machine))


@dataclass(frozen=True, slots=True)
class Call:
    """What the core is told: S and the longest chunk in bytes, an element's bytes, counts, FIFOs, copies, computing."""

    size: int
    chunk_bytes: int
    itemsize: int
    counts: list[int]
    protocol: _core.SimProtocol
    copied: list[int]
    applied_s: list[float]


class Simulation:
    """A program on a machine, to be timed at any size.

    >>> import gc3
    >>> from gc3.algorithms import load as algorithm
    >>> ring = gc3.compile(algorithm("ring_allreduce"), R=8)
    >>> Simulation(ring, platform("ndv4")).run(1 << 20).size
    1048576
    """

    def __init__(
        self,
        program: Compiled,
        on: Platform,
        counts: Sequence[int] | None = None,
        ranks: Sequence[int] | None = None,
        costs: Mapping[str, computing.Cost] | None = None,
    ) -> None:
        """Wires the program to the machine.

        Of a program of which one rank stands for all, only one of the ranks that are alike on the machine is simulated.

        Args:
            program: What to time.
            on: The machine.
            counts: The elements of each block, for calls whose blocks differ in length, in the order of
                `Collective.v_count`: of an all-to-all what rank 0 sends to each rank, then rank 1. Of a program of
                named tensors, those of a chunk of each of `Program.lengths`; None: all are alike. At other sizes than
                that of these counts all are scaled alike.
            ranks: The ranks of the machine on which the program's ranks run, in their order; None: the first ones.
            costs: Of compute operations, by name, instead of those that `gc3.op` has declared.

        Raises:
            gc3.UserError: The machine does not have these ranks or lacks a path that the program needs; or the program
                does not serve such counts.
        """
        self._source = program
        by_class = isinstance(program, ClassProgram) and counts is None and not on.parameters.cores
        self._classes = program.classes if isinstance(program, ClassProgram) and by_class else None
        self.described = program.described if self._classes else program.core
        self._tensors = bool(self.described.collective.tensors)
        if self._tensors and counts is None:
            counts = [1] * len(self.messages.lengths)
        self._counts = None if counts is None else v_counts.checked(self.messages, counts)
        self._costs: dict[str, computing.Cost | None] = {}
        if isinstance(program, Program):
            self._costs |= {name: operation.cost for name, operation in program.declared.items()}
        self._costs |= costs or {}
        self.platform = on
        self._machine = on.machine(self.described.protocol)
        self.ranks = range(self.described.collective.ranks) if ranks is None else ranks
        self._places = [] if ranks is None else list(ranks)
        if isinstance(self.described, _core.DirectProgram):
            self.core = _core.DirectSimulator(self.described, self._machine, self._places)
        else:
            self.core = _core.Simulator(self._classes or self.described, self._machine, self._places)

    @property
    def program(self) -> _core.Program | _core.DirectProgram:
        """The program of all ranks."""
        return self._source.core

    @cached_property
    def whole(self) -> _core.Simulator:
        """The core that simulates each rank; see `messages`."""
        return _core.Simulator(self._classes, self._machine, self._places, True) if self._classes else self.fifo

    @property
    def alike(self) -> str:
        """How many classes of ranks are simulated, and why not fewer; empty: each rank is, as in any program."""
        if self._classes is None:
            return ""
        why = re.sub(r"resource (\d+)", lambda found: self._names[int(found[1])], self.fifo.unlike)
        alike = f"{counted(len(self.ranks), 'rank')} in {counted(self.fifo.ranks, 'class', 'classes')}"
        return f"{alike} on {self.platform.topology.name}" + (f": {why}" if why else "")

    @property
    def messages(self) -> _core.Program:
        """The program, if its ranks send messages.

        Raises:
            gc3.UserError: It is a one-sided program.
        """
        self._check_messages()
        return cast("_core.Program", self.program)

    def _check_messages(self) -> None:
        if isinstance(self.described, _core.DirectProgram):
            raise errors.error(
                "BadSimulation",
                f"'{errors.shown(self.described.name)}' is a one-sided program, for which this is not simulated: only "
                "the time of one call with equal blocks is",
            )

    @property
    def fifo(self) -> _core.Simulator:
        """The core, if the program's ranks send messages; see `messages`."""
        self._check_messages()
        return cast("_core.Simulator", self.core)

    @cached_property
    def _timing(self) -> ProtocolParameters:
        """The parameters of the program's protocol; without `split` if messages of single chunks deadlock.

        One tile of chunks as long as a slot decides: nothing is in flight between tiles. MSCCL would hang there; the
        shorter tiles of GC3's runtime cannot.
        """
        timing = self.platform.parameters.protocol(self.described.protocol)
        if self._tensors or not timing.split or self.fifo.most_chunks == 1:
            return timing
        try:
            self.fifo.run(timing.slot_bytes, timing.core())
        except errors.Gc3Error as problem:
            if problem.diagnostics[0].name != "SimulatedDeadlock":
                raise
            return replace(timing, split=False)
        return timing

    @cached_property
    def _protocol(self) -> _core.SimProtocol:
        return self._timing.core()

    @cached_property
    def _copied(self) -> tuple[list[int], list[int]]:
        """By rank, the blocks that the CPU engines copy besides the program's steps: if chunks are even, and if not."""
        return _core.blocks_copied(self.messages)

    def _copied_bytes(self, count: int, itemsize: int) -> list[int]:
        """By rank, the bytes that the CPU engines copy before a call of `count` elements in a block."""
        if not self.platform.parameters.cores or self._counts is not None:
            return []
        blocks = self._copied[1 if count % self.described.collective.chunks else 0]
        return [n * count * itemsize for n in blocks] if any(blocks) else []

    @cached_property
    def _names(self) -> list[str]:
        return self.platform.resource_names(self.described.protocol)

    def check_resident(self) -> None:
        """Refuses a program of which a rank has more threadblocks than a GPU holds at once.

        Raises:
            gc3.UserError: With the rank that has most.
        """
        most, limit = max(self.threadblocks, default=0), self.platform.parameters.threadblocks
        if limit and most > limit:
            raise errors.error(
                "TooManyThreadblocks",
                f"rank {self.threadblocks.index(most)} of '{self.described.name}' has {most}; a GPU of preset "
                f"'{self.platform.parameters.name}' holds {limit} at once",
            )

    @cached_property
    def threadblocks(self) -> list[int]:
        """The number of threadblocks of each rank."""
        own = list(self.described.threadblocks_per_rank)
        return own * len(self.ranks) if self._classes else own

    def fit(self, size: int, dtype: str = "float32") -> tuple[int, int]:
        """Returns S rounded down to whole elements, and the bytes of the longest chunk."""
        itemsize = datatypes.dtype(dtype).itemsize
        model = self.described.collective
        if self._counts is not None:
            scaled = v_counts.scaled(model, self._counts, size, itemsize)
            return v_counts.size_of(model, scaled, itemsize), -(-max(scaled) // model.chunks) * itemsize
        count = collectives.count_for(model, size, itemsize)
        return collectives.size_for(model, count, itemsize), -(-count // model.chunks) * itemsize

    def expected(self, size: int, *beyond: str) -> trust.Expected:
        """Returns what the predicted time at S = `size` bytes is worth; `beyond`: as in `trust.expected`."""
        own = ["multicast and sums in switches"] if trust.counts_on_switches(self.platform, self.described) else []
        if self._counts is not None:
            own += ["compute operations" if self._tensors else "blocks of different lengths"]
        own += ["some ranks of a machine"] if len(self.ranks) < self.platform.topology.rank_count else []
        name, protocol = self.described.collective.name, self.described.protocol
        return trust.expected(self.platform, name, protocol, size, [*own, *beyond])

    def work(self, size: int) -> int:
        """Returns about how many slice operations a simulation of this size takes."""
        if isinstance(self.core, _core.DirectSimulator):
            return self.core.work(self.fit(size)[1], self._timing.one_sided())
        return self.core.work(self.fit(size)[1], self._protocol)

    def call(self, size: int, dtype: str = "float32") -> Call:
        """Returns what the core is told of a call of S = `size` bytes."""
        actual, chunk_bytes = self.fit(size, dtype)
        itemsize = datatypes.dtype(dtype).itemsize
        counts = (
            [] if self._counts is None else v_counts.scaled(self.described.collective, self._counts, size, itemsize)
        )
        parameters, timing = self.platform.parameters, self._timing
        if self._tensors:
            longest = chunk_bytes * self.fifo.most_chunks
            timing = replace(timing, slot_bytes=min(max(timing.slot_bytes, longest), _LONGEST_SLOT))
        protocol = timing.core() if self._tensors else self._protocol
        copied = self._copied_bytes(collectives.count_for(self.described.collective, actual, itemsize), itemsize)
        if parameters.cache_bytes:
            buffers = collectives.footprint(self.described.collective, actual) + sum(copied)
            slots = self.fifo.slot_bytes(chunk_bytes, protocol) * (len(self.ranks) // self.fifo.ranks)  # of all ranks
            protocol = timing.core(parameters.slowdown(buffers + slots))
        applied = computed.seconds(self.messages, self._costs, counts, parameters) if self._tensors else []
        return Call(actual, chunk_bytes, itemsize, counts, protocol, copied, applied)

    def run(
        self,
        size: int,
        *,
        dtype: str = "float32",
        sharing: str = "serial",
        disturbance: Disturbance = UNDISTURBED,
        explain: bool = False,
    ) -> Prediction:
        """Returns the time of a call.

        Args:
            size: S in bytes; rounded down to whole elements in every block.
            dtype: The data type, which matters to rounding only.
            sharing: "serial" (a link serves one slice after the other) or "max-min" (all at once, slower to compute).
            disturbance: Ranks that start late or are slow.
            explain: Record every operation and find the critical path.

        Raises:
            gc3.UserError: A rank has more threadblocks than a GPU holds, the program deadlocks with the slots of the
                preset, or there is too much to record.
        """
        self.check_resident()
        if sharing not in SHARING:
            raise errors.error("BadSimulation", f"sharing '{sharing}'; it is one of {', '.join(SHARING)}")
        launch_s = self._timing.launch_s or self.platform.parameters.launch_s
        late = disturbance.lists(len(self.ranks))
        core = self.core
        if isinstance(core, _core.DirectSimulator):
            if sharing != SHARING[0]:
                raise errors.error("BadSimulation", "one-sided programs are simulated with sharing serial")
            actual, chunk_bytes = self.fit(size, dtype)
            outcome = core.run(chunk_bytes, self._timing.one_sided(), launch_s, *late, explain)
        else:
            call = self.call(size, dtype)
            actual = call.size
            core = self.whole if any(late) else self.fifo
            outcome = core.run(
                call.chunk_bytes,
                call.protocol,
                launch_s,
                *late,
                sharing == "max-min",
                explain,
                call.itemsize,
                call.counts,
                call.copied,
                call.applied_s,
            )
        busiest, (busy, _) = max(enumerate(outcome.use), key=lambda u: u[1][0], default=(0, (0.0, 0)))
        algbw = actual / outcome.time_s / 1e9 if outcome.time_s > 0 else 0.0
        found: Explanation | None = None
        if explain:
            from gc3.sim.explanation import Explanation  # noqa: PLC0415  it needs NumPy only where records are read

            messages = core.program if isinstance(core, _core.Simulator) else None
            copies = len(self.ranks) // core.ranks if isinstance(core, _core.Simulator) else 1
            found = Explanation(core.step_name, outcome, self._names, messages, copies)
        return Prediction(
            actual,
            outcome.time_s,
            algbw,
            algbw * collectives.factor(self.described.collective),
            busy,
            self._names[busiest] if busy else "",
            outcome.slice_ops,
            found,
            {name: use for name, use in zip(self._names, outcome.use, strict=False) if use[1]} if explain else {},
            self.expected(size, *([trust.CHANGED] if disturbance != UNDISTURBED else [])) if explain else None,
        )

    alpha_beta = alpha_beta


def simulate(
    program: Compiled,
    topology: str | Topology,
    size: int | Mapping[str, Sequence[int]],
    *,
    preset: str | Parameters | None = None,
    dtype: str = "float32",
    explain: bool = False,
    costs: Mapping[str, computing.Cost] | None = None,
) -> Prediction:
    """Returns the predicted time of a program on a machine, for a buffer of S = `size` bytes.

    Of a program that computes, `size` may be the shapes of chunks by the names of tensors and scratch buffers, as for
    `gc3.Bound.run`; and `costs` the costs of its operations, such as `gc3.Bound.costs`.

    >>> import gc3
    >>> from gc3.algorithms import load as algorithm
    >>> simulate(gc3.compile(algorithm("allpairs_allreduce"), R=8), "ndv4", 4096).slice_ops > 0
    True
    """
    on = platform(topology, preset)
    if isinstance(size, int):
        return Simulation(program, on, costs=costs).run(size, dtype=dtype, explain=explain)
    if not isinstance(program, Program):
        raise errors.error("BadSimulation", "shapes of chunks are for a program of named tensors")
    counts = computed.lengths(program.core, size)
    size = v_counts.size_of(program.collective, counts, datatypes.dtype(dtype).itemsize)
    return Simulation(program, on, counts, costs=costs).run(size, dtype=dtype, explain=explain)
