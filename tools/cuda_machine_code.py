"""Checks in the machine code of the kernels that lines move as the protocols require.

LL needs the two pairs of data and flag in each 16-byte line to move as a whole, which one access of 16 bytes does.
LL128 needs all 32 lanes of a warp to store the four 128-byte lines of a row in one access: a store of 16 bytes per lane
that no predicate leaves lanes out of, and before which the lanes have come together. Both are written so; that no
compiler splits, predicates or moves the accesses is seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<predicate>@\S+\s+)?(?P<opcode>[A-Z][A-Z0-9.]*)(?P<rest>[^;]*);")
_KERNEL = re.compile(r"^\.text\.(\w+):")
_LABEL = re.compile(r"^(\.L_\w+):")
_LOAD, _STORE = "LDG.E.128.STRONG.SYS", "STG.E.128.STRONG.SYS"
# After one of these a warp's lanes may have diverged.
_PARTS = ("BRA", "BRX", "BSYNC", "CALL", "RET", "WARPSYNC.COLLECTIVE")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction; a place that is branched to has no opcode, and its name as the rest."""

    opcode: str
    rest: str
    predicated: bool = False


def kernels(text: str) -> dict[str, list[Instruction]]:
    """Returns the instructions of each kernel of what nvdisasm has printed."""
    found: dict[str, list[Instruction]] = {}
    here: list[Instruction] = []
    targets = set(re.findall(r"(?<!^)\.L_\w+", text, re.MULTILINE))  # there are labels that nothing refers to
    for line in text.splitlines():
        if kernel := _KERNEL.match(line):
            here = found.setdefault(kernel[1], [])
        elif label := _LABEL.match(line):
            if label[1] in targets:
                here.append(Instruction("", label[1]))
        elif match := _INSTRUCTION.search(line):
            here.append(Instruction(match["opcode"], match["rest"], match["predicate"] is not None))
    return found


def problems(text: str) -> list[str]:
    """Returns what is wrong with the lines of the kernels that nvdisasm has printed."""
    found: list[str] = []
    for name, code in kernels(text).items():
        if name.startswith("gc3_run_LL"):
            found += [f"{name}: {problem}" for problem in _of_kernel(code, together="_LL128_" in name)]
    return found


def _of_kernel(code: list[Instruction], *, together: bool) -> Iterator[str]:
    opcodes = [instruction.opcode for instruction in code]
    for opcode, what in ((_LOAD, "loaded"), (_STORE, "stored")):
        if opcode not in opcodes:
            yield f"lines are not {what} by {opcode}"
    if not together:
        return
    converged = False
    skips = ""  # the operands of the last branch that a warp takes which is together
    for instruction in code:
        if instruction.opcode.startswith("BRA.CONV"):
            skips = instruction.rest
        elif _brings_together(instruction):
            converged = not instruction.predicated
        elif instruction.opcode == "":
            converged = converged and f"({instruction.rest})" in skips
        elif instruction.opcode.startswith(_PARTS):
            converged = False
        elif instruction.opcode == _STORE and (instruction.predicated or not converged):
            yield "lines are stored by a part of the warp"


def _brings_together(instruction: Instruction) -> bool:
    """Whether the lanes are together after it: up to sm_80 some of these are calls, which a warp together skips."""
    if instruction.opcode.startswith("CALL"):
        return "warpsync" in instruction.rest
    return instruction.opcode.startswith("WARPSYNC") and not instruction.opcode.startswith(_PARTS)
