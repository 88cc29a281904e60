"""NCCL with several ranks on one device, for a comparison on the same device. This needs NCCL 2.30 or newer.

All ranks are communicators of this process, made by ncclCommInitAll, and each call is one group. If NCCL cannot do
this, the result has the reason instead of a time. This is a separate program, because a wait within NCCL may never end.

    python nccl_peer.py RANKS BYTES...    prints the result of `compare` as JSON

The sums are checked.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from gc3.cuda import nccl_libraries

_FIRST = 23000  # 2.30.0, the first version that allows several ranks on a device
_FLOAT32, _SUM = 7, 0  # ncclFloat32, ncclSum
_ONE = 0x3F800000  # 1.0 as float32
_ITERATIONS = 20


class CallError(Exception):
    """A function of NCCL or CUDA has failed."""


def compare(ranks: int, sizes: list[int]) -> dict[str, Any]:
    """Returns the microseconds of an in-place AllReduce of float32 by size, or why it does not work."""
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    os.environ.setdefault("NCCL_MAX_CTAS", "4")  # so that the kernels of all ranks fit on the device at once
    tried: list[str] = []
    for name in nccl_libraries():
        try:
            nccl = ctypes.CDLL(name)
        except OSError as problem:
            tried.append(str(problem))
            continue
        version = ctypes.c_int()
        nccl.ncclGetVersion(ctypes.byref(version))
        if version.value < _FIRST:
            tried.append(f"{name} is {version.value}; several ranks on a device need {_FIRST}")
            continue
        try:
            return {"version": version.value, "tried": tried, "rows": _times(nccl, ranks, sizes)}
        except CallError as problem:
            tried.append(f"{name}, {version.value}: {problem}")
    return {"tried": tried, "rows": []}


class _Cuda:
    """The driver, with device 0 current on this thread."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxPushCurrent_v2", context)

    def __call__(self, symbol: str, *arguments: Any) -> None:
        status = getattr(self._library, symbol)(*arguments)
        if status != 0:
            raise CallError(f"{symbol} returns {status}")


def _times(nccl: ctypes.CDLL, ranks: int, sizes: list[int]) -> list[dict[str, Any]]:
    cuda = _Cuda()
    nccl.ncclGetErrorString.restype = ctypes.c_char_p

    def call(symbol: str, *arguments: Any) -> None:
        status = getattr(nccl, symbol)(*arguments)
        if status != 0:
            raise CallError(f"{symbol}: {nccl.ncclGetErrorString(status).decode()}")

    communicators = (ctypes.c_void_p * ranks)()
    call("ncclCommInitAll", communicators, ranks, (ctypes.c_int * ranks)(*([0] * ranks)))
    streams, buffers = [ctypes.c_void_p() for _ in range(ranks)], [ctypes.c_uint64() for _ in range(ranks)]
    for stream, buffer in zip(streams, buffers, strict=True):
        cuda("cuStreamCreate", ctypes.byref(stream), 1)
        cuda("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(max(sizes)))
        cuda("cuMemsetD8_v2", buffer, 0, ctypes.c_size_t(max(sizes)))
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        cuda("cuEventCreate", ctypes.byref(event), 0)

    def all_reduce(size: int) -> None:
        call("ncclGroupStart")
        for communicator, stream, buffer in zip(communicators, streams, buffers, strict=True):
            memory = ctypes.c_void_p(buffer.value)
            arguments = (memory, memory, ctypes.c_size_t(size // 4), _FLOAT32, _SUM)
            call("ncclAllReduce", *arguments, ctypes.c_void_p(communicator), stream)
        call("ncclGroupEnd")

    def fill(size: int) -> None:
        for buffer in buffers[1::2]:
            cuda("cuMemsetD32_v2", buffer, _ONE, ctypes.c_size_t(size // 4))

    def check(size: int) -> None:
        """Half of the ranks have given ones, the others zeros."""
        found = (ctypes.c_float * (size // 4))()
        for buffer in buffers:
            cuda("cuMemcpyDtoH_v2", found, buffer, ctypes.c_size_t(size))
            if {found[0], found[size // 8], found[size // 4 - 1]} != {float(ranks // 2)}:
                raise CallError(f"a wrong sum of {size} bytes: {found[0]} instead of {ranks // 2}")

    rows: list[dict[str, Any]] = []
    for size in sizes:
        for buffer in buffers:
            cuda("cuMemsetD8_v2", buffer, 0, ctypes.c_size_t(size))
        fill(size)
        cuda("cuCtxSynchronize")
        all_reduce(size)
        for stream in streams:
            cuda("cuStreamSynchronize", stream)
        check(size)
        cuda("cuEventRecord", events[0], streams[0])
        for _ in range(_ITERATIONS):
            all_reduce(size)
        cuda("cuEventRecord", events[1], streams[0])
        for stream in streams:
            cuda("cuStreamSynchronize", stream)
        ms = ctypes.c_float()
        cuda("cuEventElapsedTime", ctypes.byref(ms), *events)
        rows.append({"bytes_per_rank": size, "us": 1000 * ms.value / _ITERATIONS})
    for communicator in communicators:
        call("ncclCommDestroy", ctypes.c_void_p(communicator))
    return rows


if __name__ == "__main__":
    print(json.dumps(compare(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])))
