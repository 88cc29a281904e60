"""The text that names a topology: a preset, with or without parameters, or a file. Lost links and ranks may follow."""

from __future__ import annotations

from collections.abc import Mapping

from gc3 import errors
from gc3.topologies.document import read
from gc3.topologies.model import Topology
from gc3.topologies.preset import Preset
from gc3.topologies.without import parse, without

_WITHOUT = ":without="  # before the lost links and ranks


def load_from(presets: Mapping[str, Preset], spec: str, parameters: Mapping[str, int]) -> Topology:
    """Returns the topology that `spec` names among `presets` or in a file."""
    spec, _, lost = spec.partition(_WITHOUT)
    if lost:
        return without(load_from(presets, spec, parameters), *parse(lost))
    if spec.endswith(".json"):
        if parameters:
            raise errors.error("BadArgument", f"'{spec}' is a file; a file takes no parameters")
        return read(spec)
    name, _, inline = spec.partition(":")
    preset = presets.get(name)
    if preset is None:
        raise errors.error("UnknownTopology", f"'{name}'; expected one of {', '.join(presets)}")
    return preset.build({**_parse(spec, inline), **parameters})


def _parse(spec: str, text: str) -> dict[str, int]:
    values: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, separator, value = part.partition("=")
        try:
            values[name.strip()] = int(value, 0)
        except ValueError:
            separator = ""
        if not separator:
            raise errors.error("BadArgument", f"'{part}' of '{spec}'; expected NAME=NUMBER, as in ndv4:N=2")
    return values
