"""What NCCL itself should choose on a machine, as the CSV file that tuner plugins of NCCL read.

The form is that of the example plugin in NCCL's sources; GC3's own plugin reads it, too. See docs/nccl.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from gc3 import errors
from gc3.sim import Platform
from gc3.sim.nccl import Nccl
from gc3.sim.nccl.tables import ALGORITHMS
from gc3.sim.nccl.tuning import COLLECTIVES, Choice, choices
from gc3.tune.ranges import boundaries

HEADER = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
_GAIN = 0.98  # of NCCL's own time: what is not faster than this is left to NCCL


@dataclass(frozen=True, slots=True)
class Better:
    """What NCCL does faster at a size than what it would choose."""

    size: int  # S in bytes
    choice: Choice | None  # it; None: its own choice stands
    time_s: float  # its predicted time
    own: Choice  # NCCL's choice
    own_s: float  # the time of that

    @property
    def rule(self) -> tuple[str, str, int] | None:
        """The fields of a rule."""
        return None if self.choice is None else (self.choice.algorithm, self.choice.protocol, self.choice.channels)


def best(nccl: Nccl, size: int) -> Better | None:
    """Returns the fastest of NCCL's algorithms, protocols and numbers of channels at S = `size` bytes.

    None where NCCL has no choice, or its programs are too large to simulate.
    """
    own = nccl.choice(size)
    found = None if own is None else nccl.run_choice(own, size)
    if own is None or found is None or own.algorithm not in ALGORITHMS:
        return None
    least, choice = _GAIN * found.time_s, None
    most = nccl.graph.running
    for each in choices(nccl.graph, nccl.collective, size):
        # In the switch, NCCL always uses all channels.
        for channels in dict.fromkeys((each.channels, *(() if each.in_switch else (most, most // 2, most // 4, 1)))):
            tried = replace(each, channels=max(channels, 1))
            predicted = nccl.run_choice(tried, size)
            if predicted is not None and predicted.time_s < least:
                least, choice = predicted.time_s, tried
    return Better(size, choice, found.time_s if choice is None else least, own, found.time_s)


def lines(on: Platform, names: Iterable[str], sizes: Sequence[int]) -> Iterator[str]:
    """Yields the lines of the file for collectives at sizes, ascending.

    A boundary lies halfway between two sizes on a logarithmic scale, as in a table: no rule is for sizes beyond, nor
    for those where NCCL could not be simulated.

    Raises:
        gc3.UserError: It is not known what NCCL does on this machine.
    """
    topology = on.topology
    yield f"# What NCCL should choose on {topology.name}, predicted by gc3; sizes that are not here are left to NCCL."
    yield HEADER
    for name in names:
        if name not in COLLECTIVES:
            continue
        nccl = Nccl(on, name)
        found = zip((best(nccl, size) for size in sizes), pairwise(boundaries(sizes)), strict=True)
        for rule, members in groupby(found, key=lambda each: None if each[0] is None else each[0].rule):
            served = [(each, ends) for each, ends in members if each is not None]
            if rule is not None:
                for each, _ in served:
                    told = f"{1e6 * each.time_s:.4g} us at {each.size} B, {each.own}: {1e6 * each.own_s:.4g} us"
                    yield f"# {told}"
                algorithm, protocol, channels = rule
                nodes, ranks = len(nccl.graph.nodes), topology.rank_count
                first, end = served[0][1][0], served[-1][1][1] - 1
                yield f"{name},{first},{end},{algorithm},{protocol.lower()},{channels},{nodes},{ranks},-1,-1"


def check(on: Platform, names: Iterable[str]) -> None:
    """Checks that it is known what NCCL does on a machine, for at least one of some collectives.

    Raises:
        gc3.UserError: It is not.
    """
    have = [name for name in names if name in COLLECTIVES]
    if not have:
        raise errors.error("BadSimulation", f"NCCL chooses only for {', '.join(COLLECTIVES)}")
    Nccl(on, have[0])
