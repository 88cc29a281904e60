"""Many calls of all kinds: the use of memory, descriptors and threads does not grow."""

from __future__ import annotations

import os

import pytest

import ranks

pytestmark = pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what was freed")

CODE = """
import gc
from functools import partial

def held():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    (job,) = (f for f in os.listdir("/proc/self/fd") if "memfd:gc3" in os.path.realpath(f"/proc/self/fd/{f}"))
    shared = os.stat(f"/proc/self/fd/{job}").st_blocks * 512
    return pages * 4096, shared, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

comm = gc3.init()
counts = (0, 1, 7, 300, 5000)
arrays = {c: np.ones(n * c, np.float32) for c in counts}
outs = {c: np.empty(c, np.float32) for c in counts}
total, kinds = CALLS, 11

def call(i):
    c = counts[i // kinds % len(counts)]
    x, kind = arrays[c], i % kinds
    if kind == 0: assert (comm.all_reduce(x) == n).all()
    elif kind == 1: comm.all_gather(x)
    elif kind == 2: comm.reduce_scatter(x)
    elif kind == 3: comm.all_to_all(x)
    elif kind == 4: comm.broadcast(outs[c], i % n)
    elif kind == 5: comm.reduce(x, root=i % n)
    elif kind == 6: comm.gather(x, root=i % n)
    elif kind == 7: comm.scatter(x, root=i % n, out=outs[c])
    elif kind == 8: comm.all_to_next(x)
    elif kind == 9: assert (comm.all_reduce_async(x, op="max").wait() == 1).all()
    elif i % 5 == 0:
        with comm.split(0, -r) as part: part.barrier()
    else: comm.barrier()

before = None
for i in range(total):
    if i == total // 4:
        before = held()
    call(i)
    MUTATION
comm.barrier()
after = held()
comm.barrier()
assert after[0] < before[0] + (4 << 20), ("memory", before, after)
assert after[1] <= before[1] + (1 << 16), ("shared memory", before, after)
assert after[2:] == before[2:], ("descriptors and threads", before, after)
"""


def test_ten_thousand_mixed_calls_leave_nothing() -> None:
    ranks.run(CODE.replace("CALLS", "10_000").replace("MUTATION", "pass"), 3)


@pytest.mark.parametrize(
    ("leak", "said"),
    [
        ("kept = globals().setdefault('kept', []); kept.append(np.ones(1000))", "memory"),
        ("i % 500 or os.dup(1)", "descriptors"),
        ("i % 100 or globals().setdefault('parts', []).append(comm.split(0))", "shared memory"),
    ],
)
def test_what_grows_is_seen(leak: str, said: str) -> None:
    results = ranks.start(CODE.replace("CALLS", "2_000").replace("MUTATION", leak), 3).finish()
    assert all(status == 1 and f"AssertionError: ('{said}" in text for status, text in results), results
