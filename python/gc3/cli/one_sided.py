"""One-sided programs on the command line: execution plans of MSCCL++, the text form, and what memory=direct makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gc3 import _core, datatypes, errors, mscclpp
from gc3.cli import output, target
from gc3.cli.sizes import fit, format_size
from gc3.runtime.direct import DirectProgram
from gc3.support import files
from gc3.support.words import counted

if TYPE_CHECKING:
    from gc3.cli.options import Asked, Engine

_HEAD = 1 << 12  # bytes of a file in which its first line is looked for
_MOST_OF_A_NAME = 60
_TILES = (1, 2, 3)  # of pipelines, that are proven
_MOST_TILES = 16  # likewise, if pipelines may be further apart than the largest of those


@dataclass(frozen=True, eq=False, repr=False)
class OneSided(DirectProgram):
    """A program that a file has, or that was compiled."""

    file: str = ""  # the name of the file; empty if it was compiled
    plan: mscclpp.Plan | None = None  # what was read, if the file is an execution plan
    tiles: int = 1  # for how many tiles of its pipelines

    @property
    def looped(self) -> bool:
        """Whether it has pipelines."""
        return self.plan is not None and self.plan.unit_bytes is not None

    @property
    def alone(self) -> bool:
        """Whether it is proven only for calls that no other plan's calls come between."""
        return self.plan is not None and self.plan.halves

    @property
    def of_tiles(self) -> str:
        """Says for how many tiles of its pipelines it is, if it has any."""
        return f" for {counted(self.tiles, 'tile')} of its pipelines" if self.looped else ""

    def info(self) -> dict[str, Any]:
        """Returns facts about it as plain data."""
        return {
            **super().info(),
            "tiles": self.tiles if self.looped else None,
            "refusals": [] if self.plan is None else list(self.plan.refusals),
        }

    def describe(self) -> str:
        """Returns it in one line."""
        about = self.info()
        name, collective = (output.shown(about[key], _MOST_OF_A_NAME) for key in ("name", "collective"))
        return (
            f"{name}: {collective} of {counted(about['ranks'], 'rank')}, "
            f"{'in place' if about['in_place'] else 'out of place'}, one-sided, "
            f"{counted(about['threadblocks'], 'threadblock')}, {counted(about['steps'], 'step')}{self.of_tiles}; "
            f"at most {counted(about['max_threadblocks_per_rank'], 'threadblock')} on a rank"
        )

    def proven(self, tiles: Sequence[int] = ()) -> str:
        """Returns what the proof says, if there are no findings; `tiles`: the numbers of tiles of more than one."""
        some = f" for {', '.join(map(str, tiles[:-1]))} and {tiles[-1]} tiles of its pipelines" if tiles else ""
        half = (
            "\nfor calls of this plan alone: MSCCL++ chooses the half of the scratch by a count of all plans' launches"
        )
        size = "\nfor calls of one size: MSCCL++ lays out scratch by the size of each"
        return (
            f"proven{some}: it implements {self.collective.name}, call after call: no data races, no deadlock, "
            f"no signal left over{half if self.alone else ''}{size if self.plan and self.plan.has_scratch else ''}"
        )

    def prove(self, spec: Asked) -> None:
        """Proves it for its number of tiles, unless `spec` says otherwise.

        Raises:
            gc3.UserError: The findings.
        """
        if spec.how.prove:
            with output.working("proving"):
                self.verify()

    def findings(self, most: int) -> Sequence[_core.Diagnostic]:
        """Returns why it is not proven: at most `most` of the verifier, and what prevents a plan from running."""
        plan = self.plan
        found = [d for why in plan.refusals for d in self._error("BadPlan", why)] if plan else []
        with output.working("proving"):
            proof = _core.verify(self.core, max_diagnostics=most).diagnostics
        if plan is not None and not plan.states_collective:
            # Whether its inputs may be written is not known either.
            found += [d for d in proof if d.name != "InputOverwritten"]
            return [*found, *self._purposeless()]
        return [*found, *proof]

    def remark(self, size: int | None = None) -> None:
        """Prints what MSCCL++ does otherwise than its plan says, and whether that is for calls of `size` bytes."""
        plan = self.plan
        if plan is None:
            return
        for why in plan.refusals:
            output.remark(f"MSCCL++ does not do what the plan says: {output.shown(why)}")
        if size is not None and not plan.min_bytes <= size <= plan.max_bytes:
            output.remark(f"the file is not meant for {format_size(size)}")

    def for_proof(self, spec: Asked) -> Sequence[OneSided]:
        """Returns it with all the numbers of tiles of its pipelines that are proven, unless `spec` says how many.

        What is wrong with the order of tiles is so for few of them. Counts that agree for some numbers of tiles by
        chance do not for others, and those that let a pipeline be ahead do until there are more tiles than that.
        """
        plan = self.plan
        if plan is None or not self.looped or "tiles" in spec.how.parameters:
            return [self]
        numbers = {*_TILES, min(_MOST_TILES, plan.ahead + _TILES[-1])}
        if plan.ahead_of_one + _TILES[-1] > _MOST_TILES:
            output.remark(
                f"a pipeline may be {plan.ahead_of_one} tiles ahead of another: at most {_MOST_TILES} are proven here, "
                f"and {plan.ahead_of_one + _TILES[-1]} by {self.file}:tiles={plan.ahead_of_one + _TILES[-1]}"
            )
        data = files.read_json(self.file, "BadJson")
        return [_read_plan(spec, data, number) for number in sorted(numbers)]

    def for_size(self, spec: Asked, size: int, dtype: str) -> OneSided:
        """Returns it with as many tiles of its pipelines as a call of `size` bytes needs, unless `spec` says how many.

        Raises:
            gc3.UserError: It computes no collective.
        """
        plan = self.plan
        if plan is None:
            return self
        if not plan.states_collective:
            raise errors.UserError(*self._purposeless())
        if plan.unit_bytes is None or "tiles" in spec.how.parameters:
            return self
        block, _ = fit(self.collective, size, dtype)
        chunk = Fraction(block * datatypes.dtype(dtype).itemsize * self.collective.split, self.collective.chunks)
        return _read_plan(spec, files.read_json(self.file, "BadJson"), max(1, math.ceil(chunk / plan.unit_bytes)))

    def _purposeless(self) -> Sequence[_core.Diagnostic]:
        purpose = f"it states no collective of this shape, only {output.shown(self.collective.name)!r}"
        return self._error("UnknownPurpose", purpose)

    def _error(self, name: str, message: str) -> Sequence[_core.Diagnostic]:
        return errors.error(name, message, file=self.file, line=1).diagnostics


