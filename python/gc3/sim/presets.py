"""The presets of the simulator, by processor class.

The constants of FIFOs are those of NCCL and MSCCL: Simple has 4 MiB in 8 steps, of which a slice takes two and a tile
four; LL and LL128 have 8 slots. Calibrated numbers were fitted by `gc3.sim.fit.calibrate` to the measurements that the
evidence names. All others are estimated from the assumptions of NCCL's own tuning about the hardware.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gc3 import errors
from gc3.runtime import kept_files
from gc3.sim import preset_file
from gc3.sim.parameters import DIRECT, Evidence, Parameters, ProtocolParameters, Scope, opcode_factors
from gc3.topologies.model import Topology
from gc3.topologies.processors import CPU, CPU_ETHERNET, CPU_INFINIBAND, IDEAL, NCCL, PROCESSORS, Processor

_KIB, _MIB = 1 << 10, 1 << 20
_LEAST_READ = 4096  # bytes of a message that processes read in place: the least of the threshold `read_moved`
_NPKIT = opcode_factors()  # ATLAHS' NPKit tables of a GH200 (arXiv 2505.08936); recv_reduce_copy assumed as *_send


def _fifos(network_efficiency: float, slot_bytes: int, slots: int, **more: Any) -> Callable[..., ProtocolParameters]:
    """Returns what makes a protocol of NCCL's: of the rate, the part of a link, and the times of a step and of hops."""

    def made(rate: float, link: float, op_s: float, hop_s: float, network_hop_s: float) -> ProtocolParameters:
        rates = (rate, link, network_efficiency, op_s, hop_s, network_hop_s)
        return ProtocolParameters(*rates, slot_bytes, slots, split=True, **more)

    return made


# Two tiles of 2 MiB in two slices; a slice is used when it has been received completely.
simple = _fifos(1.0, 2 * _MIB, 2, slices=2, min_slice_bytes=32 * _KIB)
# Half of the bytes on the wire are flags.
ll = _fifos(0.5, 32 * _KIB, 8, cut_through=True, line_bytes=4 * _KIB)
# 120 of 128 bytes on the wire are data; a line is that of 20 warps of 1920 bytes.
ll128 = _fifos(0.9375, 576_000, 8, cut_through=True, line_bytes=38_400)

