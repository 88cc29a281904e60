"""Shared by the tests of synthesis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gc3.synth import Solvers


@pytest.fixture(scope="module")
def solvers(lasting_children: list[Callable[[], int | None]]) -> Iterator[Solvers]:
    """The solvers, in a child process that the tests of a file share."""

    def process() -> int | None:
        child = getattr(started, "_process")  # noqa: B009
        return None if child is None else child.pid

    with Solvers() as started:
        started.warm_up()  # before the check of child processes
        lasting_children.append(process)
        yield started
        lasting_children.remove(process)
