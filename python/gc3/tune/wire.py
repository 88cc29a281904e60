"""A request to a rank to run a program, as one word."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """A program and how to run it.

    Attributes:
        file: The compiled program.
        slots: FIFO slots per connection; 0: the engine's choice.
        slot_bytes: Bytes of a slot; 0: the engine's choice.
        in_place: Whether the buffers alias.
        thresholds: See `gc3.comm.selection.Spec`.
        skew: Of the blocks; above 1 the call is one of a v-form.
        memory: "" on ordinary memory; on registered memory "fifo", or "direct" for the one-sided form.
    """

    file: str
    slots: int
    slot_bytes: int
    in_place: bool
    thresholds: tuple[tuple[str, int | None], ...] = ()
    skew: float = 1.0
    memory: str = ""

    def word(self) -> str:
        """Returns one word without spaces."""
        return json.dumps(astuple(self), separators=(",", ":")).replace(" ", "\\u0020")

    @staticmethod
    def read(word: str) -> Work:
        """Parses a word.

        >>> Work.read(Work("a b.gc3", 4, 0, in_place=True).word()).file
        'a b.gc3'
        """
        *first, thresholds, skew, memory = json.loads(word)
        told = tuple((name, value) for name, value in thresholds)
        return Work(*first, thresholds=told, skew=skew, memory=memory)
