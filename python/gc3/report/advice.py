"""What bounds a run, and what may help, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gc3.report.style import short_size
from gc3.report.svg import time_text
from gc3.sim.trust import against, distinguishable, per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.sim.predict import Prediction

_MOST = 3  # trials that are told
_SAME = 1.005
_GAIN = 0.98  # of the time: what gains less is not advised
# What the causes on the critical path mean, and what reduces them.
_MEANING = {
    "threadblock": (
        "threadblocks copy and reduce at their own rate",
        "more threadblocks share the work with instances=N or further channels",
    ),
    "link": (
        "a link or NIC carries data",
        "an algorithm that sends less over it, or spreads it over more links, helps",
    ),
    "latency": (
        "data is in flight",
        "fewer steps on the longest chain help, and the protocols LL and LL128 shorten each of them",
    ),
    "launch": ("kernels start and ranks meet", "nothing in the program changes this: fewer, larger calls help"),
    "receive": ("data is awaited", "the sender is late: look at the steps before it on the critical path"),
    "credit": ("a free FIFO slot is awaited", "more slots, or shorter messages, help"),
    "semaphore": ("another threadblock of the rank is awaited", "a different assignment to threadblocks helps"),
    "connection": ("one connection is at its limit", "more channels or instances use several connections"),
    "core": ("ranks share processor cores", "fewer ranks on a core help"),
    "rendezvous": (
        "a sender waits for its receiver",
        "receives that are posted earlier, or messages below the size of a rendezvous, help",
    ),
    "compute": ("operations compute", "more, shorter operations let messages begin earlier"),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The program compiled differently: what was changed, and the predicted seconds at the same size."""

    label: str
    time_s: float


def bottleneck(prediction: Prediction, lines: Sequence[tuple[str, float]]) -> list[str]:
    """Returns sentences on what bounds the run; `lines`: the lines of code by their share of the critical path."""
    why = prediction.explanation
    if why is None or not prediction.time_s:
        return []
    out: list[str] = []
    for cause, seconds in list(why.causes.items())[:2]:
        share = seconds / prediction.time_s
        meaning = _MEANING.get(cause, (cause, ""))[0]
        link = f", most of it {next(iter(why.links))}" if cause == "link" and why.links else ""
        out.append(f"{share:.0%} of the time, {meaning} ({cause}{link}).")
    if lines and lines[0][1] >= 0.05:  # noqa: PLR2004  less says little
        name, share = lines[0]
        out.append(f"The line that takes most is {name}: {share:.0%} of the critical path.")
    if prediction.bound_s > prediction.time_s / 1000:
        out.append(
            f"No schedule of the same transfers is faster than {time_text(prediction.bound_s)}: "
            f"{prediction.bound_by} must carry its share. This one takes {time_text(prediction.time_s)}, "
            f"{prediction.time_s / prediction.bound_s:.3g} times that."
        )
    return out


def gains(time_s: float, trials: Sequence[Trial]) -> list[Trial]:
    """Returns the fastest trials, three at most; of those that take as long the simplest."""
    found: list[Trial] = []
    for each in sorted(trials, key=lambda t: t.time_s):
        if each.time_s < _GAIN * time_s and all(_SAME * other.time_s < each.time_s for other in found):
            found.append(each)
    return found[:_MOST]


def advised(time_s: float, trials: Sequence[Trial], error: float) -> list[str]:
    """Returns what the fastest trials would bring; `error`: of the times."""
    return [
        f"{t.label}: {time_text(t.time_s)} predicted, "
        + (
            f"{100 * (t.time_s / time_s - 1):.0f}%"
            if distinguishable(time_s, t.time_s, error)
            else f"not distinguishable (error {per_cent(error)})"
        )
        for t in gains(time_s, trials)
    ]


def advice(prediction: Prediction, trials: Sequence[Trial], error: float) -> list[str]:
    """Returns what to try, with the predicted gain where it was simulated; `error`: of the times."""
    why = prediction.explanation
    out: list[str] = []
    for trial in gains(prediction.time_s, trials):
        out.append(
            f"{trial.label}: {time_text(trial.time_s)} predicted at {short_size(prediction.size)}, "
            f"{against(trial.time_s, 'this one', prediction.time_s, error)}."
        )
    worse = sum(trial.time_s >= _GAIN * prediction.time_s for trial in trials)
    if worse:
        tried = "variant was" if worse == 1 else "variants were"
        out.append(f"{worse} other {tried} tried in the simulator and not faster by 2 %.")
    if why is not None and why.causes:
        cause = next(iter(why.causes))
        text = _MEANING.get(cause, ("", ""))[1]
        if text:
            out.append(f"{text[0].upper()}{text[1:]}.")
    return out
