"""Predicts the times of public one-sided kernels, and fits the simulator to those that are not held out.

    python benchmarks/one_sided.py
    python benchmarks/one_sided.py fit

The kernels are written here as one-sided programs, by their public sources: vLLM's custom AllReduce
(csrc/custom_all_reduce.cuh), PyTorch's symmetric memory (CUDASymmetricMemoryOps.cu), and NCCL's symmetric kernels
(src/device/symmetric). The first command proves each, and prints the errors of those that were fitted and of those that
were held out, and how often the faster of two kernels is predicted.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path

from gc3 import _core, sim
from gc3.runtime.direct import DirectProgram
from gc3.sim.fit.least_squares import least_squares
from gc3.sim.parameters import DIRECT

DATA = Path(__file__).parents[1] / "tests" / "data" / "measured" / "one_sided.csv"
WORD = 16  # bytes that a thread loads at a time
BLACKWELL = "gb200"
NCCL_BYTES = 64 << 10  # in flight of a threadblock: NCCL's model has 65 GiB/s of one, a load takes about a microsecond
PACKETS = 512 << 10  # of all ranks together: up to this NCCL's model chooses the kernel with packets
CLEAR = 1.05


@dataclass(frozen=True)
class Row:
    """A measured time."""

    table: str
    held_out: bool
    machine: str
    ranks: int
    kernel: str
    blocks: int
    size: int
    us: float

    @property
    def blackwell(self) -> bool:
        """Whether the GPUs are of that generation."""
        return self.machine.startswith(BLACKWELL)


def rows() -> list[Row]:
    """Returns what was measured."""
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    return [
        Row(
            *(r["table"], r["use"] == "check", r["machine"], int(r["ranks"]), r["kernel"]),
            *(int(r["blocks"]), int(r["bytes"]), float(r["us"])),
        )
        for r in csv.DictReader(lines)
    ]


class Kernel:
    """A kernel as the text of a one-sided program: threadblock b of a rank synchronises with those of the others."""

    def __init__(self, collective: str, ranks: int, blocks: int, parts: int = 1, scratch: int = 0) -> None:
        """Has no steps yet.

        Args:
            collective: And whether it is in place.
            ranks: How many.
            blocks: Threadblocks of a rank.
            parts: Of the buffer of an AllReduce, each of a chunk for every threadblock.
            scratch: Chunks.
        """
        self.ranks, self.blocks, self.scratch = ranks, blocks, scratch
        name, *place = collective.split(maxsplit=1)
        self.collective = " ".join((name, f"ranks {ranks} chunks {parts * blocks}", *place))
        self.channels: dict[tuple[int, int, int], int] = {}
        self.steps: list[list[list[str]]] = [[[] for _ in range(blocks)] for _ in range(ranks)]

    def others(self, rank: int) -> list[int]:
        """Returns the other ranks, beginning after it."""
        return [(rank + k) % self.ranks for k in range(1, self.ranks)]

    def do(self, make: Callable[[int, int], str]) -> None:
        """Adds what `make` returns for a rank and a threadblock to each."""
        for rank, of_rank in enumerate(self.steps):
            for block, steps in enumerate(of_rank):
                steps.append(make(rank, block))

    def meet(self, how: str = "") -> None:
        """Threadblocks signal each other, and wait for each other; " relaxed": which makes no data visible."""

        def channel(a: int, b: int, block: int) -> str:
            return str(self.channels.setdefault((a, b, block), len(self.channels)))

        self.do(lambda _, __: "sync")
        self.do(lambda r, b: f"signal {' '.join(channel(r, p, b) for p in self.others(r))}{how}")
        self.do(lambda r, b: f"wait {' '.join(channel(p, r, b) for p in self.others(r))}{how}")
        self.do(lambda _, __: "sync")

    def program(self, name: str) -> DirectProgram:
        """Returns the program."""
        text = [f'direct "{name}" version 1', f"collective {self.collective}"]
        text.append(f"halves {2 if any('pkt' in step for step in self.steps[0][0]) else 1}")
        text += [f"channel {k} from {a} to {b}" for (a, b, _), k in self.channels.items()]
        if any("g0:" in step for step in self.steps[0][0]):
            text.append(f"group 0 ranks {' '.join(map(str, range(self.ranks)))}")
        for rank, of_rank in enumerate(self.steps):
            text.append(f"rank {rank} scratch {self.scratch}" if self.scratch else f"rank {rank}")
            for block, steps in enumerate(of_rank):
                text.append(f"  tb {block}")
                text += [f"    {k} {step}" for k, step in enumerate(steps)]
        return DirectProgram(_core.DirectProgram.from_text("\n".join(text) + "\n"))


def one_shot(n: int, blocks: int) -> Kernel:
    """Everyone loads everything and adds it up."""
    k = Kernel("allreduce", n, blocks)
    k.meet(" relaxed")
    k.do(lambda r, b: f"move {' + '.join([f'in[{b}]', *(f'{p}:in[{b}]' for p in k.others(r))])} -> out[{b}]")
    k.meet(" relaxed")
    return k


def two_shot(n: int, blocks: int) -> Kernel:
    """Everyone adds up a part, and then loads the others' parts, one after the other."""
    k = Kernel("allreduce", n, blocks, n, blocks)
    k.meet(" relaxed")
    k.do(lambda r, b: _sum(k, r, b, f"sc[{b}]"))
    k.meet()
    k.do(lambda r, b: f"move sc[{b}] -> out[{r * blocks + b}]")
    for i in range(n - 1):
        k.do(lambda r, b, i=i: f"move {k.others(r)[i]}:sc[{b}] -> out[{k.others(r)[i] * blocks + b}]")
    return k