_A100 = Parameters(
    "a100",
    {
        # Of Simple, only the rate of the links is measured (NCCL's plateau of 235 GB/s); the rest is estimated. The
        # hops of LL and LL128 through a NIC, here and of h100, are fitted to NCCL by benchmarks/nccl_nodes.py.
        "Simple": simple(20e9, 0.98, 0.3e-6, 3.4e-6, 9.6e-6),
        "LL": ll(11.2e9, 0.32, 0.12e-6, 0.251e-6, 1.4e-6),
        "LL128": ll128(29.2e9, 0.556, 0.2e-6, 0.715e-6, 2.1e-6),
    },
    launch_s=14.74e-6,
    evidence=Evidence(
        "8 A100 of an NDv4, AllReduce by MSCCL (microsoft/msccl-leaderboard)",
        0.039,
        0.070,
        Scope((8, 8), ("LL", "LL128"), {"allreduce": (_KIB, 16 * _MIB)}),
    ),
    connection_rate=13.1e9,
)
_H100 = Parameters(
    "h100",
    {
        "Simple": simple(45.2e9, 0.986, 0.2e-6, 7.57e-6, 14e-6),
        "LL": ll(13.1e9, 0.345, 0.223e-6, 0.0566e-6, 3.9e-6),
        "LL128": ll128(41.7e9, 0.617, 0.175e-6, 0.394e-6, 2.9e-6),
    },
    launch_s=4.63e-6,
    evidence=Evidence(
        "8 H100 of an ND H100 v5 with CUDA graphs, AllGather and AllReduce by MSCCL (Azure/msccl)",
        0.043,
        0.056,
        Scope(
            (8, 8),
            ("Simple", "LL", "LL128"),
            {"allgather": (_KIB, 1024 * _MIB), "allreduce": (_KIB, 8 * _MIB)},
        ),
    ),
    connection_rate=25e9,
)
_V100 = replace(
    _A100,
    name="v100",
    protocols={
        "Simple": simple(16e9, 0.98, 0.3e-6, 3.4e-6, 9.6e-6),
        "LL": ll(8e9, 0.40, 0.12e-6, 0.3e-6, 2.7e-6),
        "LL128": ll128(18e9, 0.80, 0.2e-6, 0.8e-6, 4e-6),
    },
    evidence=Evidence("scaled from a100 by NCCL's constants for Volta (SM70_NVLINK_BW, llMaxBws)"),
)
_GB200 = replace(
    _H100,
    name="gb200",
    evidence=Evidence("h100's threadblocks on NVLink 5; the links: Azure AI-benchmarking-guide issue 7"),
)
_MI300X = Parameters(
    "mi300x",
    {
        # A GPU sends 251 GB/s with Simple, 382 with LL and 481 with LL128 on the wire, less than its links can carry.
        "Simple": replace(simple(20.9e9, 1.0, 0.52e-6, 2.38e-6, 14e-6), egress_rate=251e9),
        "LL": replace(ll(3.2e9, 0.41, 0.19e-6, 1.16e-6, 6e-6), egress_rate=0.5 * 382e9),
        "LL128": replace(ll128(4.4e9, 0.62, 0.09e-6, 2.6e-6, 8e-6), egress_rate=0.9375 * 481e9),
    },
    launch_s=6.5e-6,
    evidence=Evidence("published fits to the measurements of ns3-msccl-data, not repeated here"),
    connection_rate=13.1e9,
)
_MI50 = replace(
    _MI300X,
    name="mi50",
    protocols={name: replace(timing, egress_rate=0.0) for name, timing in _MI300X.protocols.items()},
    evidence=Evidence("mi300x's threadblocks on the links that 001 section 5.1.2 measured"),
)
_MI250 = replace(
    _MI50, name="mi250", evidence=Evidence("mi300x's threadblocks on the links that RCCL's constants describe")
)
_UNLIMITED = ProtocolParameters(
    1e15,
    1.0,
    1.0,
    0.0,
    0.0,
    0.0,
    slot_bytes=2 * _MIB,
    slots=2,
    slices=2,
    min_slice_bytes=32 * _KIB,
    factors=opcode_factors(1.0, 1.0, 1.0, 1.0),
)
_IDEAL = Parameters(
    "ideal",
    {
        "Simple": _UNLIMITED,
        "LL": replace(_UNLIMITED, link_efficiency=0.5, network_efficiency=0.5, slot_bytes=32 * _KIB, slots=8, slices=1),
        "LL128": replace(
            _UNLIMITED, link_efficiency=0.9375, network_efficiency=0.9375, slot_bytes=576_000, slots=8, slices=1
        ),
        DIRECT: replace(_UNLIMITED, line_bytes=1 << 30),
    },
    launch_s=0.0,
    evidence=Evidence("links only: software and threadblocks take no time"),
    staged_network=False,
)


def _pulling(processes: Parameters) -> Parameters:
    """Returns the engine of processes with programs that pull: every message that can be read is."""
    simple = processes.protocols["Simple"]
    pull = replace(simple, lend_bytes=_LEAST_READ, lend_combined_bytes=_LEAST_READ)
    return replace(processes, protocols={**processes.protocols, **({"Pull": pull} if simple.lend_rate else {})})


def _of_engine(engine: str) -> Parameters:
    """Returns an engine as on the machine that was measured for gc3, which is another one than the user's.

    From a file that `gc3 sim calibrate --engine threads -o python/gc3/sim/cpu_threads.json` writes.
    """
    fitted = preset_file.made(json.loads((Path(__file__).parent / f"cpu_{engine}.json").read_text()))
    source = f"another machine, {fitted.evidence.source}; `gc3 sim calibrate --engine {engine}` measures this one"
    return replace(fitted, name=f"cpu-{engine}", evidence=Evidence(source))


_CPU_THREADS, _CPU_PROCESSES = _of_engine("threads"), _pulling(_of_engine("processes"))


