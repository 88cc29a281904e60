"""Presets of the simulator as JSON files, which `gc3 sim calibrate -o` writes."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from gc3 import errors
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, Scope, opcode_factors
from gc3.support import files

_FORMAT = "gc3_sim_preset"


def dumps(parameters: Parameters) -> str:
    """Returns the JSON of a preset; times in seconds, rates in bytes per second."""
    data: dict[str, Any] = {_FORMAT: 1, "name": parameters.name, "evidence": asdict(parameters.evidence)}
    data |= {
        "launch_s": parameters.launch_s,
        "connection_rate": parameters.connection_rate,
        "connection_message_s": parameters.connection_message_s,
        "staged_network": parameters.staged_network,
        "cores": parameters.cores,
        "cores_dealt": parameters.cores_dealt,
        "core_switch_s": parameters.core_switch_s,
        "cache_bytes": parameters.cache_bytes,
        "cache_slowdown": parameters.cache_slowdown,
        "memory_rate": parameters.memory_rate,
        "threadblocks": parameters.threadblocks,
        "protocols": {name: asdict(timing) for name, timing in parameters.protocols.items()},
    }
    return json.dumps(data, indent=2) + "\n"


def _check_numbers(data: dict[str, Any]) -> None:
    for key, value in data.items():
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ValueError(f"{key} is {str(value)[:40]!r}; expected a number, 0 or more")
        if key == "threadblocks" and value != int(value):
            raise ValueError(f"threadblocks is {value}; expected a whole number")


def read(path: str) -> Parameters:
    """Returns the preset in a file.

    Raises:
        gc3.UserError: The file cannot be read or is no preset.
    """
    return parse(files.read_text(path, "BadSimulation"), path)


def _scope(data: dict[str, Any] | None) -> Scope | None:
    if data is None:
        return None
    low, high = data["ranks"]
    sizes = {str(name): (int(least), int(most)) for name, (least, most) in data["sizes"].items()}
    return Scope((int(low), int(high)), tuple(map(str, data["protocols"])), sizes)


def parse(text: str, path: str) -> Parameters:
    """Returns the preset in the text of the file at `path`.

    Raises:
        gc3.UserError: It is no preset.
    """
    data: dict[str, Any] = files.parse_json(text, "BadSimulation", path)
    try:
        if data.pop(_FORMAT) != 1:
            raise KeyError(_FORMAT)
        protocols: dict[str, ProtocolParameters] = {}
        for name, timing in data.pop("protocols").items():
            # A preset that was written when there were fewer opcodes has no factors for the new ones.
            factors = opcode_factors()
            given: dict[str, float] = timing.pop("factors")
            timing.setdefault("lend_combined_bytes", timing.get("lend_bytes", 0))  # which was for all messages
            if unknown := given.keys() - factors.keys():
                raise KeyError(*sorted(unknown))
            _check_numbers(given | timing)
            protocols[name] = ProtocolParameters(factors=factors | given, **timing)
        about: dict[str, Any] = data.pop("evidence")
        scope = _scope(about.pop("scope", None))
        evidence, name = Evidence(scope=scope, **about), str(data.pop("name"))
        _check_numbers(data)
        _check_numbers({k: v for k, v in asdict(evidence).items() if k not in ("source", "scope") and v is not None})
        return Parameters(name=name, protocols=protocols, evidence=evidence, **data)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise errors.error("BadSimulation", f"'{path}' is not a preset of `gc3 sim calibrate`: {problem}") from None
