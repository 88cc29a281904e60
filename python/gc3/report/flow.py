"""A program step by step: which chunks move between ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from gc3.report import svg
from gc3.report.alike import Flow, Move, alike
from gc3.sim.details import place
from gc3.support.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gc3.sim.details import Details
    from gc3.sim.run_timeline import Run

MOST_RANKS = 24
MOST_MOVES = 800
MOST_ROUNDS = 200
_MOST_RECORDS = 400_000
_NONE = 0xFFFFFFFF
MOST_DRAWN = 24  # rounds in one picture
SIDE = 520
_MOST_LABELS, _MOST_OF_ONE = 14, 16  # of a picture, and of what one rank sends; beyond that they cover each other
_MOST_ARROWS = 32  # of a picture; beyond that one sender stands for all that are alike
_MOST_ROWS, _MOST_IN_ROW = 4, 8  # nodes that are drawn as rows, and their ranks
_WIDE = 4  # ranks of a row whose labels stay apart
_MARGIN = 64  # beside a row, for the node's name
_SHORT = 80  # a line that its label would cover
_LINE = 24  # above or below a picture, for a line of text


def flow(run: Run) -> Flow:
    """Finds the moves of the first tile of a run."""
    records, details = run.why.records, run.details
    whole = np.flatnonzero(records["tile"] == 0)
    first = whole[:_MOST_RECORDS]
    rank_of = run.wired.rank_of()
    ranks = sorted(set(rank_of))[:MOST_RANKS]
    known = set(ranks)
    depth: dict[int, int] = {}  # of a record: the messages before its end
    of_tb: dict[int, int] = {}
    parts = details.program.collective.split
    found: dict[Move, int] = {}
    dropped = 0
    semaphore = details.causes.index("semaphore")
    for k in first.tolist():
        record = records[k]
        tb, sender, before = int(record["tb"]), int(record["sent_by"]), int(record["before"])
        now = of_tb.get(tb, 0)
        if record["slice"]:  # of a step whose first slice was seen, for whoever waits for the last one
            depth[k] = now
            continue
        if int(record["wait"]) == semaphore and before != _NONE:
            now = max(now, depth.get(before, 0))
        if sender != _NONE:
            now = max(now, depth.get(sender, 0))
            src, dst = rank_of[int(records[sender]["tb"])], rank_of[tb]
            move = None
            if src in known and dst in known and now < MOST_ROUNDS:
                sent = int(records[sender]["tb"]), int(records[sender]["step"])
                move = _move(details, now, (src, dst), sent, (tb, int(record["step"])), parts)
            if move is not None and (move in found or len(found) < MOST_MOVES):
                found[move] = found.get(move, 0) + 1
            else:
                dropped += 1
            now += 1
        depth[k] = of_tb[tb] = now
    moves = [replace(move, times=times) for move, times in found.items()]
    moves.sort(key=lambda m: (m.round, m.src, m.dst))
    missing: list[str] = []
    if len(known) < len(set(rank_of)):
        missing.append(f"{counted(len(set(rank_of)) - len(known), 'rank')} of {len(set(rank_of))}")
    if dropped:
        missing.append(f"{counted(dropped, 'message')} of {dropped + sum(found.values())}")
    if len(whole) > len(first):
        missing.append(f"everything after {_MOST_RECORDS} steps")
    nodes = [run.rank_names[rank].rpartition(".")[0] for rank in ranks]
    return Flow(ranks, nodes, moves, max((m.round for m in moves), default=-1) + 1, ", ".join(missing), parts)


def _move(
    details: Details,
    now: int,
    ranks: tuple[int, int],
    sent: tuple[int, int],
    taken: tuple[int, int],
    parts: int,
) -> Move:
    """A message from one step to another, each given as its threadblock and its number there; of whole chunks."""
    sending, receiving = details.instruction(*sent), details.instruction(*taken)
    at = receiving.target or receiving.source or sending.source or ("", 0)
    does = " +=" if receiving.reduces else ""
    channel = "" if parts > 1 else f", channel {details.threadblock(taken[0]).channel}"
    what = f"{place((at[0], at[1] // parts), max(receiving.count // parts, 1))}{does}{channel}"
    return Move(now, *ranks, what, "" if receiving.line is None else str(receiving.line))


def draw(made: Flow, *, alone: bool = True, head: str = "") -> str:
    """Returns the drawing; alone, all rounds in one picture under `head`, else each is a group that the page shows."""
    rows = _rows(made)
    places = _in_rows(rows) if rows else _places(made.ranks)
    ranks = _boxes(rows, places) + _ranks(made.ranks, places)
    shown = min(made.rounds, MOST_DRAWN) if alone else made.rounds
    drawn = [_drawn(made, r) for r in range(shown)]
    steps = [_arrows(moves, places, rows) for moves, _ in drawn]
    below = _LINE if any(told for _, told in drawn) else 0  # the room for what is not drawn
    if not alone:
        groups = [
            f'<g class="round" data-round="{r}"{"" if r == 0 else " hidden"}>{step}'
            f"{svg.text(8, SIDE + 14, drawn[r][1], kind='soft')}</g>"
            for r, step in enumerate(steps)
        ]
        inner = _defs() + ranks + "".join(groups)
        return svg.document(inner, SIDE, SIDE + below, "Messages between ranks", alone=False, name="flow")
    columns, high = max(1, min(4, shown)), SIDE + _LINE + below
    parts: list[str] = [_defs()]
    for r, step in enumerate(steps):
        x, y = (r % columns) * SIDE, (r // columns) * high
        parts.append(
            f'<g transform="translate({x} {y})">{svg.text(8, 16, f"step {r + 1} of {made.rounds}")}'
            f"{svg.text(8, 34, drawn[r][1], kind='soft')}"
            f'<g transform="translate(0 {_LINE + below})">{ranks}{step}</g></g>'
        )
    deep = -(-shown // columns) or 1
    title = "Messages between ranks, step by step"
    return svg.document("".join(parts), columns * SIDE, deep * high, title, head=head)


def _drawn(made: Flow, number: int) -> tuple[list[Move], str]:
    """The messages of a step that are drawn, and in words what they stand for, if others are like them."""
    kinds = alike(made, number)
    kept = [moves for _, moves in kinds]
    for least in (1, 0):  # of ranks that send several messages of a kind one is drawn, and then of all ranks
        if len({(move.src, move.dst) for moves in kept for move in moves}) <= _MOST_ARROWS:
            break
        for k, (_, moves) in enumerate(kinds):
            first = moves[0].src
            if sum(move.src == first for move in moves) > least:
                kept[k] = [move for move in moves if move.src == first]
    fewer = [(told, moves) for (told, moves), some in zip(kinds, kept, strict=True) if len(some) < len(moves)]
    count = sum(len(moves) for _, moves in fewer)
    if len(fewer) == 1:
        told, moves = fewer[0]
        words = f"{told}: of {count} messages, those of rank {moves[0].src} are drawn"
    else:
        words = f"of {count} messages of {len(fewer)} kinds, one rank's are drawn of each" if fewer else ""
    return [move for moves in kept for move in moves], words


def _defs() -> str:
    return (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#0072B2"/></marker></defs>'
    )


def _places(ranks: Sequence[int]) -> dict[int, tuple[float, float]]:
    middle, radius = SIDE / 2, SIDE / 2 - 44
    turn = 2 * math.pi / max(len(ranks), 1)
    return {
        rank: (middle + radius * math.sin(k * turn), middle - radius * math.cos(k * turn))
        for k, rank in enumerate(ranks)
    }


def _rows(made: Flow) -> dict[str, list[int]]:
    """The ranks of each node, if they are drawn as a row of their own."""
    rows: dict[str, list[int]] = {}
    for rank, node in zip(made.ranks, made.nodes, strict=True):
        rows.setdefault(node, []).append(rank)
    few = 1 < len(rows) <= _MOST_ROWS and max(map(len, rows.values())) <= _MOST_IN_ROW
    return rows if few else {}


def _in_rows(rows: dict[str, list[int]]) -> dict[int, tuple[float, float]]:
    wide, high = max(map(len, rows.values())), SIDE / len(rows)
    step = (SIDE - 2 * _MARGIN) / max(wide - 1, 1)
    return {
        rank: (_MARGIN + k * step if wide > 1 else SIDE / 2, (n + 0.5) * high)
        for n, ranks in enumerate(rows.values())
        for k, rank in enumerate(ranks)
    }


def _boxes(rows: dict[str, list[int]], places: dict[int, tuple[float, float]]) -> str:
    high = SIDE / max(len(rows), 1) - 12
    return "".join(
        f'<rect x="4" y="{places[ranks[0]][1] - high / 2:.1f}" width="{SIDE - 8}" height="{high:.1f}" rx="10" '
        f'style="fill:none;stroke:var(--line)"/>{svg.text(12, places[ranks[0]][1] - high / 2 + 16, node, kind="soft")}'
        for node, ranks in rows.items()
    )


def _ranks(ranks: Sequence[int], places: dict[int, tuple[float, float]]) -> str:
    out: list[str] = []
    for rank in ranks:
        x, y = places[rank]
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="15" style="fill:var(--panel);stroke:var(--ink)"/>')
        out.append(svg.text(x, y + 4, str(rank), anchor="middle"))
    return "".join(out)


def _short(place: str) -> str:
    """A place by the language's short names of buffers, so that labels stay apart."""
    return place.replace("output[", "out[").replace("input[", "in[").replace("scratch[", "sc[")