def _on_hosts(name: str, network_hop_s: float, connection_rate: float, told: str) -> Parameters:
    """Returns the processes engine on several hosts that have a core for each rank."""
    simple = _CPU_PROCESSES.protocols["Simple"]
    return replace(
        _CPU_PROCESSES,
        name=name,
        protocols={"Simple": replace(simple, network_hop_s=network_hop_s)},  # no other runs between hosts
        evidence=Evidence(f"cpu-processes inside a host, with a core for each rank; between hosts {told}"),
        connection_rate=connection_rate,
        cores=0,
    )


_CPU_ETHERNET = _on_hosts(
    CPU_ETHERNET, 12e-6, 1.2e9, "TCP between simulated hosts: 12 us one way, 0.9 to 1.6 GB/s of a connection"
)
_CPU_INFINIBAND = _on_hosts(CPU_INFINIBAND, 0.5e-6, 0.0, "assumed: 0.5 us of UCX at both ends; not tried")

# MPI on GPU buffers. GPUs and NICs move the data; a processor of each rank posts and completes messages.
_MPI_COPY = 0.4e12
_MVAPICH2_GDR = Parameters(
    "mvapich2-gdr",
    {
        "Simple": ProtocolParameters(
            _IDEAL.protocols["Simple"].rate,
            1.045,  # copy engines carry 1.1 of what kernels do, and MPI 95 % of that
            0.99,
            op_s=1e-6,
            hop_s=0.0,
            network_hop_s=0.0,
            slot_bytes=1024 * _MIB,  # so that an instruction is one message
            slots=2,
            slices=16,
            min_slice_bytes=256 * _KIB,
            rendezvous_bytes=12 * _KIB,
            factors=opcode_factors() | {"copy": _MPI_COPY / _IDEAL.protocols["Simple"].rate},
        )
    },
    launch_s=0.0,
    evidence=Evidence(
        "MVAPICH2's defaults: rendezvous from 12 KiB on (MV2_IBA_EAGER_THRESHOLD), by writing (RPUT), in blocks of "
        "256 KiB (MV2_CUDA_BLOCK_SIZE); 95 % of NVLink and 99 % of the network: Khorassani et al., IWOPH 2019; 1 us a "
        "message: NCCL's network post (getNetOverhead); copies of 400 GB/s: assumed, half of a V100's 900 GB/s"
    ),
    staged_network=False,
    cores=1 << 20,  # one for each rank
)

# NVLink has packets of flits of 16 bytes: a request is one, and asks for the 128 bytes that a warp loads together.
_REQUEST_PART = 16 / 128
_SUBMIT = 2e-6  # of cudaMemcpyPeerAsync on the host: 1.8 to 2.2 us in NVIDIA/cuda-samples issue 230 ("CPU")


# Of one-sided programs: launch, hop, release, part of a link's kernel rate, and rate of a multiprocessor, which stores
# at half of it. Fitted by benchmarks/one_sided.py, with 0.6 us for a load from the own memory and 0.1 us for a step.
_ONE_SIDED = {
    "h100": (0.2e-6, 0.66e-6, 1.2e-6, 1.17, 69e9),
    "gb200": (0.86e-6, 0.44e-6, 4.4e-6, 1.08, 31.5e9),
}
ESTIMATED_ONE_SIDED = Evidence("one-sided programs as on h100")


def _measured(gpus: str, in_sample: float, held_out: float, ranks: int, **sizes: tuple[int, int]) -> Evidence:
    source = f"one-sided kernels of vLLM, PyTorch and NCCL in CUDA graphs on {gpus} (benchmarks/one_sided.py)"
    return Evidence(source, in_sample, held_out, Scope((ranks, 8), (DIRECT,), sizes))


ONE_SIDED: Mapping[str, Evidence] = MappingProxyType(
    {
        "h100": _measured(
            *("4, 6 and 8 H100", 0.055, 0.219, 4),
            allreduce=(_KIB, 4 * _MIB),
            allgather=(2 * _MIB, 128 * _MIB),
            reducescatter=(2 * _MIB, 32 * _MIB),
        ),
        "gb200": _measured(
            *("2 B200 and 8 B300", 0.082, 0.275, 2),
            allreduce=(16 * _KIB, 128 * _MIB),
            reducescatter=(_MIB, 16 * _MIB),
        ),
    }
)
_THREADS = 512  # of a threadblock of vLLM's and NCCL's symmetric kernels; each has 16 bytes of every source in flight


