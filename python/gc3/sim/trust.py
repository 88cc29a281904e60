"""What predictions are worth: the error of a preset on what it was calibrated for, and a band elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.sim.parameters import Evidence
    from gc3.sim.platform import Platform

# Rates of an H100 that were fitted to AllGather alone were 18 to 21 % off on AllReduce: so much for another collective,
# protocol or size. For other machines there is no measurement, and the band is a judgement: NCCL's own model of its
# times, which is for all machines, is off by 0.31 to 0.81 on A100. Of compiled programs on several nodes only the
# two-step AllToAll was measured, on 64 NDv4: it took up to 3.9 times as long as predicted.
_OTHER = 1.25
_ELSEWHERE = 2.0
_SENDS_BETWEEN_NODES = 4.0


@dataclass(frozen=True, slots=True)
class Trust:
    """What the predictions for some programs are worth.

    Attributes:
        text: For people.
        error: Expected |log(predicted / measured)|; None: software is not modelled, so there is none.
        calibrated: Whether the measurements behind the preset cover the programs.
    """

    text: str
    error: float | None
    calibrated: bool


Asked = tuple[int, str, str, int, int]  # ranks, collective, protocol, least and greatest size


def changes(changed: str) -> list[str]:
    """Returns what changes of a machine are called among what measurements do not cover."""
    return ["changed parameters"] if changed else []


def within(
    evidence: Evidence,
    asked: Sequence[Asked],
    elsewhere: Sequence[str],
    other: Sequence[str] = (),
    far_off: float = _ELSEWHERE,
) -> Trust:
    """Returns what predictions are worth by their evidence.

    Args:
        evidence: Of the parameters.
        asked: What is predicted; if nothing, the evidence is taken to cover it.
        elsewhere: What other machine it is than the one that was measured.
        other: What else differs from the measurements.
        far_off: The factor of the band on another machine.
    """
    if evidence.held_out is None:
        text = f"({evidence.status}: {evidence.source}; expect times within a factor of {far_off:g})"
        return Trust(text, math.log(far_off), calibrated=False)
    if evidence.scope is not None and asked:
        far = {text: None for each in asked if (text := evidence.scope.elsewhere(each[0]))} | dict.fromkeys(elsewhere)
        near = dict.fromkeys(text for each in asked for text in evidence.scope.outside(*each[1:]))
        if beyond := [*far, *near, *other]:
            factor = far_off if far else _OTHER
            text = (
                f"(not calibrated for {', '.join(beyond)}; calibrated with {evidence.source}; "
                f"expect times within a factor of {factor:g})"
            )
            return Trust(text, math.log(factor), calibrated=False)
    text = f"({evidence.status}, mean error {100 * evidence.held_out:.1f}% held out: {evidence.source})"
    return Trust(text, evidence.held_out, calibrated=True)


def trust(on: Platform, programs: Sequence[_core.Program], sizes: Sequence[int], changed: str = "") -> Trust:
    """Returns what the predictions for programs at sizes are worth.

    Args:
        on: The machine.
        programs: They are covered only if all are.
        sizes: S in bytes.
        changed: Description of changes of the preset; empty: none.
    """
    asked = [(p.rank_count, p.collective.name, p.protocol, min(sizes), max(sizes)) for p in programs if sizes]
    return of_preset(on, asked, changed, in_switch=any(counts_on_switches(on, p) for p in programs))


def counts_on_switches(on: Platform, program: _core.Program) -> bool:
    """Returns whether the times of a program are with switches that multicast and add up."""
    return on.topology.multicasts and program.in_switch and program.protocol == "Simple"


def of_preset(on: Platform, asked: Sequence[Asked], changed: str = "", *, in_switch: bool = False) -> Trust:
    """Returns what a preset's predictions are worth, `in_switch`: by `counts_on_switches`; see `trust`."""
    name, evidence = on.parameters.name, on.parameters.evidence
    software = on.parameters.launch_s > 0 or any(p.op_s > 0 for p in on.parameters.protocols.values())
    if evidence.held_out is None and not software:
        return Trust(f"{name} ({evidence.status}: {evidence.source})", None, calibrated=False)
    nodes = on.topology.node_count
    elsewhere = changes(changed) + ([f"{nodes} nodes"] if nodes > 1 else [])
    sends = nodes > 1 and any(collective == "alltoall" for _, collective, *_ in asked)
    other = ["multicast and sums in switches"] if in_switch else []
    worth = within(evidence, asked, elsewhere, other, _SENDS_BETWEEN_NODES if sends else _ELSEWHERE)
    return Trust(f"{name} {worth.text}", worth.error, worth.calibrated)
