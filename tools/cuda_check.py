"""Compiles all kernels of the CUDA engine, without a GPU, and checks which resources of a multiprocessor they use.

nvcc, from the wheels of the dependency group `cuda`, compiles the kernels for each architecture. These must hold:

- No kernel spills registers.
- Of a kernel that waits for others, as many threadblocks are resident at once as GPU programs may have: 264 of 512
  threads on 132 multiprocessors.
- In the machine code, the lines of LL and LL128 move in the accesses on which the protocols rely, see
  cuda_machine_code.py.
- NVRTC compiles some of the kernels from the embedded sources, as the engine does.
- The engine's declarations of the driver's functions and numbers agree with NVIDIA's headers.

Prints a line for each architecture, and exits with 1 if anything fails. If NVIDIA publishes no wheels for this machine,
it says so and exits with 0.

It takes minutes, so after a success it writes a digest of all that it reads to cuda_checked.txt, which belongs to the
same commit. `--is-checked` only compares that: it exits with 0 if nothing has changed since.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cuda_machine_code
from gc3.topologies import processors
from gc3.topologies.processors import PROCESSORS, Multiprocessor

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "cpp" / "gc3" / "runtime" / "cuda" / "device" / "kernel.cu"
BY_HAND = ROOT / "benchmarks" / "cuda" / "hand.cu"
HEADERS = ROOT / "tools" / "cuda_headers.cc"
OUT = ROOT / "build" / "cuda"
CHECKED = ROOT / "tools" / "cuda_checked.txt"
READ = (
    "cpp/gc3/ir/**/*.def",
    "cpp/gc3/model/*.def",
    "cpp/gc3/runtime/cuda/**/*.h",
    "cpp/gc3/runtime/cuda/device/*",
    "cpp/gc3/runtime/interp/*.h",
    "benchmarks/cuda/hand.*",
    "python/gc3/topologies/processors.py",
    "tools/cuda_*.cc",
    "tools/cuda_*.py",
)
ENGINE_TESTS = ROOT / "build" / "release" / "gc3_runtime_cuda_test"

THREADS = processors.GC3.threads
TYPES = 17
KINDS = 4  # of programs: three protocols, and one-sided ones
MULTIPROCESSORS = PROCESSORS["h100"].multiprocessors
RESIDENT = PROCESSORS["h100"].threadblocks(processors.GC3)  # that must fit


ARCHITECTURES = {
    f"sm_{capability}": p.each
    for p in PROCESSORS.values()
    if p.each is not None and p.name != "v100"  # which the engine does not support
    for capability in p.capabilities
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """The report of ptxas on a kernel."""

    name: str
    registers: int
    shared: int
    stack: int
    spilled: int

    def resident(self, on: Multiprocessor) -> int:
        """Returns how many threadblocks of the kernel a multiprocessor holds."""
        return on.holds(processors.Kernel(self.name, THREADS, self.registers, self.shared))


def read_report(text: str) -> list[Kernel]:
    """Returns the kernels in a report of ``ptxas -v``."""
    found = re.findall(
        r"Function properties for (\w+)\n"
        r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r".*?Used (\d+) registers(?:.*?(\d+) bytes smem)?",
        text,
    )
    return [
        Kernel(name, int(registers), int(shared or 0), int(stack), int(stores) + int(loads))
        for name, stack, stores, loads, registers, shared in found
    ]


def problems(kernels: Sequence[Kernel], has: Multiprocessor) -> list[str]:
    """Returns the problems of the kernels of an architecture."""
    found: list[str] = []
    waiting = [k for k in kernels if k.name.startswith("gc3_run_")]
    if len(waiting) != TYPES * KINDS or len(kernels) != TYPES * (KINDS + 2) + 1:
        found.append(f"{len(waiting)} kernels that run programs of {len(kernels)} in all")
    for kernel in kernels:
        if kernel.stack or kernel.spilled:
            found.append(f"{kernel.name} spills: {kernel.stack} bytes of stack, {kernel.spilled} moved")
    for kernel in waiting:
        held = kernel.resident(has) * MULTIPROCESSORS
        if held < RESIDENT:
            found.append(f"{kernel.name}: {held} threadblocks of {THREADS} threads are resident, {RESIDENT} are needed")
    return found


def folder_of_toolkit() -> Path | None:
    """Returns the folder of the toolkit from the wheels, or None if they are not installed."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "cu13" / "bin" / "nvcc").exists():
            return Path(place) / "cu13"
    return None


