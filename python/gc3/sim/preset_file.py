"""Presets of the simulator as JSON files, which `gc3 sim calibrate -o` writes."""

from __future__ import annotations

import json
from typing import Any

from gc3.sim.parameters import Parameters, opcode_factors
from gc3.support import files, schema

_FORMAT = "gc3_sim_preset"
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_NUMBER = {"type": "number", "minimum": 0, "maximum": 1e30}  # in seconds or bytes per second
_SIZES = {"sizes": {"type": "object", "additionalProperties": schema.of(tuple[int, int], {})}}


def dumps(parameters: Parameters) -> str:
    """Returns the JSON of a preset; times in seconds, rates in bytes per second."""
    data = {_FORMAT: 1, **schema.written(parameters, {})}
    del data["notes"]
    return json.dumps(data, indent=2) + "\n"


def read(path: str) -> Parameters:
    """Returns the preset in a file.

    Raises:
        gc3.UserError: The file cannot be read or is no preset.
    """
    return parse(files.read_text(path, "BadSimulation"), path)


def parse(text: str, path: str) -> Parameters:
    """Returns the preset in the text of the file at `path`.

    Raises:
        gc3.UserError: It is no preset.
    """
    data: Any = files.parse_json(text, "BadSimulation", path)
    known = {"type": "object", "properties": dict.fromkeys(opcode_factors(), _NUMBER), "additionalProperties": False}
    wanted = schema.of(Parameters, {int: _WHOLE, float: _NUMBER, "factors": known, **_SIZES}, closed=True)
    wanted["properties"][_FORMAT] = {"const": 1}
    del wanted["properties"]["notes"]
    wanted["required"].append(_FORMAT)
    schema.check(data, wanted, "BadSimulation", file=path, what="a preset of `gc3 sim calibrate`")
    return made(data)


def made(data: Any) -> Parameters:
    """Returns the preset of a document that is known to be one."""
    for timing in data["protocols"].values():
        # A preset that was written when there were fewer opcodes has no factors for the new ones.
        timing["factors"] = opcode_factors() | timing.get("factors", {})
        timing.setdefault("lend_combined_bytes", timing.get("lend_bytes", 0))  # which was for all messages
    return schema.read_as(Parameters, data, {})
