"""One-sided programs on the command line: execution plans of MSCCL++, and the text form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3 import _core, errors, mscclpp
from gc3.cli import output
from gc3.runtime.direct import DirectProgram
from gc3.support import files
from gc3.support.words import counted

if TYPE_CHECKING:
    from gc3.cli.options import Asked

_HEAD = 1 << 12  # bytes of a file in which its first line is looked for
_MOST_OF_A_NAME = 60


@dataclass(frozen=True, slots=True)
class OneSided:
    """A program that a file has.

    Attributes:
        program: It.
        file: The name of the file.
        plan: What was read, if the file is an execution plan.
        tiles: For how many tiles of its pipelines.
    """

    program: _core.DirectProgram
    file: str
    plan: mscclpp.Plan | None
    tiles: int

    @property
    def looped(self) -> bool:
        """Whether it has pipelines."""
        return self.plan is not None and self.plan.unit_bytes is not None

    def info(self) -> dict[str, Any]:
        """Returns facts about it as plain data."""
        about = DirectProgram(self.program).info()
        return {
            **about,
            "tiles": self.tiles if self.looped else None,
            "refusals": [] if self.plan is None else list(self.plan.refusals),
        }

    def describe(self) -> str:
        """Returns it in one line."""
        about = self.info()
        name, collective = (output.shown(about[key], _MOST_OF_A_NAME) for key in ("name", "collective"))
        tiles = f" for {counted(self.tiles, 'tile')} of its pipelines" if self.looped else ""
        return (
            f"{name}: {collective} of {counted(about['ranks'], 'rank')}, "
            f"{'in place' if about['in_place'] else 'out of place'}, one-sided, "
            f"{counted(about['threadblocks'], 'threadblock')}, {counted(about['steps'], 'step')}{tiles}; "
            f"at most {counted(about['max_threadblocks_per_rank'], 'threadblock')} on a rank"
        )

    def findings(self, most: int) -> Sequence[_core.Diagnostic]:
        """Returns why it is not proven: at most `most` of the verifier, and what prevents a plan from running."""
        plan = self.plan
        found = [d for why in plan.refusals for d in self._error("BadPlan", why)] if plan else []
        with output.working("proving"):
            proof = _core.verify(self.program, max_diagnostics=most).diagnostics
        if plan is not None and not plan.states_collective:
            # Whether its inputs may be written is not known either.
            found += [d for d in proof if d.name != "InputOverwritten"]
            purpose = f"it states no collective of this shape, only {output.shown(self.program.collective.name)!r}"
            return [*found, *self._error("UnknownPurpose", purpose)]
        return [*found, *proof]

    def _error(self, name: str, message: str) -> Sequence[_core.Diagnostic]:
        return errors.error(name, message, file=self.file, line=1).diagnostics


def load(spec: Asked, *, tiles: int) -> OneSided | None:
    """Returns the one-sided program of the file that `spec` names; None if it is none.

    Args:
        spec: What the command line names.
        tiles: For how many tiles of its pipelines a plan is read, unless it says tiles=N.
    """
    name = spec.name
    if not Path(name).is_file():
        return None
    if name.endswith(".json"):
        data = files.read_json(name, "BadJson")
        if not mscclpp.is_plan(data):
            return None
        given = dict(spec.how.parameters)
        tiles = given.pop("tiles", tiles)
        _check_keys(spec, [*given, *(["in_place"] if spec.how.in_place is not None else [])])
        collective = spec.how.collective
        if not (collective is None or isinstance(collective, str)):
            collective = collective.name
        with output.working(f"reading {name}"):
            plan = mscclpp.read(data, tiles=tiles, collective=collective, file=name)
        return OneSided(plan.program, name, plan, tiles)
    if name.endswith(".xml") or not _begins_as_text(name):
        return None
    others = [key for key in ("in_place", "collective") if getattr(spec.how, key) is not None]
    _check_keys(spec, [*spec.how.parameters, *others])
    with output.working(f"reading {name}"):
        text = files.read_text(name, "BadText", most=1 << 30)
        return OneSided(_core.DirectProgram.from_text(text, name), name, None, tiles)


def _check_keys(spec: Asked, useless: Sequence[str]) -> None:
    keys = [*useless, *(key for key in spec.how.only_for_algorithms() if key not in spec.how.parameters)]
    if keys:
        raise click.UsageError(f"'{spec.name}' is a one-sided program: {', '.join(keys)} cannot change it")
    if spec.how.script:
        raise click.UsageError(f"'{spec.how.script[0]}': '{spec.name}' is a one-sided program and takes no arguments")


def _begins_as_text(path: str) -> bool:
    """Whether the first line of a file that is no comment begins the text form."""
    try:
        with Path(path).open("rb") as content:
            head = content.read(_HEAD)
    except OSError:  # whoever reads it says so
        return False
    lines = (line.strip() for line in head.split(b"\n"))
    return next((line for line in lines if line and not line.startswith(b"#")), b"").startswith(b'direct "')