def _sum(k: Kernel, rank: int, block: int, to: str) -> str:
    c = rank * k.blocks + block
    return f"move {' + '.join([f'in[{c}]', *(f'{p}:in[{c}]' for p in k.others(rank))])} -> {to}"


def two_shot_in_place(n: int, blocks: int) -> Kernel:
    """Everyone adds up a part and stores it to all; the loop over ranks is unrolled for 2, 4 and 8 of them."""
    k = Kernel("allreduce in place", n, blocks, n, blocks)

    def everywhere(r: int, b: int) -> str:
        return " ".join([f"in[{r * blocks + b}]", *(f"{p}:in[{r * blocks + b}]" for p in k.others(r))])

    k.meet(" relaxed")
    if n in (2, 4, 8):
        k.do(lambda r, b: _sum(k, r, b, everywhere(r, b)))
    else:
        for p in range(n):  # one load after the other, and all ranks begin with rank 0
            k.do(lambda r, b, p=p: f"move {f'sc[{b}] + ' if p else ''}{p}:in[{r * blocks + b}] -> sc[{b}]")
            k.do(lambda _, __: "sync")
        k.do(lambda r, b: f"move sc[{b}] -> {everywhere(r, b)}")
    k.meet()
    return k


def multimem(n: int, blocks: int) -> Kernel:
    """The switch adds up a part for everyone, who stores it to all through the switch."""
    k = Kernel("allreduce in place", n, blocks, n)
    k.meet(" relaxed")
    k.do(lambda r, b: f"move g0:in[{r * blocks + b}] -> g0:in[{r * blocks + b}]")
    k.meet()
    return k


def packets(n: int, blocks: int) -> Kernel:
    """Everyone stores everything to all as packets, and adds up what it gets."""
    k = Kernel("allreduce", n, blocks, 1, 2 * n * blocks)
    k.do(lambda r, b: f"move in[{b}] -> g0:pkt sc[{r * blocks + b}]")
    k.do(
        lambda r, b: f"move {' + '.join([f'in[{b}]', *(f'pkt sc[{p * blocks + b}]' for p in k.others(r))])} -> out[{b}]"
    )
    return k


def gather(n: int, blocks: int) -> Kernel:
    """AllGather: everyone stores its block to all through the switch."""
    k = Kernel("allgather", n, blocks)
    k.meet(" relaxed")
    k.do(lambda r, b: f"move in[{b}] -> g0:out[{r * blocks + b}]")
    k.meet()
    return k


def scatter(n: int, blocks: int) -> Kernel:
    """ReduceScatter: the switch adds up everyone's block for it; threadblocks do if there are only two ranks."""
    k = Kernel("reducescatter", n, blocks)
    k.meet(" relaxed")
    k.do(lambda r, b: f"move g0:in[{r * blocks + b}] -> out[{b}]" if n > 2 else _sum(k, r, b, f"out[{b}]"))  # noqa: PLR2004
    k.meet(" relaxed")
    return k


