"""The changes that gc3 sim can simulate: parameters and parts of the machine, and late or slow ranks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gc3 import datatypes
from gc3.cli import output
from gc3.cli import sizes as formatting
from gc3.sim import Disturbance, background, beside, degrade, settings
from gc3.sim.degrade import Traffic

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.sim.sensitivity import Sensitivity

T = TypeVar("T")

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MOST_LATE = 8  # ranks that are listed
_SHOWN = 0.005  # the table leaves out elasticities below this
_RATE = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(map(re.escape, settings.RATES))})?")
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(x?|s|ms|us|ns)")


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the machine of the topology and its preset.

    Attributes:
        parameters: Changed parameters.
        slower: Parts that carry a fraction of what they should.
        traffic: Other traffic.
        computing: The part of the multiprocessors that compute beside the programs occupies.
        without: Lost links and ranks, which are left out of the topology.
        jitter: Seconds up to which ranks start late; see `jittered`.
        seed: Of the jitter.
        disturbance: Late and slow ranks.
    """

    parameters: Sequence[settings.Setting]
    slower: Sequence[tuple[str, float]]
    traffic: Sequence[Traffic]
    computing: float
    without: Sequence[str]
    jitter: float
    seed: int
    disturbance: Disturbance

    def applied(self, on: Platform) -> Platform:
        """Returns the machine with its changes.

        Raises:
            gc3.UserError: There is no such parameter or part, or nothing is left of a part.
        """
        changed = degrade(settings.apply(on, self.parameters), self.slower)
        return beside(background(changed, self.traffic), self.computing)

    def jittered(self, ranks: int) -> Changes:
        """Returns the changes with the jitter drawn: all ranks also start late by random times."""
        if not self.jitter:
            return self
        draw = random.Random(self.seed)  # noqa: S311  not a secret
        delays = self.disturbance.delay_s
        late = {rank: delays.get(rank, 0.0) + draw.uniform(0, self.jitter) for rank in range(ranks)}
        late |= {r: s for r, s in delays.items() if r >= ranks}
        return replace(self, disturbance=Disturbance(late, self.disturbance.slowdown))

    def described(self) -> str:
        """Returns the differences as text; empty if there are none."""
        parts = [f"{name} at {fraction:.12g} of its rate" for name, fraction in self.slower]
        parts += [f"{t.where} with {_amount(t)} of other traffic" for t in self.traffic]
        parts += [f"compute on {100 * self.computing:.12g}% of the multiprocessors"] if self.computing else []
        parts += [f"{c.name} {'times ' if c.relative else ''}{quantity(c)}" for c in self.parameters]
        late = self.disturbance.delay_s
        if len(late) > _MOST_LATE:
            parts += [f"{len(late)} ranks {1e6 * min(late.values()):g} to {1e6 * max(late.values()):g} us late"]
        else:
            parts += [f"rank {r} {1e6 * s:g} us late" for r, s in late.items()]
        parts += [f"rank {r} takes {f:g} times as long" for r, f in self.disturbance.slowdown.items()]
        return ", ".join(parts)

    def data(self) -> dict[str, Any]:
        """Returns the differences as plain data in seconds, bytes per second, bytes, or plain numbers."""
        return {
            "degraded": dict(self.slower),
            "compute": self.computing,
            "background": [{"name": t.where, "amount": t.amount, "relative": t.relative} for t in self.traffic],
            "settings": [{"name": c.name, "value": c.value, "relative": c.relative} for c in self.parameters],
            "stragglers": {
                "delay_s": {str(r): s for r, s in self.disturbance.delay_s.items()},
                "slowdown": {str(r): f for r, f in self.disturbance.slowdown.items()},
            },
        }

    def check_effect(self, protocols: Collection[str]) -> None:
        """Remarks on changes of protocols that no program uses."""
        for change in self.parameters:
            protocol = change.name.partition(".")[0]
            if protocol in datatypes.PROTOCOLS and protocol not in protocols:
                output.remark(f"{change.name} changes nothing: no program here uses {protocol}")


