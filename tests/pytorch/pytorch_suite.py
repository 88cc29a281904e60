"""Runs PyTorch's own tests of process groups on a backend: python pytorch_suite.py gc3|gloo RANKS [NAME ...].

The tests choose what they check by the name of the backend, and check most for Gloo. So gc3 takes the place of Gloo. A
NAME that ends in * stands for all that begin with it. Prints a line for each test: ok, skip or fail, and its name. With
GC3_TORCH_BUILD=0 the backend gc3 is the one in Python.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

tested, ranks, *chosen = sys.argv[1:]
folder = tempfile.mkdtemp()
os.makedirs(f"{folder}/barrier")
os.environ.update(BACKEND="gloo", WORLD_SIZE=ranks, OMP_NUM_THREADS="1", TEMP_DIR=folder)

import torch  # noqa: E402 - the tests read the variables when they are imported
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

import gc3.torch  # noqa: E402
from gc3.torch import backend  # noqa: E402

HAS_EVENTS = tested == "gloo" or os.environ.get("GC3_TORCH_BUILD") != "0"
if tested == "gc3":
    gc3.torch.register()
    backend.NAME = "gloo"  # in the titles of events
    dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(backend.create, True)
    dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    """The tests, with ranks that are forks of this process, which has imported PyTorch already."""

    def setUp(self) -> None:
        """Starts the ranks."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def call_dist_op(self, *args: object, expect_event: bool = True, **named: object) -> object:
        """Makes a call; events of the profiler are not expected of a backend in Python, which cannot make them."""
        return super().call_dist_op(*args, expect_event=expect_event and HAS_EVENTS, **named)


def is_chosen(name: str) -> bool:
    """Whether the command line names a test, or no test."""
    return not chosen or any(name == n or (n.endswith("*") and name.startswith(n[:-1])) for n in chosen)


for name in filter(is_chosen, unittest.TestLoader().getTestCaseNames(Suite)):
    result = unittest.TestResult()
    Suite(name).run(result)
    bad = [*result.failures, *result.errors]
    print("fail" if bad else "skip" if result.skipped else "ok", name, flush=True)
    for _, text in bad:
        print(text, file=sys.stderr, flush=True)
