"""Attacks: wrong programs by an author who knows the code. They defeated an earlier proof; today's rejects them.

The counts below come from a lattice reduction over the former hashes of values. The C++ tests `soundness_test.cc` and
`tracer_test.cc` find such counts anew, and attack today's proof with known random numbers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gc3
from gc3 import UserError, _core, algorithm, chunk, collectives
from gc3.cli.main import main
from gc3.runtime.program import Program

CHUNKS = 32  # of each of two ranks
WORD = (1 << 64) - 1

# The hashes of these inputs sum to 0: first rank 0's chunks, then rank 1's.
SURPLUS = [
    *(7, 6, 6, 8, 13, 6, 9, 8, 7, 7, 13, 12, 7, 13, 9, 11, 9, 14, 10, 7, 8, 11, 7, 7, 5, 10, 6, 9, 7, 4, 6, 10),
    *(8, 12, 8, 9, 7, 12, 6, 9, 9, 10, 12, 7, 6, 9, 7, 9, 9, 7, 4, 5, 8, 8, 7, 7, 7, 6, 8, 8, 8, 8, 8, 8),
]
# So do the hashes of these, with as many positive numbers as negative ones.
EXCHANGED = [
    *(2, -1, 2, 2, 0, 4, -2, 3, 0, -3, 1, 0, 1, 0, 0, 0, 0, -1, -1, 3, 0, -4, -2, 2, 1, -2, -2, 3, 1, 2, 0, -2),
    *(0, 2, 2, -3, -5, 3, 2, -2, 0, -1, 0, 1, 0, 1, -2, 1, -1, 0, -2, -3, -2, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0),
]


def mixed(x: int) -> int:
    """The finaliser of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def old_sum(counts: Sequence[int]) -> int:
    """The former comparison of values: a sum of hashes modulo 2^128."""
    total = 0
    for place, times in enumerate(counts):
        key = place // CHUNKS << 32 | place % CHUNKS
        total += times * (mixed(mixed(key)) << 64 | mixed(key ^ 0xD6E8FEB86659FD93) | 1)
    return total % (1 << 128)


def repeated(counts: Sequence[int]) -> list[tuple[int, int]]:
    """The inputs (rank, index), each with its multiplicity."""
    return [divmod(place, CHUNKS) for place, times in enumerate(counts) for _ in range(times)]


FORGED = collectives.custom("forged", inputs=[CHUNKS, CHUNKS], outputs=[1, 0], expect={(0, 0): repeated(EXCHANGED)})
DELIVERED = repeated([-times for times in EXCHANGED])


def test_these_break_the_old_scheme() -> None:
    """Checks the two lists themselves, since otherwise the tests below would show nothing."""
    assert min(SURPLUS) > 0
    assert old_sum(SURPLUS) == old_sum(EXCHANGED) == 0
    assert len(DELIVERED) == len(repeated(EXCHANGED)) > 0


# The wrong programs, written in the language.


@algorithm("broadcast", ranks=1)
def doubled() -> None:
    """Delivers the input 2^128 + 1 times."""
    total = chunk(0, "input", 0).copy(0, "scratch", 0)
    for _ in range(128):
        total = total.reduce(total.copy(0, "scratch", 1))
        total = chunk(0, "scratch", 0)
    total.reduce(chunk(0, "input", 0)).copy(0, "output", 0)


@algorithm("allreduce", ranks=2, chunks=CHUNKS)
def surplus() -> None:
    """An AllReduce with far too much in its first chunk."""
    for index in range(CHUNKS):
        total = chunk(0, "input", index).copy(0, "output", index).reduce(chunk(1, "input", index))
        for rank, place in repeated(SURPLUS) if index == 0 else ():
            total = total.reduce(chunk(rank, "input", place))
        total.copy(1, "output", index)


def deliver() -> None:
    """Sums DELIVERED: the right number of inputs, but the wrong ones."""
    (rank, index), *rest = DELIVERED
    total = chunk(rank, "input", index).copy(0, "output", 0)
    for rank, index in rest:
        total = total.reduce(chunk(rank, "input", index))


others = algorithm(lambda: FORGED)(deliver)


@pytest.mark.parametrize("wrong", [doubled, surplus, others])
def test_tracer_refuses(wrong: Any) -> None:
    """The message is the same each time, although each check draws new numbers."""
    said = set[str]()
    for _ in range(3):
        with pytest.raises(UserError) as caught:
            gc3.compile(wrong)
        assert caught.value.code == "GC3-L015"
        said.add(str(caught.value))
    assert len(said) == 1


# The same as files, which the tracer does not check.


def doubled_file() -> str:
    """The text of a program that delivers the input 2^128 + 1 times."""
    steps = ["copy in[0] -> sc[0]"]
    steps += ["copy sc[0] -> sc[1]", "reduce sc[1] -> sc[0]"] * 128
    steps += ["reduce in[0] -> sc[0]", "copy sc[0] -> out[0]"]
    return header("broadcast ranks 1 chunks 1") + threadblock(0, 2, "", steps)


def surplus_file(counts: Sequence[int] = SURPLUS) -> str:
    """The text of an AllReduce with `counts` too much in its first chunk."""
    steps = [f"recv -> sc[0] x{CHUNKS}", f"copy in[0] -> out[0] x{CHUNKS}", f"reduce sc[0] -> out[0] x{CHUNKS}"]
    steps += [f"reduce {'sc' if rank else 'in'}[{index}] -> out[0]" for rank, index in repeated(counts)]
    steps.append(f"send out[0] x{CHUNKS}")
    other = threadblock(1, 0, " send 0 recv 0", [f"send in[0] x{CHUNKS}", f"recv -> out[0] x{CHUNKS}"])
    return header(f"allreduce ranks 2 chunks {CHUNKS}") + threadblock(0, CHUNKS, " send 1 recv 1", steps) + other


