"""The library in front of NCCL: its functions, and the ways in which programs come to it.

Above a real NCCL if there is one, from a pip package, or those that TEST_NCCL_LIBRARIES names with colons between them.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nccl_world
from gc3 import UserError, nccl
from gc3.cli.main import main
from gc3.cuda import nccl_libraries
from nccl_world import INVALID_USAGE, Rank, World

pytestmark = pytest.mark.python_only
ROOT = Path(__file__).parents[2]
VERSIONS: dict[str, list[str]] = json.loads((ROOT / "tests" / "data" / "nccl_symbols.json").read_text())
REAL = [Path(p) for p in os.environ.get("TEST_NCCL_LIBRARIES", "").split(":") if p] or [
    Path(p) for p in nccl_libraries() if "/" in p and Path(p).exists() and "fake" not in p
]
real = pytest.mark.parametrize("below", REAL or [pytest.param(None, marks=pytest.mark.skip("there is no NCCL here"))])
# What needs no device, called as a program that opens NCCL by name does.
PROGRAM = """
import ctypes
nccl = ctypes.CDLL("libnccl.so.2")
class Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)
version, name, comm = ctypes.c_int(), Id(), ctypes.c_void_p()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
assert nccl.ncclGetUniqueId(ctypes.byref(name)) == 0 and bytes(name)[:8] != bytes(8)
nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p
assert nccl.ncclGroupStart() == 0 and nccl.ncclGroupEnd() == 0
assert nccl.ncclGroupEnd() != 0
assert nccl.ncclAllReduce(None, None, ctypes.c_size_t(4), 7, 0, None, None) == 4
assert nccl.pncclAllReduce(None, None, ctypes.c_size_t(4), 7, 0, None, None) == 4
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, name, 0) != 0  # there is no device
print(version.value, hasattr(nccl, "gc3CollRun"), nccl.ncclGetErrorString(5).decode())
"""
DIRECT = PROGRAM.replace("libnccl.so.2", "{path}")


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_functions_of_every_version_are_there(version: str) -> None:
    own = set(nccl.exported(nccl.library()))
    assert own >= {prefix + name for name in VERSIONS[version] for prefix in ("", "p")}


def test_the_list_is_what_the_tool_makes() -> None:
    found = re.findall(
        r"^GC3_NCCL_(TAKEN|FORWARDED)\((\w+)\)", (ROOT / "cpp/gc3/nccl/nccl_api.def").read_text(), re.MULTILINE
    )
    names = [name for _, name in found]
    assert names == sorted({name for all_names in VERSIONS.values() for name in all_names})
    defined = set(re.findall(r"\b(nccl\w+)\(", (ROOT / "cpp/gc3/nccl/exports.cc").read_text()))
    assert {name for how, name in found if how == "TAKEN"} == defined


@real
def test_the_list_has_all_functions_of_this_nccl(below: Path) -> None:
    assert nccl.unknown(below) == []


@real
def test_a_preloaded_library_forwards(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", str(below))
    version, in_front, text = run(PROGRAM, nccl.environment()).split(" ", 2)
    direct = run(DIRECT.format(path=below), {}).split(" ", 2)
    assert [version, text] == [direct[0], direct[2]]
    assert (in_front, direct[1]) == ("True", "False")


@real
def test_a_folder_with_the_library_forwards(below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", str(below))
    for _ in range(2):  # the folder may exist
        environment = nccl.environment(folder=tmp_path)
    assert run(PROGRAM, environment).split()[1] == "True"


@real
@pytest.mark.parametrize("code", ["import ctypes; ctypes.CDLL('libnccl.so.2').ncclGetVersion(None)", "pass"])
def test_a_process_ends_whether_or_not_it_has_called(code: str, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", str(below))
    assert run(f"{code}; print('ended')", nccl.environment()) == "ended"


@real
def test_a_program_linked_with_a_path_of_its_own(below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "p.c"
    source.write_text(
        "#include <stdio.h>\nint ncclGetVersion(int*);\n"
        'int main(void) { int v = 0; ncclGetVersion(&v); printf("%d\\n", v); return 0; }\n'
    )
    binary, folder = tmp_path / "p", below.parent
    link = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{folder}", f"-L{folder}", "-l:libnccl.so.2"]
    subprocess.run(["gcc", str(source), "-o", str(binary), *link], check=True)  # noqa: S607
    monkeypatch.setenv("GC3_NCCL", str(below))
    environment = {**os.environ, **nccl.environment(), "LD_DEBUG": "bindings"}
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == run(PROGRAM, nccl.environment()).split()[0]
    assert f"binding file {binary} [0] to {nccl.library()} [0]: normal symbol `ncclGetVersion'" in done.stderr


def test_without_nccl_calls_fail_with_a_reason(tmp_path: Path) -> None:
    code = (
        "import ctypes; nccl = ctypes.CDLL('libnccl.so.2'); nccl.ncclGetLastError.restype = ctypes.c_char_p; "
        "print(nccl.ncclGetVersion(None), nccl.ncclGroupStart(), nccl.ncclGetLastError(None).decode())"
    )
    said = run(code, {"LD_PRELOAD": str(nccl.library()), "GC3_NCCL": str(tmp_path / "none.so")})
    assert said.startswith("2 2 ")
    assert "name NCCL's library in GC3_NCCL" in said


def test_the_library_is_not_its_own_fallback() -> None:
    code = "import ctypes; print(ctypes.CDLL('libnccl.so.2').ncclGroupStart())"
    assert run(code, {"LD_PRELOAD": str(nccl.library()), "GC3_NCCL": str(nccl.library())}) == "2"


@nccl_world.needs_library
def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", str(nccl_world.FAKE_NCCL))
    said = CliRunner().invoke(main, ["nccl", "env"]).output
    assert f'export LD_PRELOAD={nccl.library()}"${{LD_PRELOAD:+:$LD_PRELOAD}}"' in said
    assert f"export GC3_NCCL={nccl_world.FAKE_NCCL}" in said
    done = subprocess.run(
        [sys.executable, "-m", "gc3", "nccl", "run", "--log", str(tmp_path), "--", sys.executable, "-c",
         "import ctypes; n = ctypes.CDLL('libnccl.so.2'); print(n.ncclGetVersion(ctypes.byref(ctypes.c_int())))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0"


def test_mistakes_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_NCCL", str(tmp_path / "none.so"))
    for arguments, code, text in (
        (["nccl", "env"], 1, "NCCL's own library, tried"),
        (["nccl", "run", "--", "no-such-program"], 2, "there is no program 'no-such-program'"),
        (["nccl", "run"], 2, "Missing argument"),
        (["nccl", "explain", str(tmp_path)], 1, "no log of a process"),
    ):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, text in result.output) == (code, True), result.output
    (tmp_path / "gc3-nccl-1.json").write_text('{"format": "gc3-nccl-log-2"}')
    assert "not a log" in CliRunner().invoke(main, ["nccl", "explain", str(tmp_path)]).output
    empty = json.dumps(
        {"format": "gc3-nccl-log-2", "host": "a", "process": 1, "nccl": "x", "served": [], "left": [], "reasons": []}
    )
    (tmp_path / "gc3-nccl-1.json").write_text(empty)
    assert "no calls\n" in CliRunner().invoke(main, ["nccl", "explain", str(tmp_path)]).output


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF\x02\x01", b"text" * 100, nccl.library().read_bytes()[:5000]):
        (tmp_path / "x.so").write_bytes(content)
        with pytest.raises(UserError, match="not a library"):
            nccl.exported(tmp_path / "x.so")


def test_loading_needs_the_library_in_the_process(tmp_path: Path) -> None:
    assert not hasattr(ctypes.CDLL(None), "gc3NcclLoad")
    with pytest.raises(UserError, match="start it with `gc3 nccl run`"):
        nccl.load(tmp_path / "t.json")


@nccl_world.needs_library
def test_a_table_is_loaded_into_a_running_process(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"format": "gc3-selection-1", "rows": [{"collective": "allreduce", "ranks": [2, 2], '
        '"program": {"algorithm": "ring_allreduce"}}]}'
    )
    code = (
        "from gc3 import nccl\n"
        f"nccl.load({str(tmp_path / 't.json')!r}, ranks=[2])\n"
        "try:\n    nccl.load('/nowhere')\nexcept Exception as problem:\n    print(repr(str(problem)))\n"
    )
    said = run(code, {"LD_PRELOAD": str(nccl.library()), "GC3_NCCL": str(nccl_world.FAKE_NCCL)})
    assert "cannot read the file" in said


# The parameters of each function of exports.cc, a letter each. Those in capitals are pointers that may not be null.
PARAMETERS = {
    "ncclAllReduce": "BBntiHs", "ncclBroadcast": "BBntiHs", "ncclBcast": "BntiHs", "ncclReduce": "BBntiiHs",
    "ncclAllGather": "BBntHs", "ncclReduceScatter": "BBntiHs", "ncclAlltoAll": "BBntHs", "ncclGather": "BBntiHs",
    "ncclScatter": "BBntiHs", "ncclSend": "BntiHs", "ncclRecv": "BntiHs", "ncclGroupStart": "", "ncclGroupEnd": "",
    "ncclGroupSimulateEnd": "b", "ncclRedOpDestroy": "iH", "ncclCommFinalize": "H", "ncclCommDestroy": "h",
    "ncclCommAbort": "h", "ncclCommRevoke": "Hi", "ncclCommShrink": "HBiBsi", "ncclCommGetAsyncError": "HB",
    "ncclGetLastError": "h", "gc3ProgramLoad": "FB", "gc3ProgramFree": "p", "gc3CollRun": "PBBntiHs",
    "gc3CommLoad": "HF", "gc3NcclLoad": "F",
}  # fmt: skip


def nulls(file: str) -> None:
    world = World(1)
    program, room = ctypes.c_void_p(), (ctypes.c_int64 * 8)()
    world.check("gc3ProgramLoad", file.encode(), ctypes.byref(program))
    values = {"b": room, "n": ctypes.c_size_t(4), "t": 2, "i": 0, "h": world.ranks[0].comm, "f": file.encode(),
              "p": program, "s": world.ranks[0].streams[0]}  # fmt: skip
    for name, parameters in PARAMETERS.items():
        for position in (n for n, letter in enumerate(parameters) if letter in "bBhHpPF"):
            given: list[Any] = [values[letter.lower()] for letter in parameters]
            given[position] = None
            answer = world.nccl[name](*given)
            if name != "ncclGetLastError":
                assert (answer != 0) == parameters[position].isupper() or name == "ncclGroupSimulateEnd", (
                    name,
                    position,
                )
            if parameters[position] in "FP" or (name, position) in {("gc3ProgramLoad", 1), ("gc3CommLoad", 0)}:
                assert f"{name}: the " in world.last_error()
                assert " is null" in world.last_error()
    world.close()


@nccl_world.needs_library
@pytest.mark.parametrize("given", [False, True])
def test_null_pointers_are_refused(given: bool, tmp_path: Path) -> None:
    exports = (ROOT / "cpp/gc3/nccl/exports.cc").read_text()
    assert set(re.findall(r"^(?:GC3_EXPORT|extern .*char\*) (\w+)\(", exports, re.MULTILINE)) == set(PARAMETERS)
    programs = nccl_world.write_programs(tmp_path / "programs", [2], {"allreduce": nccl_world.SERVED["allreduce"]})
    nccl_world.run(nulls, str(programs / "ring_allreduce-2-0.gc3"), programs=programs if given else None)


def null_buffers() -> None:
    world = World(2)

    def call(rank: Rank) -> None:
        end = (ctypes.c_size_t(4), 2, 0, rank.comm, rank.streams[0])
        with world.driver.on(rank.device):
            assert world.nccl.ncclAllReduce(None, None, *end) == INVALID_USAGE
        assert "there is no input" in world.last_error()

    world.each(call)


@nccl_world.needs_library
def test_null_buffers_of_a_call_that_a_program_serves(tmp_path: Path) -> None:
    programs = nccl_world.write_programs(tmp_path / "programs", [2], {"allreduce": nccl_world.SERVED["allreduce"]})
    nccl_world.run(null_buffers, programs=programs)
