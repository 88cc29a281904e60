"""The topology of this machine: its GPUs if nvidia-smi finds any, otherwise the CPU cores that this process may use."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from gc3 import errors
from gc3.support.starting import starting
from gc3.topologies import nvidia_smi
from gc3.topologies.build import Builder
from gc3.topologies.machine import assemble
from gc3.topologies.model import Topology
from gc3.topologies.parts import LinkClass, Port
from gc3.topologies.processors import CPU

_SECONDS = 20.0
_SYSFS = Path("/sys/devices/system")
_COPY_BYTES = 32 * 1024**2  # more than the caches of a core hold
_COPIES = 4
_TRIALS = 5  # the fastest counts, because other programs can only slow a copy down


def probe(*, gpus: bool | None = None, measure: bool = False) -> Topology:
    """Returns the topology of this machine.

    Args:
        gpus: True: the GPUs. False: the cores. None: the GPUs if there are any, otherwise the cores.
        measure: Whether to measure how fast cores copy memory, which takes a second.

    Raises:
        gc3.UserError: There is no GPU, and `gpus` asks for them.
    """
    table = _nvidia_smi() if gpus is not False else None
    if table is not None:
        machine = nvidia_smi.parse(table, file="nvidia-smi topo -m")
        return assemble(machine, name="this-machine", source="nvidia-smi topo -m on this machine")
    if gpus:
        raise errors.error("BadTopologyImport", "nvidia-smi finds no GPU on this machine")
    return _cores(measure=measure)


def _nvidia_smi() -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    table = _printed(program, "topo", "-m")
    if "GPU0" not in table:
        return None
    return _printed(program, "-L") + table


def _printed(program: str, *arguments: str) -> str:
    """The output of a program; empty if it fails."""
    try:
        done = subprocess.run(  # noqa: S603  the program's path, and no shell
            [program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _cores(*, measure: bool) -> Topology:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    one, all_together = _measured(cores) if measure else (None, None)
    how = "copies of 32 MiB between arrays" if measure else "not measured"
    copying = LinkClass("core", one, source=f"{how}, one core at a time")
    memory = LinkClass("memory", all_together, source=f"{how}, all cores at once")
    build = Builder("this-machine", processor=CPU, summary=f"{len(cores)} cores", source="the CPU of this machine")
    shared = build.resource("memory", "memory", memory)
    ports: list[Port] = []
    for core in cores:
        rank = build.rank(f"core{core}", socket=_socket(core), kind="cpu")
        # The sender copies into the FIFO, so a transfer takes up the core of the sender.
        ports.append(Port(rank, (build.resource(f"core{core}.copy", "egress", copying), shared), ()))
    build.fabric("shared memory", memory, ports)
    return build.build()


def _socket(core: int) -> int:
    """The NUMA domain of a core, or else its package; 0 if Linux gives neither."""
    for domain in sorted((_SYSFS / "node").glob("node[0-9]*")):
        if (domain / f"cpu{core}").exists():
            return int(domain.name.removeprefix("node"))
    package = _SYSFS / "cpu" / f"cpu{core}" / "topology" / "physical_package_id"
    try:
        return max(int(package.read_text()), 0)
    except (OSError, ValueError):
        return 0


def _measured(cores: Sequence[int]) -> tuple[float, float]:
    """Bytes per second that one thread copies alone, and that all threads copy together, with one for each core."""
    alone = _copy_rate(1)
    return alone, max(alone, _copy_rate(len(cores)))


def _copy_rate(threads: int) -> float:
    ready = threading.Barrier(threads)
    times = [[(0.0, 0.0)] * threads for _ in range(_TRIALS)]
    # Here, where memory that lacks is this command's error: in a thread, the others would wait for it. The thread that
    # uses it writes it first, so that Linux takes it from the memory near its core.
    pairs = [np.empty((2, _COPY_BYTES), np.uint8) for _ in range(threads)]

    def work(place: int) -> None:
        source, target = pairs[place]
        source.fill(1)
        np.copyto(target, source)
        for trial in times:
            with suppress(threading.BrokenBarrierError):  # not all have been started
                ready.wait()
            begin = time.perf_counter()
            for _ in range(_COPIES):
                np.copyto(target, source)
            trial[place] = (begin, time.perf_counter())

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    begun: list[threading.Thread] = []
    try:
        with starting("a thread that copies on a core"):
            for worker in workers:
                worker.start()
                begun.append(worker)
    except errors.UserError:
        ready.abort()
        raise
    finally:
        for worker in begun:
            worker.join()
    seconds = min(max(end for _, end in trial) - min(begin for begin, _ in trial) for trial in times)
    return threads * _COPIES * _COPY_BYTES / seconds
