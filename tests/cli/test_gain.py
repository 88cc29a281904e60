"""gc3 gain: what programs would gain over NCCL on a machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gc3.cli.main import main
from gc3.report import gain_page
from gc3.report.gain_page import Gain, Ratio
from gc3.sim.trust import HELD_OUT, Expected
from gc3.tune import Best, best

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Searches end after a few simulations, and not after a time in which a machine under load finds nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("gc3.cli.gain"), "_SECONDS", 3600.0)
        patch.setattr(best, "_SECONDS", 0.5)  # for the schedules of a collective
        patch.setattr(best, "MOST", 8)
        patch.setattr(best, "_MOST", 8)
        yield


def gc3_gain(*line: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["gain", *line])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What is found for calls of 1 MiB, and the page of that."""
    page = tmp_path_factory.mktemp("gain") / "gain.html"
    output = gc3_gain("-t", "ndv4", "--sizes", "1MiB", "--json", "-o", str(page)).output
    return json.loads(output), page.read_text()


def ring(links: list[tuple[int, int]]) -> dict[str, Any]:
    """A machine of four GPUs with these links, as a file has it."""
    result = CliRunner().invoke(main, ["topo", "show", "ring:R=4", "--json"])
    machine = json.loads(result.output)
    machine["links"] = [each for each in machine["links"] if (each["src"], each["dst"]) in links]
    return machine


@pytest.mark.parametrize(("seconds", "cut"), [(0.01, True), (3600.0, False)])
def test_a_search_that_was_cut_short_is_told(seconds: float, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("gc3.cli.gain"), "_SECONDS", seconds)
    monkeypatch.setattr(best, "_SECONDS", 60.0)
    told = json.loads(gc3_gain("-t", "ndv4:without=2+3+4+5+6+7", "--sizes", "64KiB", "--json").output)["not_known"]
    assert any("was not through with 5 calls" in text for text in told) == cut
    assert any("was not through" in text for text in told) == cut


