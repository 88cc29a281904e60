"""Jobs of several hosts, which are namespaces of this machine; see tests/hosts.py."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hosts
from gc3.cli.main import main
from gc3.comm.selection import TRANSPORTS
from ranks import LOAD, program

pytestmark = [
    pytest.mark.waits,
    pytest.mark.skipif(hosts.why_not() != "", reason=f"no namespaces here: {hosts.why_not()}"),
]


def on_hosts(
    count: int, ranks: int, words: Sequence[object], shell: str = "", timeout: int = 150
) -> subprocess.CompletedProcess[str]:
    """Runs a program, or `shell`, as the ranks of so many hosts; the output of each rank is whole."""
    run = ["sh", "-c", shell] if shell else [sys.executable, *map(str, words)]
    line = hosts.command(count, ranks, run, "--apart", "--timeout", str(timeout))
    return subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout + 30, check=False
    )


@pytest.mark.python_only
@pytest.mark.parametrize(("count", "ranks"), [(2, 2), pytest.param(3, 1, marks=pytest.mark.nightly)])
def test_ranks_of_several_hosts_meet(count: int, ranks: int, tmp_path: Path) -> None:
    done = on_hosts(count, ranks, [program("on_hosts"), ranks, tmp_path])
    assert done.returncode == 0, done.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == [str(rank) for rank in range(count * ranks)]


def test_an_expected_message_goes_through_no_slot(tmp_path: Path) -> None:
    table = tmp_path / "whole.json"
    whole = {"algorithm": "binomial_tree_allreduce", "slots": 1, "slot_bytes": 32 << 20}
    row = {"collective": "allreduce", "nodes": [2, 2], "program": whole}
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    done = on_hosts(2, 1, [program("echo_on_hosts"), table])
    assert done.stdout.splitlines().count("all right") == 2, done.stdout


@pytest.mark.parametrize(("count", "ranks"), [(3, 1), pytest.param(2, 2, marks=pytest.mark.nightly)])
def test_programs_compute_while_their_messages_move(
    count: int, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    done = on_hosts(count, ranks, [program("computing_on_hosts"), tmp_path])
    assert done.stdout.splitlines().count("all right") == count * ranks, done.stdout


@pytest.mark.parametrize(
    ("fault", "host", "survivors"),
    [
        ("kill", 1, 2),
        pytest.param("crash", 0, 2, marks=pytest.mark.nightly),  # cut, then kill
        pytest.param("cut", 1, 4, marks=pytest.mark.python_only),
        pytest.param("mute", 0, 4, marks=pytest.mark.python_only),
    ],
)
def test_ranks_name_a_host_that_they_have_lost(fault: str, host: int, survivors: int) -> None:
    done = on_hosts(2, 2, [program("lost_hosts"), fault, host])
    lost = re.findall(r"lost after ([\d.]+) s: (.*)", done.stdout)
    assert len(lost) == survivors, done.stdout
    for took, said in lost:
        assert float(took) < 3 + LOAD, done.stdout
        # What gc3 has measured: the load does not add to it before its thread has a core.
        silence = re.search(r"not been heard of for ([\d.]+) s", said)
        assert silence is None or 3 <= float(silence[1]) < 5, said
        assert said.startswith("GC3-R009"), said
        assert re.search(r"host node\d \(ranks [\d-]+\)", said), said


@pytest.mark.python_only
def test_a_stopped_host_is_late_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its system answers, so it is not lost; its leader is named when the time of the call is over."""
    monkeypatch.setenv("GC3_COMM_TIMEOUT", "6")
    done = on_hosts(2, 2, [program("lost_hosts"), "stop", 1])
    lost = re.findall(r"lost after [\d.]+ s: (.*)", done.stdout)
    assert len(lost) == 2, done.stdout
    for said in lost:
        assert said.startswith("GC3-R003"), said
        assert re.search(r"rank 2 \(process \d+ on node1\), which has been stopped", said), said


@pytest.mark.python_only
@pytest.mark.parametrize(
    ("setting", "code", "said"),
    [
        (
            # Rank 0 gives up first: the other keeps what it was told, although it is refused in the end.
            "GC3_SECRET=$(printf '%s is a secret of its own' $GROUP_RANK) GC3_JOIN_TIMEOUT=$((5 + 3 * GROUP_RANK))",
            "GC3-R008",
            "another GC3_SECRET than this rank",
        ),
        ("GC3_RENDEZVOUS=node1:4000", "GC3-R008", "rank 0 runs here, on interface eth0 (10.77.0.1)"),
        (
            "WORLD_SIZE=5",
            "GC3-R008",
            "of 5 ranks these have not joined within 8 s: 4; rank 0 listens at 10.77.0.1:29501 of",
        ),
    ],
)
def test_hosts_that_do_not_meet_say_why(setting: str, code: str, said: str) -> None:
    program_line = f"export GC3_JOIN_TIMEOUT=8 {setting}; exec {shlex.quote(sys.executable)} {program('join')}"
    done = on_hosts(2, 1 if "5" not in setting else 2, [program("join")], shell=program_line)
    assert said in done.stdout, done.stdout
    assert f"{code} " in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.python_only
def test_settings_of_hosts_that_are_wrong_are_refused() -> None:
    """On one host: a rank notices before it looks for those of others."""
    wrong = {
        "GC3_NETWORK=ib0": "GC3_NETWORK='ib0' fits no interface; there are lo (127.0.0.1)",
        "GC3_NETWORK=10.0.0.0/99": "expected a network as 10.0.0.0/8",
        "GC3_RENDEZVOUS=nowhere": "expected host:port",
    }
    join = f"{shlex.quote(sys.executable)} {program('join')}"
    done = on_hosts(1, 1, [], shell="; ".join(f"WORLD_SIZE=2 {setting} {join}" for setting in wrong))
    assert all(said in done.stdout for said in wrong.values()), done.stdout
    assert done.stdout.count("GC3-R002 ") == len(wrong)
    assert "Traceback" not in done.stdout


