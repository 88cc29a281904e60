"""Import of the output of `nvidia-smi topo -m`, with the output of `nvidia-smi -L` before or after it.

The list names the GPUs. The table says how devices are joined, but not how fast. An NVLink lane carries 25 GB/s unless
the caller gives another bandwidth; NVLink 2 to 4 have 25 GB/s. The bandwidths of PCIe and NICs are not known unless the
caller gives them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import NoReturn

from gc3 import errors
from gc3.topologies import processors
from gc3.topologies.machine import Cable, Cpu, Gpu, Machine, Nic
from gc3.topologies.parts import LinkClass

MAX_BYTES = 4 * 1024**2
# A GPU has at most so many NVLinks. If a table shows more for one GPU, they are lanes to switches.
_MOST_NVLINKS = 18
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_LISTED = re.compile(r"GPU (\d{1,4}): (.{1,200}?)(?: \(UUID.*)?")
_NOT_DEVICES = ("CPU", "NUMA", "GPU")  # the columns after them: CPU Affinity, NUMA Affinity, GPU NUMA ID
_RELATION = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|SOC|NV\d{1,3}")
_NEAREST = ("PIX", "PXB", "PHB", "NODE", "SOC", "SYS")  # SOC: older for SYS


@dataclass(frozen=True, slots=True)
class Rates:
    """Bandwidths, which the table does not have, in bytes per second and direction; None: not known."""

    nvlink: float = 25e9
    pcie: float | None = None
    nic: float | None = None


DEFAULT_RATES = Rates()


def parse(text: str, rates: Rates = DEFAULT_RATES, *, file: str = "") -> Machine:
    """Returns the machine that the table describes; `file` is its name in errors.

    Raises:
        gc3.UserError: The text is not such a table; says where.
    """
    return _Table(text, file).machine(rates)


class _Table:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        if len(text) > MAX_BYTES:
            self._fail("the file is too large for the output of nvidia-smi", 1)
        lines = [_STYLE.sub("", line).strip() for line in text.splitlines()]
        start = next((i for i, line in enumerate(lines) if line.startswith("GPU0")), None)
        if start is None:
            self._fail("no line begins with GPU0: it is not the output of `nvidia-smi topo -m`", 1)
        listed = [match for line in lines if (match := _LISTED.fullmatch(line))]
        self._products = {f"GPU{int(match[1])}": match[2] for match in listed}
        self.devices = list(takewhile(lambda word: word not in _NOT_DEVICES, lines[start].split()))
        self.rows: dict[str, list[str]] = {}
        self.domains: dict[str, int] = {}
        for number, line in enumerate(lines[start + 1 :], start=start + 2):
            if not line or line.startswith("Legend"):
                if self.rows:
                    break
                continue
            self._row(line.split(), number)
        missing = [name for name in self.devices if name not in self.rows]
        if missing:
            self._fail(f"there is no row for {missing[0]}", start + 1)

    def _fail(self, what: str, line: int) -> NoReturn:
        raise errors.error("BadTopologyImport", what, file=self._file, line=line if self._file else 0)

    def _row(self, words: list[str], line: int) -> None:
        name, cells = words[0], words[1 : 1 + len(self.devices)]
        if name not in self.devices:
            self._fail(f"the row of '{name[:40]}' has no column", line)
        if name in self.rows:
            self._fail(f"a second row of {name}", line)
        if len(cells) < len(self.devices):
            self._fail(f"{len(cells)} columns for {len(self.devices)} devices", line)
        for device, cell in zip(self.devices, cells, strict=True):
            if not _RELATION.fullmatch(cell):
                self._fail(f"'{cell[:40]}' in column {device} is none of X, NV#, PIX, PXB, PHB, NODE, SYS", line)
        self.rows[name] = cells
        # After the devices: CPU affinity, NUMA affinity, ...; the second is the domain if it is a number.
        rest = words[1 + len(self.devices) :]
        if len(rest) > 1 and rest[1].isascii() and rest[1].isdigit():
            self.domains[name] = int(rest[1][:4])

    def relation(self, a: str, b: str) -> str:
        """The table's entry for two devices."""
        return self.rows[a][self.devices.index(b)]

    def machine(self, rates: Rates) -> Machine:
        """Returns the machine."""
        gpus = [name for name in self.devices if name.startswith("GPU")]
        nics = [name for name in self.devices if not name.startswith("GPU")]
        crossing = LinkClass("sys", rates.pcie, source="not in the table")
        domain_of = {name: self.domains.get(name, 0) for name in gpus}
        domains = sorted(set(domain_of.values()))
        machine = Machine(cpus=[Cpu(f"cpu{i}", 0, d, crossing) for i, d in enumerate(domains)])
        pcie = LinkClass("pcie", rates.pcie, source="not in the table; given by the caller if known")
        cards = LinkClass("nic", rates.nic, source="not in the table; given by the caller if known")
        switches, bridges = self._groups(("PIX", "PXB")), self._groups(("PIX", "PXB", "PHB"))

        def chain(name: str) -> tuple[Cable, ...]:
            above = {f"switch of {switches[name]}": switches, f"host bridge of {bridges[name]}": bridges}
            shared = [label for label, groups in above.items() if list(groups.values()).count(groups[name]) > 1]
            return tuple(Cable(label, pcie, 1) for label in (f"{name} slot", *shared))

        for name in gpus:
            product = self._products.get(name, "")
            processor = processors.of_name(product) if product else ""
            machine.gpus.append(Gpu(name.lower(), domains.index(domain_of[name]), chain(name), processor=processor))
        self._nvlinks(machine, gpus, rates)
        for name in nics:
            beside = min(gpus, key=partial(self._distance, name))
            machine.nics.append(Nic(name.lower(), machine.gpus[gpus.index(beside)].cpu, chain(name), cards))
        return machine

    def _distance(self, a: str, b: str) -> int:
        relation = self.relation(a, b)
        return _NEAREST.index(relation) if relation in _NEAREST else len(_NEAREST)

    def _groups(self, relations: tuple[str, ...]) -> dict[str, str]:
        """For each device the first device of its group: devices of a group have these relations to each other.

        The relation may be indirect, through other devices: for two GPUs with NVLinks the table shows only the NVLinks,
        and not their relation over PCIe.
        """
        group = {name: name for name in self.devices}
        for a in self.devices:
            for b in self.devices:
                if self.relation(a, b) in relations and group[a] != group[b]:
                    first, other = sorted((group[a], group[b]), key=self.devices.index)
                    group = {name: first if of == other else of for name, of in group.items()}
        return group

    def _nvlinks(self, machine: Machine, gpus: list[str], rates: Rates) -> None:
        wire = LinkClass("nvlink", rates.nvlink, source="25 GB/s as NVLink 2 to 4, if the caller gave nothing else")
        wire = replace(wire, kernel_efficiency=0.8, dma_efficiency=0.88)
        lanes = {
            (a, b): int(cell[2:])
            for a, x in enumerate(gpus)
            for b, y in enumerate(gpus)
            if (cell := self.relation(x, y)).startswith("NV")
        }
        for a, gpu in enumerate(machine.gpus):
            own = [count for (x, _), count in lanes.items() if x == a]
            if own and len(set(own)) == 1 and sum(own) > _MOST_NVLINKS:
                gpu.switch, gpu.switch_lanes = wire, own[0]
        for (a, b), count in lanes.items():
            if machine.gpus[a].switch is None or machine.gpus[b].switch is None:
                machine.links.append((a, b, wire, count))
