"""Checks JSON documents against JSON schemas, and reads and writes dataclasses as such documents.

Of a dataclass, members are fields, and those with a default may be missing. A tuple is a list, a mapping an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from gc3 import errors
from gc3.support.forms import looks_like

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_SHOWN = 200
# Parts of schemas.
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
TIME = {"type": "number", "minimum": 0, "maximum": 1e18}
_PLAIN: dict[Any, Any] = {str: TEXT, int: COUNT, float: TIME, bool: {"type": "boolean"}, NoneType: {"type": "null"}}
_hints = lru_cache(get_type_hints)


def record(others: dict[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Returns the schema of an object that has these members, and may have those of `others`, and unknown ones."""
    return {"type": "object", "required": list(members), "properties": {**members, **(others or {})}}


def array(items: Any, **limits: Any) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items, **limits}


def of(kind: Any, special: Mapping[Any, Any], *, closed: bool = False) -> dict[str, Any]:
    """Returns the schema of a type.

    Args:
        kind: It. Numbers are 0 or more.
        special: Schemas of types, and of fields of these names, wherever they are.
        closed: Whether objects have no other members than fields.
    """
    if kind in special or kind in _PLAIN:
        return special.get(kind) or _PLAIN[kind]
    if is_dataclass(kind):
        members = {name: special.get(name) or of(hint, special, closed=closed) for name, hint in _hints(kind).items()}
        needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        more = {"additionalProperties": False} if closed else {}
        return {"type": "object", "required": sorted(needed), "properties": members, **more}
    parts = get_args(kind)
    each = [{} if part is ... else of(part, special, closed=closed) for part in parts]
    if get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": each[1]}
    if get_origin(kind) is not tuple:
        return {"anyOf": each}
    return array(each[0]) if parts[-1] is ... else {"prefixItems": each, **array(False, minItems=len(each))}


def read_as(kind: Any, data: Any, spelled: Mapping[str, str]) -> Any:
    """Returns a value of a type from a document that was checked; `spelled`: members by the fields they are."""
    if is_dataclass(kind):
        members = {name: spelled.get(name, name) for name in _hints(kind)}
        given = {name: member for name, member in members.items() if member in data}
        make = cast("Any", kind)
        return make(**{name: read_as(_hints(kind)[name], data[member], spelled) for name, member in given.items()})
    if kind in (int, float):  # a document may write either as the other
        return kind(data)
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        each = [parts[0]] * len(data) if parts[-1] is ... else parts
        return tuple(read_as(part, item, spelled) for part, item in zip(each, data, strict=True))
    if get_origin(kind) is Mapping:
        return {key: read_as(parts[1], item, spelled) for key, item in data.items()}
    some = [part for part in parts if part is not NoneType]
    return read_as(some[0], data, spelled) if len(some) == 1 and data is not None else data


def written(value: Any, spelled: Mapping[str, str]) -> Any:
    """Returns a value as plain data, which `read_as` reads."""
    if is_dataclass(value):
        return {spelled.get(f.name, f.name): written(getattr(value, f.name), spelled) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: written(item, spelled) for key, item in cast("Any", value).items()}
    return [written(item, spelled) for item in cast("Any", value)] if isinstance(value, tuple) else value


def check(data: Any, schema: Any, error: str, *, file: str = "", what: str = "") -> None:
    """Checks a parsed document.

    Args:
        data: It.
        schema: What it must be.
        error: The name of the error.
        file: Its name in errors.
        what: What the file ought to be, for errors.

    Raises:
        gc3.UserError: It is something else; says where and why.
    """
    from jsonschema import Draft202012Validator  # noqa: PLC0415  slow to import, and few commands need it

    validator: Any = Draft202012Validator(schema)
    problem: ValidationError | None = next(validator.iter_errors(data), None)
    if problem is None:
        return
    text = problem.message
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"
    told = f"it is not {what}: " if what else ""
    other = "" if problem.path else looks_like(data)
    raise errors.error(error, f"{told}{problem.json_path}: {text}{other}", file=file, line=1 if file else 0)
