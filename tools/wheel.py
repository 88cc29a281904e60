"""Makes wheels of gc3 from what `make build` has compiled: one of the stable ABI, and one for each older Python.

`python tools/wheel.py 3.10 3.13` makes those of these versions, by default of all on this machine. Only the Python
module is compiled for each. auditwheel then finds the oldest system on which the wheel runs, and names it so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pythons import ROOT, find

STABLE = (3, 12)  # from here on one wheel serves all versions
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
WHEELS = ROOT / "build" / "wheels"
LINKING = "-static-libstdc++"  # older systems have an older C++ library


def number(version: str) -> tuple[int, ...]:
    """Returns a version as numbers, which compare rightly."""
    return tuple(map(int, version.split(".")))


def make(python: str, folder: Path) -> Path:
    """Compiles the module for an interpreter; returns the wheel, which fits this system only."""
    settings = {
        "build-dir": "build/wheel-{wheel_tag}",
        "wheel.py-api": f"cp{''.join(map(str, STABLE))}",
        "install.strip": "true",
        "cmake.define.GC3_LAYERS": str(ROOT / "build" / "release"),
        "cmake.define.CMAKE_MODULE_LINKER_FLAGS": LINKING,
    }
    options = [f"--config-settings={key}={value}" for key, value in settings.items()]
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), *options, str(ROOT)], check=True
    )
    (made,) = folder.glob("*.whl")
    return made


def main(versions: list[str]) -> int:
    """Makes the wheels and lists them."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    chosen = versions or [v for v in VERSIONS if find(v)]
    stable = [v for v in chosen if number(v) >= STABLE]
    for version in [*(v for v in chosen if v not in stable), *stable[:1]]:
        python = find(version)
        if python is None:
            print(f"no Python {version} on this machine, with its headers")
            return 1
        raw = make(python, ROOT / "build" / "wheel-raw")
        subprocess.run([sys.executable, "-m", "auditwheel", "repair", "-w", str(WHEELS), str(raw)], check=True)
    for wheel in sorted(WHEELS.glob("*.whl")):
        print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
