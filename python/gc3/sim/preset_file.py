"""Presets as JSON files, as `gc3 sim calibrate -o` writes them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from gc3 import errors
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, opcode_factors
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
        "protocols": {name: asdict(timing) for name, timing in parameters.protocols.items()},
    }
    return json.dumps(data, indent=2) + "\n"


def read(path: str) -> Parameters:
    """Returns the preset in a file.

    Raises:
        gc3.UserError: The file cannot be read or is no preset.
    """
    data: dict[str, Any] = files.read_json(path, "BadSimulation")
    try:
        if data.pop(_FORMAT) != 1:
            raise KeyError(_FORMAT)
        protocols: dict[str, ProtocolParameters] = {}
        for name, timing in data.pop("protocols").items():
            # A preset that knows less than all opcodes was written when there were fewer.
            factors = opcode_factors()
            given: dict[str, float] = timing.pop("factors")
            if unknown := given.keys() - factors.keys():
                raise KeyError(*sorted(unknown))
            protocols[name] = ProtocolParameters(factors=factors | given, **timing)
        return Parameters(protocols=protocols, evidence=Evidence(**data.pop("evidence")), **data)
    except (KeyError, TypeError, AttributeError) as problem:
        raise errors.error("BadSimulation", f"'{path}' is no preset of `gc3 sim calibrate`: {problem}") from None
