"""The candidates of a frontier for one number of steps, and what is known of each."""

from __future__ import annotations

from gc3.synth.answer import OPEN
from gc3.synth.outcome import Outcome


class Tried:
    """The candidates (R, C) of a number of steps, the best first, and their results."""

    def __init__(self, candidates: list[tuple[int, int]]) -> None:
        """Has tried none of the candidates."""
        self.candidates = candidates
        self.found: Outcome | None = None
        self._place = {c: i for i, c in enumerate(candidates)}
        self._end = len(candidates)  # those from here on are no better than the result
        self._open: set[tuple[int, int]] = set()
        self._refuted: list[tuple[int, int]] = []

    def note(self, candidate: tuple[int, int], outcome: Outcome) -> None:
        """Records the result of a candidate."""
        self._open.discard(candidate)
        if outcome.result is not None:
            self.found, self._end = outcome, self._place[candidate]
        elif outcome.status == OPEN:
            self._open.add(candidate)
        else:
            self._refuted.append(candidate)

    def matters(self, candidate: tuple[int, int]) -> bool:
        """Returns whether a candidate is better than the result, and not refuted by another.

        If there is no schedule for C chunks in R rounds, there is none for more chunks or fewer rounds.
        """
        rounds, chunks = candidate
        return self._place[candidate] < self._end and not any(rounds <= r and chunks >= c for r, c in self._refuted)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """The candidates that were tried, would be better, and were neither found nor refuted."""
        return [c for c in self.candidates if c in self._open and self.matters(c)]
