"""What predictions are worth: the error of a preset on what it was calibrated for, and a band elsewhere."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gc3 import _core
from gc3.sim.parameters import DIRECT
from gc3.sim.presets import ESTIMATED_ONE_SIDED, LAUNCHES, ONE_SIDED, PRESETS
from gc3.support.sizes import format_size
from gc3.topologies.processors import PROCESSORS

if TYPE_CHECKING:
    from gc3.sim.parameters import Evidence
    from gc3.sim.platform import Platform
    from gc3.topologies import Topology

Core: TypeAlias = _core.Program | _core.DirectProgram

# Rates of an H100 that were fitted to AllGather alone were 18 to 21 % off on AllReduce: so much for another collective,
# protocol or size. For other machines there is no measurement, and the band is a judgement: NCCL's own model of its
# times, which is for all machines, is off by 0.31 to 0.81 on A100.
_OTHER = 1.25
_ELSEWHERE = 2.0


def counts_on_switches(on: Platform, program: Core) -> bool:
    """Returns whether the times of messages are with switches that multicast and add up."""
    if isinstance(program, _core.DirectProgram):
        return False  # it has no other form
    return on.topology.multicasts and program.in_switch and program.protocol == "Simple"


IN_SAMPLE, HELD_OUT, NOT_MEASURED, LINKS = "in sample", "held out", "not measured", "links only"
CHANGED, OTHER_LAUNCH = "changed parameters", "launched otherwise than measured"  # what is beyond measurements
NCCL = "NCCL"  # in place of a protocol: what it chooses itself
EVIDENCE = Path(__file__).parent / "evidence.json"  # written by `make evidence`
KEYS = ("generation", "machine", "nodes", "collective", "way", "sizes")  # of a class of measured calls
_NEAR = ("collective", "way", "sizes")  # what differs in them is not far from what was measured
_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = ((64 * _KIB, "to 64 KiB"), (4 * _MIB, "to 4 MiB"), (math.inf, "above 4 MiB"))
_NODES = ((1, "1"), (2, "2"), (16, "3 to 16"), (math.inf, "more than 16"))
_SENDS = ("alltoall", "alltonext", "sendrecv")
# How far a class of measured calls is from what is asked: what differs most between their errors counts most.
_OTHER_WAY, _ONE_OR_SEVERAL, _OTHER_GENERATION, _OTHER_KIND, _OTHER_COLLECTIVE = 1000.0, 16.0, 8.0, 6.0, 4.0
_FITTED, _OTHER_PROTOCOL, _OTHER_NODES, _OTHER_MACHINE, _OTHER_SIZES = 3.0, 2.0, 2.0, 1.5, 1.0
_OTHER_VERSION = 0.5


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
    """What a predicted time is worth. Errors are |log(predicted / measured)|."""

    # `IN_SAMPLE`: parameters were fitted to such calls; `HELD_OUT`: such calls were measured, and not fitted;
    # `NOT_MEASURED`: the errors are those of the nearest calls; `LINKS`: there is no software to be wrong about
    scope: str
    median: float | None  # the median error, or the mean where `p90` is not known; None: not known
    p90: float | None  # the error that nine of ten stay within; None: not known
    of: str  # the measured calls, or why none are near
    beyond: str = ""  # what of the call was not measured
    judged: float = 0.0  # of what was not measured, the error that is expected at least; 0: none

    @property
    def error(self) -> float:
        """What a lead has to exceed: the error that nine of ten stay within, or else what is known or judged."""
        return max(self.p90 or self.median or 0.0, self.judged)

    @property
    def text(self) -> str:
        """For people."""
        if self.scope == LINKS:
            return f"{self.scope}: {self.of}"
        head = f"{self.scope} ({self.beyond})" if self.beyond else self.scope
        nearest = "the nearest: " if self.scope == NOT_MEASURED and self.median is not None else ""
        word = "mean" if self.p90 is None else "median"
        median = "" if self.median is None else f"{word} error {per_cent(self.median)}, "
        most = "" if self.p90 is None else f"90 % within {per_cent(self.p90)}, "
        judged = f"taken as {per_cent(self.judged)}, a judgement; " if self.judged > (self.p90 or 0.0) else ""
        return f"{head}; {judged}{nearest}{median}{most}{self.of}"

    @property
    def short(self) -> str:
        """For a line of a picture."""
        return f"{self.scope}, error {per_cent(self.error)}" if self.error else self.scope

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@cache
def classes() -> tuple[dict[str, Any], ...]:
    """Returns the classes of measured calls that gc3 brings, with their errors."""
    return tuple(json.loads(EVIDENCE.read_text())["classes"])


def expected(
    on: Platform,
    collective: str,
    way: str,
    size: int,
    beyond: Iterable[str] = (),
    version: str = "",
    known: Sequence[Mapping[str, Any]] | None = None,
) -> Expected:
    """Returns what the predicted time of a call is worth: the one answer for all that gc3 prints or draws.

    Args:
        on: The machine.
        collective: The collective.
        way: The protocol of a program, or `NCCL`.
        size: S in bytes.
        beyond: What else differs from any measurement, such as changed parameters.
        version: Of NCCL.
        known: Classes of measured calls in place of those that gc3 brings.
    """
    parameters, topology = on.parameters, on.topology
    evidence = parameters.evidence
    software = parameters.launch_s > 0 or any(p.op_s > 0 for p in parameters.protocols.values())
    if not software and way != NCCL:
        return Expected(LINKS, None, None, evidence.source)
    if way == DIRECT:  # such programs stay within a node or memory domain
        measured = ONE_SIDED.get(parameters.name, ESTIMATED_ONE_SIDED)
        return _of_evidence(measured, topology.rank_count, collective, way, size, [*filter(None, beyond)])
    processor = PROCESSORS.get(topology.processor or "")
    brought = PRESETS.get(parameters.name)
    own = parameters.name not in PROCESSORS or brought is None or brought.evidence != evidence
    if processor is None or (own and way != NCCL):
        return _of_preset(on, collective, way, size, [*filter(None, beyond)])
    asked = {
        "generation": processor.generation,
        "machine": machine_class(topology),
        "nodes": nodes_class(topology.node_count),
        "collective": collective,
        "way": way,
        "sizes": size_class(size),
    }
    known = known or classes()
    nearest = min(known, key=lambda c: (_distance(asked, c) + _OTHER_VERSION * _unlike(version, c), -c["p90"]))
    other = [key for key in KEYS if nearest[key] != asked[key]]
    given = [*filter(None, beyond)]
    far = [
        *(each for each in given if each != OTHER_LAUNCH),
        *(_told(key, asked[key]) for key in other if key not in _NEAR),
    ]
    far += [f"preset {parameters.name}"] if parameters.name != processor.name and not own else []
    near = [each for each in given if each == OTHER_LAUNCH] + [asked[key] for key in other if key in _NEAR]
    least, most = nearest["least"], nearest["most"]
    if "sizes" not in other and not least < 2 * size < 4 * most:
        near.append(f"below {format_size(least)}" if size < least else f"above {format_size(most)}")
    if _unlike(version, nearest):
        near.append(f"{NCCL} {version}")
    missing = [*far, *near]
    judged = math.log(_ELSEWHERE) if far else math.log(_OTHER) if near else 0.0
    scope = NOT_MEASURED if missing else IN_SAMPLE if nearest["in_sample"] else HELD_OUT
    fitted = ", fitted" if missing and nearest["in_sample"] else ""
    calls = f"{nearest['points']} call{'s' * (nearest['points'] != 1)}: {nearest['collective']}"
    where = f"{_told('nodes', nearest['nodes'])} of {nearest['machine']}, {nearest['sizes']}"
    of = f"{calls} by {nearest['way']}, {where}{fitted}"
    return Expected(scope, nearest["median"], nearest["p90"], of, ", ".join(missing), judged)


def _unlike(version: str, known: Mapping[str, Any]) -> bool:
    """Whether a class of measured calls is of other versions of NCCL, as far as both are known."""
    versions = known["versions"]
    return bool(version and versions) and not any(f"{each}.".startswith(f"{version}.") for each in versions)


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


def _of_preset(on: Platform, collective: str, way: str, size: int, beyond: list[str]) -> Expected:
    """What a preset of the user's is worth by its own calibration, or of processors that gc3 has no measurements of."""
    topology = on.topology
    far = beyond + [f"{topology.node_count} nodes"] * (topology.node_count > 1)
    return _of_evidence(on.parameters.evidence, topology.rank_count, collective, way, size, far)