def _one_sided(p: Parameters, on: Processor) -> Parameters:
    """Returns the preset of a GPU with the rates of one-sided programs; those of other GPUs are estimated."""
    launch_s, hop_s, release_s, link_efficiency, rate = _ONE_SIDED.get(p.name, _ONE_SIDED["h100"])
    direct = replace(
        _UNLIMITED,
        rate=rate,
        link_efficiency=link_efficiency if "Pull" in p.protocols else 1.0,  # what NVLink carries beyond NCCL's rate
        op_s=0.1e-6,
        hop_s=hop_s,
        line_bytes=16 * _THREADS,
        egress_rate=p.protocols["Simple"].egress_rate,
        submit_s=_SUBMIT,
        launch_s=launch_s,
        local_s=0.6e-6,
        release_s=release_s,
        processors=on.multiprocessors,
    )
    return replace(p, protocols={**p.protocols, DIRECT: direct})


def _moved(p: Parameters, on: Processor) -> Parameters:
    """Returns the preset of a GPU with NVLink, with messages that receivers pull or copy engines move.

    Estimated: a hop takes as long as with Simple. A threadblock that pulls loads as fast as it stores, and waits for
    answers as long as one that pushes waits until its data has been written. A stream waits for the event of another
    GPU as long as a threadblock waits for its flag.
    """
    push = p.protocols["Simple"]
    copied = replace(
        _UNLIMITED,
        hop_s=push.hop_s,
        network_hop_s=push.network_hop_s,
        slot_bytes=1024 * _MIB,  # so that an instruction is one copy
        slots=16,  # there are none: copies write to the place where the data belongs
        slices=1,
        split=True,
        copy_engines=on.copy_engines,
        submit_s=_SUBMIT,
        copy_s=on.copy_s,
        factors={**_UNLIMITED.factors, "copy": on.memory / 2 / _UNLIMITED.rate},  # read and written
    )
    more = {"Pull": replace(push, request_part=_REQUEST_PART), "Copy": copied}
    return replace(p, protocols={**p.protocols, **more})


# The presets of processor classes; those of GPUs have the names of the classes. A rank is a GPU that executes MSCCL's
# kernel. Its threadblocks wait for each other, so all must be resident at once.
_OF_PROCESSOR: Mapping[str, Parameters] = MappingProxyType(
    {
        p.name: replace(p, threadblocks=PROCESSORS[p.name].threadblocks(NCCL), memory_rate=PROCESSORS[p.name].memory)
        for p in (
            *(_one_sided(_moved(p, PROCESSORS[p.name]), PROCESSORS[p.name]) for p in (_A100, _H100, _V100, _GB200)),
            *(_one_sided(p, PROCESSORS[p.name]) for p in (_MI300X, _MI250, _MI50)),
        )
    }
    | {CPU: _CPU_THREADS, CPU_ETHERNET: _CPU_ETHERNET, CPU_INFINIBAND: _CPU_INFINIBAND, IDEAL: _IDEAL}
)
PRESETS: Mapping[str, Parameters] = MappingProxyType(
    {p.name: p for p in (*_OF_PROCESSOR.values(), _CPU_PROCESSES, _MVAPICH2_GDR)}
)


@dataclass(frozen=True, slots=True)
class Launch:
    """How the calls were launched to which a preset, and NCCL's rates on the same GPUs, were fitted."""

    by: str  # "graph" (CUDA graphs) or "stream", on one node
    nccl_nodes: str  # the same of NCCL's rates on several nodes
    stream_s: float = 0.0  # seconds that a launch by a stream takes longer; 0: not known
    source: str = ""  # of that

    def shift_s(self, by: str, *, nccl_nodes: bool = False) -> float:
        """Returns by how many seconds calls that are launched so take longer than those that were measured."""
        measured = self.nccl_nodes if nccl_nodes else self.by
        return 0.0 if by == measured else self.stream_s if by == "stream" else -self.stream_s


