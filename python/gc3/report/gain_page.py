"""What programs would gain over NCCL on a machine: the numbers, and a page that can be sent on as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from gc3.report import page, svg
from gc3.report.style import short_size
from gc3.report.svg import time_text
from gc3.sim.trust import Expected, distinguishable, per_cent

_LEFT, _RIGHT, _ROW, _TOP = 190, 170, 18, 30
_WIDTH = 560  # of the axis
_STYLE = """
body { background: var(--back); color: var(--ink); }
th { background: var(--back); }
td { vertical-align: top; }
tr.tells td.ratio { font-weight: 600; }
code { font-size: 0.92em; white-space: pre-wrap; overflow-wrap: anywhere; }
details { min-width: 16em; white-space: normal; text-align: left; }
.wide { overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as NCCL something is.

    Attributes:
        nccl_s: NCCL's seconds.
        own_s: Its own.
        low: The least ratio within the errors of both times.
        high: The greatest one.
    """

    nccl_s: float
    own_s: float
    low: float
    high: float

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
        band = f"{self.value:.2f} times the speed of NCCL, {self.low:.2f} to {self.high:.2f}"
        return band if self.tells else f"not distinguishable ({band})"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {"ratio": self.value, "low": self.low, "high": self.high, "distinguishable": self.tells}


@dataclass(frozen=True, slots=True)
class Gain:
    """The best program for a call beside NCCL.

    Attributes:
        collective: Name.
        size: S in bytes.
        program: What the best program is; empty: none was found in time.
        synthesized: Whether it is not one of the library's.
        own_s: Its seconds.
        own: What they are worth.
        nccl: NCCL with its version, and its choice; empty: it does not run there.
        nccl_s: Its seconds; 0: not known.
        theirs: What they are worth.
        library_s: Seconds of the library's best program; None: there is none.
        runtimes: Those that execute the program.
        deploy: The commands that write its file, in their order.
        measure: The command that measures it there; empty: no command of this kind does.
        measure_nccl: The one that measures NCCL.
    """

    collective: str
    size: int
    program: str
    synthesized: bool
    own_s: float
    own: Expected | None
    nccl: str
    nccl_s: float
    theirs: Expected | None
    library_s: float | None = None
    runtimes: tuple[str, ...] = ()
    deploy: tuple[str, ...] = ()
    measure: str = ""
    measure_nccl: str = ""

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

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"gain": None if self.ratio is None else self.ratio.data()}


@dataclass(frozen=True, slots=True)
class StepGain:
    """A recorded step with NCCL, and with the best programs where they are predicted to be faster.

    Attributes:
        trace: Its name.
        ratio: Of the times of the whole step.
        exposed_s: Seconds of exposed communication with NCCL, and with the programs.
        replaced: Calls that the programs execute.
        calls: All calls.
        untimed: Nodes that compute and have no duration in the traces.
    """

    trace: str
    ratio: Ratio
    exposed_s: tuple[float, float]
    replaced: int
    calls: int
    untimed: int

    @property
    def text(self) -> str:
        """For people."""
        before, after = map(time_text, (self.ratio.nccl_s, self.ratio.own_s))
        exposed = " to ".join(map(time_text, self.exposed_s))
        told = f"{before} with NCCL, {after} with programs for {self.replaced} of {self.calls} calls: {self.ratio.text}"
        return f"the step of {self.trace}: {told}; exposed communication {exposed}"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"gain": self.ratio.data()}


def write(title: str, gains: Sequence[Gain], step: StepGain | None, unknown: Sequence[str]) -> str:
    """Returns the page: what is predicted, in a picture and a table, and what is not known."""
    known = [gain for gain in gains if gain.ratio is not None]
    wins = [gain for gain in known if gain.ratio is not None and gain.ratio.low > 1]
    lead = f"{len(wins)} of {len(known)} calls are predicted to be faster than NCCL by more than the error."
    parts = [f"<p><b>{escape(lead)}</b></p>"]
    parts += [f"<p>{escape(step.text[0].upper() + step.text[1:])}.</p>"] if step is not None else []
    parts += [_picture(title, known)] if known else []
    parts += [f'<div class="wide">{_table(gains)}</div>', "<h2>What is not known</h2>", "<ul>"]
    parts += [f"<li>{escape(text)}</li>" for text in unknown]
    return page.whole(title, "\n".join([*parts, "</ul>"]), svg.style() + _STYLE)


def _picture(title: str, gains: Sequence[Gain]) -> str:
    """A line for each call: the ratio as a dot, its band as a bar, on a logarithmic axis."""
    ratios = [gain.ratio for gain in gains if gain.ratio is not None]
    most = max(2.0, *(max(r.value, 1 / r.value) * 1.5 for r in ratios), min(max(r.high for r in ratios), 16.0))
    span = math.log(most)

    def x(ratio: float) -> float:
        return _LEFT + _WIDTH * (min(max(math.log(ratio) / span, -1), 1) + 1) / 2

    height = _TOP + _ROW * len(ratios) + 24
    parts: list[str] = []
    for power in range(-math.floor(span / math.log(2)), math.floor(span / math.log(2)) + 1):
        at, label = x(2.0**power), f"{2.0**power:g}"
        look = "axis" if power else "crit"
        parts.append(f'<line class="{look}" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{height - 20}"/>')
        parts.append(svg.text(at, _TOP - 12, label, kind="soft", anchor="middle"))
    before = ""
    for number, (gain, ratio) in enumerate(zip(gains, ratios, strict=True)):
        y = _TOP + _ROW * (number + 0.5)
        if gain.collective != before:
            parts.append(svg.text(0, y + 4, gain.collective))
        before = gain.collective
        parts.append(svg.text(_LEFT - 14, y + 4, short_size(gain.size), kind="soft", anchor="end"))
        color = ("#009E73" if ratio.value > 1 else "#D55E00") if ratio.tells else "#8a8f96"
        low, high, at = x(ratio.low), x(ratio.high), x(ratio.value)
        parts.append(
            f'<rect x="{low:.1f}" y="{y - 4:.1f}" width="{max(high - low, 1):.1f}" height="8" rx="3" fill="{color}" '
            f'opacity="0.3"/><circle cx="{at:.1f}" cy="{y:.1f}" r="4.5" fill="{color}"/>'
        )
        told = f"{ratio.value:.2f}" if ratio.tells else f"{ratio.value:.2f}, not distinguishable"
        parts.append(svg.text(_LEFT + _WIDTH + 10, y + 4, told, kind="" if ratio.tells else "soft"))
    below = "speed over NCCL, predicted; bars: what nine of ten measured times would stay within"
    parts.append(svg.text(_LEFT + _WIDTH / 2, height - 4, below, kind="soft", anchor="middle"))
    return svg.document("".join(parts), _LEFT + _WIDTH + _RIGHT, height, title, alone=False)


def _table(gains: Sequence[Gain]) -> str:
    heads = ("collective", "size", "NCCL", "best program", "time", "gain", "error", "runs on", "how")
    lines = ["<tr>" + "".join(f"<th class=text>{head}</th>" for head in heads) + "</tr>"]
    for gain in gains:
        ratio = gain.ratio
        commands = [*gain.deploy, *filter(None, (gain.measure, gain.measure_nccl))]
        told = "<br>".join(f"<code>{escape(text)}</code>" for text in commands)
        worth = (("program", gain.own), ("NCCL", gain.theirs))
        told += "".join(f"<p>{what}: {escape(each.text)}</p>" for what, each in worth if each is not None)
        cells = (
            ("text", escape(gain.collective)),
            ("", escape(short_size(gain.size))),
            ("text", f"{time_text(gain.nccl_s)}<br>{escape(gain.nccl)}" if gain.nccl_s else escape(gain.nccl)),
            ("text words", escape(gain.program) or "none found in time"),
            ("", time_text(gain.own_s) if gain.own_s else ""),
            ("text words ratio", "not known" if ratio is None else escape(ratio.text)),
            ("", per_cent(gain.error) if ratio is not None and gain.error else ""),
            ("text words", escape(", ".join(gain.runtimes))),
            ("text", f"<details><summary>commands, errors</summary>{told}</details>" if commands else ""),
        )
        line = "".join(f'<td class="{kind}">{text}</td>' for kind, text in cells)
        kinds = " ".join(["size", *(["tells"] if ratio is not None and ratio.tells else [])])
        lines.append(f'<tr class="{kinds}">{line}</tr>')
    return "<table>\n" + "\n".join(lines) + "\n</table>"
