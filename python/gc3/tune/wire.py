"""A program's description as one word on the way to the rank processes."""

from __future__ import annotations

import json
from typing import Any

from gc3.comm.selection import Spec


def encode(spec: Spec, *, in_place: bool) -> str:
    """Returns one word without spaces."""
    fields = [spec.algorithm, spec.parameters, spec.instances, spec.protocol, spec.slots, spec.slot_bytes, in_place]
    return json.dumps(fields, separators=(",", ":"))


def decode(word: str) -> tuple[Spec, bool]:
    """Returns the description and whether buffers are in place.

    >>> decode(encode(Spec("ring_allreduce", (("R", "ranks"),)), in_place=True))[1]
    True
    """
    fields: Any = json.loads(word)
    algorithm, parameters, *how, in_place = fields
    return Spec(algorithm, tuple((name, value) for name, value in parameters), *how), in_place