LAUNCHES: Mapping[str, Launch] = MappingProxyType(
    {
        "v100": Launch("stream", "stream"),
        "a100": Launch(
            "stream",
            "stream",
            6.6e-6,
            "one kernel with and without CUDA graphs on 8 A100, 4 to 256 KiB, median (microsoft/mscclpp issue 531)",
        ),
        "h100": Launch(
            "graph",
            "stream",
            3.7e-6,
            "AllReduce by NCCL, 1 to 16 MiB, median: without CUDA graphs on 8 H200 (Azure/AI-benchmarking-guide), with "
            "them on 8 H100 (Azure/msccl)",
        ),
        "mi300x": Launch(
            "graph",
            "graph",
            28.5e-6,
            "whole calls by RCCL between 46 us on 8 MI300X in one process (rccl issue 1562) and 25 on 16 MI250X with "
            "a process each (rccl pull request 929); the preset's launch takes 6.5 us",
        ),
    }
)


def launched(parameters: Parameters, by: str) -> Launch:
    """Returns how the calls behind a preset were launched, if it is known what a launch `by` a graph or stream takes.

    Raises:
        gc3.UserError: It is not.
    """
    found = LAUNCHES.get(parameters.name)
    if found is not None and (found.stream_s or by == found.by):
        return found
    known = ", ".join(name for name, launch in LAUNCHES.items() if launch.stream_s)
    raise errors.error(
        "BadSimulation",
        f"what a launch by a {by} takes with preset '{parameters.name}' is not known; it is for {known}: leave out "
        "--launch, or give --what-if launch=TIME",
    )


def kept_name(engine: str) -> str:
    """Returns the name of the preset of a CPU engine that was calibrated on this machine."""
    return f"here-{engine}"


_KEPT = MappingProxyType({kept_name(engine): engine for engine in ("threads", "processes")})


def kept(engine: str) -> Parameters | None:
    """Returns the preset of a CPU engine that `gc3 sim calibrate` has kept for this machine; None: there is none.

    Raises:
        gc3.UserError: The file is damaged, or other users can write to it.
    """
    found = kept_files.read(kept_name(engine), "gc3 sim calibrate", "BadSimulation")
    if found is None:
        return None
    preset = preset_file.parse(found[1], str(found[0]))
    return _pulling(preset) if engine == "processes" else preset


def get(name: str) -> Parameters:
    """Returns the preset called `name`, or the preset in a file if `name` ends in .json.

    "here-threads" and "here-processes" are those that were calibrated on this machine.

    Raises:
        gc3.UserError: There is no such preset.

    >>> get("ideal").launch_s
    0.0
    """
    if name.endswith(".json"):
        return preset_file.read(name)
    if engine := _KEPT.get(name):
        if (found := kept(engine)) is not None:
            return found
        raise errors.error(
            "BadSimulation",
            f"no calibration of the engine {engine} is kept for this machine and version: "
            f"`gc3 sim calibrate --engine {engine}` makes one in about a minute",
        )
    try:
        return PRESETS[name]
    except KeyError:
        raise errors.error(
            "BadSimulation", f"there is no preset '{name}'; expected one of {', '.join((*PRESETS, *_KEPT))}"
        ) from None


def for_topology(topology: Topology) -> Parameters:
    """Returns the preset of a machine, by the class of its processors.

    Ranks of class "cpu" are those of the threads engine: as calibrated on this machine, if that was done.

    Raises:
        gc3.UserError: The class is not known or has no preset, or ranks are of different classes.

    >>> from gc3 import topologies
    >>> for_topology(topologies.load("ndv4")).name
    'a100'
    """
    name = topology.processor
    known = (kept("threads") if name == CPU else None) or _OF_PROCESSOR.get(name or "")
    if known is not None:
        return known
    if name is None:
        problem = f"the ranks of '{topology.name}' are of different processor classes"
    elif name:
        problem = f"the ranks of '{topology.name}' are of processor class '{name}', for which there is no preset"
    else:
        problem = f"'{topology.name}' does not name the processor class of its ranks"
    raise errors.error(
        "BadSimulation",
        f'{problem}; classes with a preset are {", ".join(_OF_PROCESSOR)}. Write one of them as "processor" into the '
        f"topology's file, or choose a preset with preset=NAME after it: {', '.join(PRESETS)}, or a FILE.json",
    )
