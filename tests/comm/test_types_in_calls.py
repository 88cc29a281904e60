"""The tables of types and operations in every call."""

import numpy as np
import pytest

import gc3
import ranks
from gc3 import algorithms, datatypes


def test_every_type_and_operation_in_every_call() -> None:
    """Of two ranks, against NumPy: what a type does in a call does not depend on how many there are."""
    for text in ranks.run(ranks.program("types_in_every_call"), 2):
        types, moved, pairs, scaled = map(int, text.split())
        assert (types, moved) == (len(datatypes.DTYPES), 11)
        assert pairs > 5 * types
        assert 0 < scaled < types


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (("M8[s]", "M8[ns]"), ("datetime64[s]", "datetime64[ns]")),
        (("i4,f4", "f4,i4"), ("(f0 int32 at 0, f1 float32 at 4)", "(f0 float32 at 0, f1 int32 at 4)")),
        (("V8", "(8,)u1"), ("|V8", "rank 1: ")),
    ],
)
def test_a_type_that_gc3_does_not_have_is_not_another_one(types: tuple[str, str], names: tuple[str, str]) -> None:
    program = gc3.compile(algorithms.load("ring_allgather"), R=2)

    def body(comm: gc3.Communicator) -> list[str]:
        x = np.zeros(4, types[comm.rank])
        said: list[str] = []

        def together(group: gc3.Communicator) -> None:
            with group.coalesce() as calls:
                calls.all_gather(np.zeros(1))
                calls.all_gather(x)

        for i, call in enumerate(
            (
                lambda group: group.all_gather(x),
                lambda group: group.broadcast(x),
                lambda group: group.gather_async(x).wait(),
                together,
                lambda group: group.all_gather_v(x, [len(x)] * 2),
                lambda group: group.run(program, x),
            )
        ):
            with pytest.raises(gc3.CommError) as found:
                call(comm.group([0, 1], name=str(i)))
            said.append(str(found.value))
        return said

    for said in ranks.call(body, 2):
        for text in said:
            assert text.startswith("GC3-R010 the ranks make different calls"), text
            assert all(name in text for name in names), text