def _of_evidence(evidence: Evidence, ranks: int, collective: str, way: str, size: int, far: list[str]) -> Expected:
    """What parameters are worth by what they were compared with; `far`: what differs from that."""
    source = f"{evidence.status}: {evidence.source}"
    if evidence.held_out is None:
        return Expected(NOT_MEASURED, None, None, source, ", ".join(far), math.log(_ELSEWHERE))
    near: list[str] = []
    if evidence.scope is not None:
        far = [*far, *filter(None, [evidence.scope.elsewhere(ranks)])]
        near = evidence.scope.outside(collective, way, size, size)
    if far or near:
        factor = _ELSEWHERE if far else _OTHER
        return Expected(NOT_MEASURED, None, None, source, ", ".join([*far, *near]), math.log(factor))
    return Expected(HELD_OUT, evidence.held_out if evidence.median is None else evidence.median, evidence.p90, source)


def spread(misses: Iterable[float]) -> tuple[float, float]:
    """Returns the median of absolute errors, and what nine of ten stay within.

    >>> spread([0.1, 0.3, 0.2])
    (0.2, 0.3)
    """
    found = sorted(misses)
    return statistics.median(found), found[math.ceil(0.9 * len(found)) - 1]


def told(found: Iterable[tuple[int, Expected]]) -> list[str]:
    """Returns the details of predictions at some sizes: each text with the sizes in a row that have it."""
    runs: list[tuple[str, list[int]]] = []
    for size, each in found:
        if not runs or runs[-1][0] != each.text:
            runs.append((each.text, []))
        runs[-1][1].append(size)
    return list(dict.fromkeys(f"{span(some)}: {text}" for text, some in runs))


