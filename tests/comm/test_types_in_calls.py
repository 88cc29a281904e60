"""The tables of types and operations in every call."""

import ranks
from gc3 import datatypes


def test_every_type_and_operation_in_every_call() -> None:
    """Of two ranks, against NumPy: what a type does in a call does not depend on how many there are."""
    for text in ranks.run(ranks.program("types_in_every_call"), 2):
        types, moved, pairs, scaled = map(int, text.split())
        assert (types, moved) == (len(datatypes.DTYPES), 11)
        assert pairs > 5 * types
        assert 0 < scaled < types
