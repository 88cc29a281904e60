"""What programs would gain over NCCL on a machine: the numbers, and a page that can be sent on as it is."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from gc3.report import page, svg
from gc3.report.style import short_size
from gc3.report.svg import time_text
from gc3.sim.trust import Expected, distinguishable

_LEFT, _RIGHT, _ROW, _TOP = 190, 60, 18, 30
_WIDTH = 640  # of the axis
# Of what a program is: what the commands beside it say.
_BESIDE = re.compile(r" \w+=(ranks|nodes|ranks_per_node)\b|, at most \d+ threadblocks")
_FASTER, _SLOWER, _UNSURE = "#009E73", "#D55E00", "#8a8f96"
_STYLE = """
body { background: var(--back); color: var(--ink); }
th { background: var(--back); }
td { vertical-align: top; }
h2 { font-size: 1.1em; }
td:last-child { font-weight: 400; }
code { font-size: 0.92em; white-space: pre-wrap; overflow-wrap: anywhere; }
details { white-space: normal; text-align: left; }
details[open] { min-width: 16em; }
.wide { overflow-x: auto; }
"""


HEADS = ("collective", "size", "NCCL", "best", "NCCL / best", "program", "runs on")


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as NCCL something is."""

    nccl_s: float  # NCCL's seconds
    own_s: float  # its own
    low: float  # the least ratio within the errors of both times
    high: float  # the greatest one

    @property
    def value(self) -> float:
        """The ratio as predicted."""
        return self.nccl_s / self.own_s if self.own_s > 0 else 1.0

    @property
    def tells(self) -> bool:
        """Whether the two times can be told apart."""
        return self.low > 1 or self.high < 1

    @property
    def text(self) -> str:
        """For people."""
        value = f"{self.value:.2f}" if self.tells else "not distinguishable"
        return f"{value} ({self.low:.2f} to {self.high:.2f})"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {"ratio": self.value, "low": self.low, "high": self.high, "distinguishable": self.tells}


