"""What the library in front of NCCL adds to the host's time of a call that NCCL serves.

    python benchmarks/nccl_overhead.py        needs no GPU: the NCCL below is the tests' one, whose calls do nothing

Times ncclAllReduce directly and through the library, in turns, and takes the smallest times. The library is timed
without programs; with programs for other calls; and with 200 rows of which none serves the call.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gc3 import compile as compiled
from gc3 import nccl
from gc3.algorithms import catalogue

BUILD = Path(__file__).resolve().parent.parent / "build" / "release"
DRIVER, FAKE = BUILD / "libgc3_fake_cuda.so", BUILD / "libgc3_fake_nccl.so"
CALLS, TURNS = 200, 1500  # short turns, some of which nothing interrupts
ASKED_NS = 300
FLOAT32, SUM = 7, 0


class _Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


def done(answer: int) -> None:
    """Ends the program if a call has failed."""
    if answer != 0:
        raise SystemExit(f"a call of the driver or of NCCL has failed: {answer}")


def measure() -> dict[str, float]:
    """Returns the nanoseconds of a call to the NCCL below, and of one through the library."""
    driver, below = ctypes.CDLL(str(DRIVER)), ctypes.CDLL(str(FAKE))
    above = ctypes.CDLL(str(nccl.library()))
    context, stream, comm = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    done(driver.cuInit(0))
    done(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    done(driver.cuCtxPushCurrent_v2(context))
    done(driver.cuStreamCreate(ctypes.byref(stream), 1))
    name = _Id()
    done(above.ncclGetUniqueId(ctypes.byref(name)))
    done(above.ncclCommInitRank(ctypes.byref(comm), 1, name, 0))
    data = ctypes.c_void_p(ctypes.addressof(ctypes.create_string_buffer(4096)))
    arguments = (data, data, ctypes.c_size_t(8), FLOAT32, SUM, comm, stream)
    done(above.ncclAllReduce(*arguments))  # the first call, at which ranks compare their programs
    done(driver.cuStreamSynchronize(stream))
    below.fake_nccl_ignore_calls()
    best = {"nccl": 1e9, "through gc3": 1e9}
    for _ in range(TURNS):
        for who, function in (("nccl", below.ncclAllReduce), ("through gc3", above.ncclAllReduce)):
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                function(*arguments)
            best[who] = min(best[who], (time.perf_counter_ns() - begin) / CALLS)
    return best


def main() -> int:
    """Prints a line for each case; the exit status is 1 if one costs more than is asked."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "p.gc3"
        compiled(catalogue()["ring_allreduce"], R=1, in_place=True).save(program)
        for rows in (0, 1, 200):
            # No row serves a call of 32 bytes.
            lines = [f"allreduce 1 {1000 + i} - {i % 2} 0 0 0 p.gc3" for i in range(rows)]
            (Path(folder) / "index").write_text("\n".join(["gc3-programs-1", *lines]) + "\n")
            settings = {"GC3_CUDA_DRIVER": str(DRIVER), "GC3_NVRTC": str(DRIVER), "GC3_NCCL": str(FAKE)}
            if rows:
                settings["GC3_NCCL_PROGRAMS"] = folder
            command = [sys.executable, __file__, "measure"]
            times = json.loads(subprocess.check_output(command, env={**os.environ, **settings}))
            more = times["through gc3"] - times["nccl"]
            bad += more > ASKED_NS
            print(f"{rows:4} rows: {more:6.0f} ns more than {times['nccl']:.0f} ns ({ASKED_NS} asked)")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measure()))
    else:
        sys.exit(main())
