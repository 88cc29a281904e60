"""Programs for a machine: parameters that are not given are taken from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gc3 import _core
from gc3.cli import options, target
from gc3.cli.machine import split_preset
from gc3.cli.one_sided import OneSided, load
from gc3.cli.options import Asked
from gc3.cli.output import remark, working
from gc3.runtime.program import Program, verify
from gc3.sim import platform
from gc3.topologies import load as load_topology
from gc3.topologies.ring_order import ring_order

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.topologies import Topology


def load_platform(spec: str) -> Platform:
    """Returns the machine that --topology names, to simulate on."""
    topology, preset = split_preset(spec)
    return platform(load_topology(topology), preset)


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


def proven(asked: Asked, machine: Topology) -> Program:
    """Returns the result of `compiled`, proven unless the command line says otherwise."""
    program = compiled(asked, machine)
    if asked.how.prove:
        with working("proving"):
            verify(program)
    return program


def limited(asked: Asked, on: Platform) -> Asked:
    """Returns it with as many threadblocks per rank as a GPU of the machine holds, unless it says how many."""
    if asked.how.max_threadblocks or target.is_program(asked.name):
        return asked
    return asked.changed(max_threadblocks=on.parameters.threadblocks or None)


def one_sided(asked: Asked, on: Platform) -> OneSided | None:
    """Returns the one-sided program that is asked for, as `compiled` does; None: it is no such program."""
    if asked.how.memory == "direct" and not (target.is_program(asked.name) or target.is_script(asked.name)):
        asked = target.fitting(limited(asked, on), on.topology)
    return load(asked)


def compiled(asked: Asked, machine: Topology) -> Program:
    """Returns the program that is asked for, for as many ranks as the machine has unless a number is given.

    Where an algorithm's ranks have no path to each other, they follow the ring of the machine's links if that helps.
    """
    program = exactly(asked, machine)
    order = ring_order(machine)
    if (
        not order
        or asked.how.order
        or target.is_program(asked.name)
        or target.is_script(asked.name)
        or not _core.is_symmetric(program.collective.name)
        or linked(program, machine)
    ):
        return program
    told = "+".join(map(str, order))
    other = exactly(asked.changed(order=order), machine)
    if not linked(other, machine):
        return program
    remark(f"{asked.text}: the ranks follow the machine's links, order={told}")
    return other


def linked(program: Program, machine: Topology) -> bool:
    """Returns whether all ranks have paths to those that they send to."""
    most = machine.rank_count
    pairs = {(src, to) for src, _, to, *_ in program.core.sends()}
    return all(src < most and to < most and machine.path(src, to) for src, to in pairs)


def exactly(asked: Asked, machine: Topology) -> Program:
    """Returns the result of `compiled` in the order that is asked for."""
    return target.compiled(asked.name, target.fitting(asked, machine).how)


def next_command(text: str, machine: Topology) -> str:
    """The command that deploys a program whose time on a machine is known; empty: its file is in such a form.

    >>> next_command("ring_allreduce:protocol=LL,rails=8", load_topology("ndv4:N=2"))
    'next: gc3 export ring_allreduce:protocol=LL,rails=8,R=16,G=8 -o ring_allreduce.xml, for runtimes of GPUs'
    >>> next_command("out/h.gc3", load_topology("ndv4"))
    'next: gc3 export out/h.gc3 -o h.xml, for runtimes of GPUs'
    """
    asked = options.Program(unproven=True).parse(text)
    if (target.is_program(asked.name) and not asked.name.endswith(".gc3")) or asked.name.endswith(".json"):
        return ""
    known = target.fitting(asked, machine).how.parameters
    more = ",".join(f"{name}={value}" for name, value in known.items() if name not in asked.how.parameters)
    ending = "plan.json" if asked.how.memory == "direct" else "xml"
    file = f"{Path(asked.name.partition('.py:')[2] or asked.name).stem}.{ending}"
    return f"next: gc3 export {asked.with_settings(more) if more else text} -o {file}, for runtimes of GPUs"
