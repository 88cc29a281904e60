"""Damaged programs with properties: whatever the verifier accepts does on data what the sequential form does."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import gc3
from gc3 import _core
from gc3.properties import NAMES, check
from property_programs import FUNCTIONS, FUSED, OPERATIONS, Fused, data, execute, is_right

Lines = list[str]
_STEP = re.compile(r"^    (\d+) (.*)$")
_PLACE = re.compile(r"\b(in|out|sc)\[(\d+)\]")


def _steps(lines: Lines, wanted: str = "") -> list[int]:
    return [k for k, line in enumerate(lines) if _STEP.match(line) and wanted in line]


def _rewrite(lines: Lines, k: int, body: str) -> None:
    found = _STEP.match(lines[k])
    assert found
    lines[k] = f"    {found[1]} {body}"


def _body(lines: Lines, k: int) -> str:
    found = _STEP.match(lines[k])
    assert found
    return found[2]


def _drop_step(lines: Lines, dice: random.Random) -> None:
    k = dice.choice(_steps(lines))
    body = _body(lines, k)
    _rewrite(lines, k, "nop" + "".join(re.findall(r" after (?:\(\d+:\d+\) ?)+| signals", body)))


def _swap_steps(lines: Lines, dice: random.Random) -> None:
    pairs = [k for k in _steps(lines) if _STEP.match(lines[k + 1] if k + 1 < len(lines) else "")]
    if pairs:
        k = dice.choice(pairs)
        one, other = _body(lines, k), _body(lines, k + 1)
        _rewrite(lines, k, other)
        _rewrite(lines, k + 1, one)


def _move_step(lines: Lines, dice: random.Random) -> None:
    one, other = dice.choice(_steps(lines)), dice.choice(_steps(lines))
    body = _body(lines, one)
    _rewrite(lines, one, _body(lines, other))
    _rewrite(lines, other, body)


def _drop_message(lines: Lines, dice: random.Random) -> None:
    """A send and a receive, not always the one that takes it."""
    for words in (("send ", "rrs ", "rcs "), ("recv ", "rrc ", "rrs ")):
        some = [k for k in _steps(lines) if _body(lines, k).startswith(words)]
        if some:
            _rewrite(lines, dice.choice(some), "nop")


def _change_peer(lines: Lines, dice: random.Random) -> None:
    some = [k for k, line in enumerate(lines) if line.startswith("  tb ") and ("send " in line or "recv " in line)]
    if some:
        k = dice.choice(some)
        lines[k] = re.sub(r"(send|recv) (\d+)", lambda m: f"{m[1]} {dice.randrange(3)}", lines[k], count=1)


def _change_place(lines: Lines, dice: random.Random, wanted: str = "") -> None:
    some = [k for k in _steps(lines, wanted) if _PLACE.search(lines[k])]
    if not some:
        return
    k = dice.choice(some)
    at = dice.choice(list(_PLACE.finditer(lines[k])))
    other = f"{at[1]}[{dice.randrange(4)}]" if dice.random() < 0.7 else f"{dice.choice(('in', 'out', 'sc'))}[{at[2]}]"
    lines[k] = lines[k][: at.start()] + other + lines[k][at.end() :]


def _change_argument(lines: Lines, dice: random.Random) -> None:
    _change_place(lines, dice, "apply")


def _swap_arguments(lines: Lines, dice: random.Random) -> None:
    some = [k for k in _steps(lines, "apply") if len(_PLACE.findall(lines[k].partition("->")[0])) > 1]
    if some:
        k = dice.choice(some)
        first, second = list(_PLACE.finditer(lines[k]))[:2]
        lines[k] = lines[k][: first.start()] + second[0] + " " + first[0] + lines[k][second.end() :]


def _change_operation(lines: Lines, dice: random.Random) -> None:
    names = [line.split('"')[1] for line in lines if line.startswith("  operation ")]
    k = dice.choice(_steps(lines, "apply"))
    lines[k] = re.sub(r'"\w+"', f'"{dice.choice(names)}"', lines[k], count=1)


def _change_order(lines: Lines, dice: random.Random) -> None:
    some = _steps(lines, "after")
    if some:
        k = dice.choice(some)
        other = "" if dice.random() < 0.5 else f" after ({dice.randrange(4)}:{dice.randrange(4)})"
        lines[k] = re.sub(r" after (?:\(\d+:\d+\) ?)+", other + " ", lines[k]).rstrip()


def _change_opcode(lines: Lines, dice: random.Random) -> None:
    kin = {"rrc": "recv", "recv": "rrc", "copy": "reduce", "reduce": "copy", "rrs": "rrcs", "rcs": "rrcs"}
    some = [k for k in _steps(lines) if _body(lines, k).split()[0] in kin]
    if some:
        k = dice.choice(some)
        opcode, _, rest = _body(lines, k).partition(" ")
        places = _PLACE.findall(rest)
        if kin[opcode] == "rrc" and places:
            rest = re.sub(_PLACE, lambda m: f"{m[0]} -> {m[0]}", rest, count=1)
        _rewrite(lines, k, f"{kin[opcode]} {rest.removeprefix('-> ')}")


def _change_property(lines: Lines, dice: random.Random) -> None:
    k = dice.choice([k for k, line in enumerate(lines) if line.startswith("  operation ")])
    name = lines[k].split('"')[1]
    said = dict.fromkeys(NAMES, "")
    for which in said:
        found = re.search(rf" {which} (all|[\d ]+)", lines[k])
        said[which] = found[1].strip() if found else ""
    said[dice.choice(list(said))] = dice.choice(("", "0", "1", "0 1", "all"))
    lines[k] = f'  operation "{name}"' + "".join(f" {which} {of}" for which, of in said.items() if of)


MUTATIONS: tuple[Callable[[Lines, random.Random], None], ...] = (
    _drop_step,
    _swap_steps,
    _move_step,
    _drop_message,
    _change_peer,
    _change_place,
    _change_argument,
    _swap_arguments,
    _change_operation,
    _change_order,
    _change_opcode,
    _change_property,
)


def refuted(program: _core.Program) -> bool:
    """Whether a property that the program declares is refuted by the function that is bound to its operation."""
    numbers = np.random.default_rng(5)
    for name, properties in program.collective.operations:
        width = 1 if name == "gelu" else 2
        operands = [numbers.integers(-3, 4, (3, 3), np.int64) for _ in range(width)]
        try:
            check(FUNCTIONS[name], properties, operands, [np.zeros((3, 3), np.int64)])
        except ValueError:
            return True
    return False


def judge(fused: Fused, R: int, times: int, seed: int, tally: Counter[str]) -> None:
    """Damages a program in one way or in two, as often as asked."""
    program = gc3.compile(fused.algorithm, R=R)
    assert all(is_right(program.core, fused, R, seed) for seed in range(3))
    text = program.text
    dice = random.Random(f"{seed} {fused.algorithm.name} {R}")  # noqa: S311  no secret
    for n in range(times):
        lines = text.splitlines()
        chosen = [MUTATIONS[n % len(MUTATIONS)], *dice.sample(MUTATIONS, dice.randrange(2))]
        for mutation in chosen:
            mutation(lines, dice)
        damaged = "\n".join(lines) + "\n"
        if damaged == text:
            tally["the same"] += 1
            continue
        tally["mutants"] += 1
        try:
            mutant = _core.Program.from_text(damaged)
        except gc3.UserError:
            tally["malformed"] += 1
            continue
        if not _core.verify(mutant, 0, 0, 0, 1, False).ok:
            tally["refused"] += 1
            continue
        right = all(is_right(mutant, fused, R, seed) for seed in range(3))
        tally["accepted"] += 1
        # A false declaration proves anything: bind(check=True) refutes it.
        tally["by a false property"] += not right
        assert right or refuted(mutant), (fused.algorithm.name, R, chosen, damaged)


@pytest.mark.python_only
def test_no_wrong_mutant_of_2000_is_accepted() -> None:
    tally: Counter[str] = Counter()
    for seed in range(3):
        for fused in FUSED:
            for R in (2, 3):
                judge(fused, R, 120, seed, tally)
    assert tally["mutants"] >= 2000
    assert tally["refused"] > 1000


def test_the_executor_sees_what_the_verifier_must() -> None:
    """Without a property that it needs, a program is refused, and yet right: the property is true."""
    for fused in FUSED:
        program = gc3.compile(fused.algorithm, R=2)
        assert execute(program.core, data(fused, 2, 0), 0)
        assert program.verify().transfers
        with pytest.raises(gc3.UserError, match="GC3-V008"):
            gc3.verify(program, properties=False)
    assert not refuted(gc3.compile(FUSED[0].algorithm, R=2).core)
    assert set(OPERATIONS) == set(FUNCTIONS)
