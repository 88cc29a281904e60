"""`make cuda-check` finds defects in reports in ptxas's form and code in nvdisasm's form."""

from __future__ import annotations

import itertools
import re

import pytest

import cuda_check
import cuda_machine_code
from gc3.topologies import processors

pytestmark = pytest.mark.python_only

TYPES = [f"t{i}" for i in range(cuda_check.TYPES)]
NAMES = [f"gc3_run_{p}_{t}" for p, t in itertools.product(("Simple", "LL", "LL128", "OneSided"), TYPES)]
SMALL = ["gc3_guard", *(f"gc3_{does}_{t}" for does in ("divide", "scale") for t in TYPES)]


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
    small = report(SMALL).replace(", 6912 bytes smem", "").replace("64 registers", "30 registers")
    kernels = cuda_check.read_report(report(NAMES) + small)
    assert (len(kernels), kernels[0].registers, kernels[0].shared, kernels[-1].shared) == (
        6 * cuda_check.TYPES + 1,
        64,
        6912,
        0,
    )
    assert found(report(NAMES) + small) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (report(NAMES[1:] + SMALL) + report(NAMES[:1], spilled=8), "spills: 8 bytes of stack, 8 moved"),
        (report(NAMES[1:] + SMALL) + report(NAMES[:1], registers=96), "132 threadblocks of 512 threads"),
        (report(NAMES[1:] + SMALL) + report(NAMES[:1], shared=150_000), "132 threadblocks of 512 threads"),
        (
            report(NAMES[1:] + SMALL),
            f"{4 * cuda_check.TYPES - 1} kernels that run programs of {6 * cuda_check.TYPES} in all",
        ),
        ("", "0 kernels"),
    ],
)
def test_a_report_with_a_problem(text: str, problem: str) -> None:
    assert len(found(text)) == 1
    assert problem in found(text)[0]


def test_blocks_per_multiprocessor_are_those_of_the_occupancy_calculator() -> None:
    """The values come from cuda_occupancy.h of CUDA 13 for an H200, in blocks on 132 multiprocessors."""
    table = {62: (1056, 528, 264, 132), 96: (660, 264, 132, 132), 128: (528, 264, 132, 0)}
    for registers, wanted in table.items():
        h100 = processors.PROCESSORS["h100"]
        blocks = [h100.threadblocks(processors.Kernel("k", threads, registers)) for threads in (128, 256, 512, 640)]
        assert tuple(blocks) == wanted


def test_the_engine_is_the_kernel_that_machines_count_threadblocks_of() -> None:
    text = (cuda_check.ROOT / "cpp/gc3/runtime/cuda/device/launch.h").read_text()
    constants = dict(re.findall(r"constexpr uint32_t (\w+) = (\d+);", text))
    assert int(constants["kThreads"]) == processors.GC3.threads
    each = {has.holds(processors.GC3) for has in cuda_check.ARCHITECTURES.values()}
    assert each == {int(constants["kBlocksPerMultiprocessor"])}
    assert processors.PROCESSORS["h100"].threadblocks(processors.GC3) == 264  # as gc3_runtime_cuda_test says


LOAD = "LDG.E.128.STRONG.SYS R8, desc[UR8][R14.64]"
STORE = "STG.E.128.STRONG.SYS desc[UR8][R20.64], R32"
BRANCH = "@!P3 BRA `(.L_x_1)"
# How sm_80 makes lanes converge: a warp that has converged already jumps to the label.
BY_CALL = ("BRA.CONV ~URZ, `(.L_x_2)", "CALL.REL.NOINC `($__internal_58_$__cuda_sm70_warpsync)", ".L_x_2:")


def code(protocol: str, *lines: str) -> str:
    texts = [
        line if line.startswith(".L") else f"        /*{16 * i:04x}*/     {line} ;" for i, line in enumerate(lines)
    ]
    return "\n".join([f".text.gc3_run_{protocol}_int8:", ".L_x_0:", *texts, ""])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (code("LL", LOAD, f"@P1 {STORE}"), None),
        (code("LL128", LOAD, BRANCH, "WARPSYNC.ALL", "SEL R34, R26, R2, P3", STORE, STORE), None),
        (code("LL128", LOAD, BRANCH, *BY_CALL, ".L_x_9:", STORE), None),
        (code("Simple", "LDG.E.128 R8, desc[UR8][R14.64]"), None),
        (code("LL", LOAD, STORE.replace("128", "64")), "are not stored by STG.E.128.STRONG.SYS"),
        (code("LL", LOAD.replace(".STRONG.SYS", ""), STORE), "are not loaded by LDG.E.128.STRONG.SYS"),
        (code("LL128", LOAD, STORE), "a part of the warp"),
        (code("LL128", LOAD, "WARPSYNC.ALL", f"@P1 {STORE}"), "a part of the warp"),
        (code("LL128", LOAD, "WARPSYNC.ALL", BRANCH, STORE), "a part of the warp"),
        (code("LL128", LOAD, "WARPSYNC.ALL", "BSYNC B3", STORE), "a part of the warp"),
        (code("LL128", LOAD, "WARPSYNC.ALL", ".L_x_1:", STORE, BRANCH), "a part of the warp"),
        (code("LL128", LOAD, BY_CALL[1], ".L_x_1:", STORE, BRANCH), "a part of the warp"),
    ],
)
def test_lines_that_do_not_move_as_they_must(text: str, problem: str | None) -> None:
    found = cuda_machine_code.problems(text)
    assert len(found) == (problem is not None)
    assert problem is None or (problem in found[0] and found[0].startswith("gc3_run_LL"))
