"""The model of times that guides the simulated search, on made-up times."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from gc3.tune.surrogate import Features, Row, Surrogate

pytestmark = pytest.mark.python_only

VALUES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def space(shapes: int) -> list[Row]:
    return [
        (shape, protocol, 0, instances, (parts, 1, 1))
        for shape, protocol, instances, parts in product(range(shapes), range(3), VALUES, VALUES)
    ]


def seconds(row: Row, size: float = 1.0) -> float:
    """Each shape has a best number of threadblocks, and a larger size needs more of them."""
    shape, protocol, _, instances, (parts, *_) = row
    off = math.log2(instances * parts) - (2 + shape + math.log2(size))
    uneven = math.log2(parts / instances) - shape
    return 1e-6 * size * (1 + 0.2 * shape + 0.3 * abs(protocol - 1)) * math.exp(0.1 * off * off + 0.02 * uneven**2)


def search(
    rows: list[Row], most: int, elsewhere: dict[int, float] | None = None, size: float = 1.0
) -> dict[int, float]:
    model = Surrogate(Features.of(rows), most + len(elsewhere or {}))
    for index, took in (elsewhere or {}).items():
        model.add_elsewhere(index, -1.0, took / min((elsewhere or {}).values()))
    todo = np.ones(len(rows), bool)
    tried: dict[int, float] = {}
    while len(tried) < most:
        index = model.most_promising(todo)
        todo[index] = False
        tried[index] = seconds(rows[index], size)
        model.add(index, tried[index])
    return tried


def test_few_times_lead_to_nearly_the_least_of_many() -> None:
    rows = space(6)
    found = min(search(rows, 60, {}).values())
    assert len(rows) == 1800
    assert found <= 1.03 * min(map(seconds, rows))


def test_times_at_another_size_say_where_to_begin() -> None:
    rows = space(6)
    small = search(rows, 60, {})
    least = min(seconds(row, 2.0) for row in rows)
    alone, led = search(rows, 8, {}, size=2.0), search(rows, 8, small, size=2.0)
    assert min(led.values()) <= 1.05 * least < min(alone.values())


def test_a_time_that_is_far_from_the_best_says_no_more_than_that() -> None:
    """Else one program that takes a thousand times as long would hide how the others differ."""
    rows = space(2)
    orders: list[list[int]] = []
    for worst in (1e-4, 1.0):
        model, todo = Surrogate(Features.of(rows), 3), np.ones(len(rows), bool)
        for index, took in ((0, 1e-6), (40, 1.2e-6), (299, worst)):
            model.add(index, took)
        orders.append([])
        while todo.any():
            orders[-1].append(model.most_promising(todo))
            todo[orders[-1][-1]] = False
    assert orders[0] == orders[1]


def test_programs_that_need_as_much_as_one_that_does_not_fit_are_known() -> None:
    rows = space(2)
    large = Features.of(rows).at_least(rows.index((1, 2, 0, 12, (8, 1, 1))))
    found = {rows[index] for index in np.flatnonzero(large)}
    assert found == {row for row in rows if row[:2] == (1, 2) and row[3] >= 12 and row[4][0] >= 8}


def test_the_model_stays_finite_with_as_many_times_as_a_search_takes() -> None:
    """With a distance that is no Euclidean one the covariances were none, and estimates overflowed."""
    values = (1, 2, 4, 8)
    rows: list[Row] = [(0, p, c, i, (a, b)) for p in (0, 1) for c in (0, 1, 2) for i in values for a in values
                       for b in values]  # fmt: skip
    features = Features.of(rows)
    model = Surrogate(features, len(rows))
    for index in range(len(rows)):
        model.add(index, 1.0 + index % 7)
    assert np.isfinite(model._estimates()).all()
    least = np.linalg.eigvalsh(np.array([features.covariance(index) for index in range(len(rows))]))[0]
    assert least > -1e-6
