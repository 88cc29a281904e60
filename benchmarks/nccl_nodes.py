"""Fits what a network adds to a hop to NCCL on several nodes, and predicts each number of nodes from the others.

    python benchmarks/nccl_nodes.py a100
    python benchmarks/nccl_nodes.py h100
    python benchmarks/nccl_nodes.py winners

Fitted are the latency of a NIC, its time for a message and for a peer, and the hop of LL and LL128 through it, on
calls in which these count: trees and AllToAll. Rings of large messages and the switches of a node take what their
links do. Errors are those of all calls up to 1 GiB. `winners` compares which of several ways measured at a size is the
fastest; NCCL on 64 NDv4 was fitted since (nccl_sends.py), so of the two-step program there it is no evidence.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import measured
from measured import DATA

from gc3 import algorithms, compile, topologies
from gc3.sim import Simulation, platform, settings
from gc3.sim.fit import calibrate
from gc3.sim.fit.calibrate import Case
from gc3.sim.nccl import tuning
from gc3.sim.nccl.baseline import Nccl
from gc3.sim.platform import Platform

GIB = 1 << 30
EVALUATIONS = 60
CLEAR = 1.05
PEERS = (1e-6, 1.5e-6, 2e-6, 2.5e-6, 3.1e-6, 4e-6)
_NO_EVIDENCE = ", no evidence since NCCL was fitted there"
MOST_SENT = 128 << 20  # of AllToAll in the fit: longer ones take long to simulate


@dataclass(frozen=True)
class Cluster:
    """A kind of machine: its name, the parameters to fit, and the files of what was measured."""

    machine: str
    names: tuple[str, ...]
    files: tuple[str, ...]


CLUSTERS = {
    "a100": Cluster("ndv4", ("hdr.latency", "LL.network_hop", "LL128.network_hop"), ("a100_nodes_allreduce",)),
    "h100": Cluster(
        "ndv5",
        ("ndr.message", "LL.network_hop", "LL128.network_hop"),
        ("h100_nodes_allreduce", "h100_nodes_alltoall"),
    ),
}


def cases(cluster: Cluster) -> list[Case]:
    """Returns what was measured."""
    callers: dict[tuple[str, int, str], Nccl] = {}
    found: list[Case] = []
    for p in measured.points():
        if p.file in cluster.files and p.fitted:
            key, machine = (p.collective, p.nodes, p.version), measured.topology(p.machine, p.nodes, p.gpus)
            if key not in callers:
                callers[key] = Nccl(platform(machine), p.collective.lower(), p.version)
            found.append(Case(callers[key], p.size, p.time_s, callers[key].on.topology))
    return found


def fits(case: Case) -> bool:
    """Whether the fitted parameters count in a call."""
    choice = case.program.choice(case.size) if isinstance(case.program, Nccl) else None
    return case.size <= MOST_SENT if choice is None else choice.algorithm == "tree"


def misses(on: Platform, over: Sequence[Case]) -> list[float]:
    """Returns the logarithm of predicted over measured time of each call."""
    return [math.log(t / c.seconds) for t, c in zip(calibrate.predictions(on, over), over, strict=True)]


def errors(on: Platform, over: Sequence[Case]) -> str:
    """Returns the errors of each collective as text."""
    texts: list[str] = []
    for name in sorted({c.program.collective for c in over if isinstance(c.program, Nccl)}):
        some = [c for c in over if isinstance(c.program, Nccl) and c.program.collective == name]
        found = [abs(x) for x in misses(on, some)]
        texts.append(f"{name} median {statistics.median(found):.3f}, mean {statistics.fmean(found):.3f} of {len(some)}")
    return "; ".join(texts)


def fit(cluster: Cluster) -> None:
    """Leaves out each number of nodes in turn, then fits to all."""
    on, known = platform(topologies.load(cluster.machine, N=2)), cases(cluster)
    print(f"as shipped: {errors(on, known)}")
    held_out: dict[str, list[float]] = {}
    for nodes in sorted({c.machine.node_count for c in known if c.machine is not None}):
        chosen = [c.machine is not None and c.machine.node_count != nodes for c in known]
        others = [c for c, one in zip(known, chosen, strict=True) if one]
        found = fitted(on, cluster, others)
        peer_s = best_peer(found, others)
        rest = with_peer([c for c, one in zip(known, chosen, strict=True) if not one], peer_s)
        print(f"{nodes} nodes left out: {errors(found, rest)}; {values(found, cluster, peer_s)}", flush=True)
        for case, miss in zip(rest, misses(found, rest), strict=True):
            if isinstance(case.program, Nccl):
                held_out.setdefault(case.program.collective, []).append(abs(miss))
    for name, found in held_out.items():
        print(f"held out by nodes: {name} median {statistics.median(found):.3f}, mean {statistics.fmean(found):.3f}")
    final = fitted(on, cluster, known)
    peer_s = best_peer(final, known)
    print(f"fitted to all: {errors(final, with_peer(known, peer_s))}; {values(final, cluster, peer_s)}")


def fitted(on: Platform, cluster: Cluster, over: Sequence[Case]) -> Platform:
    """Returns the platform fitted to those of the calls in which the parameters count."""
    return calibrate.fit_once(on, [c for c in over if fits(c)], cluster.names, evaluations=EVALUATIONS, restarts=1)


def with_peer(over: Sequence[Case], peer_s: float | None) -> list[Case]:
    """Returns the calls with another time of a NIC for a peer; None: the same."""
    callers = {id(c.program): c.program for c in over}
    if peer_s is not None:
        callers = {
            key: nccl.with_rates(replace(nccl.rates, peer_s=peer_s)) if isinstance(nccl, Nccl) else nccl
            for key, nccl in callers.items()
        }
    return [replace(c, program=callers[id(c.program)]) for c in over]


def best_peer(on: Platform, over: Sequence[Case]) -> float | None:
    """Returns the time of a NIC for a peer with which AllToAll is predicted best; None: there is none to compare."""
    sent = [c for c in over if isinstance(c.program, Nccl) and c.program.collective == "alltoall" and fits(c)]
    if not sent:
        return None
    return min(PEERS, key=lambda p: statistics.fmean(x * x for x in misses(on, with_peer(sent, p))))


def values(on: Platform, cluster: Cluster, peer_s: float | None) -> str:
    """Returns the fitted parameters as text."""
    found = [f"{name} {1e6 * settings.get(on, name):.3g} us" for name in cluster.names]
    return ", ".join([*found, *([] if peer_s is None else [f"peer {1e6 * peer_s:.3g} us"])])


def forced_ring(nccl: Nccl, channels: int, size: int) -> float:
    """Returns the seconds of NCCL's best ring with so many channels at least."""
    found = tuning.choices(nccl.graph, nccl.collective, size)
    best = min((c for c in found if c.algorithm == "ring"), key=lambda c: c.time_s)
    prediction = nccl.run_choice(replace(best, channels=max(channels, best.channels)), size)
    return prediction.time_s if prediction else math.nan


