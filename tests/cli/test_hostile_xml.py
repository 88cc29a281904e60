"""`gc3 verify` on malformed and hostile MSCCL XML: an error, in bounded time and memory; by night files of 200 MB.

A file that the reader refuses gives one error; one that only the verifier refuses may give several findings.

Each file is read by a process of its own. Peak memory is that of the whole process, Python included; reading maps the
file whole, so its own size is in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import pytest

from ranks import LOAD

pytestmark = pytest.mark.python_only

MB = 1_000_000
# In addition to the file: the memory of Python, and of the program of a file whose steps are all valid but the last.
MOST_PEAK_PER_BYTE, MOST_PEAK_BESIDES = 3.0, 200 * MB
MOST_SECONDS_PER_MB = 0.05
MOST_PRINTED = 10_000  # characters

HEAD = '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">\n'
GPU = '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">\n<tb id="0" send="1" recv="1" chan="0">\n'
STEP = (
    '<step s="{s}" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="{cnt}" depid="-1" deps="-1" hasdep="0"/>\n'
)
RANK = GPU[: GPU.index("<tb")]
OTHER = '</tb>\n<tb id="1" send="-1" recv="-1" chan="0">\n'
SIGNAL = STEP.format(s=0, cnt=1).replace('hasdep="0"', 'hasdep="1"')
NOP = STEP.replace('"s" src', '"nop" src').replace('depid="-1" deps="-1"', 'depid="0" deps="0"')
WAITING = '<tb id="{s}" send="-1" recv="-1" chan="0">' + (
    STEP.replace('s="{s}" type="s"', 's="0" type="cpy"')
    .replace('depid="-1" deps="-1" hasdep="0"', 'depid="{last}" deps="0" hasdep="1"')
    .rstrip()
)
TAIL = '</tb></gpu><gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0"/></algo>'
NAMES = "abcdefghijklmnopqrst"
BOMB = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {name} "{10 * f"&{before};"}">' for before, name in pairwise(NAMES)
)


def fill(file: TextIO, size: int, text: str) -> None:
    """Writes `text` until the file has `size` bytes."""
    block = text * (MB // len(text))
    while file.tell() < size:
        file.write(block)


def steps(file: TextIO, size: int, last: str) -> None:
    """Writes one threadblock of valid steps, and then `last`."""
    file.write(HEAD + GPU)
    number = 0
    while file.tell() < size:
        file.write("".join(STEP.format(s=s, cnt=1) for s in range(number, number + 5000)))
        number += 5000
    file.write(last.format(s=number))


def surrounded(before: str, text: str, after: str = "") -> Callable[[TextIO, int], None]:
    """Returns a function that writes `text` repeatedly between two others."""

    def write(file: TextIO, size: int) -> None:
        file.write(before)
        fill(file, size, text)
        file.write(after)

    return write


def numbered(before: str, text: str, after: str) -> Callable[[TextIO, int], None]:
    """Returns a function that writes `text` with numbers from 0 on between two others; the one before is {last}."""

    def write(file: TextIO, size: int) -> None:
        file.write(before)
        number = 0
        while file.tell() < size:
            file.write("".join(text.format(s=s, last=s - 1, cnt=1) for s in range(number, number + 1000)))
            number += 1000
        file.write(after.format(s=number, cnt=1))

    return write


def many_ranks(file: TextIO, size: int) -> None:
    """Writes idle ranks, and their correct number before."""
    ranks = size // 60
    file.write(HEAD.replace('ngpus="2"', f'ngpus="{ranks}"'))
    file.writelines(f'<gpu id="{rank}" i_chunks="2" o_chunks="2" s_chunks="0"/>\n' for rank in range(ranks))
    file.write("</algo>")


def long_name(file: TextIO, size: int) -> None:
    """Writes a valid file without a collective, of a program with a long name."""
    start, end = HEAD.split('"x"')
    surrounded(f'{start}"', "x", f'"{end}{GPU}{STEP.format(s=0, cnt=1)}{TAIL}')(file, size)


CASES: dict[str, Callable[[TextIO, int], None]] = {
    "entity bomb": surrounded(BOMB + "]><a>", "&t;", "</a>"),
    "deep nesting": surrounded(HEAD, "<a>"),
    "one attribute": surrounded('<algo name="', "x"),
    "many attributes": surrounded("<algo", ' a="1"'),
    "one comment": surrounded("<!--", "-"),
    "one name": surrounded("<", "x"),
    "unknown elements": surrounded(HEAD, "<a/>\n", "</algo>"),
    "no tags": surrounded("<algo>", "&amp;"),
    "zero bytes": surrounded("<algo ", "\0"),
    "ids again": surrounded(HEAD, '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0"/>\n', "</algo>"),
    "an id of 10^9": surrounded(HEAD, '<gpu id="1000000000" i_chunks="2" o_chunks="2" s_chunks="0"/>\n', "</algo>"),
    "10^9 chunks at the end": lambda file, size: steps(file, size, STEP.replace("{cnt}", "1000000000") + TAIL),
    "negative count at the end": lambda file, size: steps(file, size, STEP.replace("{cnt}", "-1")),
    "a name that is closed": long_name,
    "sends nobody receives": numbered(HEAD + GPU, STEP, TAIL),
    "nops before a step": numbered(HEAD + GPU + SIGNAL + OTHER, NOP, STEP.replace('"s"', '"cpy"') + TAIL),
    "threadblocks": numbered(HEAD + RANK, '<tb id="{s}" send="1" recv="-1" chan="0"/>\n', TAIL[5:]),
    "threadblocks that wait": numbered(HEAD + RANK, f"{WAITING}</tb>\n", TAIL[5:]),
    "ranks": many_ranks,
    "cut off": lambda file, size: steps(file, size, '<step s="{s}" type="'),
}

CHILD = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run([sys.executable, "-m", "gc3", "verify", sys.argv[1]], capture_output=True, text=True)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"code": done.returncode, "seconds": seconds, "peak": peak, "errors": done.stderr,
                  "printed": len(done.stdout) + len(done.stderr)}))
"""


NIGHTLY = pytest.mark.nightly
# By day those of which the reader, and the verifier, hold the most.
SOME = ("entity bomb", "threadblocks that wait")
SIZES = [pytest.param(name, 2 * MB, marks=() if name in SOME else NIGHTLY) for name in CASES]
SIZES += [pytest.param(name, 200 * MB, marks=NIGHTLY) for name in CASES]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_a_hostile_file_is_an_error_in_bounded_time_and_memory(name: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "hostile.xml"
    with path.open("w", encoding="utf-8") as file:
        CASES[name](file, size)
    child = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    row = json.loads(child.stdout)
    assert row["code"] == 1
    found = row["errors"].count("error GC3-")
    assert found == 1 or (found and "error GC3-I" not in row["errors"])
    written = path.stat().st_size
    path.unlink()
    assert row["printed"] <= MOST_PRINTED
    assert row["peak"] <= MOST_PEAK_PER_BYTE * written + MOST_PEAK_BESIDES
    assert row["seconds"] <= MOST_SECONDS_PER_MB * written / MB + 2 + LOAD
