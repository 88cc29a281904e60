"""The changes that gc3 sim can simulate: parameters and parts of the machine, and late or slow ranks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gc3 import datatypes
from gc3.cli import output
from gc3.cli import sizes as formatting
from gc3.cli.variants import load_platform
from gc3.sim import Disturbance, background, beside, degrade, presets, settings, trust
from gc3.sim.degrade import Traffic
from gc3.sim.parameters import DIRECT

if TYPE_CHECKING:
    from gc3.sim import Platform
    from gc3.sim.sensitivity import Sensitivity

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LAUNCH = "gc3.launch"  # in the context of a command
_MOST_LATE = 8  # ranks that are listed
_SHOWN = 0.005  # the table leaves out elasticities below this
_RATE = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(map(re.escape, settings.RATES))})?")
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(x?|s|ms|us|ns)")


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the machine of the topology and its preset."""

    parameters: Sequence[settings.Setting]  # changed parameters
    slower: Sequence[tuple[str, float]]  # parts that carry a fraction of what they should
    traffic: Sequence[Traffic]  # other traffic
    computing: float  # the part of the multiprocessors that compute beside the programs occupies
    jitter: float  # seconds up to which ranks start late; see `on`
    seed: int  # of the jitter
    disturbance: Disturbance  # late and slow ranks
    preset: str = ""  # that of the machine; see `on`

    def on(self, machine: str) -> tuple[Platform, Changes]:
        """Returns the machine that --topology names with its changes, and these, with the jitter drawn.

        Raises:
            gc3.UserError: There is no such machine, parameter or part, or nothing is left of a part.
        """
        whole = load_platform(machine)
        if by := launch_by():
            shift = presets.launched(whole.parameters, by).shift_s(by)
            whole = replace(whole, parameters=replace(whole.parameters, launch_s=whole.parameters.launch_s + shift))
        changed = degrade(settings.apply(whole, self.parameters), self.slower)
        on = beside(background(changed, self.traffic), self.computing)
        return on, replace(self._jittered(whole.topology.rank_count), preset=whole.parameters.name)

    def _jittered(self, ranks: int) -> Changes:
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

    def told(self) -> list[str]:
        """Returns what is told of the differences, and of the launch if it is not as measured."""
        found = [f"changed: {text}"] if (text := self.described()) else []
        by, known = launch_by(), presets.LAUNCHES.get(self.preset)
        if by and known and (shift := known.shift_s(by)):
            found.append(f"launched by a {by}, {1e6 * shift:+.2g} us: {known.source}")
        return found

    def beyond(self) -> list[str]:
        """Returns what of them no measurement has: see `trust.expected`."""
        by, known = launch_by(), presets.LAUNCHES.get(self.preset)
        moved = bool(by and known and known.shift_s(by))
        return [trust.CHANGED] * bool(self.described()) + [trust.OTHER_LAUNCH] * moved

    def data(self) -> dict[str, Any]:
        """Returns the differences as plain data in seconds, bytes per second, bytes, or plain numbers."""
        launch = presets.LAUNCHES.get(self.preset)
        return {
            "launch": {"by": launch_by() or (launch and launch.by), "measured": launch and asdict(launch)},
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
            if protocol in (*datatypes.PROTOCOLS, DIRECT) and protocol not in protocols:
                output.remark(f"{change.name} changes nothing: no program here uses {protocol}")


def _straggler(text: str, delays: dict[int, float], slowdowns: dict[int, float]) -> None:
    rank, _, value = text.partition(":")
    match = _NUMBER.fullmatch(value)
    if not rank.isdecimal() or match is None:
        raise click.BadParameter(
            f"'straggler={text}' is not RANK:FACTOR or RANK:DELAY, as in straggler=3:1.5 (half as long again) or "
            "straggler=3:50us (starts later)"
        )
    number = float(match[1])
    if match[2] in _TIMES:
        delays[int(rank)] = number * _TIMES[match[2]]
    elif number > 0:
        slowdowns[int(rank)] = number
    else:
        raise click.BadParameter(f"'straggler={text}': a factor is above 0")


def _degrade(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition(":")
    match = _NUMBER.fullmatch(value)
    if not name or match is None or match[2] in _TIMES:
        raise click.BadParameter(
            f"'degrade={text}' is not NAME:FRACTION, as in degrade=node0.nic1:0.5 or degrade=0-1:0.25"
        )
    return name, float(match[1])


def _background(text: str) -> Traffic:
    name, _, value = text.rpartition(":")
    match = _RATE.fullmatch(value)
    if not name or match is None or float(match[1]) <= 0:
        raise click.BadParameter(
            f"'background={text}' is not NAME:RATE or NAME:FRACTION, as in background=0-1:20GB/s or "
            "background=nvlink3:0.3"
        )
    return Traffic(name, float(match[1]) * settings.RATES.get(match[2], 1.0), relative=not match[2])


def _part(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] or not float(match[1]) < 1:
        raise click.BadParameter(f"'compute={text}' is not a fraction below 1, as in compute=0.5")
    return float(match[1])


def _changes(_ctx: click.Context, _param: click.Parameter, given: Iterable[str]) -> Changes:
    """What the texts of --what-if say together; a name that is no change of its own is that of a parameter."""
    parameters: list[settings.Setting] = []
    slower: list[tuple[str, float]] = []
    traffic: list[Traffic] = []
    delays: dict[int, float] = {}
    slowdowns: dict[int, float] = {}
    once: dict[str, Any] = {"compute": 0.0, "jitter": 0.0, "seed": 1}
    for text in given:
        kind, _, value = text.partition("=")
        if kind == "straggler":
            _straggler(value, delays, slowdowns)
        elif kind == "degrade":
            slower.append(_degrade(value))
        elif kind == "background":
            traffic.append(_background(value))
        elif kind == "compute":
            once[kind] = _part(value)
        elif kind == "jitter":
            once[kind] = time(value)
        elif kind == "seed":
            if not value.isdecimal():
                raise click.BadParameter(f"'{text}': the seed of the jitter is a number from 0")
            once[kind] = int(value)
        elif "." not in kind and settings.kind(kind) is None:
            kinds = ", ".join(f"{name}=" for name in ("straggler", "degrade", "background", *once))
            raise click.BadParameter(f"'{text}': expected {kinds} or a parameter such as launch= or nic.bandwidth=")
        else:
            parameters.append(settings.parse(text))
    disturbance = Disturbance(delays, slowdowns)
    return Changes(parameters, slower, traffic, once["compute"], once["jitter"], once["seed"], disturbance)


def time(text: str) -> float:
    """Returns the seconds of a time with its unit.

    >>> time("2ms")
    0.002
    """
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in _TIMES:
        raise click.BadParameter(f"'{text}' is not a time, as in 5us")
    return float(match[1]) * _TIMES[match[2]]


def launch_by() -> str | None:
    """Returns what --launch of the current command says; None: nothing."""
    return click.get_current_context().meta.get(_LAUNCH)


def nccl_shift_s(on: Platform) -> float:
    """Returns by how many seconds NCCL's times change with the launch that the current command asks for."""
    by = launch_by()
    return 0.0 if by is None else presets.launched(on.parameters, by).shift_s(by, nccl_nodes=on.topology.node_count > 1)


def _keep_launch(ctx: click.Context, _param: click.Parameter, given: str | None) -> None:
    ctx.meta[_LAUNCH] = given


_launch_option = click.option(
    "--launch",
    type=click.Choice(("graph", "stream")),
    expose_value=False,
    callback=_keep_launch,
    help="How calls are launched: by a CUDA graph, or one by one into a stream.  [default: as in the measurements "
    "behind the preset, which the first line tells]",
)


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --what-if and --launch."""
    return _what_if_option(_launch_option(command))


_what_if_option = click.option(
    "--what-if",
    "changes",
    metavar="CHANGE=VALUE",
    multiple=True,
    callback=_changes,
    help="A change to simulate; once for each. straggler=3:1.5: threadblocks of rank 3 take 1.5 times as long; "
    "straggler=3:50us: it starts late. jitter=5us: every rank starts late by a random time up to this, the same for "
    "all programs; seed=2: of the jitter. degrade=node0.nic1:0.5, or of a link, 0-1:0.25: it carries a fraction of "
    "what it should. background=0-1:20GB/s: other traffic, which takes its rate first, between two ranks, on a part "
    "(node0.nic1:5GB/s), on all links of a class (nvlink3:0.3) or of GPUs' memory (memory:0.5). compute=0.5: compute "
    "occupies this part of the multiprocessors of every GPU. Or a parameter: nic.bandwidth=50GB/s, launch=5us, "
    "LL.hop=*0.5; all are in docs/simulator.md.",
)


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


def sensitivity_data(found: Iterable[tuple[str, Sequence[int], Sequence[Sensitivity]]]) -> dict[str, Any]:
    """Returns the sensitivities of programs, each with name and sizes, as plain data; of one name with the sizes."""
    data: dict[str, Any] = {}
    for program, sizes, slopes in found:
        name = f"{program}, {min(sizes)} to {max(sizes)} B" if program in data else program
        parameters = [{"name": s.name, "value": s.value, "elasticity": list(s.elasticity)} for s in slopes]
        data[name] = {"sizes": list(sizes), "parameters": parameters}
    return data
