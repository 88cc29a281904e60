"""NCCL's AllToAll and AllToNext, which are sends and receives in one group.

NCCL gives the messages to at most 32 channels, a threadblock each. With all peers a channel exchanges its messages in
turns: a turn sends to some peers and receives from as many, and the next begins when all of these are done. No
instruction says that, so each message has a threadblock of its own here, which waits for those of the turn before.
"""

from __future__ import annotations

from gc3 import _core
from gc3.lang import algorithm, chunk, compile
from gc3.runtime.program import Program
from gc3.sim.nccl.graphs import Graph

MOST_CHANNELS = 32
_STEP = 512 << 10  # of a buffer of 4 MiB in 8 steps; with several nodes a quarter of that
_LONGEST_PART_STEPS = 4


def step_bytes(nodes: int) -> int:
    """Returns the bytes of a step of a message."""
    return _STEP if nodes == 1 else _STEP // 4


def channels(graph: Graph) -> int:
    """Returns the channels for sends: as many as for collectives, in powers of two, and at most 32."""
    return min(1 << (graph.running - 1).bit_length(), MOST_CHANNELS)


def parts(message: int, ranks: int, nodes: int, most: int) -> int:
    """Returns into how many parts, each on a channel of its own, a message of so many bytes is divided.

    One between nodes; within a node as many as leave a channel for each peer, but parts of at least a step, and more
    if parts are longer than four steps (src/group.cc: getP2pChunkSize).
    """
    if nodes > 1:
        return 1
    least = max(most // (1 << (ranks - 1).bit_length()), 1)
    limit = max(least, min(most, 4 * most // (1 << (ranks - 1).bit_length())))
    step = step_bytes(nodes)
    size = max(step, -(-message // least))
    while size > _LONGEST_PART_STEPS * step and least < limit:
        least *= 2
        size = -(-message // least)
    return max(-(-message // (-(-size // step) * step)), 1)


def peers(ranks: int) -> list[int]:
    """Returns the distances to peers in the order of the messages: 0, n/2, 1, -1, n/2-1, 1-n/2, 2, ...

    >>> peers(8)
    [0, 4, 1, 7, 3, 5, 2, 6]
    """
    half = ranks // 2
    found = [x % ranks for d in range(ranks // 4 + 1) for x in (d, -d, half - d, d - half)]
    return list(dict.fromkeys(found))


def alltoall(ranks: int, most: int, pieces: int = 1, at_once: int = 1) -> Program:
    """Returns the AllToAll.

    Args:
        ranks: Number of ranks.
        most: Channels.
        pieces: Parts of a message.
        at_once: Messages of a turn.
    """
    bits = (most - 1).bit_length()
    queues: list[list[tuple[int, int]]] = [[] for _ in range(most)]
    for distance in peers(ranks):
        for piece in range(pieces):
            spread = int(f"{piece:0{bits}b}"[::-1], 2) if bits else 0
            queues[(distance + spread) % most].append((distance, piece))
    lines = [
        'program "nccl_alltoall" version 1',
        f"collective alltoall ranks {ranks} chunks {pieces}",
        "protocol Simple instances 1 slots 1",
    ]
    for rank in range(ranks):
        lines += ["", f"rank {rank}"]
        first = 0
        for channel, queue in enumerate(queues):
            lines += _threadblocks(rank, ranks, channel, queue, first, pieces, at_once)
            first += len(queue)
    return Program(_core.Program.from_text("\n".join(lines) + "\n"))


def _threadblocks(
    rank: int, ranks: int, channel: int, queue: list[tuple[int, int]], first: int, pieces: int, at_once: int
) -> list[str]:
    """The lines of the threadblocks of a channel of a rank, the first of which has the number `first`."""
    lines: list[str] = []
    for i, (distance, piece) in enumerate(queue):
        turn = i // at_once * at_once
        before = range(max(turn - at_once, 0), turn)
        ends = (f"{first + j}:{0 if queue[j][0] == 0 else 1}" for j in before)
        after = f" after ({', '.join(ends)})" if before else ""
        signals = " signals" if turn + at_once < len(queue) else ""
        target, source = (rank + distance) % ranks * pieces + piece, (rank - distance) % ranks * pieces + piece
        if distance == 0:
            lines += [
                f"  tb {first + i} channel {channel}",
                f"    0 copy in[{target}] -> out[{source}]{after}{signals}",
            ]
            continue
        lines += [
            f"  tb {first + i} channel {channel} send {target // pieces} recv {source // pieces}",
            f"    0 send in[{target}]{after}",
            f"    1 recv -> out[{source}]{signals}",
        ]
    return lines


def alltonext(ranks: int, pieces: int = 1) -> Program:
    """Returns the AllToNext: every rank but the last sends to the next one, in so many parts."""

    @algorithm("alltonext", ranks=lambda: ranks)
    def nccl_alltonext() -> None:
        """Each rank sends to the next."""
        for r in range(ranks - 1):
            chunk(r, "in", 0).copy(r + 1, "out", 0)

    return compile(nccl_alltonext, instances=pieces)
