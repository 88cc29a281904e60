"""The parameters of the simulator besides the topology: the rates of threadblocks and protocols on a platform.

The topology gives the line rates of links. A preset gives the fraction of them that each protocol reaches as data, the
rate of one threadblock, and the times of an operation, a hop and a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gc3 import _core, errors

_LEAST_SLOWDOWN = 1e-9  # rounding may leave nothing of a slowdown far below 1
_MOST_ENGINES = 64  # far more than a GPU has
DIRECT = "Direct"  # the protocol by whose name presets have the rates of one-sided programs
_PLAIN = ("nop", "send")  # the opcodes whose rate is that of sending


def opcode_factors(
    copy: float = 1.0, copy_twice: float = 0.56, reduce: float = 0.74, reduce_twice: float = 0.46
) -> dict[str, float]:
    """Returns the rate of a threadblock at each opcode besides `send`, as a fraction of its rate at sending.

    Args:
        copy: For opcodes that write data to one place: a buffer, or a slot.
        copy_twice: For opcodes that both store and send it.
        reduce: As `copy`, of opcodes that reduce.
        reduce_twice: As `copy_twice`, of opcodes that reduce.

    >>> opcode_factors()["recv_reduce_copy_send"]
    0.46
    """
    return {
        op.name: (reduce_twice if op.reduces else copy_twice)
        if op.sends and op.writes_local
        else (reduce if op.reduces else copy)
        for op in _core.opcodes()
        if op.name not in _PLAIN
    }


@dataclass(frozen=True, slots=True)
class ProtocolParameters:
    """How a protocol moves data on a platform.

    Attributes:
        rate: Bytes of data per second of one threadblock that sends.
        link_efficiency: The part of a link's rate (for kernels) that is data; one-sided programs may carry more.
        network_efficiency: The part of a NIC's and a PCIe link's rate (for DMA) that is data.
        op_s: Seconds of every slice of every instruction that moves data.
        hop_s: Seconds that a hop takes besides the latency of its wire.
        network_hop_s: The same for a hop through a NIC.
        slot_bytes: Bytes of data in a FIFO slot, which is what an instruction moves at a time.
        slots: FIFO slots per connection.
        slices: Slices of a message, which are sent as soon as they are ready.
        min_slice_bytes: Bytes of data in a slice at least.
        cut_through: Whether a receiver may start with the first line, or has to wait for the whole slice.
        line_bytes: Bytes of data that a threadblock moves at a time, where it is cut through. Of one-sided programs:
            bytes of each source that it has asked for and not got.
        lend_bytes: Messages of at least this many bytes of data are not copied into a slot: the receiver reads them in
            place. 0: all are copied.
        lend_rate: Bytes per second at which it reads them.
        lend_combined_bytes: As `lend_bytes`, of messages that the receiver reduces or sends on.
        rendezvous_bytes: Messages of at least this many bytes of data are sent only after the receiver has reached the
            receive and has answered, as in MPI. 0: all are sent at once.
        split: Whether an instruction of several chunks that exceed a slot sends several messages, as in MSCCL's kernels
            (`mscclMaxAllowedCount` in microsoft/msccl 2.12.12); otherwise tiles are shorter, as in GC3's runtime.
        egress_rate: Bytes of data per second that a rank sends over all its direct links together; 0: no limit.
        request_part: Within a node, receivers load what lies with the sender: bytes of their requests on the wire for
            each byte of data. 0: senders store it.
        copy_engines: Engines of a rank that move all messages within a node; 0: threadblocks move them.
        submit_s: Seconds that a rank's processor takes to submit a copy to them, or the proxy of a port channel.
        copy_s: Seconds from the time when an engine takes up a message until its first byte is on the way.
        launch_s: Seconds until the threadblocks of a launched program begin; 0: those of the preset.
        local_s: In one-sided programs, seconds of a load from the own memory, and until another threadblock of the rank
            sees something.
        release_s: Likewise of a release signal, once what it orders has arrived.
        processors: Likewise multiprocessors, to which the threadblocks of a rank are dealt; each moves `rate`.
        factors: The rate of other work relative to sending, by opcode.
    """

    rate: float
    link_efficiency: float
    network_efficiency: float
    op_s: float
    hop_s: float
    network_hop_s: float
    slot_bytes: int
    slots: int
    slices: int = 1
    min_slice_bytes: int = 1
    cut_through: bool = False
    line_bytes: int = 0
    lend_bytes: int = 0
    lend_rate: float = 0.0
    lend_combined_bytes: int = 0
    rendezvous_bytes: int = 0
    split: bool = False
    egress_rate: float = 0.0
    request_part: float = 0.0
    copy_engines: int = 0
    submit_s: float = 0.0
    copy_s: float = 0.0
    launch_s: float = 0.0
    local_s: float = 0.0
    release_s: float = 0.0
    processors: int = 0
    factors: Mapping[str, float] = field(default_factory=opcode_factors)

    def __post_init__(self) -> None:
        """Refuses more engines than can be listed."""
        if self.copy_engines > _MOST_ENGINES:
            raise errors.error(
                "BadSimulation", f"{self.copy_engines} copy engines of a rank; {_MOST_ENGINES} at most are simulated"
            )

    def core(self, slowdown: float = 1.0) -> _core.SimProtocol:
        """Returns the form that the core takes, with bytes that take so many times longer."""
        return _core.SimProtocol(
            self.slot_bytes,
            self.slots,
            self.slices,
            self.min_slice_bytes,
            self.cut_through,
            self.line_bytes,
            self.op_s,
            [self.rate / slowdown * self.factors.get(op.name, 1.0) for op in _core.opcodes()],
            self.lend_bytes,
            self.lend_rate / slowdown,
            self.lend_combined_bytes,
            self.split,
            [self._memory_bytes(op) for op in _core.opcodes()],
            self.rendezvous_bytes,
        )

    def one_sided(self) -> _core.SimDirectTiming:
        """Returns the form that the core takes for one-sided programs."""
        return _core.SimDirectTiming(
            self.op_s, self.rate, self.line_bytes, self.local_s, self.release_s, self.submit_s, self.processors
        )

    def _memory_bytes(self, op: _core.OpcodeInfo) -> float:
        """What an opcode reads and writes in the memory of its rank, in bytes on the wire for each of those.

        What it receives has been written into a slot, with its flags, and is read; buffers have data only.
        """
        buffers = op.reads_local + op.writes_local + (op.reduces and not op.receives)
        return 2 * op.receives + self.network_efficiency * buffers


@dataclass(frozen=True, slots=True)
class Scope:
    """What measurements cover; all of them are of one node that lacks nothing."""

    ranks: tuple[int, int]  # the least and the greatest number of ranks
    protocols: tuple[str, ...]  # names
    sizes: Mapping[str, tuple[int, int]]  # least and greatest S in bytes, by collective

    def elsewhere(self, ranks: int) -> str | None:
        """Returns why a number of ranks is not covered; None: it is."""
        return None if self.ranks[0] <= ranks <= self.ranks[1] else f"{ranks} ranks"

    def outside(self, collective: str, protocol: str, least: int, most: int) -> list[str]:
        """Returns what of a program, called with sizes from `least` to `most`, the measurements do not cover."""
        low, high = self.sizes.get(collective, (0, most))
        reasons = [
            (collective not in self.sizes, collective),
            (protocol not in self.protocols, protocol),
            (least < low, f"{collective} below {low} B"),
            (most > high, f"{collective} above {high} B"),
        ]
        return [text for applies, text in reasons if applies]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of parameters.

    Attributes:
        source: The measurements, or the publications that the numbers were taken from.
        in_sample: Mean absolute logarithm of predicted over measured time on the data that was fitted; None where
            nothing was fitted.
        held_out: The same on data left out of the fit.
        scope: What the data covers; None: not known.
        median: The median of the same as `held_out`; None: not known.
        p90: What nine of ten of them stay within.
    """

    source: str
    in_sample: float | None = None
    held_out: float | None = None
    scope: Scope | None = None
    median: float | None = None
    p90: float | None = None

    @property
    def status(self) -> str:
        """Whether the parameters were fitted to measurements of the platform: "calibrated", or "estimated"."""
        return "estimated" if self.held_out is None else "calibrated"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The preset of a platform.

    Attributes:
        name: As used on the command line.
        protocols: By name: Simple, LL, LL128.
        launch_s: Seconds until the threadblocks of a launched program begin.
        evidence: The source of the numbers.
        connection_rate: Bytes per second of one connection through a NIC at most; 0: no limit.
        connection_message_s: Seconds of a connection through a NIC that every slice takes.
        staged_network: Whether a proxy sends what threadblocks hand it, or threadblocks wait for the NIC.
        cores: Processors that execute all threadblocks of the machine, a rank having one at most; 0: every threadblock
            has its own.
        cores_dealt: Whether rank r has processor r modulo their number, as processes have, or each processor as many
            ranks in a row as the others.
        core_switch_s: Seconds that a processor takes to turn from one rank to another.
        cache_bytes: Size of buffers and slots, of all ranks together, of which half lie outside the caches of the
            processors; 0: all lie inside.
        cache_slowdown: How many times longer a byte takes a threadblock there.
        memory_rate: Bytes per second that all threadblocks of a rank read and write in its memory; 0: no limit.
        threadblocks: Most threadblocks that a rank holds at once, all of which must be resident; 0: no limit.
        flop_rate: FLOP per second of a rank, for compute operations whose cost is given in FLOP; 0: not known.
    """

    name: str
    protocols: Mapping[str, ProtocolParameters]
    launch_s: float
    evidence: Evidence
    connection_rate: float = 0.0
    connection_message_s: float = 0.0
    staged_network: bool = True
    cores: int = 0
    cores_dealt: bool = False
    core_switch_s: float = 0.0
    cache_bytes: float = 0.0
    cache_slowdown: float = 1.0
    memory_rate: float = 0.0
    threadblocks: int = 0
    flop_rate: float = 0.0
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Keeps the protocols from being changed."""
        object.__setattr__(self, "protocols", MappingProxyType(dict(self.protocols)))

    def slowdown(self, footprint: int) -> float:
        """Returns how many times longer a byte takes a threadblock if buffers and slots have `footprint` bytes."""
        if self.cache_bytes <= 0:
            return 1.0
        return max(1.0 + (self.cache_slowdown - 1.0) * footprint / (footprint + self.cache_bytes), _LEAST_SLOWDOWN)

    def protocol(self, name: str) -> ProtocolParameters:
        """Returns the parameters of a protocol.

        Raises:
            gc3.UserError: The platform does not have it.
        """
        try:
            return self.protocols[name]
        except KeyError:
            known = ", ".join(each for each in self.protocols if each != DIRECT)
            if name == DIRECT:
                raise errors.error(
                    "BadSimulation",
                    f"preset '{self.name}' has no rates of one-sided programs (protocol {DIRECT}); it has {known}",
                ) from None
            raise errors.error(
                "BadSimulation", f"preset '{self.name}' has no protocol {name}; it has {known}"
            ) from None
