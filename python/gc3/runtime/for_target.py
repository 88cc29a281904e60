"""Proves what another runtime executes for the MSCCL XML of a program: whoever writes a file for a runtime calls it."""

from __future__ import annotations

from gc3 import _core, errors


def prove(program: _core.Program, runtime: str, dialect: str, min_bytes: int = 0, max_bytes: int = 0) -> None:
    """Proves it in every mode that the runtime uses the file for, as `gc3 verify --target` does.

    Args:
        program: The program.
        runtime: "msccl", "azure" or "rccl".
        dialect: That of the XML.
        min_bytes: The XML is for whole buffers of at least this size.
        max_bytes: And of at most this size; 0: no limit.

    Raises:
        gc3.UserError: The runtime refuses the program, or what it executes is wrong.
    """
    text = program.to_xml(dialect, runtime, min_bytes, max_bytes)
    own = program.collective if program.collective.is_custom else None
    file = _core.read_xml(text, "", own, program.collective.in_place if own else None, runtime)
    executed = [file.program]
    if own is None and file.in_place and file.out_of_place:
        other = not file.program.collective.in_place
        executed.append(_core.read_xml(text, "", None, other, runtime).program)
    for each in executed:
        found = _core.verify(each, 0, 0, 0, 1, True).diagnostics
        if found:
            raise errors.UserError(*found)