def _between(start: tuple[float, float], end: tuple[float, float], most: float) -> tuple[float, float]:
    """The point to which an arrow bends; within a row it passes the ranks between by at most `most`."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    bend = min(14 + 0.36 * max(length - 80, 0), most) if most and y1 == y2 else 14
    return (x1 + x2) / 2 - bend * (y2 - y1) / length, (y1 + y2) / 2 - bend * (x2 - x1) / length * (1 if most else -1)


def _towards(start: tuple[float, float], point: tuple[float, float]) -> tuple[float, float]:
    """Where a line to a point leaves the circle of a rank."""
    (x, y), (px, py) = start, point
    length = math.hypot(px - x, py - y) or 1.0
    return x + 17 * (px - x) / length, y + 17 * (py - y) / length


def _arrows(drawn: Sequence[Move], places: dict[int, tuple[float, float]], rows: dict[str, list[int]]) -> str:
    pairs: dict[tuple[int, int], list[Move]] = {}
    for move in drawn:
        pairs.setdefault((move.src, move.dst), []).append(move)
    fan = len(pairs) > _WIDE and len({src for src, _ in pairs}) == 1
    labels = _MOST_OF_ONE if fan else _MOST_LABELS
    few = len(pairs) <= (labels if max(map(len, rows.values()), default=0) <= _WIDE else 0)
    most = 0.8 * SIDE / len(rows) if rows else 0
    out: list[str] = []
    for (src, dst), moves in pairs.items():
        mx, my = _between(places[src], places[dst], most)
        if fan and not rows:  # straight, since nothing comes back
            mx, my = (places[src][0] + places[dst][0]) / 2, (places[src][1] + places[dst][1]) / 2
        (sx, sy), (ex, ey) = _towards(places[src], (mx, my)), _towards(places[dst], (mx, my))
        length = math.hypot(ex - sx, ey - sy) or 1.0
        ux, uy = (ex - sx) / length, (ey - sy) / length
        told = escape("; ".join(m.what for m in moves[:6]))
        out.append(
            f'<path d="M{sx:.1f} {sy:.1f}Q{mx:.1f} {my:.1f} {ex:.1f} {ey:.1f}" fill="none" stroke="#0072B2" '
            f'stroke-width="1.8" marker-end="url(#head)"><title>{src} to {dst}: {told}</title></path>'
        )
        if few and (length > _SHORT or not fan):
            label = _short(moves[0].what.split(",")[0]) + (f" and {len(moves) - 1} more" if len(moves) > 1 else "")
            # Nearer to the sender, so that the labels of both directions, and of lines that cross, stay apart; from one
            # sender nearer to the receivers.
            share = 0.72 if fan else 0.32
            tx, ty = (1 - share) * sx + share * ex - 6 * uy, (1 - share) * sy + share * ey + 6 * ux + 4
            style = "font-size:11px;paint-order:stroke;stroke:var(--back);stroke-width:4px"
            out.append(f'<text x="{tx:.1f}" y="{ty:.1f}" text-anchor="middle" style="{style}">{escape(label)}</text>')
    return "".join(out)
