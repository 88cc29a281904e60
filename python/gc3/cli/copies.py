"""What users are told of programs for copy engines."""

from __future__ import annotations

from collections.abc import Iterable

from gc3.cli import output


def remark(protocols: Iterable[str]) -> None:
    """Says who moves the messages of programs with the protocol Copy, if there are any."""
    if "Copy" in protocols:
        output.remark(
            "protocol Copy: the time is with copy engines, which only the engine on devices uses, outside of CUDA "
            "graphs; elsewhere threadblocks store the messages, whose time protocol=Simple predicts"
        )


def carried_out(by: str) -> None:
    """Says who moves the messages of a program on devices, if its protocol is Copy: see `cuda.Engine.copies`."""
    if by:
        output.remark(f"protocol Copy: messages are moved by {by}")
