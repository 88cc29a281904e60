"""Import of NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it and NCCL_TOPO_FILE reads it.

Numbers are interpreted as NCCL does: a PCI device without link_width has 16 lanes, one without a known link_speed is
PCIe 3, PCIe carries 3/4 of its raw rate, and the bandwidth between two CPUs depends on their architecture and vendor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, NoReturn
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from gc3 import errors
from gc3.topologies import processors
from gc3.topologies.machine import Cable, Cpu, Gpu, Machine, Nic
from gc3.topologies.parts import LinkClass
from gc3.topologies.wires import NVLINK2, NVLINK3, NVLINK4, NVLINK5, XGMI_MI300X

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Real files have some hundreds of elements, less than 10 levels and less than 1 MB.
MAX_BYTES = 16 * 1024**2
MAX_ELEMENTS = 100_000
MAX_DEPTH = 64
MAX_LANES = 1000

_CLASS_SWITCH = "0x068000"
_CLASS_CPU = "0x068001"

_NVLINK = {  # by the first compute capability that has it
    60: LinkClass("nvlink1", 20e9, kernel_efficiency=0.9, source="kernels 18 GB/s: NCCL SM60_NVLINK_BW"),
    70: NVLINK2,
    80: NVLINK3,
    86: LinkClass("nvlink3", 14e9, kernel_efficiency=0.857, source="kernels 12 GB/s: NCCL SM86_NVLINK_BW"),
    90: NVLINK4,
    100: NVLINK5,
}
_XGMI = LinkClass("xgmi", None, source="not known: the generation is not in the file")
# GB/s between two CPUs by architecture and vendor: NCCL topo.h.
_CROSSING = {
    ("x86_64", "GenuineIntel"): 10.0,
    ("x86_64", "AuthenticAMD"): 16.0,
    ("ppc64", ""): 32.0,
    ("arm64", ""): 6.0,
}
_CROSSING_OTHER = 6.0
# The rates per lane of PCIe 1 to 6 in GT/s, and the fraction of the rate that is payload after line coding.
_CODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
_NCCL_PART = 0.75


@dataclass(slots=True)
class _Link:
    gpu: int
    target: str
    lanes: int
    target_class: str
    wire: LinkClass


@dataclass(slots=True)
class _Found:
    """What has been read so far."""

    machine: Machine = field(default_factory=Machine)
    hosts: dict[str, int] = field(default_factory=dict[str, int])
    bus_ids: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])  # by host and bus id
    order: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    links: list[_Link] = field(default_factory=list[_Link])


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._found = _Found()

    def read(self, text: bytes) -> Machine:
        root = self._parse(text)
        if root.tag != "system":
            self._fail(f"the root element is <{root.tag}>, not <system>")
        for cpu in root.iter("cpu"):
            self._cpu(cpu)
        machine = self._found.machine
        if not machine.gpus:
            self._fail("there is no <gpu> in it")
        self._connect()
        self._renumber()
        return machine

    def _fail(self, what: str) -> NoReturn:
        raise errors.error("BadTopologyImport", what, file=self._file, line=1 if self._file else 0)

    def _parse(self, text: bytes) -> Element:
        if len(text) > MAX_BYTES:
            self._fail(f"{len(text)} bytes; a topology has at most {MAX_BYTES // 1024**2} MiB")
        depth = elements = 0
        root: Element | None = None
        try:
            for event, element in iterparse(BytesIO(text), events=("start", "end"), forbid_dtd=True):
                depth += 1 if event == "start" else -1
                elements += event == "start"
                root = element if root is None else root
                if depth > MAX_DEPTH or elements > MAX_ELEMENTS:
                    self._fail(f"more than {MAX_DEPTH} levels or {MAX_ELEMENTS} elements")
        except ParseError as problem:
            self._fail(f"it is not XML: {problem}")
        except DefusedXmlException as problem:
            self._fail(f"XML with a document type or entities is refused: {type(problem).__name__}")
        except (ValueError, LookupError) as problem:
            self._fail(f"it is not XML: {problem}")
        if root is None:
            self._fail("it is empty")
        return root

    def _number(self, element: Element, name: str, default: int, least: int, most: int) -> int:
        text = element.get(name, "")
        if not text:
            return default
        try:
            value = int(text, 0)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            self._fail(f"{name}={text[:40]!r} of a <{element.tag}> is not a number from {least} to {most}")
        return value

    def _cpu(self, element: Element) -> None:
        found = self._found
        host = found.hosts.setdefault(element.get("host_hash", ""), len(found.hosts))
        vendor = element.get("vendor", "")
        arch = element.get("arch", "")
        rate = _CROSSING.get((arch, vendor), _CROSSING.get((arch, ""), _CROSSING_OTHER))
        make = f"{arch or 'CPU'} {vendor}".strip()
        crossing = LinkClass(f"between {make}", rate * 1e9, 1e-6, source="NCCL topo.h; latency: NCCL LL hop over PCI")
        number = self._number(element, "numaid", len(found.machine.cpus), -1, 1 << 20)
        found.machine.cpus.append(Cpu(f"cpu{len(found.machine.cpus)}", host, max(number, 0), crossing))
        self._devices(element, (), len(found.machine.cpus) - 1)

    def _devices(self, parent: Element, chain: tuple[Cable, ...], cpu: int) -> None:
        for element in parent:
            if element.tag == "pci":
                bus = element.get("busid", "").lower()
                host = self._found.machine.cpus[cpu].host  # hosts have the same bus ids
                name = f"pci {bus or len(chain)}" + (f" of host {host}" if host else "")
                cable = Cable(name, _pci_class(element), 1)
                self._devices(element, (cable, *chain), cpu)
            elif element.tag == "gpu":
                self._gpu(element, parent.get("busid", "").lower(), chain, cpu)
            elif element.tag == "nic":
                for net in element.iter("net"):
                    self._net(net, chain, cpu)

    def _gpu(self, element: Element, bus: str, chain: tuple[Cable, ...], cpu: int) -> None:
        found = self._found
        at = found.machine.cpus[cpu].host, bus
        if at in found.bus_ids:
            self._fail(f"two GPUs at bus id '{bus}'")
        number = len(found.machine.gpus)
        found.bus_ids[at] = number
        device = self._number(element, "dev", number, -1, 1 << 20)
        found.order.append((self._number(element, "rank", -1, -1, 1 << 20), device))
        capability = self._number(element, "sm", 0, 0, 1000)
        gcn = element.get("gcn", "")
        processor = processors.of_capability(f"gfx{gcn.removeprefix('gfx')}" if gcn else str(capability))
        known = bool(gcn or capability)
        found.machine.gpus.append(Gpu(f"gpu{device}", cpu, chain, processor=processor if known else ""))
        for link in element:
            if link.tag not in ("nvlink", "xgmi"):
                continue
            if link.tag == "nvlink":
                wire = _NVLINK[max((sm for sm in _NVLINK if sm <= capability), default=60)]
            else:
                wire = XGMI_MI300X if processor == "mi300x" else _XGMI
            lanes = self._number(link, "count", 1, 1, MAX_LANES)
            target, target_class = link.get("target", "").lower(), link.get("tclass", "").lower()
            found.links.append(_Link(number, target, lanes, target_class, wire))

    def _net(self, element: Element, chain: tuple[Cable, ...], cpu: int) -> None:
        machine = self._found.machine
        speed = self._number(element, "speed", 10000, 0, 1 << 31) or 10000  # Mbit/s; NCCL's own default
        latency = 0.0
        try:
            latency = float(element.get("latency", "0") or 0)
        except ValueError:
            self._fail(f"latency={element.get('latency', '')[:40]!r} of a <net> is not a number")
        if not 0 <= latency < 1e6:  # noqa: PLR2004  a second is no latency of a network
            self._fail(f"latency={latency} of a <net> is not a time in microseconds")
        name = element.get("name", "") or f"net{len(machine.nics)}"
        label = f"net {speed / 1000:g} Gbit/s"
        wire = LinkClass(label, speed * 1e6 / 8, latency * 1e-6 if latency else None, source="speed in the XML file")
        machine.nics.append(Nic(name[:80], cpu, chain, wire))

    def _connect(self) -> None:
        """Adds NVLinks and xGMI links to the machine, as links to a GPU, to a switch or to a CPU."""
        machine = self._found.machine
        for link in self._found.links:
            gpu = machine.gpus[link.gpu]
            peer = self._found.bus_ids.get((machine.cpus[gpu.cpu].host, link.target))
            if peer is not None and peer != link.gpu:
                machine.links.append((link.gpu, peer, link.wire, link.lanes))
            elif link.target_class == _CLASS_CPU:
                gpu.chain = (Cable(f"{gpu.name} to CPU", link.wire, link.lanes),)
            elif link.target_class == _CLASS_SWITCH or not link.target_class:
                gpu.switch = link.wire
                gpu.switch_lanes += link.lanes
            # Otherwise it is a link to a GPU that the job does not use.

    def _renumber(self) -> None:
        """Orders the GPUs by their ranks if the file has them, otherwise by host and device number."""
        found = self._found
        ranks = [rank for rank, _ in found.order]
        by_rank = min(ranks) >= 0 and len(set(ranks)) == len(ranks)
        hosts = [found.machine.cpus[gpu.cpu].host for gpu in found.machine.gpus]
        keys = [(rank,) if by_rank else (host, dev) for (rank, dev), host in zip(found.order, hosts, strict=True)]
        found.machine.reorder(sorted(range(len(keys)), key=lambda i: keys[i]))


def _pci_class(element: Element) -> LinkClass:
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", element.get("link_speed", ""))
    rate = float(match[1]) if match else 8.0
    if rate not in _CODING:
        rate = 8.0
    width = element.get("link_width", "")
    lanes = int(width) if width.isascii() and width.isdigit() and 0 < int(width[:4]) <= 64 else 16  # noqa: PLR2004
    raw = rate * lanes / 8
    generation = 1 + list(_CODING).index(rate)
    return LinkClass(
        f"pcie{generation} x{lanes}",
        raw * _CODING[rate] * 1e9,
        1e-6,
        kernel_efficiency=round(_NCCL_PART / _CODING[rate], 3),
        dma_efficiency=round(_NCCL_PART / _CODING[rate], 3),
        source="link_speed and link_width in the XML file; efficiency: NCCL topo.cc; latency: NCCL LL hop over PCI",
    )


def parse(text: bytes, *, file: str = "") -> Machine:
    """Returns the machine that NCCL's topology XML describes; `file` is its name in errors.

    Raises:
        gc3.UserError: The text is not a topology of NCCL; says why.
    """
    return _Reader(file).read(text)
