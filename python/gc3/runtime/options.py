"""How an engine runs a program."""

from __future__ import annotations

from dataclasses import dataclass

from gc3 import errors


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to run. 0 and None mean the environment's setting (see `gc3.support.knobs`), or else the engine's choice.

    Attributes:
        slots: FIFO slots per connection; 0: as many as the program needs.
        slot_bytes: Size of a FIFO slot, which determines the size of a tile.
        workers: OS threads; 0: one per core.
        timeout: Seconds without any progress after which a run fails.
        seed: Run on one worker in an order drawn from this seed: the same seed gives the same interleaving.
        devices: CUDA devices to which the ranks are assigned in turn; none: device 0. Only for `gc3.cuda`.
    """

    slots: int = 0
    slot_bytes: int = 0
    workers: int = 0
    timeout: float | None = None
    seed: int | None = None
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses values that no engine can accept.

        Raises:
            gc3.UserError: A value has the wrong type or is out of range.
        """
        for what, value, high in (
            ("slots", self.slots, 2**32 - 1),
            ("slot_bytes", self.slot_bytes, 2**63 - 1),
            ("workers", self.workers, 2**32 - 1),
            ("seed", 0 if self.seed is None else self.seed, 2**64 - 1),
        ):
            errors.whole(value, what, 0, high, name="BadOption")
        if self.timeout is not None and not isinstance(self.timeout, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.error("BadOption", f"timeout={self.timeout!r}; expected a number of seconds")


DEFAULT_OPTIONS = EngineOptions()