def test_every_call_has_times_ratio_runtimes_and_commands(found: tuple[dict[str, Any], str]) -> None:
    told, text = found
    assert [each["collective"] for each in told["gains"]] == [
        *("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
    ]
    for each in told["gains"]:
        assert each["nccl_s"] > 0
        assert each["measure_nccl"].startswith("mpirun -np 8 ")
        ratio = each["gain"]
        assert ratio["low"] < ratio["ratio"] < ratio["high"]
        assert math.isclose(ratio["ratio"], each["nccl_s"] / each["own_s"])
        error = max(max(w["p90"] or w["median"] or 0.0, w["judged"]) for w in (each["own"], each["theirs"]))
        assert ratio["distinguishable"] == (abs(math.log(ratio["ratio"])) > error)
        assert "GC3" in each["runtimes"]
        assert each["deploy"]
        assert each["measure"]
    assert len(text) < 500_000
    assert text.count("<svg") == 1
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "What is not known" in text


def test_the_command_that_writes_a_file_works(
    found: tuple[dict[str, Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    library = [each for each in found[0]["gains"] if not each["synthesized"] and len(each["deploy"]) == 1]
    assert library
    for each in library:
        made = CliRunner().invoke(main, each["deploy"][0].split()[1:])
        assert made.exit_code == 0, made.output


def test_a_step_has_a_gain_of_its_own(tmp_path: Path) -> None:
    trace = str(ROOT / "examples" / "transformer.et")
    line = ["-t", "ndv4", "--from", trace, "--json"]
    found = json.loads(gc3_gain(*line).output)
    step = found["step"]
    assert step["calls"] >= step["replaced"]
    assert step["gain"]["low"] <= step["gain"]["ratio"] <= step["gain"]["high"]
    assert step["ratio"]["own_s"] <= step["ratio"]["nccl_s"] * 1.0001
    refused = gc3_gain("-t", "ndv4", "--from", trace, "--sizes", "1KiB", code=2)
    assert "leave out --sizes" in refused.output


def test_ranks_that_nothing_joins_are_told_before_any_search(tmp_path: Path) -> None:
    machine = ring([(0, 1), (1, 2), (2, 3), (3, 2), (2, 1)])
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(machine))
    result = gc3_gain("-t", str(path), code=1)
    assert "no data gets from rank 1 to rank 0 and 2 others, also not through other ranks" in result.output
    assert result.output.count("error") == 1


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (["-t", "ndv4", "--sizes", "1KiB,0"], 2, "a size is 0"),
        (["-t", "ndv4", "--sizes", "big"], 2, "'big' is not a size"),
        (["-t", "ndv4", "--from", "a.log", "--from", "b.log"], 2, "2 logs of NCCL"),
        (["-t", "ndv4", "--sizes", "1MiB,"], 2, "'' is not a size"),
        (["-t", "ndv4", "-o", "gain.pdf"], 2, "must end in .html"),
        (["-t", "ndv4", "--from", "nowhere.et"], 1, "nowhere.et"),
        (["-t", "ndv4", "--from", "nowhere.log"], 1, "nowhere.log"),
        (["-t", "nowhere"], 1, "nowhere"),
        (["-t", "ring:R=1"], 2, "one rank"),
        (["-t", "ring:R=4,preset=ideal"], 2, "name a preset of GPUs"),
    ],
)
def test_bad_input_is_one_message(line: list[str], code: int, told: str) -> None:
    output = gc3_gain(*line, code=code).output
    assert told in output
    assert "Traceback" not in output


def test_a_log_of_another_machine_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(
        "n:1:1 [0] NCCL INFO Channel 00/02 :    0   1   2\nn:1:1 [0] NCCL INFO Channel 01/02 :    0   1   2\n"
    )
    assert "nccl.log" in gc3_gain("-t", "ndv4", "--from", str(log), code=1).output


def test_a_trace_without_collectives_is_refused(tmp_path: Path) -> None:
    from gc3.sim.read import chakra  # noqa: PLC0415  needs protobuf

    path = tmp_path / "alone.et"
    chakra.write(str(path), [chakra.Node(0, "add", chakra.COMPUTE, duration_s=1e-6)])
    assert "has no call of all 8 ranks" in gc3_gain("-t", "ndv4", "--from", str(path), code=1).output


def test_a_machine_without_named_gpus_has_those_that_nccl_gets() -> None:
    """With links only, programs without launches would be ten times as fast as NCCL."""
    found = json.loads(gc3_gain("-t", "hierarchical:N=2,G=2,nics=1", "--sizes", "1KiB", "--json").output)
    assert "they are taken for a100" in found["not_known"][0]
    for each in found["gains"]:
        assert each["own"]["scope"] != "links only"
        assert each["own_s"] > 10e-6
        assert "preset=a100" in " ".join(each["deploy"]) or each["deploy"][0].startswith(("gc3 export", "gc3 compile"))


def test_a_lead_below_the_error_is_none() -> None:
    worth = Expected(HELD_OUT, 0.1, math.log(1.5), "calls")
    gain = Gain("allreduce", 1, "NCCL", 1.4, worth, "", program="ring", own_s=1.0, own=worth)
    assert gain.ratio is not None
    assert not gain.ratio.tells
    assert not gain.wins
    long = replace(gain, program="ring_allreduce R=ranks G=ranks_per_node rails=8, LL, at most 108 threadblocks")
    assert long.cells[5] == "ring_allreduce rails=8, LL"  # the rest is in the commands
    assert gain.cells[:5] == ("allreduce", "1 B", "1.4 s", "1 s", "not distinguishable (0.93 to 2.10)")
    assert Ratio(3.0, 1.0, 2.0, 4.5).tells
    assert replace(gain, nccl_s=0.0).ratio is None
    (told,) = gain_page.answer([gain, replace(gain, program="", own_s=0.0)], None)
    assert told.startswith("0 of 1 calls are")
    assert told.endswith(" Not known: 1 of 2 calls.")
    assert "Not known" not in gain_page.answer([gain], None)[0]


@pytest.fixture
def until(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which the search of each collective in the library is to end; nothing is searched."""
    found: list[float] = []

    def library(_best: Best, _sizes: list[int], _begin: object, deadline: float) -> None:
        found.append(deadline)

    def run(*_given: object, **_named: object) -> None:
        pass

    monkeypatch.setattr(Best, "library", library)
    monkeypatch.setattr(Best, "run", run)
    return found


def test_no_collective_takes_the_time_of_the_next_ones(until: list[float]) -> None:
    gc3_gain("-t", "fully_connected:R=2", "--sizes", "1KiB")
    assert len(until) == 5
    assert all(earlier < later for earlier, later in pairwise(until))


@pytest.mark.usefixtures("until")
def test_nics_that_reach_no_rank_are_told_before_the_search() -> None:
    shown = gc3_gain("-t", "dgx_h100:N=2,without=3+11", "--sizes", "1KiB").output
    assert shown.index("NICs that reach no rank are not used") < shown.index("What programs would gain")
