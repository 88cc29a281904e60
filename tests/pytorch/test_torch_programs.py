"""Programs that compute, as operators of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_ranks import IN_CPP, Tier, needs_torch, run


@needs_torch
@pytest.mark.parametrize("count", [1, 3])
def test_programs_are_operators_with_gradients(count: int, tmp_path: Path, tiers: Tier) -> None:
    ended = run("torch_programs", count, tmp_path, tiers(IN_CPP))
    assert len({line for _, text in ended for line in text.splitlines() if line.startswith("key: ")}) == 1
    assert any("it makes other values of the same operands" in text for _, text in ended)  # the first that fails
    for status, text in ended:
        assert status == 0, text
        names = ("column_linear", "row_linear", "add_norm", "moe", "moe with counts")
        assert [f"right: {name}\n" in text for name in names] == [True] * len(names)
        assert "calls the program other.0, which this process has not made" in text
        assert "'gradient' of the backward program is no gradient d_NAME of an input" in text
        assert "the input 'd_y' of copy has the name of the gradient of its output" in text
        assert 'call torch.distributed.init_process_group("gc3") first' in text
        for problem in ("not 1", "not 0", "x has shape (8,)", "expected (rows, in) and (in, out)", "sparse", "not int"):
            assert problem in text
        assert "expected x of" in text
        assert "moe with counts has no second gradient" in text
        assert "takes x, w: 2 tensors, not 1" in text
        assert "has no named tensors" in text
        assert "expert=None is no function" in text
        assert "weights=0; expected a whole number from 1" in text
        assert "has raised ValueError: (1, 8) is not the shape of the tokens, (3, 8)" in text
        assert f"tokens have shape ({2 * count + 1}, 8); expected rows that {count} ranks x 2 tiles divide" in text
        for given in ([1] * count + [0], [-1] + [3] * (count - 1), ["1"] * count, 2, [count]):
            assert f"counts={given} for tokens of shape ({count + 1}, 8); expected the rows for each of {count}" in text
