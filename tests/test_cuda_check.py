"""`make cuda-check` finds what it looks for, in reports as ptxas writes them."""

from __future__ import annotations

import itertools

import pytest

import cuda_check

TYPES = [f"t{i}" for i in range(cuda_check.TYPES)]
NAMES = [f"gc3_run_{p}_{t}" for p, t in itertools.product(("Simple", "LL", "LL128"), TYPES)]
DIVISIONS = [f"gc3_divide_{t}" for t in TYPES]


def report(names: list[str], registers: int = 64, shared: int = 6912, spilled: int = 0) -> str:
    return "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
        f"ptxas info    : Function properties for {name}\n"
        f"    {spilled} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem, 3568 bytes cmem[0]\n"
        for name in names
    )


def found(text: str) -> list[str]:
    return cuda_check.problems(cuda_check.read_report(text), cuda_check.ARCHITECTURES["sm_90"])


def test_a_report_without_problems() -> None:
    division = report(DIVISIONS).replace(", 6912 bytes smem", "").replace("64 registers", "30 registers")
    kernels = cuda_check.read_report(report(NAMES) + division)
    assert (len(kernels), kernels[0].registers, kernels[0].shared, kernels[-1].shared) == (44, 64, 6912, 0)
    assert found(report(NAMES) + division) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (report(NAMES[1:] + DIVISIONS) + report(NAMES[:1], spilled=8), "spills: 8 bytes of stack, 8 moved"),
        (report(NAMES[1:] + DIVISIONS) + report(NAMES[:1], registers=96), "132 threadblocks of 512 threads"),
        (report(NAMES[1:] + DIVISIONS) + report(NAMES[:1], shared=150_000), "132 threadblocks of 512 threads"),
        (report(NAMES[1:] + DIVISIONS), "32 kernels that run programs of 43 in all"),
        ("", "0 kernels"),
    ],
)
def test_a_report_with_a_problem(text: str, problem: str) -> None:
    assert len(found(text)) == 1
    assert problem in found(text)[0]


def test_blocks_per_multiprocessor_are_those_of_the_occupancy_calculator() -> None:
    """Computed by cuda_occupancy.h of CUDA 13 for an H200, in blocks on 132 multiprocessors."""
    table = {62: (1056, 528, 264, 132), 96: (660, 264, 132, 132), 128: (528, 264, 132, 0)}
    for registers, wanted in table.items():
        kernel = cuda_check.Kernel("k", registers, 0, 0, 0)
        has = cuda_check.ARCHITECTURES["sm_90"]
        blocks = [132 * cuda_check.resident_blocks(kernel, has, threads) for threads in (128, 256, 512, 640)]
        assert tuple(blocks) == wanted
