"""gc3 beside Open MPI, MPICH and Gloo on several simulated hosts: prints a comparison, or records it for the docs.

python benchmarks/on_hosts.py [--hosts 2x1,2x2] [--rates none,1gbit] [--record [--missing] [--stop-after 110]]

The hosts are namespaces of this machine (tests/hosts.py), so processors and memory are shared, and the network is the
system's. All libraries answer in turn within one run. With --record the points replace those of the same kind in
benchmarks/results/hosts-PROCESSOR.json, of which `make generated-docs` makes tables of docs/performance.md. A run that
was interrupted goes on with --missing.
"""

from __future__ import annotations

import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import click
from peers import record
from peers.libraries import ENVIRONMENTS, compiled, mpi_tools
from peers.points import COLLECTIVES, OURS, percentile

from gc3.cli import options
from gc3.cli.main import Script
from gc3.cli.sizes import Size
from gc3.comm.world import Request, World, WorldError
from gc3.runtime.measure import machine, sizes

TEST_BED = record.ROOT / "tests" / "hosts.py"
_RANK = Path(__file__).resolve().parent / "peers" / "rank.py"
_MOST = 500  # calls of one turn
_BED_S = 3600
_PATIENCE = 3  # a library that has taken so many times its time for a point has no further turn there

# From a folder, hosts and ranks on each to the options and the command line for the test bed.
Start: TypeAlias = "Callable[[Path, int, int], list[str]]"


def _python(python: str, library: str, *environment: str) -> Start:
    def start(folder: Path, hosts: int, each: int) -> list[str]:
        line = f"exec {shlex.join(['env', *environment, python, str(_RANK), library, str(folder)])} $RANK $WORLD_SIZE"
        return ["-n", str(hosts), "-k", str(each), "--", "sh", "-c", line]

    return start


def _once(hosts: int, command: Sequence[str]) -> list[str]:
    return ["-n", str(hosts), "--once", "--", *command]


def _names(hosts: int, each: int) -> str:
    return ",".join(f"node{host}:{each}" for host in range(hosts))


def _open_mpi(mpirun: str, program: Path, *more: str) -> Start:
    def start(folder: Path, hosts: int, each: int) -> list[str]:
        agent = f"{sys.executable} {TEST_BED} on"
        old = ["plm_rsh_agent", agent, "plm_rsh_no_tree_spawn", "1", "orte_leave_session_attached", "1"]
        old += ["oob_tcp_if_include", "eth0", "btl_tcp_if_include", "eth0", "mpi_yield_when_idle", "1"]
        new = ["plm_ssh_agent", agent, "plm_ssh_no_tree_spawn", "1", "prte_if_include", "eth0"]
        words = [mpirun, "-np", str(hosts * each), "--host", _names(hosts, each), "--bind-to", "none"]
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for option, pairs in (("--mca", old), ("--prtemca", new if "build/peers" in mpirun else [])):
            for name, value in zip(pairs[::2], pairs[1::2], strict=True):
                words += [option, name, value]
        return _once(hosts, [*words, *more, str(program), str(folder)])

    return start


def _mpich(mpirun: str, program: Path) -> Start:
    def start(folder: Path, hosts: int, each: int) -> list[str]:
        agent = folder / "agent"
        agent.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(TEST_BED))} on "$@"\n')
        agent.chmod(0o700)
        words = [mpirun, "-launcher", "rsh", "-launcher-exec", str(agent), "-iface", "eth0"]
        return _once(hosts, [*words, "-hosts", _names(hosts, each), "-n", str(hosts * each), str(program), str(folder)])

    return start


def settings(folder: Path) -> tuple[dict[str, Start], dict[str, str]]:
    """Returns how each library is started, and its version; the libraries that are not here are left out."""
    starts: dict[str, Start] = {OURS: _python(sys.executable, "gc3")}
    versions = {OURS: record.version()}
    pairs = (("mpirun.openmpi", "mpicc.openmpi"), ("mpirun", "mpicc"))
    if found := mpi_tools("openmpi", *pairs, says="open-mpi.org"):
        mpirun, mpicc, versions["openmpi"] = found
        program = compiled(mpicc, folder / "openmpi")
        if isinstance(program, Path):
            shared = ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
            starts["openmpi tcp"] = _open_mpi(
                mpirun, program, "--mca", "pml", "ob1", "--mca", "btl", "self,sm,vader,tcp"
            )
            starts["openmpi ucx"] = _open_mpi(mpirun, program, "--mca", "pml", "ucx", *shared)
    pairs = (("mpirun.mpich", "mpicc.mpich"), ("mpiexec.hydra", "mpicc"), ("mpirun", "mpicc"))
    if found := mpi_tools("mpich", *pairs, says="HYDRA"):
        mpirun, mpicc, versions["mpich"] = found
        program = compiled(mpicc, folder / "mpich")
        if isinstance(program, Path):
            starts["mpich"] = _mpich(mpirun, program)
    python = ENVIRONMENTS / "gloo" / "bin" / "python"
    if python.exists():
        starts["gloo"] = _python(str(python), "gloo", "GLOO_SOCKET_IFNAME=eth0")
        versions["gloo"] = "of PyTorch"
    return starts, versions


