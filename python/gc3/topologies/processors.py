"""Processor classes: the kinds of GPUs and CPUs of ranks, and their names in other tools.

Each rank has a class. It is the key of the properties that depend on the GPU and not on the wires: how many
threadblocks a GPU holds, the rates of the simulator, and NCCL's choices on a machine. A class that is not in the table
is allowed here; these properties are then not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

IDEAL = "ideal"  # processors that take no time, as in generic shapes
CPU = "cpu"
CPU_ETHERNET, CPU_INFINIBAND = "cpu-ethernet", "cpu-infiniband"  # on hosts that these networks join
_LONGEST = 40


_REGISTERS_OF_A_WARP = 256  # the unit in which a warp's registers are allocated
_SHARED_OF_THE_SYSTEM = 1024  # bytes of each threadblock, from compute capability 8.0 on; a safe assumption before that


@dataclass(frozen=True, slots=True)
class Kernel:
    """The resources of a multiprocessor that a threadblock of a kernel uses."""

    name: str  # name for display
    threads: int  # threads of a threadblock
    registers: int  # registers of 32 bits of each thread
    shared: int = 0  # bytes of shared memory


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The limits of a multiprocessor: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

    shared: int  # bytes of shared memory
    warps: int = 64  # resident warps
    blocks: int = 32  # resident threadblocks
    registers: int = 65536  # registers of 32 bits

    def holds(self, kernel: Kernel) -> int:
        """Returns how many threadblocks of a kernel are resident at once, as cuda_occupancy.h computes it.

        >>> [Multiprocessor(228 * 1024).holds(Kernel("k", 512, registers, 6912)) for registers in (64, 96, 128)]
        [2, 1, 1]
        """
        warps = -(-kernel.threads // 32)
        of_a_warp = -(-kernel.registers * 32 // _REGISTERS_OF_A_WARP) * _REGISTERS_OF_A_WARP
        # A multiprocessor has four parts; the registers of a warp are in one of them.
        by_registers = self.registers // 4 // of_a_warp * 4 // warps
        by_shared = self.shared // (kernel.shared + _SHARED_OF_THE_SYSTEM)
        return min(by_registers, by_shared, self.warps // warps, self.blocks)


# NCCL_MAX_NTHREADS and -maxrregcount of NCCL 2.8 to 2.12 and of microsoft/msccl (makefiles/common.mk).
NCCL = Kernel("NCCL's and MSCCL's kernels", 640, 96)
# gc3's CUDA engine: kThreads of runtime/cuda/device/launch.h; 64 registers follow from kBlocksPerMultiprocessor.
GC3 = Kernel("gc3's CUDA engine", 512, 64)


@dataclass(frozen=True, slots=True)
class Processor:
    """A class of GPUs."""

    name: str  # its name in topologies; presets of the simulator have the same names
    generation: str  # the name of the generation, by which NCCL's tuning differs
    capabilities: tuple[str, ...]  # CUDA compute capabilities, or names of AMD's gfx architectures
    pattern: str  # a regular expression for a part of the name that the vendor's tools print
    memory: float  # bytes per second of its memory
    multiprocessors: int  # the number of multiprocessors; AMD calls them compute units
    each: Multiprocessor | None  # the limits of one multiprocessor; None: not modelled
    source: str  # where these numbers come from
    copy_engines: int = 0  # engines that copy memory beside kernels; 0: not known
    copy_s: float = 0.0  # seconds that an engine takes to start a copy

    def threadblocks(self, kernel: Kernel) -> int:
        """Returns how many threadblocks of a kernel a GPU holds at once.

        If multiprocessors are not modelled, each holds one threadblock, which the launch bounds of NCCL's and RCCL's
        kernels guarantee.

        >>> PROCESSORS["a100"].threadblocks(NCCL), PROCESSORS["h100"].threadblocks(GC3)
        (108, 264)
        """
        return self.multiprocessors * (1 if self.each is None else self.each.holds(kernel))


# The PCIe card of a generation has fewer multiprocessors than the SXM module, so an H100 PCIe is not of class h100.
PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {
        p.name: p
        for p in (
            Processor(
                "v100",
                "volta",
                ("70",),
                r"V100",
                900e9,
                80,
                Multiprocessor(96 << 10),
                "Tesla V100 whitepaper: 80 SMs, 900 GB/s; 5 copy engines: deviceQuery of a V100-SXM2; 1.9 us: copies "
                "of 16 bytes to a peer on NVLink, one after the other (p2pBandwidthLatencyTest on ABCI's V100)",
                5,
                1.9e-6,
            ),
            Processor(
                "a100",
                "ampere",
                ("80",),
                r"A[18]00",
                1555e9,
                108,
                Multiprocessor(164 << 10),
                "A100 whitepaper: 108 SMs, 1555 GB/s of 40 GB; 3 copy engines: deviceQuery of an A100-SXM4; 3 us: as "
                "for v100, on ABCI's A100 (2.8 to 3.4)",
                3,
                3e-6,
            ),
            Processor(
                "h100",
                "hopper",
                ("90",),
                r"H[18]00(?! PCIe)|H200|GH200",
                3350e9,
                132,
                Multiprocessor(228 << 10),
                "H100 whitepaper: 132 SMs of an SXM5 module; H100 data sheet: 3.35 TB/s; copy engines: assumed as a100",
                3,
                3e-6,
            ),
            Processor(
                "gb200",
                "blackwell",
                ("100",),
                r"G?B200",
                8e12,
                148,
                Multiprocessor(228 << 10),
                "148 SMs of a B200; GB200 data sheet: 8 TB/s; copy engines: assumed as a100",
                3,
                3e-6,
            ),
            Processor(
                "mi50", "gcn", ("gfx906",), r"MI[56]0", 1024e9, 60, None, "data sheet: 60 compute units, 1024 GB/s"
            ),
            Processor(
                "mi250",
                "cdna2",
                ("gfx90a",),
                r"MI2[15]0X?",
                1.6e12,
                104,
                None,
                "AMD's MI250 page: 104 compute units of a die; 3.2 TB/s for both dies",
            ),
            Processor(
                "mi300x",
                "cdna3",
                ("gfx940", "gfx941", "gfx942"),
                r"MI300X",
                5.3e12,
                304,
                None,
                "data sheet: 304 CUs, 5.3 TB/s",
            ),
        )
    }
)


def of_capability(capability: str) -> str:
    """Returns the class of a compute capability ("80") or an architecture ("gfx942").

    An unknown one becomes a class of its own.

    >>> of_capability("80"), of_capability("86"), of_capability("gfx942")
    ('a100', 'sm86', 'mi300x')
    """
    known = next((p.name for p in PROCESSORS.values() if capability in p.capabilities), None)
    return known or _plain(capability if capability.startswith("gfx") else f"sm{capability}")


def of_name(product: str) -> str:
    """Returns the class of a GPU that nvidia-smi names `product`; for an unknown GPU, the name in lower case.

    >>> of_name("NVIDIA A100-SXM4-80GB"), of_name("NVIDIA GeForce RTX 3090"), of_name("NVIDIA H100 PCIe")
    ('a100', 'nvidia-geforce-rtx-3090', 'nvidia-h100-pcie')
    """
    known = next((p.name for p in PROCESSORS.values() if re.search(rf"\b(?:{p.pattern})\b", product)), None)
    return known or _plain(product)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")[:_LONGEST]