@pytest.mark.python_only
def test_strangers_on_the_port_do_no_harm() -> None:
    done = on_hosts(2, 2, [program("among_strangers")])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all right") == 4


# FAULTS and LIBRARY_SHARES=1 give other numbers; see `make nightly-hosts`.
FAULTS = int(os.environ.get("FAULTS", "2"))
SHARES = int(os.environ.get("LIBRARY_SHARES", "12"))


@pytest.mark.python_only
@pytest.mark.timeout(120 + 60 * FAULTS)
def test_every_survivor_of_a_random_fault_names_who_is_lost() -> None:
    tool = Path(hosts.__file__).with_name("random_faults.py")
    words = [tool, "--count", FAULTS, "--limit", 3 + LOAD]  # `make nightly-hosts` allows less
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FAULTS} faults, 0 wrong" in done.stdout


@pytest.mark.timeout(300 if SHARES > 1 else 3600)
@pytest.mark.parametrize(
    ("count", "ranks"),
    [
        (2, 2),
        pytest.param(4, 1, marks=pytest.mark.nightly),
        pytest.param(3, 2, marks=pytest.mark.nightly),
    ],
)
def test_the_library_gives_what_numpy_does(count: int, ranks: int) -> None:
    line = [program("library_on_hosts"), ranks, 0, SHARES]
    done = on_hosts(count, ranks, line, timeout=150 if SHARES > 1 else 1200)
    assert done.returncode == 0, done.stdout
    made = set(re.findall(r"all right: (\d+) programs", done.stdout))
    assert len(made) == 1, done.stdout
    assert int(made.pop()) >= 3, done.stdout
    assert done.stdout.count("all right") == count * ranks


@pytest.mark.python_only
def test_a_table_tuned_on_hosts_is_theirs(tmp_path: Path) -> None:
    """Every host keeps it, and jobs take it whose hosts all have it and whose ranks are placed as they were."""
    own = f"GC3_CACHE={shlex.quote(str(tmp_path))}/$GROUP_RANK {shlex.quote(sys.executable)}"
    rows: list[dict[str, Any]] = []
    first = second = ""
    limits = iter((1, 10, 100))  # compiling counts: a busy machine may measure nothing in the shorter ones
    while not rows:
        tuning = f"-m gc3 tune --engine hosts allreduce -b 4KiB -e 4KiB --time-limit {next(limits)}"
        done = on_hosts(2, 1, [], f"{own} {tuning}")
        assert done.returncode == 0, done.stdout
        files = sorted(tmp_path.glob("*/tuned-hosts-*.json"))
        assert [file.parent.name for file in files] == ["0", "1"]
        first, second = (file.read_text() for file in files)
        assert first == second
        rows = json.loads(first)["rows"]
    assert all((row["nodes"], row["ranks_per_node"]) == ([2, 2], [1, 1]) for row in rows)
    assert {row["transport"] for row in rows} <= {*TRANSPORTS}
    assert all(row["program"]["protocol"] == "Simple" for row in rows)

    def sources(ranks: int) -> list[str]:
        done = on_hosts(2, ranks, [], f"{own} {shlex.quote(str(program('explain_on_hosts')))}")
        found = re.findall("chosen by ([^;]*);", done.stdout)
        assert len(found) == 2 * ranks, done.stdout
        return found

    files[1].write_text(second + "\n")  # the same rows
    assert all("tuned-hosts-" in source for source in sources(1))
    assert not any("tuned-hosts-" in source for source in sources(2))
    # A table that the hosts do not share counts for none of them.
    files[1].write_text(json.dumps({**json.loads(second), "rows": rows[1:]}))
    assert not any("tuned-hosts-" in source for source in sources(1))


@pytest.mark.python_only
def test_rows_for_a_transport_serve_calls_over_it(tmp_path: Path) -> None:
    row = {"collective": "allreduce", "program": {"algorithm": "ring_allreduce"}}
    table = tmp_path / "mine.json"
    rows = [{**row, "transport": "ucx"}, {**row, "transport": "tcp"}]
    rows += [{**rows[1], "collective": "allgather", "program": {"algorithm": "ring_allgather"}}]
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": rows}))
    shell = f"GC3_UCX=off {shlex.quote(sys.executable)} {program('explain_on_hosts')} {table}"
    done = on_hosts(2, 1, [], shell)
    said = "chosen by mine.json row 2; not [('mine.json row 1', 'for messages over ucx')]; "
    assert done.stdout.count(said) == 2, done.stdout
    assert done.stdout.count("; tcp") == 2, done.stdout
    assert done.stdout.count("v-form by mine.json row 3") == 2, done.stdout  # v-forms have their places and transport


@pytest.mark.python_only
def test_hosts_are_not_tuned_by_one_alone(tmp_path: Path) -> None:
    tuning = f"GC3_CACHE={shlex.quote(str(tmp_path))} {shlex.quote(sys.executable)} -m gc3 tune --engine hosts"
    done = on_hosts(1, 2, [], tuning)
    assert done.returncode != 0
    assert "all ranks of this job are on one host" in done.stdout
    assert "Traceback" not in done.stdout
    refused = CliRunner().invoke(main, ["tune", "--engine", "hosts", "--ranks", "2"])
    assert refused.exit_code == 2, refused.output
    assert "leave out --ranks and --with" in refused.stderr