def compared() -> Iterator[tuple[str, int, dict[str, float], dict[str, float]]]:
    """Yields calls that were measured in several ways: what, S, and the seconds of each, measured and predicted."""
    nccl = Nccl(platform("ndv5:N=2"), "allreduce", "2.26")
    h100 = str(DATA / "h100_nodes_allreduce.csv")
    chosen, ring = (dict(calibrate.read_csv(h100, f"b_2{x}_us")) for x in ("", "_ring"))
    for size in chosen:
        if size <= GIB and (own := nccl.run(size)):
            found = {"nccl": own.time_s, "ring": forced_ring(nccl, 24, size)}
            yield "2 nodes of 8 H100", size, {"nccl": chosen[size], "ring": ring[size]}, found
    on, data = platform("ndv4:N=64"), str(DATA / "ndv4_64nodes_alltoall.csv")
    two_step = compile(algorithms.load("two_step_alltoall"), N=64, G=8, max_threadblocks=on.parameters.threadblocks)
    sent, program = Nccl(on, "alltoall"), Simulation(two_step, on)
    plain, msccl = (dict(calibrate.read_csv(data, f"{x}_out_of_place_us")) for x in ("nccl", "msccl"))
    for size in msccl:
        if own := sent.run(size):
            found = {"nccl": own.time_s, "two-step": program.run(size).time_s}
            yield f"64 NDv4{_NO_EVIDENCE}", size, {"nccl": plain[size], "two-step": msccl[size]}, found


def winners() -> None:
    """Prints which way is the fastest, measured and predicted."""
    right: list[bool] = []
    clear: list[bool] = []
    for name, size, really, found in compared():
        first, second = sorted(really.values())[:2]
        best, predicted = min(really, key=really.__getitem__), min(found, key=found.__getitem__)
        if not name.endswith(_NO_EVIDENCE):
            right.append(best == predicted)
            clear.append(second > CLEAR * first)
        times = ", ".join(f"{way} {1e6 * really[way]:.1f} ({1e6 * found[way]:.1f})" for way in really)
        print(f"{name}, {size} B: {times} us; {'right' if best == predicted else 'wrong'}", flush=True)
    print(f"winners: {sum(right)} of {len(right)} right; of those ahead by more than 5 %: ", end="")
    print(f"{sum(r and c for r, c in zip(right, clear, strict=True))} of {sum(clear)}")


def main() -> None:
    """Fits, or compares, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cluster", choices=(*CLUSTERS, "winners"))
    chosen = parser.parse_args().cluster
    winners() if chosen == "winners" else fit(CLUSTERS[chosen])


if __name__ == "__main__":
    main()
