"""The test bench of the claims: machines, compiled programs and NCCL, each made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gc3 import _core, algorithms, errors, lang
from gc3.report.style import short_size
from gc3.runtime import measure
from gc3.runtime.program import Program
from gc3.sim import presets, settings
from gc3.sim.alpha_beta import AlphaBeta
from gc3.sim.nccl import Nccl
from gc3.sim.platform import Platform
from gc3.sim.predict import Simulation, platform
from gc3.topologies import load

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Variant:
    """An algorithm with its schedule."""

    algorithm: str
    protocol: str = "Simple"
    instances: int = 1
    parameters: tuple[tuple[str, int], ...] = ()
    window: int = 0  # of MPI programs: messages that a rank has under way; 0: compiled for a GPU

    def __str__(self) -> str:
        """The form that `gc3 sim` takes."""
        options = [f"{k}={v}" for k, v in self.parameters if k not in "RNG"]
        options += [f"protocol={self.protocol}", f"instances={self.instances}"]
        options += [f"window={self.window}"] if self.window else []
        return f"{self.algorithm}:{','.join(options)}"


def variants(
    algorithm: str, protocols: Iterable[str], instances: Iterable[int], **parameters: int | Iterable[int]
) -> list[Variant]:
    """Returns all combinations of schedules, and of the parameters that have several values."""
    choices: list[tuple[tuple[str, int], ...]] = [()]
    for name, values in parameters.items():
        several = (values,) if isinstance(values, int) else tuple(values)
        choices = [(*before, (name, value)) for before in choices for value in several]
    some = tuple(instances)
    return [Variant(algorithm, p, i, c) for p in protocols for i in some for c in choices]


@dataclass(frozen=True, slots=True)
class Best:
    """The greatest speed-up, its size, and its candidate."""

    speedup: float
    size: int
    variant: Variant

    def __str__(self) -> str:
        """The size and the candidate."""
        return f"at {short_size(self.size)} by {self.variant}"


def doubling(first: int, last: int) -> list[int]:
    """Returns first, 2 first, 4 first, ... up to last."""
    return list(measure.sizes(first, last, factor=2))


class Bench:
    """Machines and programs by name."""

    def __init__(self) -> None:
        """Starts empty."""
        self._platforms: dict[tuple[str, str], Platform] = {}
        self._programs: dict[tuple[Variant, int], Program] = {}
        self._simulations: dict[tuple[str, Variant], Simulation] = {}
        self._nccl: dict[tuple[str, str, str], Nccl] = {}

    def platform(self, machine: str, preset: str = "") -> Platform:
        """Returns a machine, with its own preset unless another is given."""
        key = (machine, preset)
        if key not in self._platforms:
            self._platforms[key] = platform(load(machine), preset or None)
        return self._platforms[key]

    def driven_by_mpi(self, machine: str) -> None:
        """Makes processes of MVAPICH2-GDR send the data of a machine's ranks.

        The preset has their time for a message, which machines of GPUs have as a time of the NIC.
        """
        on = Platform(self.platform(machine).topology, presets.get("mvapich2-gdr"))
        self._platforms[machine, ""] = settings.apply(on, [settings.Setting("nic.message", 0.0)])

    def program(self, variant: Variant, threadblocks: int = 0) -> Program:
        """Returns a compiled program with at most `threadblocks` threadblocks on a rank; 0: any number."""
        key = (variant, threadblocks)
        if key not in self._programs:
            given: dict[str, Any] = dict(variant.parameters)
            self._programs[key] = lang.compile(
                algorithms.load(variant.algorithm),
                protocol=variant.protocol,
                instances=variant.instances,
                max_threadblocks=threadblocks,
                window=variant.window,
                **given,
            )
        return self._programs[key]

    def time(self, machine: str, variant: Variant, size: int) -> float:
        """Returns the seconds of a call of S = `size` bytes."""
        return self.simulation(machine, variant).run(size).time_s

    def simulation(self, machine: str, variant: Variant) -> Simulation:
        """Returns a program on a machine."""
        key = (machine, variant)
        if key not in self._simulations:
            on = self.platform(machine)
            self._simulations[key] = Simulation(self.program(variant, on.parameters.threadblocks), on)
        return self._simulations[key]

    def alpha_beta(self, machine: str, variant: Variant, size: int = GIB) -> AlphaBeta:
        """Returns the alpha-beta cost of a program."""
        return self.simulation(machine, variant).alpha_beta(size)

    def nccl(self, machine: str, collective: str, version: str = "") -> Nccl:
        """Returns NCCL on a machine."""
        key = (machine, collective, version)
        if key not in self._nccl:
            self._nccl[key] = Nccl(self.platform(machine), collective, version or None)
        return self._nccl[key]

    def nccl_time(self, machine: str, collective: str, size: int) -> float:
        """Returns the seconds of a call of NCCL."""
        return self.nccl(machine, collective)(size).time_s

    def fastest(self, machine: str, candidates: Iterable[Variant], size: int) -> tuple[float, Variant]:
        """Returns the seconds of the fastest candidate that fits on the GPUs, and the candidate."""
        fit = (v for v in candidates if self._fits(machine, v))
        return min(((self.time(machine, v, size), v) for v in fit), key=lambda found: found[0])

    def _fits(self, machine: str, variant: Variant) -> bool:
        try:
            self.simulation(machine, variant)
        except errors.UserError as problem:
            if problem.diagnostics[0].name != "TooManyThreadblocks":
                raise
            return False
        return True

    def best_over_nccl(
        self, machine: str, collective: str, candidates: Iterable[Variant], sizes: Iterable[int]
    ) -> Best:
        """Returns the greatest speed-up over NCCL of the fastest candidate of each size."""
        some = tuple(candidates)
        found: list[Best] = []
        for size in sizes:
            time, variant = self.fastest(machine, some, size)
            found.append(Best(self.nccl_time(machine, collective, size) / time, size, variant))
        return max(found, key=lambda best: best.speedup)


def sends(program: Program) -> Iterator[tuple[int, int, int]]:
    """Yields sender, receiver and number of chunks of each send of a program."""
    sending = {op.name for op in _core.opcodes() if op.sends}
    for rank, about in enumerate(program.core.as_dict()["ranks"]):
        for tb in about["threadblocks"]:
            for step in tb["steps"]:
                if step["opcode"] in sending:
                    yield rank, tb["send_peer"], step["count"]
