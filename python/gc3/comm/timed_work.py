"""A request to a rank to run a program, as one word."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """A program and how to run it."""

    file: str  # the compiled program
    slots: int  # FIFO slots per connection; 0: the engine's choice
    slot_bytes: int  # bytes of a slot; 0: the engine's choice
    in_place: bool  # whether the buffers alias
    thresholds: tuple[tuple[str, int | None], ...] = ()  # see `gc3.comm.selection.Spec`
    skew: float = 1.0  # of the blocks; above 1 the call is one of a v-form
    memory: str = ""  # "" on ordinary memory; on registered memory "fifo", or "direct" for the one-sided form

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