def summary(found: Iterable[tuple[int, Expected]]) -> str:
    """Returns what predictions are worth in one line: the greatest error at each size, sizes of one error together.

    >>> known = Expected(IN_SAMPLE, 0.01, 0.05, "")
    >>> summary([(1024, known), (2048, known), (4096, Expected(NOT_MEASURED, 0.01, 0.05, "", judged=0.2))])
    '5% at 1 KiB to 2 KiB (in sample), 22% at 4 KiB (not measured)'
    """
    greatest: dict[int, Expected] = {}
    for size, each in found:
        if size not in greatest or each.error > greatest[size].error:
            greatest[size] = each
    parts: list[tuple[str, str, list[int]]] = []
    for size, each in sorted(greatest.items(), key=lambda pair: pair[0]):
        error = per_cent(each.error) if each.error else "none known"
        if not parts or parts[-1][:2] != (error, each.scope):
            parts.append((error, each.scope, []))
        parts[-1][2].append(size)
    return ", ".join(f"{error} at {span(sizes)} ({scope})" for error, scope, sizes in parts)


def span(sizes: Iterable[int]) -> str:
    """Returns the least and the greatest size for people."""
    some = sorted(sizes)
    return format_size(some[0]) + ("" if some[0] == some[-1] else f" to {format_size(some[-1])}")


def preset(on: Platform, *, short: bool = False) -> str:
    """Returns the preset of a machine for people, with its source unless it is to be short."""
    evidence, launch = on.parameters.evidence, LAUNCHES.get(on.parameters.name)
    source = "" if short else f": {evidence.source}"
    by = "" if launch is None else f"; launched by a {launch.by}"
    return f"preset {on.parameters.name} ({evidence.status}{source}{by})"


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
