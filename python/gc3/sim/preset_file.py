"""Presets of the simulator as JSON files, which `gc3 sim calibrate -o` writes."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, cast

from gc3 import errors
from gc3.sim.parameters import Evidence, Parameters, ProtocolParameters, Scope, opcode_factors
from gc3.support import files

_FORMAT = "gc3_sim_preset"
_MOST_WHOLE = 2**32 - 1
_MOST = 1e30  # of a number in seconds or bytes per second
_SHOWN = 40  # characters of a value in messages


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
        "flop_rate": parameters.flop_rate,
        "protocols": {name: asdict(timing) for name, timing in parameters.protocols.items()},
    }
    return json.dumps(data, indent=2) + "\n"


def _check_fields(owner: type[Parameters | ProtocolParameters], data: dict[str, Any]) -> None:
    """Refuses values that are not of the types of the fields."""
    kinds = {each.name: str(each.type) for each in fields(owner)}
    for key, value in data.items():
        kind = kinds.get(key)
        if kind not in ("bool", "int", "float"):
            raise ValueError(f"there is no parameter {_shown(key)}")
        if kind == "bool" and not isinstance(value, bool):
            raise ValueError(f"{key} is {_shown(value)}; expected true or false")
        if kind == "int" and (type(value) is not int or not 0 <= value <= _MOST_WHOLE):
            raise ValueError(f"{key} is {_shown(value)}; expected a whole number from 0 to {_MOST_WHOLE}")
        if kind == "float":  # also whole numbers
            _check_number(key, value)


def _check_number(key: str, value: object) -> None:
    if type(value) not in (int, float) or not 0 <= cast("float", value) <= _MOST:
        raise ValueError(f"{key} is {_shown(value)}; expected a number, 0 or more")


def _shown(value: object) -> str:
    return repr(str(value)[:_SHOWN])


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
    protocols = data["protocols"]
    if not isinstance(protocols, list):
        raise ValueError(f"protocols is {_shown(protocols)}; expected a list")
    sizes = {str(name): (int(least), int(most)) for name, (least, most) in data["sizes"].items()}
    return Scope((int(low), int(high)), tuple(cast("list[str]", protocols)), sizes)


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
            for key, factor in given.items():
                _check_number(key, factor)
            _check_fields(ProtocolParameters, timing)
            protocols[name] = ProtocolParameters(factors=factors | given, **timing)
        about: dict[str, Any] = data.pop("evidence")
        scope = _scope(about.pop("scope", None))
        evidence, name = Evidence(scope=scope, **about), data.pop("name")
        _check_fields(Parameters, data)
        for key in ("in_sample", "held_out", "median", "p90"):
            if about.get(key) is not None:
                _check_number(key, about[key])
        words = (
            ("name", name),
            ("source", about["source"]),
            *(("protocol", p) for p in (scope.protocols if scope else ())),
        )
        for key, value in words:
            if not isinstance(value, str):
                raise ValueError(f"{key} is {_shown(value)}; expected a text")
        return Parameters(name=name, protocols=protocols, evidence=evidence, **data)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise errors.error("BadSimulation", f"'{path}' is not a preset of `gc3 sim calibrate`: {problem}") from None
