"""Logs of nccl-tests."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import gc3
from gc3 import collectives
from gc3.sim.read import nccl_tests
from nccl_log import ALLREDUCE

KIB, MIB = 1 << 10, 1 << 20

OLD = """NCCL version 2.7.8+cuda11.0
#                                             out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (ms)  (GB/s)  (GB/s)            (ms)  (GB/s)  (GB/s)
           8             2   float     sum    0.033    0.00    0.00  1e-07    0.032    0.00    0.00  1e-07
     1048576        262144   float     sum    0.100   10.49   18.35  5e-07    0.099   10.59   18.54    N/A
"""
ALLTOALL = """
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         32768     float    none      -1    50.00   20.97   18.35      0    48.00   21.85   19.11    N/A
"""


def test_a_log_is_read_whole() -> None:
    log = nccl_tests.parse(ALLREDUCE)
    assert (log.collective, log.ranks) == ("allreduce", 8)
    assert [row.size for row in log.rows] == [KIB, 32 * KIB, MIB]
    last = log.rows[-1]
    assert (last.count, last.dtype, last.redop, last.root) == (262144, "float", "sum", -1)
    assert last.out_of_place == nccl_tests.Timing(pytest.approx(71.85e-6), 14.59, 25.54, 0)
    assert last.in_place == nccl_tests.Timing(pytest.approx(71.8e-6), 14.6, 25.56, 2)


def test_logs_of_all_kinds() -> None:
    old = nccl_tests.parse(OLD)
    assert old.nccl == "2.7.8+cuda11.0"
    assert old.rows[1].out_of_place == nccl_tests.Timing(pytest.approx(100e-6), 10.49, 18.35, None)
    assert nccl_tests.parse(ALLTOALL).rows[0].in_place == nccl_tests.Timing(pytest.approx(48e-6), 21.85, 19.11, None)
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in ALLREDUCE.splitlines())
    assert nccl_tests.parse(tagged).rows == nccl_tests.parse(ALLREDUCE).rows
    srun = "\n".join(f"0: {line}" for line in ALLTOALL.splitlines())
    assert nccl_tests.parse(srun).rows == nccl_tests.parse(ALLTOALL).rows
    only_out_of_place = ALLTOALL.replace("48.00   21.85   19.11", "N/A N/A N/A")
    assert nccl_tests.parse(only_out_of_place).rows[0].in_place is None


def test_times_between_measured_sizes() -> None:
    log = nccl_tests.parse(ALLREDUCE)
    assert log.time_s(KIB, in_place=False) == pytest.approx(17.34e-6)
    between = log.time_s(181 * KIB, in_place=True)  # the geometric mean of the sizes, nearly
    assert between == pytest.approx(math.sqrt(31.69e-6 * 71.8e-6), rel=1e-3)
    assert log.time_s(512, in_place=True) is None
    assert log.time_s(2 * MIB, in_place=True) is None


def test_columns_beside_the_times_may_hold_anything() -> None:
    strange = ALLTOALL.replace("-1    50.00", f"{'9' * 5000} 50.00").replace(
        "18.35      0", "18.35      \N{SUPERSCRIPT TWO}"
    )
    row = nccl_tests.parse(strange).rows[0]
    assert row.root is None
    assert row.out_of_place is not None
    assert row.out_of_place.wrong is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line with the columns"),
        ("hello\nworld\n", "no line with the columns"),
        ("\n".join(ALLTOALL.splitlines()[:-1]), "has no rows"),
        (ALLTOALL.replace("     0    48.00", "    48.00"), "has 12 columns, and the heading has 13"),
        (ALLTOALL.replace("50.00", "fast "), "time is 'fast', which is not a number"),
        (ALLTOALL.replace("50.00", "0.000"), "the time out of place is 0"),
        (ALLTOALL.replace("50.00", "nan  "), "time is nan"),
        (ALLTOALL.replace("20.97", "2.097"), "are 20.97 GB/s, and algbw is 2.097"),
        (ALLTOALL.replace("  1048576  ", "  -104857 "), "does not begin with a size"),
        (ALLTOALL + ALLTOALL.splitlines()[-1].replace("float", "half "), "several types or reductions"),
        (ALLTOALL.replace("  1048576  ", f"  {'9' * 5000}  "), "is no size in bytes"),
        (ALLTOALL.replace("  1048576  ", f"  {10**400}  "), "is no size in bytes"),
        (ALLTOALL.replace("50.00", "1e-310"), "below a picosecond"),
    ],
)
def test_a_bad_log_is_one_clear_error(text: str, says: str) -> None:
    with pytest.raises(gc3.UserError, match="GC3-S004") as caught:
        nccl_tests.parse(text, "x.log")
    assert says in str(caught.value)
    assert "x.log" in str(caught.value)
    assert len(caught.value.diagnostics) == 1


def test_a_log_of_something_else(tmp_path: Path) -> None:
    log = nccl_tests.parse(ALLREDUCE)
    with pytest.raises(gc3.UserError, match="it is a log of allreduce"):
        log.check(collectives.get("allgather").model(8))
    with pytest.raises(gc3.UserError, match="a log of 8 GPUs, and the programs have 16"):
        log.check(collectives.get("allreduce").model(16))
    with pytest.raises(gc3.UserError, match="GC3-I"):
        nccl_tests.read(str(tmp_path / "absent.log"))


def without_heading(size: int, count: int, redop: str, root: int, time: float, factor: float) -> nccl_tests.Log:
    """A log that does not say what it is of."""
    rate = size / time / 1e3
    heading, units = ALLTOALL.splitlines()[1:3]
    row = f"{size} {count} float {redop} {root} {time} {rate:.2f} {factor * rate:.2f} 0 N/A N/A N/A N/A"
    return nccl_tests.parse(f"{heading}\n{units}\n{row}\n", "x.log")


@pytest.mark.parametrize("name", [*nccl_tests.TESTS.values()])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_columns_say_the_collective(name: str, ranks: int) -> None:
    kind = collectives.get(name)
    redop, root = "sum" if kind.reduces else "none", 0 if kind.rooted else -1
    count = MIB // 4 // collectives.size_blocks(kind.model(ranks))
    log = without_heading(MIB, count, redop, root, 50.0, kind.factor(ranks))
    log.check(kind.model(ranks))
    alike = ({"allgather", "alltoall"}, {"gather", "scatter"})  # in all columns
    for other in collectives.BUILTIN.values():
        if other.name == name or {name, other.name} in alike:
            continue
        with pytest.raises(gc3.UserError, match="GC3-S004") as caught:
            log.check(other.model(ranks))
        assert "x.log" in str(caught.value)
    assert log.collective == ("" if any(name in pair for pair in alike) else name)
    assert log.ranks == (ranks if count * 4 < MIB else 0)


def test_columns_that_contradict_are_refused() -> None:
    allreduce = collectives.get("allreduce").model(8)
    for bad, says in (
        (without_heading(MIB, 32768, "sum", -1, 50.0, 0.875), "it is a log of reducescatter"),
        (without_heading(MIB, 262144, "none", -1, 50.0, 1.75), "redop is none"),
        (without_heading(MIB, 262144, "sum", -1, 50.0, 1.5), "busbw is 1.50 times algbw"),
        (without_heading(MIB, 1000, "sum", -1, 50.0, 1.75), "1048576 bytes are no whole number of times 1000 float"),
    ):
        with pytest.raises(gc3.UserError, match="GC3-S004") as caught:
            bad.check(allreduce)
        assert says in str(caught.value)
    for change in (("     sum", "    none"), (" 262144 ", " 131072 "), ("25.54", "14.59")):
        with pytest.raises(gc3.UserError, match="it is a log of allreduce of 8 GPUs, which these columns cannot be"):
            nccl_tests.parse(ALLREDUCE.replace(*change))
