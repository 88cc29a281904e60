"""How large messages move between processes: read from the sender's memory, or copied through shared memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import gc3
import ranks
from gc3.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping

COPIED = "messages are copied through shared memory"


def explained(size: int, settings: Mapping[str, str], count: int = 50_000) -> list[str]:
    """How messages move between ranks that have added arrays of `count` elements, as each rank says it."""
    return ranks.run(ranks.program("explain_messages"), size, settings, [count])


def test_without_single_copies_messages_are_copied() -> None:
    explained(3, {"GC3_SINGLE_COPY": "0"}, 200_000)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"GC3_PROBE": "1"}, " UTC, in us by shared memory and by reading: 8 KiB "),
        ({"GC3_PROBE": "0"}, "messages are read from the sender's memory from "),
        ({"GC3_SINGLE_COPY": "0"}, COPIED),
    ],
)
def test_the_way_of_messages_between_processes_is_explained(settings: dict[str, str], said: str) -> None:
    for path in explained(2, settings, count=0):
        # That is all where the system forbids reading.
        assert said in path or path.startswith(f"{COPIED}; waits spin 8000 times; not measured")


def kept(settings: dict[str, str], last: list[str]) -> tuple[list[str], list[str]]:
    """What the last job that measured says, and one that takes it; beside other load a job may measure anew."""
    for _ in range(20):
        again = explained(2, settings)
        if "and kept" in again[0]:
            return last, again
        last = again
    return last, again


def test_measurements_are_kept_for_the_next_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"GC3_CACHE": str(tmp_path / "cache"), "GC3_PROBE": "1"}
    first = explained(2, settings)
    assert first[0] == first[1]
    if "not measured" in first[0]:
        pytest.skip("the system forbids reading another process's memory")
    assert "; measured " in first[0]
    first, again = kept(settings, first)
    assert again == [first[0].replace(" UTC, in", " UTC and kept, in")] * 2
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_mode & 0o77 == 0
    # gc3 env shows it.
    monkeypatch.setenv("GC3_CACHE", settings["GC3_CACHE"])
    said = json.loads(CliRunner().invoke(main, ["env", "--json"]).stdout)["measured"]
    assert len(said) == 1
    assert said[0].startswith(f"{file}: 2 ranks on ")
    assert ": read_moved " in said[0]
    # Another number of ranks has its own. A damaged file is replaced, and rank 0 says why.
    explained(3, settings)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    file.write_text("gc3-probe-1\nread_moved 5\n")
    told = explained(2, settings)
    assert "measured" in told[0]
    assert "and kept" not in told[0]
    assert "is damaged: line 2: read_moved is 5" in told[0]
    assert "and kept" in kept(settings, told)[1][0]


def test_a_folder_that_cannot_be_written_is_said() -> None:
    first, second = explained(2, {"GC3_CACHE": "/dev/null/cache", "GC3_PROBE": "1"})
    if "not measured" not in first:
        assert "(not kept: '/dev/null/cache': Not a directory)" in first
        assert "not kept" not in second


def test_thresholds_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("gc3-probe-1\nread_moved 12288\nread_combined never\nspins 300\n")
    for text in explained(2, {"GC3_PROBE": str(file)}):
        assert "waits spin 300 times; given" in text
        assert "from 12 KiB if they are copied, from 32 KiB by" in text or text.startswith(COPIED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory; expected 0, 1, anew or a file of thresholds"),
        ("gc3-probe-1\nspins never\n", "line 2: spins is never, not a number from 0 to 1000000"),
        ("\x00\xff", "line 1: expected gc3-probe-1"),
    ],
)
def test_a_file_of_thresholds_must_be_right(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.txt"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("GC3_PROBE", str(file))
    with pytest.raises(gc3.UserError) as caught:
        gc3.init(rank=0, size=1, job=f"probe {os.getpid()}")
    assert f"GC3_PROBE='{file}' in the environment" in str(caught.value)
    assert said in str(caught.value)


def test_a_row_of_a_table_sets_thresholds(tmp_path: Path) -> None:
    row = {
        "collective": "allgather",
        "program": {"algorithm": "ring_allgather", "thresholds": {"read_moved": 4096, "read_halved": None, "spins": 0}},
    }
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"format": "gc3-selection-1", "rows": [row]}))
    said = "ring_allgather R=ranks, Simple, read_moved 4096, read_halved never, spins 0\n"
    assert ranks.run(ranks.program("row_with_thresholds"), 3, arguments=[table]) == [said] * 3


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        pytest.param("spin", "spins, as told", marks=pytest.mark.python_only),
        pytest.param("yield", "yields the core at once, as told", marks=pytest.mark.python_only),
        ("block", "sleeps at once, as told"),
    ],
)
def test_results_are_right_however_ranks_wait(mode: str, said: str) -> None:
    assert ranks.run(ranks.program("waits"), 4, {"GC3_WAIT": mode}) == [said + "\n"] * 4


def test_waits_are_explained_and_told_by_init() -> None:
    first, second = ranks.run(ranks.program("waits"), 2, arguments=["block"])
    # What else runs on the machine decides among these.
    because = (
        "spins, then yields the core: a core for each rank",
        "yields the core at once: a core for each rank, but other processes take turns",
        "yields the core at once: more ranks than cores",
        "sleeps at once: a core for each rank",
        "sleeps at once: more ranks than cores",
    )
    assert first.startswith(because)
    assert second == "sleeps at once, as told\n"


def test_an_unknown_way_to_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gc3.UserError, match=r"wait='nap' .*expected auto, spin, yield or block"):
        gc3.init(rank=0, size=1, job=f"wait {os.getpid()}", wait="nap")
    monkeypatch.setenv("GC3_WAIT", "doze")
    with pytest.raises(gc3.UserError, match=r"wait='doze' \(GC3_WAIT\)"):
        gc3.init(rank=0, size=1, job=f"wait {os.getpid()}")
