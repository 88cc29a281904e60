"""Compares each row of the opcode table with how each part of GC3 treats such a step.

Rank 0 has a, rank 1 has b and c. Rank 1 copies c to its output and then executes the opcode, with b as the source and
its output as the destination. Rank 0 sends a if the opcode receives; rank 2 stores what the opcode sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import fake_driver
import gc3
from gc3 import _core, algorithms, cuda, sim

# What apply reads and writes is not in its row: tests/lang/test_compute.py.
OPCODES = {op.name: op for op in _core.opcodes() if op.name != "apply"}
TRAITS = ("receives", "sends", "reads_local", "writes_local", "reduces")
COUNT = 1003  # of a chunk, no multiple of anything
Place = tuple[int, int]  # rank and input chunk
A, B, C = (0, 0), (1, 0), (1, 1)

# How the compiler is made to emit every opcode except nop, which only files have.
SOURCES = ("ring_allreduce", "ring_reducescatter", "allpairs_allreduce", "leader_allreduce")


def results(receives: bool, sends: bool, reads_local: bool, writes_local: bool, reduces: bool) -> list[Any]:
    """The outputs of ranks 1 and 2 afterwards, as the input chunks summed in them; None: no output."""
    moved = [A] * receives + [B] * reads_local + [C] * (reduces and not receives)
    return [moved if writes_local else [C], moved if sends else None]


def traits(op: _core.OpcodeInfo) -> list[bool]:
    return [getattr(op, name) for name in TRAITS]


def text(op: _core.OpcodeInfo, outputs: Sequence[Any], protocol: str) -> str:
    """The program, with these outputs of ranks 1 and 2 as its postcondition."""
    operands = (" in[0]" if op.reads_local else "") + (" -> " if op.writes_local else "") + "out[0]" * op.writes_local
    terms = [[" + ".join(f"{rank}:{index}" for rank, index in held)] if held else [] for held in outputs]
    lines = [
        'program "one" version 1',
        'collective custom "one" ranks 3 chunks 1',
        "  rank 0 in 1 out 0",
        "  rank 1 in 2 out 1",
        f"    out[0] = {terms[0][0]}",
        f"  rank 2 in 0 out {len(terms[1])}",
        *(f"    out[0] = {term}" for term in terms[1]),
        f"protocol {protocol} instances 1 slots 1",
        "rank 0",
        *(["  tb 0 channel 0 send 1", "    0 send in[0]"] if op.receives else []),
        "rank 1",
        "  tb 0 channel 0" + " send 2" * op.sends + " recv 0" * op.receives,
        "    0 copy in[1] -> out[0]",
        f"    1 {op.xml if '_' in op.name else op.name}{operands}",
        "rank 2",
        *(["  tb 0 channel 0 recv 1", "    0 recv -> out[0]"] if op.sends else []),
    ]
    return "\n".join(lines)


def program(op: _core.OpcodeInfo, outputs: Sequence[Any], protocol: str = "Simple") -> gc3.Program:
    return gc3.Program(_core.Program.from_text(text(op, outputs, protocol)))


def flipped(op: _core.OpcodeInfo) -> Iterator[list[Any]]:
    """The outputs of a row with one of its booleans inverted, if they differ."""
    for k in range(len(TRAITS)):
        row = traits(op)
        row[k] = not row[k]
        other = results(*row)
        # No step sends or stores missing data, and rank 2 stores only what is sent.
        if other != results(*traits(op)) and all(held != [] for held in other) and row[1] == op.sends:
            yield other


@pytest.mark.parametrize("name", OPCODES)
def test_the_forms_keep_it(name: str) -> None:
    p = program(OPCODES[name], results(*traits(OPCODES[name]))).core
    assert _core.Program.from_text(p.to_text()) == p
    assert _core.Program.from_bytes(p.to_bytes()) == p


@pytest.mark.parametrize("name", OPCODES)
def test_the_verifier_goes_by_the_row(name: str) -> None:
    op = OPCODES[name]
    program(op, results(*traits(op))).verify()
    for other in flipped(op):
        with pytest.raises(gc3.UserError, match="wrong result"):
            program(op, other).verify()


def check_run(op: _core.OpcodeInfo, outputs: Sequence[Any], values: dict[Place, Any]) -> None:
    expected = results(*traits(op))
    for got, held in zip(outputs[1:], expected, strict=True):
        assert (got is None or got.size == 0) == (held is None)
        if held is not None:
            assert np.array_equal(got, sum(values[place] for place in held))


def inputs() -> tuple[list[Any], dict[Place, Any]]:
    numbers = np.random.default_rng(7).integers(-1000, 1000, (3, COUNT)).astype(np.int32)
    return [numbers[0], numbers[1:].ravel(), None], dict(zip((A, B, C), numbers, strict=True))


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("name", OPCODES)
def test_the_interpreter_goes_by_the_row(name: str, protocol: str) -> None:
    op = OPCODES[name]
    given, values = inputs()
    check_run(op, program(op, results(*traits(op)), protocol).run(given, count=COUNT), values)


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("name", OPCODES)
@fake_driver.needs_library
def test_the_devices_text_goes_by_the_row(name: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in fake_driver.ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    op = OPCODES[name]
    given, values = inputs()
    engine = cuda.Engine(program(op, results(*traits(op)), protocol))
    check_run(op, engine.run(given, count=COUNT), values)


@pytest.mark.parametrize("name", OPCODES)
def test_the_simulators_times_go_by_the_row(name: str) -> None:
    """Every step takes a fixed time and that of its bytes, which depends on the opcode; each message takes a hop."""
    op = OPCODES[name]
    size, rate, op_s, hop_s = 1 << 20, 5e9, 1e-6, 2e-6
    factors = sim.opcode_factors(copy=1.0, copy_twice=0.5, reduce=0.25, reduce_twice=0.125)
    timing = sim.ProtocolParameters(rate, 1.0, 1.0, op_s, hop_s, hop_s, slot_bytes=size, slots=8, factors=factors)
    machine = sim.Parameters("test", {"Simple": timing}, 0.0, sim.Evidence("made up"), staged_network=False)
    on = sim.platform("fully_connected:R=3,GBps=1000000,latency_ns=0", machine)
    compiled = program(op, results(*traits(op)))
    found = sim.Simulation(compiled, on).run(gc3.collectives.size_for(compiled.collective, size // 4, 4))
    plain = op_s + size / rate
    factor = 1.0 * (0.25 if op.reduces else 1) * (0.5 if op.sends and op.writes_local else 1)
    step = op_s + size / rate / factor if op.name != "nop" else 0.0
    hops = op.receives + op.sends
    assert found.time_s == pytest.approx(plain + step + hops * hop_s + op.sends * plain, rel=1e-5)


def test_the_compiler_makes_every_opcode() -> None:
    made: set[str] = set()
    for name in SOURCES:
        listing = gc3.compile(algorithms.load(name), R=4).core.as_dict()
        made |= {step["opcode"] for r in listing["ranks"] for tb in r["threadblocks"] for step in tb["steps"]}
    assert made == OPCODES.keys() - {"nop"}
