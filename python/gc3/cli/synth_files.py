"""What `gc3 synth` does with a result: the file of a program, and a run that is compared with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gc3 import errors, synth
from gc3.cli import output
from gc3.collectives import count_for
from gc3.runtime.checking import Case
from gc3.runtime.program import Program
from gc3.support.files import write_text
from gc3.synth.result import Result

_MOST_OF_A_NAME = 120


def file_of(point: synth.Point, folder: str) -> Path:
    """The file of a point; collectives and machines may have any names."""
    assert point.outcome.result is not None  # noqa: S101 - points are found
    name = re.sub(r"[^\w.-]+", "_", point.outcome.result.name)
    return Path(folder) / f"{name[-_MOST_OF_A_NAME:].lstrip('._')}.gc3"


def write(made: Result, path: str, save: Callable[[str], Any]) -> None:
    """Writes a result in the form that the name of the file says; `save` writes its program."""
    if path.endswith(".plan.json") or not path.endswith(".json"):
        save(path)
        return
    write_text(path, made.to_json())


def run(made: Result | synth.OneRankResult, program: Program, size: int) -> int:
    """Runs a result's program on data and compares with NumPy; returns the number of elements compared."""
    case = Case(program.collective, max(count_for(program.collective, size, 4), 1), "int32")
    inputs, outputs = case.inputs(), case.poisoned_outputs()
    with output.working("running"):
        program.run(inputs, outputs=outputs, count=case.count, dtype=case.dtype, op=case.op)
    given: dict[str, Any] = {"count": case.count, "dtype": case.dtype, "op": case.op}
    compared = case.further(case.compare(inputs, outputs), lambda i, o: program.run(i, outputs=o, **given))
    if not compared.ok:
        raise errors.error("Internal", f"'{made.name}' gave {compared.wrong} wrong elements")
    return compared.elements
