"""Checks JSON documents against JSON schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gc3 import errors
from gc3.support.forms import looks_like

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_SHOWN = 200
# Parts of schemas.
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
TIME = {"type": "number", "minimum": 0, "maximum": 1e18}


def record(others: dict[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Returns the schema of an object that has these members, and may have those of `others`, and unknown ones."""
    return {"type": "object", "required": list(members), "properties": {**members, **(others or {})}}


def array(items: Any, **limits: Any) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items, **limits}


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
