"""What predictions are worth: the error of a preset on what it was calibrated for, and a band elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gc3.sim.presets import PRESETS
from gc3.support.sizes import format_size
from gc3.topologies.processors import PROCESSORS

if TYPE_CHECKING:
    from gc3 import _core
    from gc3.sim.parameters import Evidence
    from gc3.sim.platform import Platform
    from gc3.topologies import Topology

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


def counts_on_switches(on: Platform, program: _core.Program) -> bool:
    """Returns whether the times of a program are with switches that multicast and add up."""
    return on.topology.multicasts and program.in_switch and program.protocol == "Simple"


IN_SAMPLE, HELD_OUT, NOT_MEASURED, LINKS = "in sample", "held out", "not measured", "links only"
NCCL = "NCCL"  # in place of a protocol: what it chooses itself
EVIDENCE = Path(__file__).parent / "evidence.json"  # written by `make evidence`
KEYS = ("generation", "machine", "nodes", "collective", "way", "sizes")  # of a class of measured calls
_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = ((64 * _KIB, "to 64 KiB"), (4 * _MIB, "to 4 MiB"), (math.inf, "above 4 MiB"))
_NODES = ((1, "1"), (2, "2"), (16, "3 to 16"), (math.inf, "more than 16"))
_SENDS = ("alltoall", "alltonext", "sendrecv")
# How far a class of measured calls is from what is asked: what differs most between their errors counts most.
_OTHER_WAY, _ONE_OR_SEVERAL, _OTHER_GENERATION, _OTHER_KIND, _OTHER_COLLECTIVE = 1000.0, 16.0, 8.0, 6.0, 4.0
_FITTED, _OTHER_PROTOCOL, _OTHER_NODES, _OTHER_MACHINE, _OTHER_SIZES = 3.0, 2.0, 2.0, 1.5, 1.0


def nodes_class(nodes: int) -> str:
    """Returns which numbers of nodes count as alike."""
    return next(name for most, name in _NODES if nodes <= most)


def size_class(size: int) -> str:
    """Returns which sizes count as alike."""
    return next(name for most, name in _SIZES if size <= most)


def machine_class(topology: Topology) -> str:
    """Returns which machine a topology is, and how many of its GPUs take part in a node."""
    each = topology.rank_count / topology.node_count
    return f"{topology.name.partition(':')[0]} with {each:g} GPUs a node"


def per_cent(error: float) -> str:
    """Returns an error for people: by how much the longer one of two times is longer.

    >>> per_cent(0.1), per_cent(1.4)
    ('11%', '4.1x')
    """
    return f"{100 * math.expm1(error):.0f}%" if error < 1 else f"{math.exp(error):.1f}x"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a predicted time is worth. Errors are |log(predicted / measured)|.

    Attributes:
        scope: `IN_SAMPLE`: parameters were fitted to such calls; `HELD_OUT`: such calls were measured, and not fitted;
            `NOT_MEASURED`: the errors are those of the nearest calls; `LINKS`: there is no software to be wrong about.
        median: The median error; None: not known.
        p90: The error that nine of ten stay within; None: not known.
        of: The measured calls, or why none are near.
        beyond: What of the call was not measured.
    """

    scope: str
    median: float | None
    p90: float | None
    of: str
    beyond: str = ""

    @property
    def error(self) -> float:
        """What a lead has to exceed: the error that nine of ten stay within, or else what is known."""
        return self.p90 or self.median or 0.0

    @property
    def text(self) -> str:
        """For people."""
        if self.scope == LINKS:
            return f"{self.scope}: {self.of}"
        head = f"{self.scope}: {self.beyond}" if self.beyond else self.scope
        nearest = "the nearest, " if self.scope == NOT_MEASURED and self.median is not None else ""
        median = "" if self.median is None else f"median error {per_cent(self.median)}, "
        most = "" if self.p90 is None else f"90 % within {per_cent(self.p90)}, "
        return f"{head}; {nearest}{median}{most}{self.of}"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@cache
def classes() -> tuple[dict[str, Any], ...]:
    """Returns the classes of measured calls that gc3 brings, with their errors."""
    return tuple(json.loads(EVIDENCE.read_text())["classes"])


