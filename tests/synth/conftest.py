"""Shared by the tests of synthesis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gc3.synth import Solvers


@pytest.fixture(scope="module")
def solvers() -> Iterator[Solvers]:
    """The solvers, in a child process that the tests of a file share."""
    with Solvers() as started:
        started.warm_up()  # before the check of child processes
        yield started
