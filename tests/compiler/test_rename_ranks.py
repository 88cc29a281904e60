"""Programs for ranks in another order: proven for the numbers that the ranks have, and run against NumPy."""

from __future__ import annotations

import pytest

import gc3
from gc3 import _core
from gc3.algorithms import catalogue, load
from gc3.comm.spec import Spec
from gc3.runtime.checking import Case

SYMMETRIC = sorted(name for name, a in catalogue().items() if _core.is_symmetric(a.collective_name))


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("in_place", [False, pytest.param(True, marks=pytest.mark.python_only)])
def test_every_algorithm_with_ranks_in_another_order(name: str, in_place: bool) -> None:
    algorithm = load(name)
    size = {"R": 4} if any(p.name == "R" for p in algorithm.parameters) else {"N": 2, "G": 3}
    rooted = {"root": 1} if any(p.name == "root" for p in algorithm.parameters) else {}
    ranks = size.get("R", 6)
    order = list(range(1, ranks, 2)) + list(range(0, ranks, 2))[::-1]
    program = gc3.compile(algorithm, order=order, in_place=in_place, **size, **rooted)
    assert program.verify().ok
    straight = gc3.compile(algorithm, in_place=in_place, **size, **rooted).collective
    assert program.collective.root == (order[straight.root] if rooted else straight.root)
    case = Case(program.collective, 1009, "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    program.run(inputs, outputs=outputs, count=case.count, slot_bytes=1024)
    assert case.compare(inputs, outputs).ok


def test_a_message_across_hosts_stays_one() -> None:
    """Renamed blocks of an all-to-all lie apart; the number of messages is that of ranks in blocks."""

    def sent(order: tuple[int, ...]) -> int:
        text = gc3.compile(load("two_step_alltoall"), N=2, G=2, order=order).core.as_dict()
        steps = [step for rank in text["ranks"] for block in rank["threadblocks"] for step in block["steps"]]
        return sum(step["opcode"] == "send" or step["opcode"].endswith("_send") for step in steps)

    assert sent((0, 2, 1, 3)) == sent(())


def test_a_shorter_order_is_that_of_each_node() -> None:
    text = [gc3.compile(load("ring_allreduce"), R=6, order=order).core for order in ((2, 0, 1), (2, 0, 1, 5, 3, 4))]
    assert text[0] == text[1]
    with pytest.raises(gc3.UserError, match="each rank from 0 to 5 once"):
        gc3.compile(load("ring_allreduce"), R=6, order=(2, 0, 1, 3))


def test_ranks_that_cannot_be_renamed() -> None:
    with pytest.raises(gc3.UserError, match=r"GC3-L017.*alltonext cannot be renamed"):
        gc3.compile(load("alltonext"), N=2, G=2, order=(0, 2, 1, 3))
    with pytest.raises(gc3.UserError, match="each rank from 0 to 3 once"):
        gc3.compile(load("ring_allreduce"), R=4, order=(0, 1, 2, 2))
    with pytest.raises(gc3.UserError, match="a rank of order"):
        gc3.compile(load("ring_allreduce"), R=2, order=(0, -1))


def test_a_row_has_its_root_and_its_collective_whatever_the_order() -> None:
    order = (0, 2, 1, 3)
    chain = Spec("chain_broadcast", (("R", "ranks"), ("root", "root")))
    for root in range(4):
        assert chain.compile(4, root=root, nodes=2, order=order).collective.root == root
    assert Spec("alltonext", (("N", 2), ("G", 2))).compile(4, nodes=2, order=order).collective.name == "alltonext"