def expected(on: Platform, collective: str, way: str, size: int, beyond: str = "") -> Expected:
    """Returns what the predicted time of a call is worth: the one answer for all that gc3 prints or draws.

    Args:
        on: The machine.
        collective: The collective.
        way: The protocol of a program, or `NCCL`.
        size: S in bytes.
        beyond: What else differs from any measurement, such as changed parameters; empty: nothing.
    """
    parameters, topology = on.parameters, on.topology
    evidence = parameters.evidence
    software = parameters.launch_s > 0 or any(p.op_s > 0 for p in parameters.protocols.values())
    if not software and way != NCCL:
        return Expected(LINKS, None, None, evidence.source)
    processor = PROCESSORS.get(topology.processor or "")
    processor = PROCESSORS.get(topology.processor or "")
    brought = PRESETS.get(parameters.name)
    own = parameters.name not in PROCESSORS or brought is None or brought.evidence != evidence
    if processor is None or (own and way != NCCL):
        return _of_preset(on, collective, way, size, beyond)
    asked = {
        "generation": processor.generation,
        "machine": machine_class(topology),
        "nodes": nodes_class(topology.node_count),
        "collective": collective,
        "way": way,
        "sizes": size_class(size),
    }
    if parameters.name != processor.name and not own:
        beyond = ", ".join(filter(None, (f"preset {parameters.name} on {processor.name}", beyond)))
    nearest = min(classes(), key=lambda c: (_distance(asked, c), -c["p90"]))
    missing = [_told(key, asked[key]) for key in KEYS if nearest[key] != asked[key]]
    scope = NOT_MEASURED if beyond or missing else IN_SAMPLE if nearest["in_sample"] else HELD_OUT
    fitted = ", which were fitted" if scope == NOT_MEASURED and nearest["in_sample"] else ""
    calls = f"{nearest['points']} call{'s' * (nearest['points'] != 1)} of {nearest['collective']}"
    where = f"{_told('nodes', nearest['nodes'])} of {nearest['machine']}, {nearest['sizes']}"
    of = f"{calls} by {nearest['way']} on {where}{fitted}"
    return Expected(scope, nearest["median"], nearest["p90"], of, ", ".join([*filter(None, [beyond]), *missing]))


def _told(key: str, value: str) -> str:
    """What one of `KEYS` is called for people."""
    return f"{value} node{'s' * (value != '1')}" if key == "nodes" else value


def _distance(asked: Mapping[str, str], known: Mapping[str, Any]) -> float:
    """How far a class of measured calls is from what is asked; 0: it is that class, and was not fitted."""
    far = 0.0
    if asked["way"] != known["way"]:
        far += _OTHER_WAY if NCCL in {asked["way"], known["way"]} else _OTHER_PROTOCOL
    if asked["nodes"] != known["nodes"]:
        far += _ONE_OR_SEVERAL if "1" in {asked["nodes"], known["nodes"]} else _OTHER_NODES
    if asked["collective"] != known["collective"]:
        far += _OTHER_COLLECTIVE if (asked["collective"] in _SENDS) == (known["collective"] in _SENDS) else _OTHER_KIND
    far += _OTHER_GENERATION * (asked["generation"] != known["generation"])
    far += _OTHER_MACHINE * (asked["machine"] != known["machine"])
    steps = [name for _, name in _SIZES]
    far += _OTHER_SIZES * abs(steps.index(asked["sizes"]) - steps.index(known["sizes"]))
    # What was fitted tells less of what was not measured; where both are of the very calls, so it does, too.
    return far + (_FITTED if far else _FITTED / 100) * known["in_sample"]


def _of_preset(on: Platform, collective: str, way: str, size: int, beyond: str) -> Expected:
    """What a preset of the user's is worth by its own calibration, or of processors that gc3 has no measurements of."""
    evidence, topology = on.parameters.evidence, on.topology
    source = f"{evidence.status}: {evidence.source}"
    if evidence.held_out is None:
        return Expected(NOT_MEASURED, None, math.log(_ELSEWHERE), f"judged; {source}", beyond)
    far = [f"{topology.node_count} nodes"] if topology.node_count > 1 else []
    near: list[str] = []
    if evidence.scope is not None:
        far += filter(None, [evidence.scope.elsewhere(topology.rank_count)])
        near = evidence.scope.outside(collective, way, size, size)
    if far or near or beyond:
        factor = _ELSEWHERE if far or beyond else _OTHER
        outside = ", ".join([*filter(None, [beyond]), *far, *near])
        return Expected(NOT_MEASURED, None, math.log(factor), f"judged; {source}", outside)
    return Expected(HELD_OUT, evidence.held_out, None, source)


def told(found: Iterable[tuple[int, Expected]]) -> list[str]:
    """Returns what is printed of predictions at some sizes: each text once, with its sizes."""
    sizes: dict[str, list[int]] = {}
    for size, each in found:
        sizes.setdefault(each.text, []).append(size)
    return [
        f"{format_size(min(some))}{'' if min(some) == max(some) else f' to {format_size(max(some))}'}: {text}"
        for text, some in sizes.items()
    ]


def distinguishable(first_s: float, second_s: float, *errors: float) -> bool:
    """Returns whether one of two times is shorter by more than what each may be wrong by."""
    return min(first_s, second_s) > 0 and abs(math.log(first_s / second_s)) > max(errors, default=0.0)


def against(own_s: float, other: str, other_s: float, *errors: float) -> str:
    """Says how a predicted time compares with another one.

    >>> against(1.0, "NCCL", 1.03, 0.1), against(1.0, "NCCL", 1.3, 0.1)
    ('not distinguishable from NCCL (error 11%)', '1.30 times the speed of NCCL')
    """
    if not distinguishable(own_s, other_s, *errors):
        return f"not distinguishable from {other} (error {per_cent(max(errors, default=0.0))})"
    return f"{other_s / own_s:.2f} times the speed of {other}"


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
