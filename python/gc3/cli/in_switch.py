"""What users are told of programs whose predicted times count on switches that add up, or on copy engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from gc3 import _core, errors
from gc3.cli import output
from gc3.comm.spec import Spec
from gc3.sim import Platform
from gc3.sim.trust import Core, counts_on_switches


def remark(on: Platform, programs: Iterable[Core]) -> bool:
    """Says which programs the switches of a machine serve in the simulator, and not in an engine; whether any."""
    names = list(dict.fromkeys(p.name for p in programs if counts_on_switches(on, p)))
    if names:
        output.remark(
            f"{', '.join(names)}: the time is with switches that multicast and add up, which only one-sided programs "
            "(memory=direct) use, on devices; plain messages take what --what-if CLASS.multicast_efficiency=0 predicts"
        )
    return bool(names)


def remark_on_copies(protocols: Iterable[str]) -> None:
    """Says who moves the messages of programs with the protocol Copy, if there are any."""
    if "Copy" in protocols:
        output.remark(
            "protocol Copy: the time is with copy engines, which only the engine on devices uses, outside of CUDA "
            "graphs; elsewhere threadblocks store the messages, whose time protocol=Simple predicts"
        )


def remark_on_choices(on: Platform, specs: Sequence[Spec], ranks: int) -> bool:
    """The same for programs of a table."""
    programs: list[_core.Program] = []
    for spec in dict.fromkeys(specs):
        with suppress(errors.UserError):  # a file for the other mode, or another root
            programs.append(spec.compile(ranks, prove=False).described)
    return remark(on, programs)