def load(spec: Asked) -> OneSided | None:
    """Returns the one-sided program that `spec` names, or None; a plan for one tile, unless it says tiles=N."""
    name = spec.name
    if not Path(name).is_file() or ".py:" in f"{name}:":
        asked = spec.how.memory == "direct" and not target.is_collective(name, spec.how)
        return OneSided(target.direct(name, spec.how)) if asked else None
    if name.endswith(".json"):
        data = files.read_json(name, "BadJson")
        if mscclpp.is_plan(data):
            return _read_plan(spec, data, 1)
    if name.endswith((".json", ".xml")) or not _begins_as_text(name):
        return OneSided(target.direct(name, spec.how)) if spec.how.memory == "direct" else None
    others = [key for key in ("in_place", "collective") if getattr(spec.how, key) is not None]
    _check_keys(spec, [*spec.how.parameters, *others])
    with output.working(f"reading {name}"):
        text = files.read_text(name, "BadText", most=1 << 30)
        return OneSided(_core.DirectProgram.from_text(text, name), file=name)


def _read_plan(spec: Asked, data: Any, tiles: int) -> OneSided:
    given = dict(spec.how.parameters)
    tiles = given.pop("tiles", tiles)
    _check_keys(spec, [*given, *(["in_place"] if spec.how.in_place is not None else [])])
    collective = spec.how.collective
    if not (collective is None or isinstance(collective, str)):
        collective = collective.name
    with output.working(f"reading {spec.name}"):
        plan = mscclpp.read(data, tiles=tiles, collective=collective, file=spec.name)
    return OneSided(plan.program, file=spec.name, plan=plan, tiles=tiles)


def check_options(engine: Engine) -> None:
    """Refuses an engine, or options of it, that run no one-sided programs."""
    given = engine.options
    named = {"slots": given.slots, "slot_bytes": given.slot_bytes, "seed": given.seed is not None}
    useless = [key for key, value in named.items() if value]
    if engine.name == "processes":
        raise click.UsageError("one-sided programs run on --engine threads or cuda; on processes by comm.run(program)")
    if useless:
        raise click.UsageError(f"{useless[0]} does not apply to a one-sided program")


def save(direct: OneSided, path: str | None, *, as_json: bool) -> int:
    """Proves a program and writes it to `path`, if there is one; returns the exit status."""
    found = direct.findings(10)
    if found:
        raise errors.UserError(*found)
    if path is not None:
        direct.save(path)
    if as_json:
        output.emit({"program": direct.info(), "ok": True, "file": path})
        return 0
    click.echo(direct.describe())
    click.echo(direct.proven())
    if path is not None:
        click.echo(f"written to {path}")
    else:
        output.remark("nothing was written: add -o FILE.txt; `gc3 show` prints the program")
    return 0


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
