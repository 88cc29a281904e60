"""How PyTorch is installed without the libraries of CUDA, and what is said where it cannot be."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import lean_torch

pytestmark = pytest.mark.python_only

TOOL = Path(lean_torch.__file__)


def compile(folder: Path, name: str, source: str, *options: str) -> Path:
    """Makes a library of C."""
    made = folder / name
    command = ["g++", "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", made, "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return made


@pytest.mark.parametrize("versions", ["", "libabsent.so.1 { global: wanted; };"])
def test_functions_of_an_absent_library_are_made_with_their_versions(versions: str, tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text(versions)
    use = [f"-Wl,--version-script={script}"] if versions else []
    absent = compile(tmp_path, "libabsent.so.1", "void wanted(void) {}", *use)
    user = compile(tmp_path, "libuser.so", "void wanted(void); void calls(void) { wanted(); }", str(absent))
    absent.unlink()
    with pytest.raises(OSError, match="libabsent"):
        ctypes.CDLL(str(user))
    (found,) = lean_torch.missing([user], lean_torch.of_system()).items()
    assert found == ("libabsent.so.1", {("wanted", "libabsent.so.1" if versions else "")})
    lean_torch.make(tmp_path, *found)
    code = f"import ctypes; ctypes.CDLL('{absent}'); ctypes.CDLL('{user}')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_needed_without_a_gpu(tmp_path: Path) -> None:
    about = tmp_path / "torch-2.15.0.dist-info"
    about.mkdir()
    needs = [
        "filelock",
        'cuda-toolkit[cublas,cudart]==13.2.3; platform_system == "Linux"',
        'cuda-bindings<14; platform_system == "Linux"',
        'nvidia-cudnn-cu13==9.24; platform_system == "Linux"',
        'triton~=3.8.0; platform_system == "Linux"',
        'pyyaml; extra == "pyyaml"',
    ]
    (about / "METADATA").write_text("".join(f"Requires-Dist: {need}\n" for need in needs))
    cuda = ["nvidia-cuda-runtime==13.2.*", "nvidia-cuda-cupti==13.2.*", "nvidia-cufile"]
    assert lean_torch.requirements(tmp_path) == ["filelock", *cuda]


def test_one_line_says_why_it_cannot_be_installed(tmp_path: Path) -> None:
    venv.create(tmp_path / "torch", with_pip=False)
    env = {**os.environ, "PIP_NO_INDEX": "1"}  # as without a network
    command = [sys.executable, TOOL, tmp_path / "torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("PyTorch is not installed: python: ERROR: ")


def test_little_space_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lean_torch, "LEAST_FREE", 1 << 60)
    assert lean_torch.main(str(tmp_path)) == 1
    assert "are free on the disk of" in capsys.readouterr().out
