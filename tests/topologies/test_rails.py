"""Which NIC a channel uses if several are equally near to a GPU: NCCL's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

import gc3
from gc3 import sim, topologies
from gc3.topologies import importing
from gc3.topologies.model import Topology

pytestmark = pytest.mark.python_only

MIB = 1 << 20


def nics(machine: Topology, src: int, dst: int, channel: int) -> list[str]:
    path = machine.path(src, dst, channel)
    assert path is not None
    used = [machine.all_resources[i] for i in path.resources]
    return [r.name for r in used if r.kind == "nic"]


def alltoall(channel_of: list[int]) -> gc3.Program:
    """An AllToAll of two nodes of eight, in which rank r sends to the other node on channel `channel_of[r]`."""

    @gc3.algorithm("alltoall", ranks=lambda: 16)
    def direct() -> None:
        for src in range(16):
            for dst in range(16):
                across = src // 8 != dst // 8
                gc3.chunk(src, "in", dst).copy(dst, "out", src, ch=channel_of[src] if across else None)

    return gc3.compile(direct)


def test_each_gpu_has_a_nic_of_its_own() -> None:
    machine = topologies.load("ndv4:N=2")
    for g in range(8):
        for channel in range(4):
            assert nics(machine, g, 8 + g ^ 1, channel) == [f"node0.nic{g}.out", f"node1.nic{g ^ 1}.in"]


def test_channels_alternate_between_the_nics_of_a_pair() -> None:
    """NCCL 2.8: both GPUs of a pair use the same NIC for the same channel."""
    machine = topologies.load("ndv4:N=2,rails=2")
    for g in range(8):
        for channel in range(4):
            used = g // 2 * 2 + channel % 2
            assert nics(machine, g, 8 + (g + 2) % 8, channel)[0] == f"node0.nic{used}.out"


@pytest.mark.parametrize("rails", [1, 2])
def test_programs_that_alternate_channels_by_rank_use_all_nics(rails: int) -> None:
    """MSCCL's programs alternate. Half of the NICs were idle, and the lower bound was twice as large."""
    on = sim.platform(f"ndv4:N=2,rails={rails}", "ideal")
    size = 64 * MIB
    found = sim.Simulation(alltoall([r % 2 for r in range(16)]), on).run(size)
    nic = on.topology.link_class("hdr")
    assert nic.bandwidth_bytes_per_s is not None
    carried = nic.bandwidth_bytes_per_s * nic.dma_efficiency
    assert found.bound_s == pytest.approx(size / 2 / carried, rel=0.06)  # and 2 us a message
    # With only one channel it depends on the rule.
    same = sim.Simulation(alltoall([0] * 16), on).run(size)
    assert same.bound_s == pytest.approx(rails * found.bound_s, rel=0.02)


XML = """<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
  <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">{devices}</pci>
</cpu></system>"""
GPU = '<pci busid="0000:1{0}:00.0" class="0x030200"><gpu dev="{0}" sm="80" rank="{0}"/></pci>'
NIC = '<pci busid="0000:2{0}:00.0" class="0x020000"><nic><net name="mlx{0}" dev="{0}" speed="200000"/></nic></pci>'


@pytest.mark.parametrize(
    ("gpus", "cards", "rails"),
    [
        (2, 2, [[0], [1]]),
        (2, 4, [[0, 1], [2, 3]]),
        (4, 4, [[0], [2], [1], [3]]),
        (4, 2, [[0], [1], [0], [1]]),
        (1, 2, [[0, 1]]),
        (2, 3, [[0, 1], [1, 2]]),
        (2, 1, [[0], [0]]),
    ],
)
def test_imported_machines_follow_nccls_rule(gpus: int, cards: int, rails: list[list[int]], tmp_path: Path) -> None:
    devices = "".join([*(GPU.format(g) for g in range(gpus)), *(NIC.format(c) for c in range(cards))])
    path = tmp_path / "node.xml"
    path.write_text(XML.format(devices=devices))
    machine = importing.import_file(str(path), nodes=2)
    for g in range(gpus):
        names = [nics(machine, g, gpus + g, channel)[0] for channel in range(len(rails[g]))]
        assert names == [f"copy0.nic{c}.mlx{c}.tx" for c in rails[g]]
        assert machine.rails(g, gpus + g) == len(rails[g])