def _settings(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> list[settings.Setting]:
    return [settings.parse(text) for text in given]


def _stragglers(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> Disturbance:
    delays: dict[int, float] = {}
    slowdowns: dict[int, float] = {}
    for text in given:
        rank, _, value = text.partition("=")
        match = _NUMBER.fullmatch(value)
        if not rank.isdecimal() or match is None:
            raise click.BadParameter(
                f"'{text}' is not RANK=FACTOR or RANK=DELAY, as in 3=1.5 (half as long again) or 3=50us (starts later)"
            )
        number = float(match[1])
        if match[2] in _TIMES:
            delays[int(rank)] = number * _TIMES[match[2]]
        elif number > 0:
            slowdowns[int(rank)] = number
        else:
            raise click.BadParameter(f"'{text}': a factor is above 0")
    return Disturbance(delays, slowdowns)


def _degrade(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for text in given:
        name, _, value = text.rpartition("=")
        match = _NUMBER.fullmatch(value)
        if not name or match is None or match[2] in _TIMES:
            raise click.BadParameter(f"'{text}' is not NAME=FRACTION, as in node0.nic1=0.5 or 0-1=0.25")
        found.append((name, float(match[1])))
    return found


def _background(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> list[Traffic]:
    found: list[Traffic] = []
    for text in given:
        name, _, value = text.rpartition("=")
        match = _RATE.fullmatch(value)
        if not name or match is None or float(match[1]) <= 0:
            raise click.BadParameter(f"'{text}' is not NAME=RATE or NAME=FRACTION, as in 0-1=20GB/s or nvlink3=0.3")
        found.append(Traffic(name, float(match[1]) * settings.RATES.get(match[2], 1.0), relative=not match[2]))
    return found


def time(text: str) -> float:
    """Returns the seconds of a time with its unit.

    >>> time("2ms")
    0.002
    """
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in _TIMES:
        raise click.BadParameter(f"'{text}' is not a time, as in 5us")
    return float(match[1]) * _TIMES[match[2]]


def _jitter(_ctx: click.Context, _param: click.Parameter, given: str | None) -> float:
    return time(given or "0s")


sensitivity_option = click.option(
    "--sensitivity", is_flag=True, help="Show how much the time of each program depends on each parameter."
)


def options(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the options of changes, as its argument `changes`."""

    @wraps(command)
    def with_changes(
        changed: Sequence[settings.Setting],
        slower: Sequence[tuple[str, float]],
        traffic: Sequence[Traffic],
        computing: float,
        without: Sequence[str],
        jitter: float,
        seed: int,
        disturbance: Disturbance,
        **others: object,
    ) -> T:
        changes = Changes(changed, slower, traffic, computing, without, jitter, seed, disturbance)
        return command(changes=changes, **others)

    decorated = with_changes
    for option in (
        click.option(
            "--straggler",
            "disturbance",
            metavar="RANK=FACTOR|DELAY",
            multiple=True,
            callback=_stragglers,
            help="A rank whose threadblocks take FACTOR times as long (3=1.5), or that starts late (3=50us).",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of --jitter."),
        click.option(
            "--jitter",
            metavar="DELAY",
            callback=_jitter,
            help="Every rank starts late by a random time up to DELAY (5us); the same for all programs.",
        ),
        click.option(
            "--without", multiple=True, metavar="A-B|RANK", help="The machine has lost a link, or a rank: 0-1, 3."
        ),
        click.option(
            "--compute",
            "computing",
            type=click.FloatRange(0, 1, max_open=True),
            default=0.0,
            metavar="FRACTION",
            help="Compute beside the programs occupies this part of the multiprocessors of every GPU; its traffic: "
            "--background memory=400GB/s.",
        ),
        click.option(
            "--background",
            "traffic",
            metavar="NAME=RATE|FRACTION",
            multiple=True,
            callback=_background,
            help="Other traffic, which takes its rate first: between two ranks (0-1=20GB/s), on a part "
            "(node0.nic1=5GB/s), a fraction of all links of a class (nvlink3=0.3), or of GPUs' memory (memory=0.5).",
        ),
        click.option(
            "--degrade",
            "slower",
            metavar="NAME=FRACTION",
            multiple=True,
            callback=_degrade,
            help="A part carries a fraction of what it should: node0.nic1=0.5, or the link 0-1=0.25.",
        ),
        click.option(
            "--set",
            "changed",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_settings,
            help="Change a parameter: nic.bandwidth=50GB/s, launch=5us, LL.hop=*0.5. All are in docs/simulator.md.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def _amount(traffic: Traffic) -> str:
    return f"{100 * traffic.amount:.12g}%" if traffic.relative else f"{1e-9 * traffic.amount:.12g} GB/s"


def quantity(change: settings.Setting, *, digits: int = 6) -> str:
    """Returns a value with its unit, to a number of digits.

    >>> quantity(settings.parse("launch=5us")), quantity(settings.parse("nic.bandwidth=50GB/s"))
    ('5 us', '50 GB/s')
    """
    kind = "number" if change.relative else settings.kind(change.name) or "number"
    scale, unit = {"time": (1e6, " us"), "rate": (1e-9, " GB/s"), "size": (1.0, " B")}.get(kind, (1.0, ""))
    return f"{change.value * scale:.{digits}g}{unit}"


def print_sensitivities(label: str, sizes: Sequence[int], found: Sequence[Sensitivity]) -> None:
    """Prints a table: a row for each parameter that matters, a column for each size."""
    click.secho(f"# {label}: percent that the time changes by for one percent more of", bold=True)
    heads = [formatting.format_size(size).replace(" ", "") for size in sizes]
    click.echo(f"# {'parameter':<28} {'value':>12} {' '.join(f'{head:>8}' for head in heads)}")
    matters = sorted((s for s in found if s.greatest >= _SHOWN), key=lambda s: -s.greatest)
    for s in matters:
        value = quantity(settings.Setting(s.name, s.value))
        click.echo(f"  {s.name:<28} {value:>12} {' '.join(f'{e:>8.2f}' for e in s.elasticity)}")
    left_out = len(found) - len(matters)
    click.echo(f"# {left_out} others are left out: less than {_SHOWN:g} at every size")


def sensitivity_data(sizes: Sequence[int], found: Sequence[Sensitivity]) -> dict[str, Any]:
    """Returns the sensitivities of a program as plain data."""
    return {
        "sizes": list(sizes),
        "parameters": [{"name": s.name, "value": s.value, "elasticity": list(s.elasticity)} for s in found],
    }
