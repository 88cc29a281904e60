"""What users are told of programs whose predicted times count on copy engines."""

from __future__ import annotations

from collections.abc import Iterable

from gc3.cli import output


def remark(protocols: Iterable[str]) -> None:
    """Says who moves the messages of programs with the protocol Copy, if there are any."""
    if "Copy" in protocols:
        output.remark(
            "protocol Copy: the time is with copy engines; engines of gc3 let threadblocks store the messages, whose "
            "time --protocol Simple predicts"
        )
