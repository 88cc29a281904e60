"""Times programs on ranks that a launcher has started on several hosts: rank 0 asks, all ranks run.

Programs come from rank 0, so the other hosts need no files of its, and only its clock decides when the search ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from gc3 import errors
from gc3.comm import kept
from gc3.comm.communicator import Communicator
from gc3.comm.spec import Spec
from gc3.comm.timed_rank import TimedRank
from gc3.comm.timed_work import Work
from gc3.comm.world import WorldError
from gc3.runtime.classes import of_image
from gc3.support.files import make_folder, replace_text
from gc3.tune.timers import Timer

if TYPE_CHECKING:
    # The program's image and how it runs; the collective, S in bytes, untimed and timed calls.
    Asked = tuple[bytes, Work, str, int, int, int]


class HostTimer(Timer):
    """Rank 0's timer. The other ranks are in `serve`, until `finish` ends them.

    Attributes:
        comm: The ranks.
        where: The number of hosts, and of ranks on each; 0: not the same number on all.
    """

    fifos: tuple[tuple[int, int], ...] = ((0, 0),)  # the transport chooses
    protocols: tuple[str, ...] = ("Simple",)  # only this one runs between hosts

    def __init__(self, comm: Communicator) -> None:
        """Times on the ranks of a communicator.

        Raises:
            gc3.UserError: All of them are on one host.
        """
        self.comm = comm
        self._seconds = _timed(comm)
        places = [ranks for _, ranks in comm.hosts]
        if not places:
            raise errors.error("BadArgument", "all ranks of this job are on one host, where they need no launcher")
        equal = all(len(ranks) == len(places[0]) for ranks in places)
        self.where = len(places), len(places[0]) if equal else 0
        order = [rank for ranks in places for rank in ranks]
        self._order = () if order == sorted(order) else tuple(order)
        self._image = lru_cache(maxsize=None)(self._compile)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return tuple(name for name, _ in self.comm.hosts)

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a row of a table as one for ranks that are placed as these."""
        nodes, each = self.where
        placed = {"ranks_per_node": [each, each]} if each else {}
        return {**row, "nodes": [nodes, nodes], **placed, "transport": self.comm.transport}

    def seconds(
        self, spec: Spec, collective: str, size: int, warmup: int, iterations: int, *, in_place: bool, skew: float = 1.0
    ) -> tuple[float, ...]:
        """Measures."""
        try:
            image = self._image(spec.compiled, in_place)
        except errors.UserError as problem:  # the default table's choice need not be among the candidates
            raise WorldError(problem.message) from problem
        asked = image, Work("", spec.slots, spec.slot_bytes, in_place, (), skew), collective, size, warmup, iterations
        self.comm.broadcast_object(asked)
        try:
            return tuple(self._seconds(*asked))
        except errors.UserError as problem:
            raise WorldError(problem.message) from problem

    def finish(self, text: str | None) -> None:
        """Ends the other ranks, and has each other host keep the table; None: keep nothing."""
        self.comm.broadcast_object(text)
        for problem in self.comm.gather_object(None) or ():
            if problem is not None:
                raise errors.error("FileUnwritable", problem)

    def _compile(self, spec: Spec, in_place: bool) -> bytes:
        return spec.compile(self.comm.size, in_place=in_place, nodes=self.where[0], order=self._order).stored.to_bytes()


def serve(comm: Communicator) -> None:
    """Runs on every rank but 0 what rank 0 asks for, until it ends; keeps the table on this rank's host."""
    seconds = _timed(comm)
    asked: Asked | str | None
    while isinstance(asked := comm.broadcast_object(None), tuple):
        try:
            seconds(*asked)
        except errors.UserError:  # rank 0 has the same one
            continue
    problem = None
    name, ranks = next((name, ranks) for name, ranks in comm.hosts if comm.rank in ranks)
    if asked is not None and ranks[0] == comm.rank:
        try:
            _keep(asked)
        except errors.UserError as unwritable:
            problem = f"{unwritable.message} (on host {name})"
    comm.gather_object(problem)


def _keep(text: str) -> None:
    place = kept.path(kept.HOSTS)
    if place is not None:  # GC3_CACHE=off there
        make_folder(place.parent)
        replace_text(str(place), text)


def _timed(comm: Communicator) -> Callable[[bytes, Work, str, int, int, int], list[float]]:
    """Returns what times programs that come as images, on this rank."""
    timed, program = TimedRank(comm), cache(of_image)

    def seconds(image: bytes, work: Work, collective: str, size: int, warmup: int, iterations: int) -> list[float]:
        return timed.seconds(program(image), work, collective, size, warmup, iterations)

    return seconds
