"""make evidence: what the predictions of public measurements are worth."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import evidence
import measured
import pytest
from click.testing import CliRunner
from evidence import Predicted
from measured import Point

from gc3.sim import platform, trust
from gc3.sim.nccl import Nccl

pytestmark = pytest.mark.python_only

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "evidence.json"
MEDIAN, P90 = math.log(1.15), math.log(1.35)  # the goals
POINT = Point("a", "fit", False, "NDv4", 2, 8, "AllReduce", "NCCL", "2.8.4", 1024, 100e-6)


def test_every_file_is_read_by_one_schema_and_names_its_source() -> None:
    kernels = "one_sided.csv"  # of benchmarks/one_sided.py: columns are kernels
    files = {path.name for path in measured.DATA.glob("*.csv")} - {kernels}
    assert files == measured.described()["files"].keys()
    assert all("\n# source: " in f"\n{(measured.DATA / name).read_text()}" for name in files)
    points = list(measured.points())
    assert {f"{p.file}.csv" for p in points} == files
    assert Counter(p.use for p in points)["check"] > 150
    assert not any(p.fitted for p in points if p.use == "check")
    assert {p.machine for p in points} == measured.described()["machines"].keys()
    for place in {(p.machine, p.nodes, p.gpus) for p in points if p.nodes < 16}:
        topology = measured.topology(*place)
        assert (topology.node_count, topology.rank_count) == (place[1], place[1] * place[2]), place


def test_times_follow_from_bandwidths_unless_these_have_too_few_digits() -> None:
    azure = {p.size: p.time_s for p in measured.points() if p.file == "h200_1node_azure"}
    assert azure[1024] == 0  # 0.06 GB/s
    assert azure[8 << 30] == pytest.approx((8 << 30) * 1.75 / 480e9, rel=0.01)
    roce = {p.size: p.time_s for p in measured.points() if p.machine == "V100_DGX1_2xRoCE100"}
    assert roce[8 << 20] == 0  # its head says why
    assert roce[16 << 20] > 0


def test_a_band_is_told_without_the_measurements_of_the_source_itself() -> None:
    def calls(file: str, factor: float) -> list[Predicted]:
        points = [replace(POINT, file=file, size=1024 << k) for k in range(4)]
        return [Predicted(p, "ampere", "NCCL", factor * p.time_s) for p in points]

    near, far = calls("near", 1.05), calls("far", 3.0)
    inside = evidence.banded([*near, *far])
    assert all(inside[e.point] for e in near)  # what far says of such calls is wide
    assert not any(inside[e.point] for e in far)  # and what near says is too narrow for them
    assert evidence.banded(near) == {}  # nothing is left that could tell one


def test_errors_and_the_order_of_pairs() -> None:
    assert evidence.spread([0.1, -0.3, 0.2]) == {"points": 3, "median": 0.2, "p90": 0.3}
    assert evidence.spread([]) == {"points": 0, "median": None, "p90": None}
    one = Predicted(POINT, "ampere", "NCCL", 110e-6)
    assert one.error == pytest.approx(math.log(1.1))
    near, far, other = (
        replace(one, point=replace(POINT, library=name, time_s=t), time_s=s)
        for name, t, s in (("near", 104e-6, 50e-6), ("far", 200e-6, 150e-6), ("other", 50e-6, 120e-6))
    )
    assert evidence.order([one, near]) == (0, 0)  # within 5 %
    assert evidence.order([one, far, other]) == (3, 2)
    assert evidence.order([one, replace(far, point=replace(far.point, size=2048))]) == (0, 0)
    # In place and out of place are one call.
    assert evidence.order([one, one, far]) == (1, 1)


def test_tables_tell_scopes_and_refusals() -> None:
    fitted = Predicted(replace(POINT, file="ndv4_64nodes_alltoall", fitted=True, nodes=64), "ampere", "NCCL", 1e-4)
    refused = Predicted(replace(POINT, machine="MI300X", nodes=1), "cdna3", "NCCL", None, "not known")
    untimed = replace(refused, point=replace(refused.point, time_s=0.0), why="no time")
    data = evidence.tables([fitted, Predicted(POINT, "ampere", "NCCL", 3e-4), refused, untimed])
    assert [row["in_sample"] for row in data["sources"]] == [True, False, False]
    assert "no evidence" in data["sources"][0]["note"]
    counts = [(row["points"], row["refused"], row["no_time"]) for row in data["sources"]]
    assert counts == [(1, 0, 0), (1, 0, 0), (0, 1, 1)]
    assert data["sources"][2]["why_refused"] == ["not known"]
    assert data["fitted_generations"] == ["ampere"]
    totals = data["totals"]
    assert totals["held out, NCCL on generations fitted"]["p90"] == pytest.approx(math.log(3), abs=1e-4)
    assert totals["held out, NCCL on others"]["refused"] == 1
    assert [(c["nodes"], c["in_sample"]) for c in data["classes"]] == [("2", False), ("more than 16", True)]
    assert set(evidence.WHY) <= {p.file for p in measured.points()}
    assert [row["why"] for row in data["sources"]] == [None, None, None]
    kept = json.loads(RESULTS.read_text())["sources"]
    far = {r["source"] for r in kept if not r["in_sample"] and r["points"] and (r["median"] > MEDIAN or r["p90"] > P90)}
    assert far <= evidence.WHY.keys()
    late = replace(POINT, file="h200_1node_azure", machine="H200_NVSwitch")
    assert "why is not known" in evidence.tables([Predicted(late, "hopper", "NCCL", 1e-4)])["sources"][0]["why"]


def test_networks_of_one_rate_bound_what_a_prediction_without_them_can_reach() -> None:
    def on(machine: str, us: float, library: str = "NCCL") -> Predicted:
        point = replace(POINT, machine=machine, time_s=us * 1e-6, library=library)
        return Predicted(point, "hopper", "NCCL", 1e-5)

    ndr, efa = on("H100 with 8 NDR", 20), on("H100_32xEFA100", 80)
    (row,) = evidence.unlike([ndr, efa, on("H100_8xTCPXO200", 160), on("H100_32xEFA100", 5, "NCCL Ring")])
    assert (row["one"], row["other"], row["points"]) == ("H100 with 8 NDR", "H100_32xEFA100", 1)
    assert row["median"] == pytest.approx(math.log(2), abs=1e-4)
    assert not evidence.unlike([ndr, replace(efa, point=replace(efa.point, size=2048))])


def test_the_latency_of_a_network_is_a_part_of_every_crossing() -> None:
    """Of trees and of what switches add up, which is not simulated, alike: two crossings between two nodes."""
    slow, fast = (measured.topology(name, 2, 8) for name in ("H100_32xEFA100", "H100_8GPU_4xRoCE400"))
    assert {c.latency_s for c in slow.classes} - {c.latency_s for c in fast.classes} == {27e-6}
    for size in (1 << 10, 2 << 20):
        nccl = Nccl(platform(slow), "allreduce")
        plain = replace(
            slow, classes=tuple(replace(c, latency_s=min(c.latency_s or 0.0, 1.1e-6)) for c in slow.classes)
        )
        more = nccl(size).time_s - Nccl(platform(plain), "allreduce")(size).time_s
        assert more == pytest.approx(2 * 25.9e-6, rel=0.1), nccl(size).cause


def test_what_is_shipped_is_what_is_written_and_would_be_found_today() -> None:
    kept = json.loads((measured.DATA.parents[2] / "benchmarks" / "results" / "evidence.json").read_text())
    assert kept["classes"] == list(trust.classes())
    result = CliRunner().invoke(evidence.evidence, ["ndv5_1node_allgather", "mi300x_1node", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    known = {tuple(c[key] for key in trust.KEYS): c for c in kept["classes"]}
    # Programs of one source alone: NCCL's classes have other sources, too.
    programs = [c for c in found["classes"] if c["way"] != trust.NCCL]
    assert len(programs) == 4
    assert all(known[tuple(c[key] for key in trust.KEYS)] == c for c in programs)


def test_on_the_command_line() -> None:
    result = CliRunner().invoke(evidence.evidence, ["mi300x_1node", "ndv5_1node_allgather"])
    assert "ndv5_1node_allgather, ND H100 v5, MSCCL: in sample" in result.stdout
    assert "mi300x_1node, MI300X, RCCL: in sample" in result.stdout
    assert "generations fitted: cdna3, hopper" in result.stdout
    assert "no file of measurements is called" in CliRunner().invoke(evidence.evidence, ["x"]).output


def test_calls_of_nccl_tests_are_launched_by_streams() -> None:
    points = list(measured.points())
    assert {p.file for p in points if p.launch == "graph"} == {"ndv5_1node_allgather", "ndv5_1node_allreduce"}
    stream = Point("a", "fit", False, "H200_NVSwitch", 1, 8, "AllReduce", "NCCL", "2.20.5", 65536, 30e-6)
    graph = replace(stream, launch="graph")
    times = [evidence.predicted(p).time_s or 0.0 for p in (stream, graph)]
    assert times[0] - times[1] == pytest.approx(3.7e-6)
    # The constant was taken from these.
    sizes = {p.size for p in points if p.file == "h200_1node_azure" and p.fitted}
    assert sizes == {1 << k for k in range(20, 25)}
