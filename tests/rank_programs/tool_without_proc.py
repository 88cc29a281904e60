"""Starts the ranks of a tool in a process that they cannot see in /proc."""

import ctypes
import subprocess
import sys

import numpy as np

import gc3
from gc3.comm.tool_ranks import Ranks

prctl = ctypes.CDLL(None).prctl
prctl(24, 19)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: refused without the capability
assert prctl(4, 0) == 0  # PR_SET_DUMPABLE
looks = "import os, sys; os.stat(f'/proc/{os.getppid()}/fd/1')"
assert subprocess.run([sys.executable, "-c", looks], stderr=subprocess.DEVNULL, check=False).returncode != 0
program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
with Ranks(program) as started:
    outputs = [np.empty(10, np.float32) for _ in range(2)]
    started.time([np.ones(10, np.float32)] * 2, outputs=outputs, warmup=0, iterations=1)
assert all((out == 2).all() for out in outputs)
