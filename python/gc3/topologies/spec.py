"""The text that names a topology: a preset or a file, and NAME=VALUE pairs: parameters, and what it has lost."""

from __future__ import annotations

from collections.abc import Mapping

from gc3 import errors
from gc3.support.words import split_values
from gc3.topologies.document import read
from gc3.topologies.model import Topology
from gc3.topologies.preset import Preset
from gc3.topologies.reach import joined
from gc3.topologies.without import parse, without


def load_from(presets: Mapping[str, Preset], spec: str, parameters: Mapping[str, int]) -> Topology:
    """Returns the topology that `spec` names among `presets` or in a file."""
    try:
        name, values = split_values(spec)
    except ValueError as part:
        raise _not_a_number(str(part), spec) from None
    lost = values.pop("without", None)
    if lost is not None:
        rest = ",".join(f"{key}={value}" for key, value in values.items())
        return joined(without(load_from(presets, f"{name}:{rest}" if rest else name, parameters), *parse(lost)))
    if name.endswith(".json"):
        if values or parameters:
            raise errors.error("BadArgument", f"'{name}' is a file; a file takes no parameters")
        return read(name)
    preset = presets.get(name)
    if preset is None:
        known, colon, rest = name.partition(":")
        if colon and known in presets:
            raise _not_a_number(rest, spec)
        raise errors.error("UnknownTopology", f"'{name}'; expected one of {', '.join(presets)}")
    return joined(preset.build({**{key: _number(key, value, spec) for key, value in values.items()}, **parameters}))


def _number(key: str, value: str, spec: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise _not_a_number(f"{key}={value}", spec) from None


def _not_a_number(part: str, spec: str) -> errors.Gc3Error:
    return errors.error("BadArgument", f"'{part}' of '{spec}'; expected NAME=NUMBER, as in ndv4:N=2")