def turn(world: World, call: tuple[str, int], seconds: float) -> list[float]:
    """Returns the times of calls for about so many seconds."""
    first = world.ask(Request(*call, 1, 2, check=True, mode="c++ reused 1"))
    if first.wrong:
        raise WorldError(f"{first.wrong} wrong elements in {call[0]} of {call[1]} B")
    count = min(max(int(seconds / max(first.took / 4, 1e-6)), 3), _MOST)
    return list(world.ask(Request(*call, max(count // 5, 1), count, check=False, mode="c++ reused 1")).seconds)


def measured(
    placement: tuple[int, int],
    rate: str,
    calls: Sequence[tuple[str, int]],
    rounds: int,
    seconds: float,
    tell: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Yields the times of all libraries, call by call, on so many hosts with so many ranks each."""
    hosts, each = placement
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gc3-hosts-")))
        starts, versions = settings(folder)
        worlds: dict[str, World] = {}
        for name, start in starts.items():
            own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
            # Open MPI keeps its files under the host's name, which another job has, too.
            bed = ["env", f"TMPDIR={own}", sys.executable, str(TEST_BED), "--timeout", str(_BED_S)]
            bed += () if rate == "none" else ("--rate", rate)
            worlds[name] = World([[*bed, *start(own, hosts, each)]], hosts * each, own)
            stack.callback(worlds[name].close)
        for call in calls:
            times: dict[str, list[float]] = {}
            taken = dict.fromkeys(worlds, 0.0)
            for number in range(rounds):
                for name in list(worlds) if number % 2 else list(reversed(worlds)):
                    if taken[name] > _PATIENCE * rounds * seconds:
                        continue
                    began = time.monotonic()
                    try:
                        times.setdefault(name, []).extend(turn(worlds[name], call, seconds))
                    except WorldError as problem:
                        tell(f"{name} is left out from {call[0]} of {call[1]} B on: {problem}")
                        worlds.pop(name).close()  # else its ranks take the cores from the others
                        times.pop(name, None)
                    taken[name] += time.monotonic() - began
            yield {
                "collective": call[0],
                "hosts": hosts,
                "ranks_per_host": each,
                "rate": rate,
                "size": call[1],
                "version": versions[OURS],
                "us": {n: [round(1e6 * f, 1) for f in _figures(t)] for n, t in times.items() if n in worlds},
            }


def _figures(times: list[float]) -> tuple[float, float, float]:
    """Median, 99 % and least."""
    return statistics.median(times), percentile(times, 99), min(times)


def key_of(point: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what a point is: hosts, ranks on each, rate, collective, size."""
    return tuple(point[name] for name in ("hosts", "ranks_per_host", "rate", "collective", "size"))


def _results() -> Path:
    return record.path_of({"machine": machine()}, "hosts")


def keep(point: dict[str, Any]) -> None:
    """Puts a point into the results of this machine; what a person has written about them stays."""
    old = record.read(_results())
    every = {key_of(known): known for known in (*old.get("points", []), point)}
    facts = {"machine": machine(), "command": "make bench-hosts", "reasons": old.get("reasons", {})}
    record.write({**facts, "points": [every[key] for key in sorted(every)]}, _results())


def _placements(text: str) -> list[tuple[int, int]]:
    try:
        return [(int(a), int(b)) for a, b in (word.split("x") for word in text.split(","))]
    except ValueError:
        raise click.BadParameter(f"'{text}': expected HOSTSxRANKS,... such as 2x1,2x2") from None


@click.command("on-hosts", cls=Script, examples=["make bench-hosts", "python benchmarks/on_hosts.py --hosts 2x2"])
@click.option("--hosts", "placements", default="2x1,2x2,4x1,2x4", show_default=True, metavar="HOSTSxRANKS,...")
@click.option(
    "--rates", default="none,10gbit,1gbit", show_default=True, metavar="RATE,...", help="Of each host's link."
)
@click.option("--collectives", type=options.Names(COLLECTIVES), default=COLLECTIVES, metavar="NAME,...")
@click.option("-b", "--min-size", type=Size(), default="1KiB", show_default=True)
@click.option("-e", "--max-size", type=Size(), default="64MiB", show_default=True)
@click.option("-f", "--factor", type=click.IntRange(min=2), default=8, show_default=True)
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=0.2, show_default=True, help="Of a turn.")
@click.option("--record", "recorded", is_flag=True, help="Put the points into the results, of which the docs are made.")
@click.option("--missing", is_flag=True, help="Leave out the points that the results have.")
@click.option(
    "--stop-after", type=click.FloatRange(min=0), default=None, metavar="SECONDS", help="Begin no point later."
)
def main(
    placements: str,
    rates: str,
    collectives: tuple[str, ...],
    min_size: int,
    max_size: int,
    factor: int,
    turns: int,
    seconds: float,
    recorded: bool,
    missing: bool,
    stop_after: float | None,
) -> int:
    """Compare gc3 with Open MPI, MPICH and Gloo on simulated hosts."""
    began = time.monotonic()
    calls = [(name, size) for name in collectives for size in sizes(min_size, max_size, factor=factor, step=0)]
    known = {key_of(point) for point in record.read(_results()).get("points", [])} if missing else set()

    def late() -> bool:
        return stop_after is not None and time.monotonic() - began > stop_after

    for placement in _placements(placements):
        for rate in rates.split(","):
            left = [call for call in calls if (*placement, rate, *call) not in known]
            if not left or late():
                continue
            for point in measured(placement, rate, left, turns, seconds, lambda text: click.echo(text, err=True)):
                times = ", ".join(f"{name} {us[0]:.0f} / {us[1]:.0f}" for name, us in point["us"].items())
                head = f"{point['hosts']}x{point['ranks_per_host']} {rate} {point['collective']} {point['size']} B"
                peers = [us[0] for name, us in point["us"].items() if name != OURS]
                both = peers and OURS in point["us"]
                told = f"; ratio {min(peers) / point['us'][OURS][0]:.2f}" if both else ""
                click.echo(f"{time.monotonic() - began:6.1f} s  {head}: {times} us{told}")
                if recorded and both:
                    keep(point)
                if late():
                    break
    return 0


if __name__ == "__main__":
    main()
