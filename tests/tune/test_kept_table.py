"""The table that gc3 tune keeps for a machine, and that gc3.init uses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import ranks
from gc3 import errors
from gc3.cli.main import main
from gc3.comm import kept
from gc3.comm.selection import Table
from gc3.runtime import kept_files
from gc3.tune import Measured, Tuner, candidates, on_ranks
from gc3.tune.timers import RankTimer

pytestmark = pytest.mark.python_only


def sources(settings: dict[str, str], *arguments: str) -> list[str]:
    """The row that serves a call, on each of two ranks."""
    found = ranks.run(ranks.program("scatter_by_kept_table"), 2, settings, arguments)
    return [Path(text.strip()).name for text in found]


def test_the_tuned_table_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ranks, "candidates", lambda *which, **how: candidates(*which, **how)[:2])
    monkeypatch.setattr(RankTimer, "variants", lambda *_: ())
    monkeypatch.setattr(RankTimer, "renew", lambda _: None)  # to start the ranks once
    cache = tmp_path / "new" / "cache"
    monkeypatch.setenv("GC3_CACHE", str(cache))
    assert kept.read() is None
    said = CliRunner().invoke(main, ["tune", "scatter", "--ranks", "2", "-b", "1KiB", "-e", "1KiB"])
    assert said.exit_code == 0, said.output
    file = kept.path()
    assert file is not None
    assert sorted(cache.glob("tuned-*")) == [file, Path(f"{file}.points")]
    assert sources({}) == [f"{file.name} row 1"] * 2
    assert all(text.startswith("default.json") for text in sources({"GC3_CACHE": "off"}))
    # Ranks with different tables use none of them.
    assert all(text.startswith("default.json") for text in sources({}, "different"))


def test_one_command_at_a_time_keeps_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_CACHE", str(tmp_path))
    line = ["tune", "scatter", "--ranks", "2", "-b", "1KiB", "-e", "1KiB"]
    with kept_files.alone("", "BadArgument"):
        refused = CliRunner().invoke(main, line)
    assert refused.exit_code == 1
    assert "another calibration or tuner is measuring this machine" in refused.output
    assert not list(tmp_path.glob("tuned-*"))


def test_later_commands_add_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def point(_: Tuner, __: object, place: tuple[str, int, int, bool, float], *___: object) -> Measured:
        name, ranks_, size, in_place, _ = place
        default = Table.default().choose(name, ranks=ranks_, size=size, in_place=in_place).row.spec
        return Measured(*place[:4], ((default, 1.0),), default, 1)

    monkeypatch.setattr(Tuner, "_point", point)
    monkeypatch.setenv("GC3_CACHE", str(tmp_path))
    for name, count, size in (("gather", "3", "4KiB"), ("allreduce", "2", "1KiB"), ("gather", "2", "64KiB")):
        line = ["tune", name, "--ranks", count, "-b", "1KiB", "-e", size]
        assert CliRunner().invoke(main, line).exit_code == 0
    file = kept.path()
    assert file is not None
    rows = json.loads(file.read_text())["rows"]
    found = {(row["collective"], *row["ranks"]) for row in rows}
    assert found == {("gather", 3, 3), ("allreduce", 2, 2), ("gather", 2, 2)}
    # A row ends at the sizes of its own measurement, even if another command has measured larger sizes.
    assert [row["size"] for row in rows if row["collective"] == "allreduce"] == [[724, 1448]]
    assert [row["size"] for row in rows if row["ranks"] == [3, 3]] == [[512, 8192]]
    table = kept.read()
    assert table is not None
    row = table.choose("gather", ranks=2, size=1000, in_place=False).row
    assert row.source.startswith(str(file))
    assert row.limits.nodes == (1, 1)  # it was measured on one host


def test_a_table_that_others_could_have_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_CACHE", str(tmp_path))
    file = kept.path()
    assert file is not None
    file.write_text('{"format": "gc3-selection-1", "rows": []}')
    file.chmod(0o644)
    read = kept.read()
    assert read is not None
    assert read.rows == Table.default().rows
    file.chmod(0o664)
    with pytest.raises(errors.UserError, match=r"other users can write to .*: .*GC3_CACHE=off"):
        kept.read()
    file.chmod(0o600)
    file.write_text("{")
    with pytest.raises(errors.UserError, match="it is not JSON") as caught:
        kept.read()
    assert file.name in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "cache", "said"),
    [
        (["--topology", "ndv4"], "", "needs -o FILE"),
        (["--ranks", "2"], "off", "say where to write"),
        (["--ranks", "2"], os.devnull + "/cache", "/dev/null/cache"),
    ],
)
def test_where_no_table_can_be_kept(
    arguments: list[str], cache: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GC3_CACHE", cache)
    done = CliRunner().invoke(main, ["tune", *arguments])
    assert done.exit_code != 0
    assert said in " ".join((done.output + str(done.exception or "")).split())
