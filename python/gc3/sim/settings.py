"""The parameters of a platform by name, with units: to change them, and to fit them.

    launch                    time until threadblocks begin
    connection.rate           of one connection through a NIC; connection.message: its time per slice
    core.switch               time of a processor that ranks share to turn to another rank
    memory.rate               of a rank's memory, for all its threadblocks together
    cache.bytes  cache.slowdown  size of buffers of which half lie outside the caches, and how slow bytes are there
    LL.rate                   of one threadblock that sends; likewise for Simple and LL128
    LL.op  LL.hop  LL.network_hop            times
    LL.link_efficiency  LL.network_efficiency  parts of the line rate
    LL.slot_bytes  LL.slots  LL.slices  LL.min_slice_bytes  LL.line_bytes
    Simple.lend_bytes  Simple.lend_rate      size from which messages are read where they lie, and how fast
    Simple.lend_combined_bytes  that size for messages that are reduced or sent on
    Simple.rendezvous_bytes                  size from which a message waits for its receiver
    LL.egress                 of all direct links of a rank together
    Pull.requests             bytes of requests for each byte that is pulled
    Copy.engines  Copy.start  copy engines of a rank, and the time until one moves the first byte of a message
    Copy.submit               time of a rank's processor for a copy
    Direct.launch  Direct.local  Direct.release  of one-sided programs: see gc3.sim.ProtocolParameters
    LL.recv_reduce_copy       factors of the rate, by opcode
    nvlink3.bandwidth         of a lane; .latency .message .kernel_efficiency .dma_efficiency .multicast_efficiency
    nic.bandwidth             the same of every class that resources of a kind are made of

A name that starts with "*." means all protocols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from gc3 import errors
from gc3.sim.parameters import DIRECT, ProtocolParameters, opcode_factors
from gc3.sim.platform import Platform
from gc3.topologies.model import Topology
from gc3.topologies.parts import KINDS, LinkClass

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
RATES = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 1e9 / 8}
_SIZES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "kB": 1e3, "MB": 1e6}
_UNITS = {"time": _TIMES, "rate": RATES, "size": _SIZES, "number": {"": 1.0}}
_TELLING = {"time": "5us", "rate": "50GB/s", "size": "512KiB", "number": "0.8"}

# name in a setting -> (field, what it is)
_OF_PROTOCOL = {
    "rate": ("rate", "rate"),
    "link_efficiency": ("link_efficiency", "number"),
    "network_efficiency": ("network_efficiency", "number"),
    "op": ("op_s", "time"),
    "hop": ("hop_s", "time"),
    "network_hop": ("network_hop_s", "time"),
    "slot_bytes": ("slot_bytes", "size"),
    "slots": ("slots", "number"),
    "slices": ("slices", "number"),
    "min_slice_bytes": ("min_slice_bytes", "size"),
    "line_bytes": ("line_bytes", "size"),
    "lend_bytes": ("lend_bytes", "size"),
    "lend_rate": ("lend_rate", "rate"),
    "lend_combined_bytes": ("lend_combined_bytes", "size"),
    "rendezvous_bytes": ("rendezvous_bytes", "size"),
    "egress": ("egress_rate", "rate"),
    "requests": ("request_part", "number"),
    "engines": ("copy_engines", "number"),
    "submit": ("submit_s", "time"),
    "start": ("copy_s", "time"),
    "launch": ("launch_s", "time"),
    "local": ("local_s", "time"),
    "release": ("release_s", "time"),
}
_OF_CLASS = {
    "bandwidth": ("bandwidth_bytes_per_s", "rate"),
    "latency": ("latency_s", "time"),
    "message": ("message_s", "time"),
    "kernel_efficiency": ("kernel_efficiency", "number"),
    "dma_efficiency": ("dma_efficiency", "number"),
    "multicast_efficiency": ("multicast_efficiency", "number"),
}
_OF_PLATFORM = {
    "launch": ("launch_s", "time"),
    "connection.rate": ("connection_rate", "rate"),
    "connection.message": ("connection_message_s", "time"),
    "core.switch": ("core_switch_s", "time"),
    "memory.rate": ("memory_rate", "rate"),
    "flop.rate": ("flop_rate", "number"),
    "cache.bytes": ("cache_bytes", "size"),
    "cache.slowdown": ("cache_slowdown", "number"),
}
_INTEGERS = {field.name for field in fields(ProtocolParameters) if field.type == "int"}
_WHOLE = tuple(key for key, (field, _) in _OF_PROTOCOL.items() if field in _INTEGERS)
_MOST = 1 << 30  # of each of these
_FACTORS = tuple(opcode_factors())


@dataclass(frozen=True, slots=True)
class Setting:
    """A change of a parameter."""

    name: str  # of the parameter
    value: float  # in seconds, bytes per second, bytes, or plain
    relative: bool = False  # whether `value` multiplies what is there


def parse(text: str) -> Setting:
    """Parses a setting, NAME=VALUE or NAME=*FACTOR.

    Raises:
        gc3.UserError: It is neither, or the unit is wrong.

    >>> parse("nic.bandwidth=50GB/s").value
    50000000000.0
    >>> parse("LL.hop=*0.5")
    Setting(name='LL.hop', value=0.5, relative=True)
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    what = kind(name) if equals else None
    if equals and what is None:
        raise _bad(f"'{text}': there is no parameter '{name}'; nic.bandwidth, launch and LL.hop are some")
    if what is None:
        raise _bad(f"'{text}': write NAME=VALUE, as in nic.bandwidth=50GB/s, launch=5us or LL.hop=*0.5")
    relative = value.startswith("*")
    match = re.fullmatch(r"([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*(\S*)", value.removeprefix("*"), re.IGNORECASE)
    unit = {"": 1.0} if relative else _UNITS[what]
    if match is None or match[2] not in unit:
        units = " or ".join(u for u in unit if u)
        raise _bad(
            f"'{value}' in '{text}': {name} is a {what}{f' in {units}' if units else ''}, as in {_TELLING[what]}"
        )
    try:
        number = float(match[1]) * unit[match[2]]
    except ValueError:
        raise _bad(f"'{value}' in '{text}' is not a number") from None
    if not math.isfinite(number):
        raise _bad(f"'{value}' in '{text}' is too large a number")
    if number > 1 and not relative and _is_part(name):
        raise _bad(f"'{value}' in '{text}': {name} is the part that is used, which is 1 at most")
    may_be_zero = (what == "time" and not relative) or name.endswith(".multicast_efficiency")  # 0: no such switch
    least = "0 or more" if may_be_zero else "above 0"
    if number < 0 or (number == 0 and least == "above 0"):
        raise _bad(f"'{value}' in '{text}': {name} is a {what}, which is {least}")
    return Setting(name, number, relative)


