"""Machines that hang together: all ranks reach each other, and each NIC leads to one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from gc3 import topologies
from gc3.cli.main import main
from gc3.errors import UserError
from gc3.topologies import document, importing

pytestmark = pytest.mark.python_only

if TYPE_CHECKING:
    from pathlib import Path


def machine(nodes: list[int], links: list[tuple[int, int]], ports: dict[str, list[int]]) -> dict[str, Any]:
    """Ranks on these nodes, links, and fabrics across nodes that have a NIC for each of their ranks."""
    nics = [f"{name}.nic{rank}" for name, ranks in ports.items() for rank in ranks]
    return {
        "gc3_topology": 1,
        "name": "m",
        "ranks": [{"name": f"gpu{i}", "node": node} for i, node in enumerate(nodes)],
        "classes": [{"name": "wire", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}],
        "resources": [{"name": name, "kind": "nic", "class": "wire"} for name in nics],
        "links": [{"src": a, "dst": b, "class": "wire"} for a, b in links],
        "fabrics": [
            {
                "name": name,
                "class": "wire",
                "across_nodes": True,
                "ports": [{"rank": r, "out": [f"{name}.nic{r}"], "in": [f"{name}.nic{r}"]} for r in ranks],
            }
            for name, ranks in ports.items()
        ],
    }


BOTH = [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("nodes", "links", "ports", "message"),
    [
        ([0, 0, 0, 0], [*BOTH, (2, 3), (3, 2)], {}, r"\$.ranks\[2\]: no data gets from rank 0 to rank 2 and 1 others"),
        ([0, 0, 0], [*BOTH, (2, 0)], {}, r"\$.ranks\[2\]: no data gets from rank 0 to rank 2, also not through"),
        ([0, 0, 0], [*BOTH, (0, 2)], {}, r"\$.ranks\[2\]: no data gets from rank 2 to rank 0, also not through"),
        ([0, 0, 1], [], {"net": [0, 1]}, r"\$.ranks\[1\]: no data gets from rank 0 to rank 1 and 1 others"),
        ([0, 1], BOTH, {"net": [0]}, r"\$.resources\[0\]: the NIC 'net.nic0' reaches no rank"),
        ([0, 0, 1], [*BOTH, (1, 2), (2, 1)], {"net": [0, 1]}, r"\$.resources\[0\]: the NIC 'net.nic0' reaches no rank"),
    ],
)
def test_a_machine_in_parts_is_one_error_with_its_place(
    nodes: list[int], links: list[tuple[int, int]], ports: dict[str, list[int]], message: str
) -> None:
    with pytest.raises(UserError, match=message) as problem:
        document.from_data(machine(nodes, links, ports), file="m.json")
    assert (problem.value.code, problem.value.file) == ("GC3-M005", "m.json")


def test_ranks_may_reach_each_other_through_others() -> None:
    """Two ranks of a node only over the network; a ring of one direction; one node with a NIC and no other node."""
    document.from_data(machine([0, 0, 1], [], {"net": [0, 1, 2]}))
    document.from_data(machine([0, 0, 0], [(0, 1), (1, 2), (2, 0)], {}))
    document.from_data(machine([0, 0], BOTH, {"net": [0]}))
    unused = machine([0, 0], BOTH, {"net": [0]})
    unused["fabrics"] = []
    with pytest.raises(UserError, match=r"the NIC 'net.nic0' reaches no rank"):
        document.from_data(unused)


@pytest.mark.parametrize(
    "command",
    [
        ["topo", "validate", "m.json"],
        ["topo", "show", "m.json"],
        ["synth", "allgather", "-t", "m.json", "--steps", "least"],
        ["verify", "ring_allreduce:R=4", "-t", "m.json"],
        ["compile", "ring_allreduce:R=4", "-t", "m.json", "-o", "p.gc3"],
        ["sim", "ring_allreduce:R=4", "-t", "m.json"],
        ["gain", "-t", "m.json"],
        ["tune", "allreduce", "-t", "m.json"],
        ["topo", "show", "ring:R=4,without=0-1+2-3"],
    ],
)
def test_every_command_that_takes_a_machine_says_so(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text(json.dumps(machine([0] * 4, [*BOTH, (2, 3), (3, 2)], {})))
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("error GC3-M005: bad topology: $.ranks[") == 1


def test_the_nics_of_lost_ranks_stay() -> None:
    """Also in a file of what is left."""
    rails = machine([0, 0, 1, 1], [*BOTH, (2, 3), (3, 2)], {"rail0": [0, 2], "rail1": [1, 3]})
    left = topologies.without(document.from_data(rails), ranks=[3])
    assert len(left.resources) == 4
    for part in (left, topologies.load("dgx1:N=2,without=0+1"), topologies.load("ndv4:N=2,without=0+1+2+3+4+5+6+7")):
        assert document.loads(topologies.dumps(part)) == part


def test_an_import_of_machines_that_no_nic_joins_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    assert importing.import_file(str(tmp_path / "topo.txt")).rank_count == 2
    with pytest.raises(UserError, match=r"no data gets from rank 0 to rank 2"):
        importing.import_file(str(tmp_path / "topo.txt"), nodes=2)
