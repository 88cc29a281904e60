"""What is known of an instance."""

from __future__ import annotations

from dataclasses import dataclass

from gc3.synth.schedule import Schedule

FOUND, IMPOSSIBLE, OPEN = "found", "impossible", "open"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for an instance.

    Attributes:
        status: "found", "impossible", or "open" if neither is known.
        schedule: The schedule found, checked.
        how: The method that found it, the proof that there is none, or why neither is known.
    """

    status: str
    schedule: Schedule | None
    how: str


# Where switches multicast, no method tries all schedules.
UNDECIDED = Answer(OPEN, None, "no schedule was found, and not all in which switches multicast or add up were tried")