def _is_part(name: str) -> bool:
    return name.endswith("_efficiency") and not name.startswith(DIRECT)


def names(on: Platform) -> Iterator[str]:
    """Yields every parameter of a platform that is a number above 0 and not a matter of the FIFO's layout."""
    for name in _OF_PLATFORM:
        if get(on, name) > 0:
            yield name
    for protocol in on.parameters.protocols:
        for key in (*_OF_PROTOCOL, *_FACTORS):
            if key not in _WHOLE and get(on, f"{protocol}.{key}") > 0:
                yield f"{protocol}.{key}"
    for c in on.topology.classes:
        for key, (field, _) in _OF_CLASS.items():
            if getattr(c, field):
                yield f"{c.name}.{key}"


def get(on: Platform, name: str) -> float:
    """Returns the value of a parameter; if a name stands for several, that of the first.

    Raises:
        gc3.UserError: There is no such parameter.
    """
    if name in _OF_PLATFORM:
        return float(getattr(on.parameters, _OF_PLATFORM[name][0]))
    owner, _, key = name.rpartition(".")
    for protocol in _protocols(on, owner):
        timing = on.parameters.protocols[protocol]
        if key in _OF_PROTOCOL:
            return float(getattr(timing, _OF_PROTOCOL[key][0]))
        if key in _FACTORS:
            return timing.factors[key]
    if key in _OF_CLASS:
        for c in _classes(on.topology, owner):
            return float(getattr(c, _OF_CLASS[key][0]) or 0.0)
    raise _unknown(on, name)


