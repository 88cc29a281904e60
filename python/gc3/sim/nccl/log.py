"""What NCCL logs of its graphs and choices, with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING: both ways.

Lines of other programs and ranks may be between; the graphs are those of the process that names them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gc3 import errors
from gc3.sim.nccl import search
from gc3.sim.nccl.graphs import Graph, graph, orders
from gc3.sim.nccl.search import Found
from gc3.sim.nccl.system import CLASSES, NVB, Nodes, nodes
from gc3.sim.nccl.tables import ALGORITHMS, ALL_PAIRS, PROTOCOLS
from gc3.support.files import read_text
from gc3.topologies.model import Topology

_MOST_BYTES = 64 << 20
_MOST_RATE = 1e6  # GB/s
_FUNCTIONS = {"allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter"}
_MOST_CHANNELS = 64  # MAXCHANNELS of NCCL
_VERSION = re.compile(r"NCCL version (2\.\d{1,9}(?:\.\d{1,9})?)")
_PATTERN = re.compile(
    r"Pattern (\d{1,9}), crossNic (\d{1,9}), nChannels (\d{1,9}), (?:bw|speed) (\d{1,9}\.\d+)/(\d{1,9}\.\d+), "
    r"type (\w+)/(\w+), sameChannels ([01])"
)
_CHANNEL = re.compile(r"^\s*(\d{1,9}) :((?: (?:NET|GPU)/[0-9a-fA-F]{1,16}(?:-[0-9a-fA-F]{1,16})*)+)\s*$")
_RING = re.compile(r"Channel (\d{1,9})/(\d{1,9})\s*:((?:\s+\d{1,9})+)\s*$")
_RUNNING = re.compile(r"\b(\d{1,12})\d* coll channels")
_CHOICE = re.compile(
    r"(\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d{1,9})\.\.(\d{1,9})\}"
)
_OLD_CHOICE = re.compile(r"\b(\d{1,18}) Bytes -> Algo (\d{1,9}) proto (\d{1,9}) time")
_TREES = (search.BALANCED_TREE, search.SPLIT_TREE, search.TREE)
_HEADS = 5  # NCCL_TOPO_PATTERN_NVLS
# LOC to SYS, as in newer versions, which have P2C beside PXN, and C2C beside NVLink.
_KINDS = {name: kind for kind, name in enumerate(CLASSES)} | {
    "P2C": CLASSES.index("PXN"),
    "C2C": NVB,
    "DIS": CLASSES.index("NET"),
}


def lines(found: Graph) -> Iterator[str]:
    """Yields what NCCL would log of its graphs."""
    yield f"{'RCCL' if found.rccl else 'NCCL'} version {found.version}"
    for what in (found.ring, found.tree):
        kinds = f"{CLASSES[what.type_inside]}/{CLASSES[what.type_across]}"
        yield (
            f"Pattern {what.pattern}, crossNic {what.cross}, nChannels {what.channels}, "
            f"bw {what.inside:.6f}/{what.across:.6f}, type {kinds}, sameChannels {what.same:d}"
        )
        for c, (order, (first, last)) in enumerate(zip(what.orders, what.cards, strict=True)):
            gpus = " ".join(f"GPU/{g:x}" for g in order)
            yield f"{c:2} : {gpus}" if len(found.nodes) == 1 else f"{c:2} : NET/{first:x} {gpus} NET/{last:x}"
    for c, ring in enumerate(orders(found, found.ring, found.running)):
        at = ring.index(0)
        yield f"Channel {c:02}/{found.running:02} : {' '.join(map(str, ring[at:] + ring[:at]))}"
    yield f"{found.running} coll channels, {found.heads and 16} nvls channels"


def choice(collective: str, size: int, algorithm: str, protocol: str, channels: int) -> str:
    """Returns the line of a choice."""
    name = f"{_FUNCTIONS.get(collective, collective.title())}: {size} Bytes"
    if algorithm == ALL_PAIRS:
        return f"{name} -> MSCCL's program of all pairs, proto {protocol.upper()}, {channels} instances"
    algo = algorithm.upper().replace("NVLS_TREE", "NVLSTREE")
    return f"{name} -> Algo {algo} proto {protocol.upper()} channel{{Lo..Hi}}={{0..{channels - 1}}}"


def read(path: str, on: Topology, collective: str, version: str | None = None) -> Graph:
    """Returns what NCCL found on a machine by a log: its version, channels, orders and choices.

    Args:
        path: The log. What it does not say is as NCCL would find it.
        on: The machine.
        collective: That of choices whose line does not name it, as in versions before 2.23.
        version: Of NCCL, in place of the log's.

    Raises:
        gc3.UserError: A line is damaged, or of another machine; or there is no line of NCCL's graphs.
    """
    return _Reader(path, nodes(on), collective).read(on, version)


class _Reader:
    def __init__(self, path: str, members: Nodes, collective: str) -> None:
        self.path, self.collective = path, collective
        self.gpus, self.ranks = len(members[0]), sum(map(len, members))
        self.version: str | None = None
        self.line = 0
        self.source = ""
        self.found: dict[int, Found] = {}
        self.open: tuple[int, int] = (0, 0)  # the pattern whose channels follow, and how many
        self.rings: dict[int, tuple[int, ...]] = {}
        self.chosen: dict[tuple[str, int], tuple[str, int, str, str, int]] = {}
        self.changes: dict[str, object] = {}

    def read(self, topology: Topology, version: str | None) -> Graph:
        for text in read_text(self.path, "BadSimulation", _MOST_BYTES).splitlines():
            self.line += 1
            source, _, told = text.rpartition("NCCL INFO ")
            if match := _VERSION.search(told):
                self.version = match[1]
            elif "Pattern " in told:
                self._pattern(source, told)
            elif (match := _CHANNEL.match(told)) and self.open[1] and source == self.source:
                self._channel(int(match[1]), match[2].split())
            elif match := _RING.search(told):
                self._ring(int(match[1]), int(match[2]), tuple(map(int, match[3].split())))
            elif match := _RUNNING.search(told):
                self.changes["running"] = max(self._channels(int(match[1])), 1)
            elif " Bytes -> Algo " in told:
                self._choice(told)
        self._complete()
        if not (self.found or self.rings or self.chosen):
            self._fail(
                "it has no graphs, rings or choices: run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING", 0
            )
        if self.rings:
            missing = next((c for c in range(len(self.rings)) if c not in self.rings), None)
            if missing is not None:
                self._fail(f"there is no line of channel {missing}", 0)
            self.changes["rings"] = tuple(self.rings[c] for c in range(len(self.rings)))
        trees = [self.found[p] for p in _TREES if p in self.found]
        on = graph(topology, version or self.version)
        ring = self.found.get(search.RING, on.ring)
        tree = trees[0] if trees else on.tree
        return replace(on, ring=ring, tree=tree, chosen=tuple(self.chosen.values()), **self.changes)

    def _fail(self, what: str, line: int | None = None) -> None:
        raise errors.error("BadSimulation", what, file=self.path, line=self.line if line is None else line)

    def _channels(self, count: int) -> int:
        """Returns how many channels a line names."""
        if count > _MOST_CHANNELS:
            self._fail(f"{count} channels: NCCL has at most {_MOST_CHANNELS}")
        return count

    def _pattern(self, source: str, told: str) -> None:
        match = _PATTERN.search(told)
        if match is None or not {match[6], match[7]} <= _KINDS.keys():
            self._fail(f"'{told.strip()[:60]}' is no pattern of NCCL")
            return
        pattern = int(match[1])
        self.source = self.source or source
        if source != self.source or pattern in self.found:
            return
        self._complete()
        rates = float(match[4]), float(match[5])
        used = pattern in (search.RING, *_TREES) or int(match[3]) != 0  # of others, none is found on many machines
        if used and not (int(match[3]) and all(0 < rate < _MOST_RATE for rate in rates)):
            self._fail(f"pattern {pattern} has {match[3]} channels of {match[4]}/{match[5]} GB/s")
        self._channels(int(match[3]))
        found = Found(pattern, *rates, _KINDS[match[6]], _KINDS[match[7]], int(match[2]))
        self.found[pattern] = replace(found, same=match[8] == "1")
        self.open = pattern, int(match[3])
        if pattern == _HEADS:
            self.changes |= {"heads": int(match[3]), "head_rate": float(match[4])}

    def _channel(self, number: int, parts: list[str]) -> None:
        pattern, count = self.open
        found = self.found[pattern]
        gpus = [p.removeprefix("GPU/") for p in parts if p.startswith("GPU/")]
        if number != found.channels or number >= count:
            self._fail(f"channel {number} of pattern {pattern} does not follow channel {found.channels - 1} of {count}")
        if pattern != _HEADS and not len(gpus) == len(set(gpus)) == self.gpus:
            self._fail(
                f"channel {number} names {len(gpus)} GPUs, {len(set(gpus))} of them different ones; a node of the "
                f"machine has {self.gpus}"
            )
        place = {name: i for i, name in enumerate(sorted(gpus, key=lambda name: [int(n, 16) for n in name.split("-")]))}
        cards = [int(p.rpartition("-")[2].removeprefix("NET/"), 16) for p in parts if p.startswith("NET/")] or [-1]
        order, ends = tuple(place[g] for g in gpus), (cards[0], cards[-1])
        self.found[pattern] = replace(found, orders=(*found.orders, order), cards=(*found.cards, ends))

    def _complete(self) -> None:
        pattern, count = self.open
        if pattern and self.found[pattern].channels != count:
            self._fail(f"pattern {pattern} has {count} channels, but {self.found[pattern].channels} lines of them")

    def _ring(self, number: int, count: int, ring: tuple[int, ...]) -> None:
        if sorted(ring) != list(range(self.ranks)) or number >= count:
            self._fail(f"channel {number} of {count} is no ring of the machine's {self.ranks} ranks")
        self._channels(count)
        self.rings[number] = ring
        self.changes.setdefault("running", count)

    def _choice(self, told: str) -> None:
        match, old = _CHOICE.search(told), _OLD_CHOICE.search(told)
        if match:
            name, size, algorithm, protocol = match[1].lower(), int(match[2]), match[3].lower(), match[4]
            channels = int(match[6]) - int(match[5]) + 1
        elif old and max(int(old[2]), int(old[3])) < len(ALGORITHMS):
            name, size, algorithm = self.collective, int(old[1]), ALGORITHMS[int(old[2])]
            protocol, channels = PROTOCOLS[min(int(old[3]), 2)], 0
        else:
            self._fail(f"'{told.strip()[:60]}' is no choice of NCCL")
            return
        algorithm = algorithm.replace("nvlstree", "nvls_tree")
        spelled = {p.lower(): p for p in PROTOCOLS}.get(protocol.lower(), "")
        if not spelled or not 0 <= channels <= _MOST_CHANNELS:
            self._fail(f"'{told.strip()[:60]}' is no choice of NCCL")
        self.chosen[name, size] = (name, size, algorithm, spelled, channels)
