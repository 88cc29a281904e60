"""What the timers of `gc3 tune` run: the program of each spec, in its memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from gc3.comm.spec import Spec
from gc3.comm.timed_work import Work
from gc3.comm.world import Answer, World
from gc3.runtime.program import Program
from gc3.tune import HostTimer, hosts
from gc3.tune.timers import RankTimer, ThreadTimer

if TYPE_CHECKING:
    from gc3 import Communicator

pytestmark = pytest.mark.python_only

_TIMERS: dict[str, Any] = {"processes": RankTimer, "threads": ThreadTimer}
BRUCK = Spec("bruck_allgather", (("R", "ranks"),))


class _Hosts:
    """A job on two hosts, of which only rank 0 is there."""

    size, transport = 4, "tcp"
    hosts = (("a", (0, 1)), ("b", (2, 3)))

    def broadcast_object(self, asked: object) -> None:
        """Tells nobody."""


@pytest.mark.parametrize("kind", ["processes", "threads", "hosts"])
def test_a_timer_runs_the_program_of_each_spec(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an earlier one differs only in its order, or in its most threadblocks."""
    ran: list[bytes] = []

    def asked(_: object, what: Any) -> Any:
        ran.append(Path(Work.read(what.mode).file).read_bytes())
        return Answer((1.0,), 0, 1.0)

    def on_threads(program: Program, *_: object, **__: object) -> list[float]:
        ran.append(program.core.to_bytes())
        return [1.0]

    def on_hosts(_: object) -> Any:
        return lambda image, *_: ran.append(image) or [1.0]

    monkeypatch.setattr(World, "__init__", lambda *_: None)
    monkeypatch.setattr(World, "ask", asked)
    monkeypatch.setattr(World, "close", lambda _: None)
    monkeypatch.setattr(Program, "time", on_threads)
    monkeypatch.setattr(hosts, "_timed", on_hosts)
    timer: Any = HostTimer(cast("Communicator", _Hosts())) if kind == "hosts" else _TIMERS[kind](4)
    other, few = replace(BRUCK, order=(0, 2, 1, 3)), replace(BRUCK, threadblocks=2)
    with timer:
        for spec in (BRUCK, other, few, replace(BRUCK, slots=4), replace(other, thresholds=(("spins", 3),))):
            timer.seconds(spec, "allgather", 1024, 0, 1, in_place=False)
    one, two, three, *rest = ran
    assert len({one, two, three}) == 3
    assert rest == [one, two]