@dataclass(frozen=True, slots=True)
class Gain:
    """The best program for a call beside NCCL."""

    collective: str
    size: int  # S in bytes
    nccl: str  # NCCL's choice, or why it is not known
    nccl_s: float  # its seconds; 0: not known
    theirs: Expected | None  # what they are worth
    measure_nccl: str  # the command that measures it
    program: str = ""  # what the best program is; empty: none was found in time
    synthesized: bool = False  # whether it is not one of the library's
    own_s: float = 0.0  # its seconds
    own: Expected | None = None  # what they are worth
    runtimes: tuple[str, ...] = ()  # those that execute the program
    deploy: tuple[str, ...] = ()  # the commands that write its file, in their order
    measure: str = ""  # the command that measures it there; empty: no command of this kind does

    @property
    def error(self) -> float:
        """What a lead has to exceed."""
        return max((each.error for each in (self.own, self.theirs) if each is not None), default=0.0)

    @property
    def ratio(self) -> Ratio | None:
        """How it compares with NCCL; None: one of the times is not known."""
        if not (self.program and self.own_s > 0 and self.nccl_s > 0):
            return None
        value, spread = self.nccl_s / self.own_s, math.exp(self.error)
        if not self.error and not distinguishable(self.own_s, self.nccl_s):
            return Ratio(self.nccl_s, self.own_s, 1.0, 1.0)
        return Ratio(self.nccl_s, self.own_s, value / spread, value * spread)

    @property
    def wins(self) -> bool:
        """Whether it is faster by more than the error."""
        return self.ratio is not None and self.ratio.low > 1

    @property
    def commands(self) -> tuple[str, ...]:
        """Those that write and measure it, and NCCL."""
        return *self.deploy, *filter(None, (self.measure, self.measure_nccl))

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table below `HEADS`."""
        times = (time_text(each) if each else "not known" for each in (self.nccl_s, self.own_s))
        than = "not known" if self.ratio is None else self.ratio.text
        made = _BESIDE.sub("", self.program) or "none found in time"
        return self.collective, short_size(self.size), *times, than, made, ", ".join(self.runtimes)

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"gain": None if self.ratio is None else self.ratio.data()}


@dataclass(frozen=True, slots=True)
class StepGain:
    """A recorded step with NCCL, and with the best programs where they are predicted to be faster."""

    trace: str
    ratio: Ratio  # of the times of the whole step
    exposed_s: tuple[float, float]  # seconds of exposed communication with NCCL, and with the programs
    replaced: int  # calls that the programs execute
    calls: int  # all calls

    @property
    def text(self) -> str:
        """For people."""
        before, after = map(time_text, (self.ratio.nccl_s, self.ratio.own_s))
        exposed = " to ".join(map(time_text, self.exposed_s))
        told = f"{before} with NCCL, {after} with programs for {self.replaced} of {self.calls} calls, {self.ratio.text}"
        told += " times the speed" if self.ratio.tells else ""
        return f"The step of {self.trace}: {told}; exposed communication {exposed}."

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"gain": self.ratio.data()}


def answer(gains: Sequence[Gain], step: StepGain | None) -> list[str]:
    """Returns the answer in sentences."""
    known = [gain.ratio for gain in gains if gain.ratio is not None]
    wins, losses = (sum(ratio.tells and (ratio.value > 1) == faster for ratio in known) for faster in (True, False))
    slower = f", {losses} slower" if losses else ""
    told = f"{wins} of {len(known)} calls are predicted to be faster than with NCCL by more than the error{slower}."
    told += f" Not known: {len(gains) - len(known)} of {len(gains)} calls." if len(known) < len(gains) else ""
    return [told, *([] if step is None else [step.text])]


def write(title: str, gains: Sequence[Gain], step: StepGain | None, unknown: Sequence[str]) -> str:
    """Returns the page: what is predicted, in a picture and a table, and what is not known."""
    known = [(gain, gain.ratio) for gain in gains if gain.ratio is not None]
    parts = [f"<p><b>{escape(text)}</b></p>" for text in answer(gains, step)]
    parts += [_picture(title, known)] if known else []
    parts += [f'<div class="wide">{_table(gains)}</div>', "<h2>What is not known</h2>", "<ul>"]
    parts += [f"<li>{escape(text)}</li>" for text in unknown]
    return page.whole(title, "\n".join([*parts, "</ul>"]), svg.style() + _STYLE)


def _picture(title: str, gains: Sequence[tuple[Gain, Ratio]]) -> str:
    """A line for each call: the ratio as a dot, its band as a bar, on a logarithmic axis with powers of two."""
    ratios = [ratio for _, ratio in gains]
    low = max(min(r.low for r in ratios), min(1 / 16, *(r.value / 2 for r in ratios)), 1e-6)
    high = min(max(r.high for r in ratios), max(16.0, *(2 * r.value for r in ratios)))
    first, last = min(math.floor(math.log2(low)), -1), max(math.ceil(math.log2(high)), 1)

    def x(ratio: float) -> float:
        at = (math.log2(max(ratio, 1e-9)) - first) / (last - first)
        return _LEFT + _WIDTH * min(max(at, 0), 1)

    height = _TOP + _ROW * len(ratios) + 4
    parts: list[str] = []
    for power in range(first, last + 1):
        at, look = x(2.0**power), "axis" if power else "crit"
        parts.append(f'<line class="{look}" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{height}"/>')
        parts.append(svg.text(at, _TOP - 12, f"{2.0**power:g}", kind="soft", anchor="middle"))
    before = ""
    for number, (gain, ratio) in enumerate(gains):
        y = _TOP + _ROW * (number + 0.5)
        if gain.collective != before:
            top = y - _ROW / 2
            parts += [f'<line class="axis" x1="0" x2="{_LEFT + _WIDTH + _RIGHT}" y1="{top}" y2="{top}"/>'] * (
                number > 0
            )
            parts.append(svg.text(0, y + 4, gain.collective))
        before = gain.collective
        parts.append(svg.text(_LEFT - 14, y + 4, short_size(gain.size), kind="soft", anchor="end"))
        color = (_FASTER if ratio.value > 1 else _SLOWER) if ratio.tells else _UNSURE
        left, right = x(ratio.low), x(ratio.high)
        parts.append(
            f'<rect x="{left:.1f}" y="{y - 4:.1f}" width="{max(right - left, 1):.1f}" height="8" rx="3" fill="{color}" '
            f'opacity="0.3"/><circle cx="{x(ratio.value):.1f}" cy="{y:.1f}" r="4.5" fill="{color}"/>'
        )
        parts.append(svg.text(_LEFT + _WIDTH + 10, y + 4, f"{ratio.value:.2f}" if ratio.tells else "~"))
    head = "Times the speed of NCCL, predicted; bars: within the errors of both times"
    kinds = ((_FASTER, "faster"), (_SLOWER, "slower"), (_UNSURE, "not distinguishable"))
    keys = [(f'fill="{color}"', what) for color, what in kinds]
    return svg.document("".join(parts), _LEFT + _WIDTH + _RIGHT, height, title, alone=False, head=head, keys=keys)


def _table(gains: Sequence[Gain]) -> str:
    lines = ["<tr>" + "".join(f"<th class=text>{head}</th>" for head in (*HEADS, "how")) + "</tr>"]
    for gain in gains:
        *short, than, program, runtimes = (escape(text) for text in gain.cells)
        cells = "".join(f"<td class=text>{text}</td>" for text in short)
        cells += "".join(f'<td class="text words">{text}</td>' for text in (than, program, runtimes))
        told = "<br>".join(f"<code>{escape(text)}</code>" for text in gain.commands)
        worth = (("program", gain.own), ("NCCL", gain.theirs))
        told += "".join(f"<p>{what}: {escape(each.text)}</p>" for what, each in worth if each is not None)
        how = f"<details><summary>commands, errors</summary><p>{escape(gain.nccl)}</p>{told}</details>"
        lines.append(f'<tr class="size{" best" if gain.wins else ""}">{cells}<td class="text words">{how}</td></tr>')
    return "<table>\n" + "\n".join(lines) + "\n</table>"