def apply(on: Platform, settings: Sequence[Setting]) -> Platform:
    """Returns the platform with parameters changed.

    Raises:
        gc3.UserError: There is no such parameter.
    """
    for setting in settings:
        on = _apply(on, setting)
    return on


def _apply(on: Platform, setting: Setting) -> Platform:
    name = setting.name

    def value(old: float) -> float:
        new = old * setting.value if setting.relative else setting.value
        if setting.relative and _is_part(name) and new > max(old, 1):
            raise _bad(f"{name}=*{setting.value:g}: that is {new:g} of what can be used, of which 1 is the most")
        return new

    if name in _OF_PLATFORM:
        field = _OF_PLATFORM[name][0]
        return replace(on, parameters=replace(on.parameters, **{field: value(getattr(on.parameters, field))}))
    owner, _, key = name.rpartition(".")
    protocols = _protocols(on, owner)
    if protocols and (key in _OF_PROTOCOL or key in _FACTORS):
        changed = dict(on.parameters.protocols)
        for protocol in protocols:
            changed[protocol] = _with(changed[protocol], key, value)
        return replace(on, parameters=replace(on.parameters, protocols=changed))
    classes = _classes(on.topology, owner) if key in _OF_CLASS else ()
    if not classes:
        raise _unknown(on, name)
    field = _OF_CLASS[key][0]
    new = {c.name: replace(c, **{field: value(getattr(c, field) or 0.0)}) for c in classes}
    return replace(on, topology=replace(on.topology, classes=tuple(new.get(c.name, c) for c in on.topology.classes)))


def _with(timing: ProtocolParameters, key: str, value: Callable[[float], float]) -> ProtocolParameters:
    if key in _FACTORS:
        return replace(timing, factors={**timing.factors, key: value(timing.factors[key])})
    field = _OF_PROTOCOL[key][0]
    new = value(getattr(timing, field))
    if key in ("engines", "requests") and not getattr(timing, field):
        raise _bad(f"{key}: threadblocks push the messages of this protocol; Copy has engines, and Pull requests")
    if key in _WHOLE and new > _MOST:
        raise _bad(f"{key} of {new:g}: it is {_MOST} at most")
    return replace(timing, **{field: max(round(new), 1) if key in _WHOLE else new})


def _protocols(on: Platform, owner: str) -> tuple[str, ...]:
    known = tuple(on.parameters.protocols)
    return known if owner == "*" else (owner,) if owner in known else ()


def _classes(topology: Topology, owner: str) -> tuple[LinkClass, ...]:
    if owner in KINDS:
        used = {r.link_class for r in topology.all_resources if r.kind == owner}
        return tuple(c for c in topology.classes if c.name in used)
    return tuple(c for c in topology.classes if c.name == owner)


def is_of_machine(name: str) -> bool:
    """Returns whether a parameter belongs to the classes of a topology, and not to a preset."""
    owner, _, key = name.rpartition(".")
    return name not in _OF_PLATFORM and bool(owner) and key in _OF_CLASS


def most(name: str) -> float:
    """Returns the largest value that a parameter can have: the efficiencies of classes are parts of a line rate."""
    return 1.0 if is_of_machine(name) and name.endswith("_efficiency") else math.inf


def kind(name: str) -> str | None:
    """Returns what a parameter is: a time, a rate, a size or a number; None: no parameter has such a name."""
    if name in _OF_PLATFORM:
        return _OF_PLATFORM[name][1]
    owner, _, key = name.rpartition(".")
    if not owner:
        return None
    if key in _FACTORS:
        return "number"
    return (_OF_PROTOCOL.get(key) or _OF_CLASS.get(key) or (None, None))[1]


def _bad(message: str) -> errors.Gc3Error:
    return errors.error("BadSimulation", message)


def _unknown(on: Platform, name: str) -> errors.Gc3Error:
    classes = ", ".join(c.name for c in on.topology.classes)
    protocols = ", ".join(on.parameters.protocols)
    return _bad(
        f"there is no parameter '{name}'; they are {', '.join(_OF_PLATFORM)}, those of the protocols ({protocols}) "
        f"and of the classes of '{on.topology.name}' ({classes})"
    )
