"""Processor classes: the kinds of GPUs and CPUs that ranks are, and the names that other tools give them.

A rank names its class. What depends on the GPU rather than on the wires is looked up by it: the rates of the simulator,
and what NCCL does on a machine. A class that is not in the table is no error here: it only has no such facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

IDEAL = "ideal"  # of a shape: processors that take no time
CPU = "cpu"
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Processor:
    """A class of GPUs.

    Attributes:
        name: As topologies name it; presets of the simulator have the same names.
        generation: As NCCL's tuning tells them apart.
        capabilities: CUDA compute capabilities, or numbers of AMD's gfx architectures.
        pattern: What the name that the vendor's tools print contains, as a regular expression.
    """

    name: str
    generation: str
    capabilities: tuple[str, ...]
    pattern: str


# A PCIe card of a generation has fewer multiprocessors than its SXM module, so the H100 PCIe is not of class h100.
PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {
        p.name: p
        for p in (
            Processor("v100", "volta", ("70",), r"V100"),
            Processor("a100", "ampere", ("80",), r"A[18]00"),
            Processor("h100", "hopper", ("90",), r"H[18]00(?! PCIe)|H200|GH200"),
            Processor("gb200", "blackwell", ("100",), r"G?B200"),
            Processor("mi50", "gcn", ("gfx906",), r"MI[56]0"),
            Processor("mi300x", "cdna3", ("gfx940", "gfx941", "gfx942"), r"MI300X"),
        )
    }
)


def of_capability(capability: str) -> str:
    """Returns the class of a compute capability ("80") or architecture ("gfx942"); of an unknown one, its own name.

    >>> of_capability("80"), of_capability("86"), of_capability("gfx942")
    ('a100', 'sm86', 'mi300x')
    """
    known = next((p.name for p in PROCESSORS.values() if capability in p.capabilities), None)
    return known or _plain(capability if capability.startswith("gfx") else f"sm{capability}")


def of_name(product: str) -> str:
    """Returns the class of what nvidia-smi calls a GPU; of an unknown one, its name in small letters.

    >>> of_name("NVIDIA A100-SXM4-80GB"), of_name("NVIDIA GeForce RTX 3090"), of_name("NVIDIA H100 PCIe")
    ('a100', 'nvidia-geforce-rtx-3090', 'nvidia-h100-pcie')
    """
    known = next((p.name for p in PROCESSORS.values() if re.search(rf"\b(?:{p.pattern})\b", product)), None)
    return known or _plain(product)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")[:_LONGEST]