@dataclass(frozen=True)
class Way:
    """How a library calls a kernel: the kernel, most threadblocks, threads of each, and what it does besides."""

    kernel: Callable[[int, int], Kernel]
    blocks: int
    threads: int
    copies: int = 0  # of the whole buffer, by kernels of their own
    nccl: bool = False  # called through NCCL


WAYS = {
    "vllm_one_shot": Way(one_shot, 36, 512),
    "vllm_two_shot": Way(two_shot, 36, 512),
    "torch_two_shot": Way(two_shot_in_place, 24, 1024, 2),
    "torch_multimem": Way(multimem, 8, 1024, 2),
    "nccl_allreduce": Way(multimem, 16, 512, 1, nccl=True),
    "nccl_packets": Way(packets, 64, 512, 1, nccl=True),
    "nccl_allgather": Way(gather, 16, 512, nccl=True),
    "nccl_reducescatter": Way(scatter, 16, 512, nccl=True),
}


@cache
def program(kernel: str, ranks: int, blocks: int) -> DirectProgram:
    """Returns a kernel as a program."""
    return WAYS[kernel].kernel(ranks, blocks).program(kernel)


def shape(row: Row) -> tuple[str, int, int]:
    """Returns the kernel that is called, its threadblocks, and bytes of a source that each has in flight."""
    kernel, n = row.kernel, row.ranks
    if kernel == "nccl_allreduce" and row.size * n <= PACKETS:
        kernel = "nccl_packets"
    way = WAYS[kernel]
    if way.nccl:  # multicasts and sums in the switch have 16 / n threadblocks, or 32 / n
        most = (
            way.blocks * (2 if row.blackwell else 1) // n if way.blocks == WAYS["nccl_allreduce"].blocks else way.blocks
        )
        loaded = 1 if kernel != "nccl_reducescatter" or n > 2 else n  # noqa: PLR2004
        return kernel, row.blocks or max(most, 1), NCCL_BYTES // loaded
    part = row.size // (1 if kernel == "vllm_one_shot" else n)
    return kernel, min(way.blocks, -(-part // (WORD * way.threads))), WORD * way.threads


# What is fitted, and where: launch, hop and release of a generation, what links carry of their rate; and of all
# together, the time that calling NCCL adds, and that of a kernel that copies.
OF_MACHINE = ("launch_s", "hop_s", "release_s", "link_efficiency", "rate")
OF_CALLS = ("nccl_s", "copy_s")
CALLS = {"nccl_s": 2.8e-6, "copy_s": 2.1e-6}
MACHINES = ("ndv5", "gb200_nvl72:G=8")


@dataclass(frozen=True)
class Rates:
    """What a prediction depends on: machines by name, and the times of calls."""

    machines: dict[str, sim.Platform]
    calls: dict[str, float]


def shipped() -> Rates:
    """Returns the rates of the presets."""
    return Rates({row.machine: sim.platform(row.machine) for row in rows()}, CALLS)


def changed(rates: Rates, values: Sequence[float]) -> Rates:
    """Returns the rates with those that are fitted multiplied by e to these powers."""
    given = iter(math.exp(v) for v in values)
    factors = {name: [next(given) for _ in OF_MACHINE] for name in MACHINES}
    made: dict[str, sim.Platform] = {}
    for name, on in rates.machines.items():
        by = factors[MACHINES[1 if name.startswith(BLACKWELL) else 0]]
        timing = on.parameters.protocols[DIRECT]
        timing = replace(timing, **{f: getattr(timing, f) * x for f, x in zip(OF_MACHINE, by, strict=True)})
        protocols = {**on.parameters.protocols, DIRECT: timing}
        made[name] = replace(on, parameters=replace(on.parameters, protocols=protocols))
    return Rates(made, {name: rates.calls[name] * next(given) for name in OF_CALLS})


def predicted_us(row: Row, rates: Rates) -> float:
    """Returns the predicted time."""
    kernel, blocks, in_flight = shape(row)
    on, way = rates.machines[row.machine], WAYS[kernel]
    timing = replace(on.parameters.protocols[DIRECT], line_bytes=in_flight)
    if row.table == "kernel":
        timing = replace(timing, launch_s=1e-12)
    on = replace(on, parameters=replace(on.parameters, protocols={DIRECT: timing}))
    time_s = sim.Simulation(program(kernel, row.ranks, blocks), on).run(row.size, dtype="float16").time_s
    copied = 2 * row.size / on.parameters.memory_rate  # read and written
    time_s += way.copies * (rates.calls["copy_s"] + copied)
    return 1e6 * (time_s + (rates.calls["nccl_s"] if way.nccl and row.table != "kernel" else 0))


def misses(some: Sequence[Row], rates: Rates) -> list[float]:
    """Returns the logarithm of predicted over measured time of each."""
    return [math.log(predicted_us(row, rates) / row.us) for row in some]


def fitted(measured: Sequence[Row]) -> Rates:
    """Returns the rates fitted to the rows that are not held out."""
    first, some = shipped(), [row for row in measured if not row.held_out]
    start = [0.0] * (len(MACHINES) * len(OF_MACHINE) + len(OF_CALLS))
    found = least_squares(
        lambda x: misses(some, changed(first, x)),
        start,
        prior=1e-3,
        limit=0.3,
        steps=12,
        begin=lambda n: print(n, flush=True),
    )
    rates = changed(first, found)
    for name in MACHINES:
        timing = rates.machines[name].parameters.protocols[DIRECT]
        print(name, {f: float(f"{getattr(timing, f):.3g}") for f in OF_MACHINE})
    print({k: float(f"{v:.3g}") for k, v in rates.calls.items()})
    return rates


@dataclass(frozen=True)
class Score:
    """Errors in percent, of |log(predicted / measured)|."""

    median: float
    high: float  # 90 % are off by at most this
    mean: float
    count: int

    @staticmethod
    def of(some: Sequence[float]) -> Score:
        """Returns the score of these errors, at least one."""
        found = sorted(100 * abs(x) for x in some)
        high = found[math.ceil(0.9 * len(found)) - 1]
        return Score(statistics.median(found), high, statistics.fmean(found), len(found))

    def __str__(self) -> str:
        """In columns."""
        return f"{self.median:7.1f} {self.high:7.1f} {self.mean:7.1f} {self.count:5}"


def scores(found: dict[Row, float]) -> dict[str, dict[bool, Score]]:
    """Returns the scores of kernels, GPUs and all, of what was fitted (False) and what was held out (True)."""
    groups: dict[str, Callable[[Row], bool]] = {k: lambda r, k=k: r.kernel == k for k in WAYS}
    groups["two-shot, multimem"] = lambda r: r.kernel.endswith(("two_shot", "multimem"))
    groups |= {"H100": lambda r: not r.blackwell, "B200, B300": lambda r: r.blackwell, "all": lambda _: True}
    made: dict[str, dict[bool, Score]] = {}
    for (name, belongs), held_out in product(groups.items(), (False, True)):
        if some := [x for row, x in found.items() if belongs(row) and row.held_out == held_out]:
            made.setdefault(name, {})[held_out] = Score.of(some)
    return made


def judge(measured: Sequence[Row], rates: Rates) -> None:
    """Prints the errors, and how often the faster of two kernels is predicted."""
    found = dict(zip(measured, misses(measured, rates), strict=True))
    print(
        f"{'percent off':18}{'fitted:':>8}"
        + 2 * f"{'median':>8}{'90 %':>8}{'mean':>8}{'of':>6}"
        + "  (second: held out)"
    )
    for name, of in scores(found).items():
        print(f"{name:26}" + "".join(f" {of.get(held_out, '')!s:>30}" for held_out in (False, True)))
    for held_out in (False, True):
        pairs = [
            (found[a] + math.log(a.us) > found[b] + math.log(b.us)) == (a.us > b.us)
            for a, b in combinations(measured, 2)
            if (a.table, a.size, a.ranks) == (b.table, b.size, b.ranks)
            and max(a.us, b.us) > CLEAR * min(a.us, b.us)
            and (a.held_out or b.held_out) == held_out
        ]
        told = "one held out" if held_out else "both fitted"
        print(f"pairs that differ by more than 5 %, {told}: the faster one is right in {sum(pairs)} of {len(pairs)}")


def main() -> None:
    """Judges the presets, after a fit if that is asked for."""
    measured = rows()
    judge(measured, fitted(measured) if sys.argv[1:] == ["fit"] else shipped())


if __name__ == "__main__":
    main()
