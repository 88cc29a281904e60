"""The messages of a program, and those that are the same up to the ranks' numbers, told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_FEW = 2  # messages that are told one by one


@dataclass(frozen=True, slots=True)
class Move:
    """A message: `round` messages came before it on its way. It stands for `times`, each on a part of its chunks."""

    round: int
    src: int
    dst: int
    what: str
    line: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Flow:
    """The moves between the ranks that are shown, by round."""

    ranks: list[int]  # the ranks that are shown
    nodes: list[str]  # the names of their nodes
    moves: list[Move]  # by round
    rounds: int  # their number
    left_out: str  # what is not shown, in words
    parts: int = 1  # instances and the like cut every chunk into so many parts; moves have whole ones


def alike(made: Flow, number: int) -> list[tuple[str, list[Move]]]:
    """Returns the messages of a step in classes, each with who sends to whom.

    Those of a class come from the same line and differ by the same step from rank to rank, in the node or across.
    """
    by_line: dict[str, list[Move]] = {}
    for move in made.moves:
        if move.round == number:
            by_line.setdefault(move.line, []).append(move)
    places = _Places(made)
    found: list[tuple[str, list[Move]]] = []
    for moves in by_line.values():
        whole = places.all_pairs(moves)
        ways = [[(whole, moves)]] if whole else [_classes(moves, key) for key in (places.ahead, places.partner)]
        for told, some in min(ways, key=len):
            found.append((told if whole else f"{places.senders(some)} → {told}", some))
    return found


def _classes(moves: Iterable[Move], key: Callable[[Move], str]) -> list[tuple[str, list[Move]]]:
    found: dict[str, list[Move]] = {}
    for move in moves:
        found.setdefault(key(move), []).append(move)
    return [
        pair
        for told, some in found.items()
        for pair in ([(told, some)] if len(some) > _FEW else [(str(m.dst), [m]) for m in some])
    ]


class _Places:
    """Where ranks are: their node and their number in it."""

    def __init__(self, made: Flow) -> None:
        self._nodes: dict[str, list[int]] = {}
        for rank, node in zip(made.ranks, made.nodes, strict=True):
            self._nodes.setdefault(node, []).append(rank)
        self._of = {r: (n, g) for n, ranks in enumerate(self._nodes.values()) for g, r in enumerate(ranks)}
        self._wide = len(next(iter(self._nodes.values()), ()))
        self._several = len(self._nodes) > 1

    def ahead(self, move: Move) -> str:
        """The receiver, by how far it is ahead."""
        (n, g), (to, at) = self._of[move.src], self._of[move.dst]
        nodes, gpus = (to - n) % len(self._nodes), (at - g) % self._wide
        same = _further(gpus, self._wide)
        if not self._several:
            return same
        across = "the same rank" if gpus == 0 else same
        if nodes == 0:
            return f"{same} of the node"
        other = "the other node" if len(self._nodes) == _FEW else _further(nodes, len(self._nodes), "node")
        return f"{across} of {other}"

    def partner(self, move: Move) -> str:
        """The receiver, as one of pairs that exchange."""
        return f"the rank of its number xor {move.src ^ move.dst}"

    def senders(self, moves: Sequence[Move]) -> str:
        """Who sends."""
        ranks = sorted({move.src for move in moves})
        if len(ranks) == len(self._of):
            return "every rank"
        local = {tuple(self._of[r][1] for r in ranks if self._of[r][0] == n) for n in range(len(self._nodes))}
        if self._several and len(local) == 1:
            return f"{_spans(local.pop())} of each node"
        return _spans(ranks)

    def all_pairs(self, moves: Sequence[Move]) -> str:
        """Who sends to whom, if everybody does to everybody; else nothing."""
        pairs = {(move.src, move.dst) for move in moves}
        everyone = {(a, b) for a in self._of for b in self._of if a != b}
        inside = {(a, b) for a, b in everyone if self._of[a][0] == self._of[b][0]}
        if self._wide <= _FEW or pairs not in (everyone, inside):
            return ""
        return "every rank → all others" + (" of its node" if pairs != everyone else "")


def _further(step: int, count: int, what: str = "rank") -> str:
    """A step among `count` that follow each other in a ring."""
    if step in (1, count - 1):
        return f"the next {what}" if step == 1 else f"the {what} before"
    return f"the {what} {step} further" if 2 * step <= count else f"the {what} {count - step} before"


def _spans(numbers: Sequence[int]) -> str:
    """Ranks with the ranges among them.

    >>> _spans((0, 1, 2, 5)), _spans((3,))
    ('ranks 0-2, 5', 'rank 3')
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    told = ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
    return f"rank{'s' if len(numbers) > 1 else ''} {told}"