def header(collective: str) -> str:
    """The beginning of the text of a program."""
    return f'program "forged" version 1\ncollective {collective}\nprotocol Simple instances 1 slots 1\n'


def threadblock(rank: int, scratch: int, peers: str, steps: Sequence[str]) -> str:
    """A rank of one threadblock."""
    lines = "\n".join(f"    {number} {step}" for number, step in enumerate(steps))
    return f"\nrank {rank} scratch {scratch}\n  tb 0 channel 0{peers}\n{lines}\n"


def others_file() -> str:
    """The text of a program of the custom collective that is right but for what is demanded."""
    delivered = collectives.custom("forged", inputs=[CHUNKS, CHUNKS], outputs=[1, 0], expect={(0, 0): DELIVERED})

    def demand(terms: Sequence[tuple[int, int]]) -> str:
        return "out[0] = " + " + ".join(f"{rank}:{index}" for rank, index in sorted(terms)) + "\n"

    text = gc3.compile(algorithm(lambda: delivered)(deliver)).core.to_text()
    assert demand(DELIVERED) in text
    return text.replace(demand(DELIVERED), demand(repeated(EXCHANGED)))


def test_image_of_a_custom_collective_is_refused(tmp_path: Path) -> None:
    """No runtime that reads XML takes a custom collective of this shape."""
    path = tmp_path / "forged.gc3"
    Program(_core.Program.from_text(others_file())).save(path)
    told = CliRunner().invoke(main, ["verify", str(path)])
    assert (told.exit_code, "GC3-V008" in told.output) == (1, True), told.output
    with gc3.init(rank=0, size=1, job="soundness") as comm, pytest.raises(UserError, match="GC3-V008"):
        comm.load(path)
    with pytest.raises(UserError, match="GC3-V008"):
        Program.load(path).run([np.ones(CHUNKS)] * 2)


@pytest.mark.parametrize("text", [doubled_file, surplus_file])
@pytest.mark.parametrize("suffix", [".gc3", ".xml"])
def test_file_is_refused(text: Callable[[], str], suffix: str, tmp_path: Path) -> None:
    """As image and as XML, by the command, by `Program.verify`, by a communicator."""
    path = tmp_path / f"forged{suffix}"
    Program(_core.Program.from_text(text())).save(path)
    told = CliRunner().invoke(main, ["verify", str(path)])
    assert told.exit_code == 1
    assert "GC3-V008" in told.output
    loaded = Program.load(path)
    first = gc3.verify(loaded, check=False).diagnostics[0]
    assert first.code == "GC3-V008"
    with pytest.raises(UserError, match="GC3-V008"):
        loaded.verify()
    assert "rank 0 output[0] holds " in first.message
    assert all(gc3.verify(loaded, check=False).diagnostics[0].message == first.message for _ in range(5))
    with gc3.init(rank=0, size=1, job="soundness") as comm, pytest.raises(UserError, match="GC3-V008"):
        comm.load(path)


def test_file_without_the_surplus_is_proven() -> None:
    """It has no other defect."""
    assert Program(_core.Program.from_text(surplus_file([0] * 2 * CHUNKS))).verify().ok


# Without random numbers there is no proof: a filter of system calls removes getrandom from a process.
WITHOUT_RANDOMNESS = """
import ctypes, platform, struct, sys
import gc3
from gc3 import _core, algorithms
program = gc3.compile(algorithms.load("ring_allreduce"), R=2)
number = {"x86_64": 318, "aarch64": 278}[platform.machine()]
refused = 0x00050000 | 38  # ENOSYS
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, refused), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, ctypes.byref(Filter(len(code), ctypes.addressof(filters))), 0, 0) == 0  # seccomp
found = gc3.verify(program, check=False).diagnostics
assert [d.code for d in found] == ["GC3-V011"], found
assert "getrandom: Function not implemented" in found[0].message
try:
    gc3.compile(algorithms.load("ring_allreduce"), R=2)
except gc3.UserError as problem:
    assert problem.code == "GC3-V011", problem
else:
    sys.exit("compiled without random numbers")
"""


def test_without_random_numbers_nothing_is_proven() -> None:
    """There is an error, and no predictable weights."""
    subprocess.run([sys.executable, "-c", WITHOUT_RANDOMNESS], check=True, timeout=60)


def test_demand_that_moves_a_chunk_within_its_block_is_refused(tmp_path: Path) -> None:
    """If a count is not divisible, the chunk would not fit the other chunk's length, though every chunk arrives."""
    swap = collectives.custom("swap", inputs=[2, 2], outputs=[2, 2], expect=lambda r, i: (1 - r, 1 - i))

    @algorithm(lambda: swap)
    def crossed() -> None:
        for rank in (0, 1):
            for index in (0, 1):
                chunk(1 - rank, "in", 1 - index).copy(rank, "out", index)

    text, path = gc3.compile(crossed).text, tmp_path / "swap.txt"
    path.write_text(text)
    assert gc3.verify(Program.load(path), check=False).ok
    path.write_text(text.replace("chunks 1", "chunks 2", 1))
    with pytest.raises(UserError, match="which is a different chunk of its block and can have another length"):
        Program.load(path)
