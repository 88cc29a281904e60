"""How the backend of PyTorch in C++ is built, kept and found. The compiler is a script, so this takes no minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gc3 import errors
from torch_ranks import needs_torch

# It ends when as many processes as WAITING have the lock of the cache open.
HELD = """#!/bin/sh
echo called >>"$LOG"
for i in $(seq 600); do
  [ "$(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c " $GC3_CACHE/.*lock$")" -ge "${WAITING:-0}" ] && break
  sleep 0.1
done
"""
COMPILER = f"""{HELD}while [ "$1" != -o ]; do shift; done
echo no library >"$2"
"""


def environment(tmp_path: Path, compiler: str = COMPILER) -> dict[str, str]:
    """With the script as the compiler, which notes its calls in a file, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "g++"
    script.write_text(compiler)
    script.chmod(0o700)
    path = f"{folder}:/usr/bin:/bin"
    return {**os.environ, "PATH": path, "LOG": str(tmp_path / "log"), "GC3_CACHE": str(tmp_path / "cache")}


def start(env: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gc3.torch", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(started: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = started.communicate(timeout=120)
    return started.returncode, out, err


def two_at_once(env: dict[str, str], code: str) -> list[subprocess.Popen[str]]:
    """Two processes, both of which are ready before one of them begins with the code."""
    command = [sys.executable, "-c", f"import sys, torch, gc3.torch.__main__; print(file=sys.stderr); input(); {code}"]
    pipe = subprocess.PIPE
    each = [subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for one in each:
        assert one.stderr is not None
        assert one.stderr.readline() == "\n"
    for one in each:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return each


@needs_torch
def test_of_two_that_build_at_once_one_does(tmp_path: Path) -> None:
    env = environment(tmp_path) | {"WAITING": "2"}
    for code, out, err in [finish(one) for one in two_at_once(env, "sys.exit(gc3.torch.__main__.main(['build']))")]:
        assert (code, out) == (1, "")
        assert err.startswith("GC3-M011 ")
        assert "what was built does not load" in err
    assert (tmp_path / "log").read_text() == "called\n"
    (library,) = (tmp_path / "cache").glob("*.so")
    assert library.stat().st_mode & 0o777 == 0o600


@needs_torch
def test_a_kept_library_that_does_not_load_is_told_and_built_anew(tmp_path: Path) -> None:
    env = environment(tmp_path)
    code = "import warnings; warnings.simplefilter('always'); import gc3.torch; print(gc3.torch.tier())"
    for _ in range(2):
        assert finish(start(env, "build"))[0] == 1
    assert (tmp_path / "log").read_text() == "called\n" * 2
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("in Python, because the one in C++ does not load")
    assert "the backend gc3 in Python is used: the one in C++ does not load" in done.stderr


@needs_torch
def test_a_build_that_fails_does_so_once_for_all_that_wait_and_for_a_process(tmp_path: Path) -> None:
    env = environment(tmp_path, f"{HELD}exit 1\n") | {"GC3_TORCH_BUILD": "1", "WAITING": "2"}
    each = two_at_once(env, "gc3.torch.tier(); print(gc3.torch.tier())")
    for one in each:
        assert "could not be built: GC3-M011" in one.communicate(timeout=120)[0]
    assert (tmp_path / "log").read_text() == "called\n"


@needs_torch
def test_a_folder_that_others_can_write_gets_no_file(tmp_path: Path) -> None:
    env = environment(tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    code, _, err = finish(start(env, "build"))
    assert code == 1
    assert f"other users can write to '{cache}'" in err
    assert list(cache.iterdir()) == []


@pytest.mark.python_only
def test_each_build_of_pytorch_has_a_library_of_its_own(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    names: set[str] = set()
    for commit in ("a", "b"):
        (package / "version.py").write_text(f"__version__ = '2.15.0'\ngit_version = '{commit}'\n")
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "GC3_CACHE": str(tmp_path / "cache")}
        code = "from gc3.torch import native; print(native.path())"
        names.add(
            subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        )
    assert len(names) == 2


@needs_torch
def test_a_compiler_that_fails_is_one_message(tmp_path: Path) -> None:
    env = environment(tmp_path, "#!/bin/sh\necho 'backend.cc:1: error: no such thing' >&2\nexit 1\n")
    code, out, err = finish(start(env, "build"))
    assert (code, out) == (1, "")
    assert err.startswith("GC3-M011 ")
    assert "ended with 1: backend.cc:1: error: no such thing" in err
    assert "Traceback" not in err
    assert not [file for file in (tmp_path / "cache").iterdir() if file.suffix != ".lock"]


@needs_torch
def test_a_library_that_others_can_write_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    assert finish(start(env, "build"))[0] == 1  # it does not load
    (library,) = (tmp_path / "cache").glob("*.so")
    library.chmod(0o666)
    code, _, err = finish(start(env, "build"))
    assert code == 1
    assert "GC3-M011" in err
    assert "other users can write to" in err
    listed = [sys.executable, "-m", "gc3", "env"]
    done = subprocess.run(listed, env=env, capture_output=True, text=True, check=True)
    assert "other users can write to" in done.stdout


@needs_torch
def test_a_backend_that_cannot_be_built_at_first_use_is_the_one_in_python(tmp_path: Path) -> None:
    env = environment(tmp_path, "#!/bin/sh\nexit 1\n") | {"GC3_TORCH_BUILD": "1"}
    code = "import torch, warnings; warnings.simplefilter('always'); import gc3.torch; print(gc3.torch.tier())"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("in Python, because the one in C++ could not be built: GC3-M011")
    assert "the backend gc3 in Python is used: GC3-M011" in done.stderr


def test_without_a_folder_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    from gc3.torch import native  # noqa: PLC0415 - it is not needed without PyTorch

    monkeypatch.setenv("GC3_CACHE", "off")
    with pytest.raises(errors.UserError, match=r"GC3-M011 .*GC3_CACHE=off"):
        native.build()
    assert native.expected()[1] == "in Python, because GC3_CACHE=off keeps no backend in C++"


def test_other_words_are_a_mistake_of_usage() -> None:
    code, out, err = finish(start(dict(os.environ), "built"))
    assert (code, out) == (2, "")
    assert err.startswith("usage: python -m gc3.torch build")
