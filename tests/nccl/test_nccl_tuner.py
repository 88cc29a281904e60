"""The tuner plugin of NCCL: its functions, called as NCCL does, and the files that it reads.

NCCL opens the plugin when a communicator is made, which needs a device; here its functions are called without one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gc3 import UserError, nccl, sim
from gc3.cli.main import main
from gc3.sim.nccl import Nccl
from gc3.sim.nccl.tuning import Choice
from gc3.tune import nccl_rules

pytestmark = pytest.mark.python_only
# Prints, for each version of the plugin: its name, the result of init, and for each call of the second argument
# (function, bytes, operations, registered, and a pair that the communicator lacks or none) the cheapest pair of
# algorithm and protocol, and the channels.
PROGRAM = """
import ctypes, json, sys
calls, ranks, nodes = json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
u64, size, number, address = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
Log = ctypes.CFUNCTYPE(None, number, ctypes.c_ulong, ctypes.c_char_p, number, ctypes.c_char_p, ctypes.c_char_p)
said = []
log = Log(lambda level, _, file, line, form, text: said.append([level, text.decode()]))
Init = ctypes.CFUNCTYPE(number, ctypes.POINTER(address), u64, size, size, Log, address, address)
Get = ctypes.CFUNCTYPE(number, address, number, size, number, address, number, number, number, ctypes.POINTER(number))
End = ctypes.CFUNCTYPE(number, address)
class Tuner(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("init", Init), ("get", Get), ("finalize", End)]
out = []
for version in (5, 6):
    tuner = Tuner.in_dll(ctypes.CDLL(sys.argv[1]), f"ncclTunerPlugin_v{version}")
    context, found = address(), []
    began = tuner.init(ctypes.byref(context), 1, ranks, nodes, log, None, None)
    for function, count, operations, registered, lacks in calls if began == 0 else ():
        costs, channels = (ctypes.c_float * 21)(*range(10, 31)), number(0)
        if lacks is not None:
            costs[lacks[0] * 3 + lacks[1]] = -1
        assert tuner.get(context, function, count, operations, costs, 7, 3, registered, ctypes.byref(channels)) == 0
        cheapest = min((cost, at) for at, cost in enumerate(costs) if cost >= 0)[1]
        found.append([cheapest // 3, cheapest % 3, channels.value])
    assert began or tuner.finalize(context) == 0
    out.append([tuner.name.decode(), began, found])
print(json.dumps([out, said]))
"""
SIZES = tuple(1 << power for power in range(10, 20, 2))
CASES = [(4, 1024, 1, 0, None), (4, 1 << 20, 1, 0, None), (4, 1 << 20, 1, 0, (1, 0)), (2, 1 << 20, 4, 1, None)]


def call(file: str, ranks: int = 8, nodes: int = 1, cases: Sequence[object] = CASES) -> list[object]:
    """Calls the plugin in a process of its own, with GC3_NCCL_TUNER set to `file`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(nccl.tuner_library()), json.dumps(cases), str(ranks), str(nodes)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"GC3_NCCL_TUNER": file},
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def gc3(*line: str) -> Result:
    return CliRunner().invoke(main, list(line))


def test_nccl_takes_the_first_rule_that_the_communicator_can_follow(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rules = (
        "allreduce,65536,18446744073709551615,ring,ll,6,1,8,-1,-1",
        "allreduce,0,18446744073709551615,tree,simple,-1,-1,-1",
        "allgather,0,18446744073709551615,pat,simple,3,-1,-1,4,1",
    )
    file.write_text("\n".join((nccl_rules.HEADER, *rules, "")))
    found = [[0, 2, 0], [1, 0, 6], [0, 2, 0], [6, 2, 3]]
    assert call(str(file)) == [[["gc3", 0, found]] * 2, [[3, f"3 rules of {file}"]] * 2]
    other = [[0, 2, 0], [0, 2, 0], [0, 2, 0], [6, 2, 3]]
    assert call(str(file), ranks=16, nodes=2)[0] == [["gc3", 0, other]] * 2
    none = [[0, 0, 0]] * 4  # NCCL's own costs stay as they were
    assert call("")[0] == [["gc3", 0, none]] * 2


@pytest.mark.parametrize(
    ("text", "said"), [(None, "no such file"), ("allreduce,0,1,star,ll,1,1,1\n", "line 1: 'star' is not one of tree")]
)
def test_a_table_that_cannot_be_read_is_an_error_of_the_communicator(
    text: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    if text is not None:
        file.write_text(text)
    versions, messages = call(str(file))
    assert versions == [["gc3", 4, []]] * 2
    assert isinstance(messages, list)
    assert [level for level, _ in messages] == [2, 2]
    assert all(said in message and str(file) in message for _, message in messages)


def test_tune_writes_what_the_plugin_reads(tmp_path: Path) -> None:
    file, table = tmp_path / "t.csv", tmp_path / "t.json"
    line = ["tune", "-t", "ndv4", "allreduce", "-b", "256KiB", "-e", "256KiB"]
    done = gc3(*line, "-o", str(table), "--nccl-tuner", str(file))
    assert done.exit_code == 0, done.output
    rule = file.read_text().splitlines()[-1].split(",")
    assert (rule[0], rule[6:8]) == ("allreduce", ["1", "8"])
    own = Nccl(sim.platform("ndv4"), "allreduce")
    better = nccl_rules.best(own, 256 << 10)
    assert better is not None
    assert better.choice is not None
    assert better.time_s < 0.98 * better.own_s
    assert [better.choice.algorithm, better.choice.protocol.lower(), str(better.choice.channels)] == rule[3:6]
    # Sizes that were not simulated are left to NCCL.
    assert rule[1:3] == ["185363", "370726"]
    found = call(str(file), cases=[(4, size, 1, 0, None) for size in (185_362, 185_363, 370_726, 370_727)])[0]
    assert isinstance(found, list)
    assert found[0][2] == [[0, 0, 0], *[[1, 0, better.choice.channels]] * 2, [0, 0, 0]]


def test_no_rule_serves_a_size_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Choice("ring", "LL", 2, 1.0)

    def best(_: Nccl, size: int) -> nccl_rules.Better | None:
        return None if size == 1 << 14 else nccl_rules.Better(size, own, 1.0, own, 2.0)

    monkeypatch.setattr(nccl_rules, "best", best)
    rules = [line for line in nccl_rules.lines(sim.platform("ndv4"), ["allreduce"], SIZES) if line[0] == "a"]
    ends = [tuple(map(int, rule.split(",")[1:3])) for rule in rules]
    assert ends == [(1 << 9, (1 << 13) - 1), (1 << 15, (1 << 19) - 1)]


def test_what_the_file_needs(tmp_path: Path) -> None:
    file, table = str(tmp_path / "t.csv"), str(tmp_path / "t.json")
    sized = ["-b", "1KiB", "-e", "1KiB", "-o", table, "--nccl-tuner", file]
    refused = gc3("tune", *sized)
    assert (refused.exit_code, "are for --topology" in refused.output) == (2, True)
    refused = gc3("tune", "-t", "ndv4", "alltoall", *sized)
    assert (refused.exit_code, "NCCL chooses only for" in refused.output) == (1, True)
    refused = gc3("tune", "-t", "cpu:R=4", "allreduce", *sized)
    assert (refused.exit_code, "GC3-S001" in refused.output) == (1, True)


def test_variables_for_the_tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "below", lambda: Path("/lib/libnccl.so.2"))
    monkeypatch.setattr(nccl, "unknown", lambda _: [])
    file = tmp_path / "t.csv"
    with pytest.raises(UserError, match="no such file"):
        nccl.environment(tuner=file)
    file.write_text("")
    made = nccl.environment(tuner=file)
    assert made["GC3_NCCL_TUNER"] == str(file)
    assert Path(made["NCCL_TUNER_PLUGIN"]).is_file()
