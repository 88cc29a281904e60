"""Arrays on a device, for programs of ranks too: pytest takes longer to import than most of these run."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

LIBRARY = Path(__file__).parent.parent / "build" / "release" / "libgc3_fake_cuda.so"
ENVIRONMENT = {"GC3_CUDA_DRIVER": str(LIBRARY), "GC3_NVRTC": str(LIBRARY)}


class Driver:
    """The functions of the driver that GC3_CUDA_DRIVER names, called with device 0 as the current one."""

    def __init__(self) -> None:
        """Loads it."""
        self._library = ctypes.CDLL(os.environ.get("GC3_CUDA_DRIVER") or "libcuda.so.1")
        assert self._library.cuInit(0) == 0

    def __call__(self, symbol: str, *arguments: Any) -> None:
        """Calls a function, which must succeed."""
        context = ctypes.c_void_p()
        assert self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self._library.cuCtxPushCurrent_v2(context) == 0
        assert getattr(self._library, symbol)(*arguments) == 0, symbol
        assert self._library.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


class Memory:
    """Memory of a device, real or not."""

    def __init__(self, content: np.ndarray) -> None:
        """Allocates it on device 0 and fills it."""
        self._driver = Driver()
        self.like = content
        address = ctypes.c_uint64()
        self._driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(content.nbytes, 1)))
        self.address = address.value
        source = ctypes.c_void_p(np.ascontiguousarray(content).ctypes.data)
        self._copy("cuMemcpyHtoDAsync_v2", address, source)

    @property
    def content(self) -> np.ndarray:
        """Its current content."""
        found = np.empty(self.like.shape, self.like.dtype)
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(found.ctypes.data), ctypes.c_uint64(self.address))
        return found

    def fill(self, value: float) -> None:
        """Sets all of its elements."""
        source = np.full_like(np.ascontiguousarray(self.like), value)
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.address), ctypes.c_void_p(source.ctypes.data))

    def _copy(self, symbol: str, to: Any, source: Any) -> None:
        self._driver(symbol, to, source, ctypes.c_size_t(self.like.nbytes), None)
        self._driver("cuStreamSynchronize", None)


class InterfaceArray:
    """An array on a device that presents itself like Numba's."""

    def __init__(
        self, content: np.ndarray, *, strides: tuple[int, ...] | None = None, stream: int | None = None
    ) -> None:
        """Copies `content` to the device."""
        self.memory = Memory(content)
        self.strides = strides
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the protocol."""
        like = self.memory.like
        return {
            "data": (self.memory.address, False),
            "shape": like.shape,
            "strides": self.strides,
            "typestr": like.dtype.str,
            "version": 3,
            "stream": self.stream,
        }


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DlpackArray:
    """An array on a device that presents itself like PyTorch's, and makes new ones likewise."""

    def __init__(self, content: np.ndarray, kind: int, lanes: int = 1) -> None:
        """Copies `content` to the device; `kind` is DLPack's number of its type, an element of `lanes` numbers."""
        self.memory = Memory(content)
        self.kind, self.lanes = kind, lanes

    def new_empty(self, shape: tuple[int, ...]) -> DlpackArray:
        """The protocol of a tensor."""
        return DlpackArray(np.zeros(shape, self.memory.like.dtype), self.kind)

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA, device 0."""
        return 2, 0

    def __dlpack__(self, *, stream: int | None = None) -> object:
        """A capsule without synchronisation."""
        assert stream == -1
        content = self.memory.like
        shape = (ctypes.c_int64 * content.ndim)(*content.shape)
        self._kept = _Tensor(
            self.memory.address, 2, 0, content.ndim, self.kind, content.itemsize * 8 // self.lanes, self.lanes, shape,
            None, 0, None, None,
        )  # fmt: skip
        self._shape = shape
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._kept), b"dltensor", None)
