"""The public measurements in tests/data/measured: one reader, with one schema.

A file has the columns of `COLUMNS`, or is a table of sizes ("bytes") whose columns of microseconds machines.json
describes in the same words. machines.json also has the machines, as presets of topologies or in numbers, and which
files may be fitted ("fit") or only compared with ("check"), and which were. Lines that begin with # name the source.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gc3 import collectives, topologies
from gc3.sim.fit import calibrate
from gc3.topologies import Topology, wires
from gc3.topologies._clusters import gpu_nodes, network, switched
from gc3.topologies.build import Builder
from gc3.topologies.cube_mesh import cube_mesh
from gc3.topologies.without import without

DATA = Path(__file__).parents[1] / "tests" / "data" / "measured"
COLUMNS = (
    *("machine", "nodes", "gpus_per_node", "collective", "algo_or_lib", "version", "dtype", "in_place"),
    *("size_bytes", "time_us", "busbw_GBps", "source"),
)
_EXACT = 0.025  # a bandwidth whose last digit leaves more open than this part of it tells no time
_DIGIT = 0.005  # GB/s: two decimals are printed


@dataclass(frozen=True)
class Point:
    """A measured call.

    Attributes:
        file: Its file, without the ending.
        use: "fit": it may be fitted; "check": it is only compared with.
        fitted: Whether parameters of GC3 were fitted to it.
        machine: A key of the machines of machines.json.
        nodes: Their number.
        gpus: GPUs of each that take part.
        collective: As nccl-tests names it.
        library: The library, with its algorithm if that was forced.
        version: Of the library; empty: not known.
        size: S in bytes; 0: not known.
        time_s: Seconds; 0: not known, or what is known says too little.
        program: The program of GC3 for it, as on the command line; empty: the library's own choice.
        channels: Of a forced algorithm, the least number; 0: the library's own.
        launch: "stream", as of nccl-tests unless its option -G is given, or "graph".
    """

    file: str
    use: str
    fitted: bool
    machine: str
    nodes: int
    gpus: int
    collective: str
    library: str
    version: str
    size: int
    time_s: float
    program: str = ""
    channels: int = 0
    launch: str = "stream"


@cache
def described() -> Mapping[str, Any]:
    """Returns what machines.json says."""
    return json.loads((DATA / "machines.json").read_text())


def points() -> Iterator[Point]:
    """Yields all measurements."""
    for name, about in described()["files"].items():
        columns = about.get("columns")
        yield from _table(name, about, columns) if columns else _rows(name, about)


def _rows(name: str, about: Mapping[str, Any]) -> Iterator[Point]:
    """The rows of a file in the common form."""
    lines = [line for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]
    table = csv.DictReader(lines)
    assert tuple(table.fieldnames or ()) == COLUMNS, name  # noqa: S101  the schema
    for row in table:
        size, nodes, gpus = int(row["size_bytes"] or 0), int(row["nodes"]), int(row["gpus_per_node"])
        busbw, time_s = float(row["busbw_GBps"] or 0), float(row["time_us"] or 0) * 1e-6
        if not time_s and size and busbw * _EXACT >= _DIGIT:
            time_s = size * collectives.get(row["collective"].lower()).factor(nodes * gpus) / busbw / 1e9
        if size < described()["machines"][row["machine"]].get("least_bytes", 0):
            time_s = 0.0  # the file's head says why these are in doubt
        version = "" if row["version"] == "unknown" else row["version"]
        call = (row["machine"], nodes, gpus, row["collective"], row["algo_or_lib"], version)
        least, most = about.get("fitted_bytes", (1, 0))
        yield Point(Path(name).stem, about["use"], least <= size <= most, *call, size, time_s)


def _table(name: str, about: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[Point]:
    """The columns of a table of sizes."""
    for column, own in columns.items():
        said = {"algo_or_lib": "NCCL", "gpus_per_node": 8, "fitted": False, **about, **own}
        for size, time_s in calibrate.read_csv(str(DATA / name), column):
            if not said.get("least_bytes", 0) <= size <= said.get("most_bytes", math.inf):
                continue
            program = next((spec for most, spec in said.get("programs", {}).items() if size <= int(most)), "")
            call = [said[key] for key in COLUMNS[:6]]
            more = (program, said.get("channels", 0), said.get("launch", "stream"))
            yield Point(Path(name).stem, said["use"], said["fitted"], *call, size, time_s, *more)


@cache
def topology(machine: str, nodes: int, gpus: int) -> Topology:
    """Returns so many nodes of a machine; of each, the first GPUs take part."""
    about = described()["machines"][machine]
    spec = about.get("topology")
    if spec is None:
        whole = _built(machine, about, nodes)
    else:
        whole = topologies.load((spec if isinstance(spec, str) else spec[str(nodes)]).format(nodes=nodes))
    seen: dict[int, int] = {}
    lost: list[int] = []
    for number, rank in enumerate(whole.ranks):
        seen[rank.node] = seen.get(rank.node, 0) + 1
        if seen[rank.node] > gpus:
            lost.append(number)
    return without(whole, ranks=lost) if lost else whole


def _built(machine: str, about: Mapping[str, Any], nodes: int) -> Topology:
    """Nodes of GPUs on a switch, in a mesh or in a cube mesh, whose nearest GPUs share a NIC or have several."""
    build = Builder(machine, processor=about["processor"])
    within, pcie = about.get("within", "switch"), getattr(wires, about["pcie"])
    if within == "cube mesh":
        ranks = cube_mesh(build, nodes, pcie=True)
    else:
        ranks = gpu_nodes(build, nodes, about["gpus"], 2 if about["gpus"] > 1 else 1)
        wire, lanes = getattr(wires, about["wire"]), about["lanes"]
        for number, members in enumerate(ranks):
            if within == "switch":
                switched(build, f"node{number}.switch", members, wire, lanes)
            for i, one in enumerate(members if within == "mesh" else ()):
                for other in members[i + 1 :]:
                    build.join(one, other, wire, lanes=lanes)
    gpus, nics = len(ranks[0]), about["nics"]
    nic = replace(getattr(wires, about["nic"]), bandwidth_bytes_per_s=about["nic_bytes_per_s"], source=machine)
    nic = replace(nic, latency_s=about.get("nic_latency_s", nic.latency_s))

    def rails(gpu: int) -> list[int]:
        each = max(nics // gpus, 1)
        return list(range(gpu * nics // gpus, gpu * nics // gpus + each))

    if nodes > 1:
        network(build, ranks, nic, nics, rails, uplink=pcie)
    return build.build()