def check(toolkit: Path, architecture: str) -> list[str]:
    """Compiles for one architecture; prints a line and returns the problems."""
    image = OUT / f"{architecture}.cubin"
    command = [
        str(toolkit / "bin" / "nvcc"),
        "-std=c++20",
        f"-arch={architecture}",
        "-cubin",
        "-Xptxas=-v",
        "-Werror=all-warnings",
        f"-I{ROOT / 'cpp'}",
        str(KERNELS),
        "-o",
        str(image),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"{architecture}: nvcc fails:\n{done.stderr}"]
    kernels = read_report(done.stderr)
    code = subprocess.run(
        [str(toolkit / "bin" / "nvdisasm"), "-c", str(image)], capture_output=True, text=True, check=True
    )
    wrong = problems(kernels, ARCHITECTURES[architecture]) + cuda_machine_code.problems(code.stdout)
    found = [f"{architecture}: {problem}" for problem in wrong]
    waiting = [k for k in kernels if k.name.startswith("gc3_run_")]
    if not found:
        held = min(k.resident(ARCHITECTURES[architecture]) for k in waiting)
        print(
            f"{architecture}: {len(kernels)} kernels, at most {max(k.registers for k in kernels)} registers and "
            f"{max(k.shared for k in kernels)} bytes of shared memory, no spills; {held} threadblocks of {THREADS} "
            f"threads per multiprocessor, {held * MULTIPROCESSORS} on {MULTIPROCESSORS}; lines move as a whole",
            flush=True,
        )
    return found


def check_headers(toolkit: Path) -> list[str]:
    """Compares the engine's own declarations of the driver, and of NCCL if it is installed, with NVIDIA's headers."""
    headers = [toolkit / "include", toolkit.parent / "nccl" / "include"]
    folders = [f"-I{ROOT / 'cpp'}", *(f"-isystem{folder}" for folder in headers)]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", *folders, str(HEADERS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"the declarations of the driver's functions:\n{done.stderr}"]
    print("the driver's functions are declared as cuda.h has them", flush=True)
    return []


def check_by_hand(toolkit: Path) -> list[str]:
    """Compiles the kernels that benchmarks compare with, without checking their resources."""
    for schedule, protocol in itertools.product(("ring", "allpairs", "alltoall"), ("Simple", "LL", "LL128")):
        names = [f"-DGC3_HAND={schedule}", f"-DGC3_PROTOCOL={protocol}", "-DGC3_TYPE=float32"]
        folders = [f"-I{ROOT / 'cpp'}", f"-I{ROOT}"]
        command = [str(toolkit / "bin" / "nvcc"), "-std=c++20", "-arch=sm_90", "-cubin", *names, *folders]
        command += ["-Werror=all-warnings", str(BY_HAND), "-o", str(OUT / "by_hand.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return [f"the kernel by hand for {schedule} {protocol}: nvcc fails:\n{done.stderr}"]
    print("the kernels written by hand for benchmarks compile", flush=True)
    return []


def check_run_time_compiler(toolkit: Path) -> list[str]:
    """Runs the test of the engine that compiles with NVRTC."""
    library = next((toolkit / "lib").glob("libnvrtc.so.*"))
    command = [str(ENGINE_TESTS), "--test-case=NVRTC*", "--no-intro"]
    environment = {**os.environ, "GC3_NVRTC": str(library)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0 or " 0 passed" in done.stdout:
        return [f"NVRTC with the embedded sources:\n{done.stdout}{done.stderr}"]
    print("NVRTC compiles the embedded sources for all of them")
    return []


def digest() -> str:
    """Returns a digest of all that is checked, and of the checks."""
    names = sorted({path for pattern in READ for path in ROOT.glob(pattern) if path.is_file()})
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}" for path in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() + "\n"


def is_checked() -> bool:
    """Says, and returns, whether all is as it was at the last success."""
    same = CHECKED.exists() and CHECKED.read_text() == digest()
    print("the kernels for CUDA are as they were checked last" if same else "the kernels for CUDA have changed")
    return same


def main() -> int:
    """Checks all architectures; returns the exit status."""
    toolkit = folder_of_toolkit()
    if toolkit is None:
        machine = f"{platform.system()} {platform.machine()}"
        if machine in ("Linux x86_64", "Linux aarch64"):
            print("nvcc is not installed: pip install --group cuda")
            return 1
        print(f"skipped: there are no wheels of nvcc for {machine}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = [pool.submit(check, toolkit, architecture) for architecture in ARCHITECTURES]
        parts.append(pool.submit(check_headers, toolkit))
        parts.append(pool.submit(check_by_hand, toolkit))
        parts.append(pool.submit(check_run_time_compiler, toolkit))
    found = [problem for part in parts for problem in part.result()]
    for problem in found:
        print(problem)
    if not found:
        CHECKED.write_text(digest())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(not is_checked() if "--is-checked" in sys.argv[1:] else main())
