"""What the elements of calls are: reduced with factors, or of any fixed size where they are only moved."""

import pytest

import ranks


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("program", ["reduce_with_factors", "move_records"])
def test_factors_and_records(program: str, n: int) -> None:
    ranks.run(ranks.program(program), n)
