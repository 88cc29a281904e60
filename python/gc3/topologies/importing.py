"""Imports the description of a machine that NCCL or nvidia-smi wrote."""

from __future__ import annotations

from pathlib import Path

from gc3 import errors
from gc3.support import files
from gc3.support.forms import looks_like
from gc3.topologies import nccl_xml, nvidia_smi
from gc3.topologies.machine import assemble
from gc3.topologies.model import Topology
from gc3.topologies.nvidia_smi import DEFAULT_RATES, Rates
from gc3.topologies.reach import joined

FORMATS = ("nccl", "nvidia-smi")
_MOST_COPIES = 1024


def import_file(
    path: str,
    *,
    format: str | None = None,
    name: str | None = None,
    nodes: int = 1,
    rates: Rates = DEFAULT_RATES,
    slow_paths: bool = True,
    processor: str | None = None,
) -> Topology:
    """Returns the topology that a file describes.

    Args:
        path: NCCL's topology XML, or the output of ``nvidia-smi topo -m``, which that of ``nvidia-smi -L`` may precede.
        format: Which of `FORMATS` it is; by default XML if the file begins with ``<``.
        name: Name of the topology; by default the name of the file.
        nodes: The number of such machines, joined by their NICs.
        rates: Bandwidths, which ``nvidia-smi`` does not print.
        slow_paths: Whether GPUs without a link or switch between them reach each other over PCIe and CPUs.
        processor: The class of the GPUs (see `gc3.topologies.processors`); by default the one that the file names.

    Raises:
        gc3.UserError: The file cannot be read, or is not a description; says where and why.
    """
    if not 1 <= nodes <= _MOST_COPIES:
        raise errors.error("BadArgument", f"nodes={nodes}; expected a number from 1 to {_MOST_COPIES}")
    limit = max(nccl_xml.MAX_BYTES, nvidia_smi.MAX_BYTES)
    content = files.read_bytes(path, limit)
    if format is None:
        first = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if first == b"{":
            told = looks_like(files.parse_json(content.decode("utf-8", "replace"), "BadTopologyImport", path))
            read = "NCCL's topology XML or the output of `nvidia-smi topo -m`"
            raise errors.error("BadTopologyImport", f"it is JSON, not {read}{told}", file=path, line=1)
        format = "nccl" if first == b"<" else "nvidia-smi"
    if format == "nccl":
        machine = nccl_xml.parse(content, file=path)
        source = "NCCL topology XML"
    elif format == "nvidia-smi":
        machine = nvidia_smi.parse(content.decode("utf-8", "replace"), rates, file=path)
        source = "nvidia-smi topo -m"
    else:
        raise errors.error("BadArgument", f"format='{format}'; expected one of {', '.join(FORMATS)}")
    if processor is not None:
        for gpu in machine.gpus:
            gpu.processor = processor
    return joined(
        assemble(
            machine,
            name=name or errors.shown(Path(path).stem[:200]) or "imported",
            source=f"{source}: {errors.shown(Path(path).name)}",
            copies=nodes,
            slow_paths=slow_paths,
        )
    )
