"""Every algorithm of the library as a one-sided program: proven, in and out of place, also in instances."""

from __future__ import annotations

import itertools

import pytest

import gc3
from gc3 import algorithms, chunk, collectives


def _sizes(name: str) -> list[dict[str, int]]:
    given = {p.name for p in algorithms.load(name).parameters}
    if "R" in given:
        return [{"R": ranks} for ranks in (2, 3, 4, 8)]
    if "N" in given and name != "ndv2_allreduce":
        return [{"N": nodes, "G": gpus} for nodes, gpus in ((1, 2), (2, 2), (3, 2), (2, 4))]
    return [{}]


@pytest.mark.parametrize("name", algorithms.catalogue())
def test_library_programs_are_proven_on_direct_memory(name: str) -> None:
    for size, instances, in_place in itertools.product(_sizes(name), (1, 2), (False, True)):
        algorithm = algorithms.load(name)
        program = gc3.compile(algorithm, memory="direct", instances=instances, in_place=in_place, **size)
        program.verify()
        assert program.ranks == gc3.compile(algorithm, in_place=in_place, **size).ranks


def test_a_chain_of_additions_becomes_one_pass_over_all_sources() -> None:
    ring = gc3.compile(algorithms.load("ring_allreduce"), R=4, memory="direct")
    assert "move 1:out[1] + 2:out[1] + 3:out[1] + out[1] -> out[1]" in ring.text
    # A reduction and three copies on each rank, and no scratch.
    assert ring.text.count("move ") == 4 * 4
    assert "sc[" not in ring.text


def test_what_a_circle_of_exchanges_would_overwrite_is_put_aside() -> None:
    swapped = gc3.compile(algorithms.load("inplace_alltoall"), R=2, memory="direct", in_place=True)
    assert "sc[" in swapped.text
    swapped.verify()


@pytest.mark.parametrize(
    ("name", "size", "moves"),
    [
        ("nvls_allreduce", {"R": 3}, ["g0:out[0] -> g0:out[0]", "g0:out[2] -> g0:out[2]"]),
        ("nvls_reducescatter", {"G": 3}, ["g0:in[1] -> in[1]"]),
        # The source is stored to as well, because the switch reaches all ranks of its group.
        ("nvls_allgather", {"G": 3}, ["move out[0] -> g0:out[0]"]),
        ("nvls_allgather", {"G": 3, "N": 2}, ["move out[3] -> g0:out[3]", "move out[3] -> g1:out[3]"]),
    ],
)
def test_switch_groups_are_one_operand(name: str, size: dict[str, int], moves: list[str]) -> None:
    program = gc3.compile(algorithms.load(name), memory="direct", in_place=True, **size)
    for move in moves:
        assert move in program.text
    program.verify()


@gc3.algorithm("allgather", ranks=lambda R: R, in_place=True)
def groups_within_groups(R: int) -> None:
    """Rank 0 multicasts to two ranks, all others to all."""
    chunk(0, "out", 0).multicast([1, 2], "out", 0)
    chunk(0, "out", 0).copy(3, "out", 0, ch=1)
    for rank in range(1, R):
        chunk(rank, "out", rank).multicast([peer for peer in range(R) if peer != rank], "out", rank)


def test_the_largest_group_of_the_rank_itself_is_taken() -> None:
    program = gc3.compile(groups_within_groups, R=4, memory="direct")
    assert program.text.count("group ") == 1
    assert [f"move out[{rank}] -> g0:out[{rank}]" in program.text for rank in range(4)] == [True] * 4
    program.verify()


@gc3.algorithm("allgather", ranks=lambda R: R, in_place=True)
def group_of_others(R: int) -> None:
    """Rank 0 multicasts to two ranks; all others copy."""
    chunk(0, "out", 0).multicast([1, 2], "out", 0)
    chunk(0, "out", 0).copy(3, "out", 0, ch=1)
    for rank in range(1, R):
        for peer in range(R):
            if peer != rank:
                chunk(rank, "out", rank).copy(peer, "out", rank, ch=rank)


def test_a_rank_outside_a_group_does_not_use_it() -> None:
    text = gc3.compile(group_of_others, R=4, memory="direct").text
    assert "move out[0] -> g0:out[0] 3:out[0]" in text
    assert "g0:out[3]" not in text


TWICE = {(0, 0): [(3, 0)], (0, 1): [(0, 1)], (2, 0): [(3, 0)], (3, 0): [(0, 0), (0, 1)]}
AGAIN = {(2, 0): [(2, 0)], (3, 0): [(0, 0), (2, 0)]}
_twice = collectives.custom("twice", inputs=[2] * 4, outputs=[2] * 4, expect=lambda r, i: TWICE.get((r, i)))
_again = collectives.custom("again", inputs=[1] * 4, outputs=[1] * 4, expect=lambda r, i: AGAIN.get((r, i)))


@gc3.algorithm(_twice)
def waits_twice_at_one_place() -> None:
    """A threadblock waits for two signals of one other: that something is done, and that something is visible."""
    chunk(0, "in", 1).copy(3, "out", 0)
    chunk(3, "out", 0).copy(0, "out", 1, ch=1)
    chunk(3, "out", 0).reduce(chunk(0, "in", 0), ch=1)
    chunk(3, "in", 0).multicast([2, 0], "out", 0)


@gc3.algorithm(_again)
def stores_where_the_owner_has_stored() -> None:
    """The next call's first store to a place comes from another rank than this call's last one."""
    chunk(2, "in", 0).copy(1, "sc", 0)
    chunk(1, "sc", 0).copy(2, "out", 0)
    chunk(1, "sc", 0).multicast([2, 0], "sc", 0, ch=0)
    chunk(1, "sc", 0).reduce(chunk(0, "in", 0), ch=0)
    chunk(0, "sc", 0).reduce(chunk(1, "in", 0))
    chunk(1, "sc", 0).copy(3, "out", 0)


@pytest.mark.parametrize("algorithm", [waits_twice_at_one_place, stores_where_the_owner_has_stored])
def test_who_stores_for_others_signals_enough(algorithm: gc3.Algorithm) -> None:
    gc3.compile(algorithm, memory="direct").verify()


def test_wrong_arguments() -> None:
    ring = algorithms.load("ring_allreduce")
    with pytest.raises(gc3.UserError, match="memory='both'; expected 'fifo' or 'direct'"):
        gc3.compile(ring, R=2, memory="both")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(gc3.UserError, match="protocol='LL' is one of messages"):
        gc3.compile(ring, R=2, memory="direct", protocol="LL")
