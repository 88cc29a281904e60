"""Programs to compare on one command line: NAME:key=value,... with missing parameters taken from the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gc3 import datatypes
from gc3.cli import options, target
from gc3.cli.output import working
from gc3.runtime.program import Program, verify

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.topologies import Topology

_OPTIONS = ("protocol", "instances", "window")


def split(spec: str) -> tuple[str, dict[str, str]]:
    """Returns the name of a program and the key=value pairs that follow it.

    >>> split("ring_allreduce:channels=4,protocol=LL")
    ('ring_allreduce', {'channels': '4', 'protocol': 'LL'})
    >>> split("mine.py:ring")
    ('mine.py:ring', {})
    """
    name, separator, last = spec.rpartition(":")
    if not separator or "=" not in last:
        return spec, {}
    pairs: dict[str, str] = {}
    for part in last.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier() or not value:
            raise click.UsageError(
                f"'{part}' of '{spec}' is not key=value, as in ring_allreduce:channels=4,protocol=LL"
            )
        pairs[key] = value
    return name, pairs


def labels(specs: Sequence[str]) -> dict[str, str]:
    """Returns the name of each spec in tables: a file without its folder, unless two would then have the same name.

    >>> labels(["out/h.gc3", "lib/mine.py:ring:R=8", "ring_allreduce"])
    {'out/h.gc3': 'h.gc3', 'lib/mine.py:ring:R=8': 'mine.py:ring:R=8', 'ring_allreduce': 'ring_allreduce'}
    >>> labels(["old/h.gc3", "new/h.gc3"])
    {'old/h.gc3': 'old/h.gc3', 'new/h.gc3': 'new/h.gc3'}
    """
    short = {spec: spec[spec.partition(":")[0].rfind("/") + 1 :] for spec in specs}
    uses = Counter(short.values())
    return {spec: label if uses[label] == 1 else spec for spec, label in short.items()}


def proven(spec: str, how: options.CompileOptions, machine: Topology, *, prove: bool = True) -> Program:
    """Returns the result of `compiled`, proven unless `prove` is False."""
    program = compiled(spec, how, machine)
    if prove:
        with working("proving"):
            verify(program)
    return program


def limited(how: options.CompileOptions, on: Platform) -> options.CompileOptions:
    """Returns `how` with as many threadblocks per rank as a GPU of the machine holds, unless it says how many."""
    return how if how.max_threadblocks else replace(how, max_threadblocks=on.parameters.threadblocks or None)


def compiled(spec: str, how: options.CompileOptions, machine: Topology) -> Program:
    """Returns the program that a spec names, for as many ranks as the machine has unless the spec gives a number."""
    name, pairs = split(spec)
    if target.is_program(name):
        if pairs:
            raise click.UsageError(f"'{name}' is compiled already: {', '.join(pairs)} cannot change it")
        plain = replace(how, parameters={}, instances=None, protocol=None, max_threadblocks=None, window=None)
        return target.compiled(name, plain)
    algorithm = target.algorithm(name)
    known = [*(p.name for p in algorithm.parameters), *_OPTIONS]
    for key in pairs:
        if key not in known:
            raise click.UsageError(f"'{key}' of '{spec}' is not known: {name} takes {', '.join(known)}")
    if pairs.get("protocol", "LL") not in datatypes.PROTOCOLS:
        raise click.UsageError(
            f"'{pairs['protocol']}' in '{spec}' is unknown; expected one of {', '.join(datatypes.PROTOCOLS)}"
        )
    numbers = {key: _number(spec, key, value) for key, value in pairs.items() if key != "protocol"}
    nodes = machine.node_count
    natural = {"R": machine.rank_count, "N": nodes, "G": machine.rank_count // nodes}
    wanted = {p.name: p.default for p in algorithm.parameters}
    parameters = {key: value for key, value in how.parameters.items() if key in wanted}
    parameters |= {k: v for k, v in natural.items() if k in wanted and wanted[k] is None and k not in parameters}
    parameters |= {key: value for key, value in numbers.items() if key not in _OPTIONS}
    if "rails" in parameters:  # rings that share the NICs need to know the nodes
        parameters.setdefault("G", natural["G"])
    chosen = replace(
        how,
        parameters=parameters,
        protocol=pairs.get("protocol", how.protocol),
        instances=numbers.get("instances", how.instances),
        window=numbers.get("window", how.window),
    )
    return target.compiled(name, chosen)


def check_taken(how: options.CompileOptions, specs: Sequence[str]) -> None:
    """Refuses a parameter of -D that no program takes."""
    names = [split(spec)[0] for spec in specs]
    taken = {p.name for name in names if not target.is_program(name) for p in target.algorithm(name).parameters}
    for key in how.parameters:
        if key not in taken:
            takes = ", ".join(sorted(taken)) or "none"
            raise click.UsageError(f"-D {key}: no program here has such a parameter; they have {takes}")


def _number(spec: str, key: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise click.UsageError(f"'{value}' in '{spec}' is not a whole number, as in {key}=8") from None
