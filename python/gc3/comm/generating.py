"""Programs that are generated while calls run, like one that is known, for calls that no row of a table was made for.

The core decides when (``cpp/gc3/comm/generation.h``), proves them, and tries them as any other. All ranks ask here, and
get the same answer for the same question.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from gc3 import _core
from gc3.algorithms import load
from gc3.comm.spec import Spec

_PLACES = frozenset({"R", "N", "G", "root", "rails"})  # parameters that say where ranks are
_FIFOS = ((2, 1), (4, 4))  # slots, and in how many pieces a message is cut
_LEAST_SLOT, _MOST_SLOT = 4 << 10, 4 << 20
_LEAST_SHARE = 4 << 10  # bytes of a rank for each instance
_LAST = {"LL": 64 << 10, "LL128": 4 << 20}  # sizes above which a protocol is slower


@functools.cache
def allowance(process: int) -> _core.Allowance:
    """Returns the processor time of a process for all of its communicators; a fork has its own."""
    del process
    return _core.Allowance()


def generator(specs: dict[str, Spec]) -> Callable[[str, int, int, list[str]], _core.Recipe | None]:
    """Returns what the core asks for another program: by its text, ranks, bytes, and the texts of those tried.

    Args:
        specs: The known programs by their texts; generated ones are added.

    >>> known = {"ring_allreduce R=ranks, Simple": Spec("ring_allreduce", (("R", "ranks"),))}
    >>> _ = generator(known)("ring_allreduce R=ranks, Simple", 4, 3000, [])
    >>> list(known)[1:]
    ['ring_allreduce R=ranks channels=2, Simple']
    """

    def generate(base: str, ranks: int, size: int, tried: list[str]) -> _core.Recipe | None:
        known = {*tried}
        for spec in neighbours(specs[base], ranks, size):
            if str(spec) not in known:
                specs[str(spec)] = spec
                return spec.recipe()
        return None

    return generate


def neighbours(spec: Spec, ranks: int, size: int) -> Iterator[Spec]:
    """Yields programs that differ from one in a parameter, FIFOs for messages of S = `size`, instances or protocol.

    >>> [str(spec).partition(", ")[2] for spec in neighbours(Spec("direct_allreduce", (("R", "ranks"),)), 3, 90000)]
    ['Simple, 2 slots, slots of 32768 B', 'Simple, 4 slots, slots of 8192 B', 'Simple, 2 instances', 'LL128']
    """
    if not spec.is_file:
        yield from _parameters(spec)
    if spec.protocol == "Simple":
        for slots, pieces in _FIFOS:
            length = 1 << (size // ranks // pieces).bit_length()
            yield replace(spec, slots=slots, slot_bytes=min(max(length, _LEAST_SLOT), _MOST_SLOT))
    if spec.is_file:
        return
    if size // ranks // (2 * spec.instances) >= _LEAST_SHARE:
        yield replace(spec, instances=2 * spec.instances)
    if spec.instances > 1:
        yield replace(spec, instances=spec.instances // 2)
    for protocol in ("Simple", *(name for name, last in _LAST.items() if size <= last)):
        if protocol != spec.protocol:
            yield replace(spec, protocol=protocol, slots=0, slot_bytes=0)


def _parameters(spec: Spec) -> Iterator[Spec]:
    given = dict(spec.parameters)
    for parameter in load(spec.algorithm).parameters:
        value = given.get(parameter.name, parameter.default)
        if parameter.name in _PLACES or not isinstance(value, int):
            continue
        for other in (2 * value, value // 2):
            if other not in (0, value):
                yield replace(spec, parameters=tuple({**given, parameter.name: other}.items()))
