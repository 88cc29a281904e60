"""Changes under a communicator while it lives: privileges, memory, descriptors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ranks


@pytest.fixture(autouse=True)
def ranks_read_each_others_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if that is slower on this machine."""
    monkeypatch.setenv("GC3_PROBE", "0")


@pytest.mark.parametrize("hidden", [0, 1])
@pytest.mark.parametrize("count", [50_000, pytest.param(3_000_017, marks=pytest.mark.python_only)])
def test_a_rank_that_loses_its_privileges_continues(hidden: int, count: int) -> None:
    """Also within a call: while rank 0 waits in it, or has already lent its data."""
    ranks.run(ranks.program("lose_privileges"), 2, arguments=[hidden, count])


@pytest.mark.parametrize("many", [3, pytest.param(5, marks=pytest.mark.python_only)])
def test_one_of_many_ranks_loses_its_privileges(many: int) -> None:
    ranks.run(ranks.program("one_loses_privileges"), many)


def test_truncated_data_is_reported_at_once(tmp_path: Path) -> None:
    """The root's data is a file that is shortened: only the rank that reads the data can notice."""
    file = tmp_path / "data"
    told = ranks.run(ranks.program("truncated_data"), 2, arguments=[file])
    for text in told:
        assert "cannot read the data of rank 0 (process " in text
        assert "Bad address" in text


@pytest.mark.parametrize("count", [1, 2])
def test_close_frees_descriptors_at_once(count: int) -> None:
    """Without the cyclic garbage collection, which may run much later, and with arrays that are kept."""
    ranks.run(ranks.program("close_frees_descriptors"), count)


@ranks.limits_memory
@pytest.mark.parametrize("count", [1, 3])
def test_many_communicators_share_one_window_and_one_set_of_descriptors(count: int) -> None:
    ranks.run(ranks.program("many_communicators"), count)


@ranks.limits_memory
def test_an_array_without_addresses_takes_nothing_from_the_job() -> None:
    ranks.run(ranks.program("address_limit"), 1)


OUTSIDER = "GC3-R022 a rank is of another user: process "


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_ranks_do_not_share_memory_with_one_that_has_become_another_user() -> None:
    first, second, _ = ranks.run(ranks.program("outsiders"), 3, arguments=["other user"])
    assert first == "2 read | read | read\n"  # its own objects
    trusted, *shared = second.split(" | ")
    assert trusted == "2 read"
    assert [said.startswith(OUTSIDER) for said in shared] == [True, True], second


def test_ranks_that_join_with_a_secret_share_no_memory_with_those_that_have_not() -> None:
    first, second, _ = ranks.run(ranks.program("outsiders"), 3, arguments=["secret"])
    assert [first, second] == ["2 read | read | read\n"] * 2


def test_ranks_of_a_tool_get_their_data_without_proc() -> None:
    """Ranks cannot inspect their parent; the parent also takes this privilege from root's processes."""
    ranks.run(ranks.program("tool_without_proc"), 1)


def test_a_system_error_in_a_rank_of_a_tool_is_one_message() -> None:
    """The system refuses address space for the rank's part of the data."""
    ranks.run(ranks.program("tool_without_memory"), 1)
