"""Double binary tree AllReduce (the trees of Sanders, Speck and Träff as NCCL builds them)."""

from __future__ import annotations

from gc3.lang import Cost, algorithm, chunk


def parent(node: int, size: int) -> int:
    """The node above `node` > 0 in a tree over 0..size-1 in which every odd node is a leaf and 0 the root.

    >>> [parent(node, 8) for node in range(1, 8)]
    [2, 4, 2, 0, 6, 4, 6]
    """
    low = node & -node
    above = (node ^ low) | (low << 1)
    return above if above < size else node ^ low


@algorithm(
    "allreduce",
    chunks=lambda chunks: 2 * chunks,
    in_place=True,
    section="Sanders, Speck, Träff 2009; NCCL 2.4",
    good_for="medium messages on many ranks: a logarithm of steps, and no rank sends more than twice the data",
    cost=Cost(steps="2*ceil_log2(R)", sent="(min(R, 4) if R > 1 else 0) * chunks", of="2*chunks"),
)
def double_binary_tree_allreduce(R: int, chunks: int = 1) -> None:
    """Reduces half of the data along one binary tree and half along another; no rank is an inner node of both.

    The second tree is the first mirrored, or shifted by one if R is odd.
    """
    for tree in range(2):
        rank = [(R - 1 - v if R % 2 == 0 else (v + 1) % R) if tree else v for v in range(R)]
        children = [[v for v in range(1, R) if parent(v, R) == above] for above in range(R)]
        order = [0]  # parents before children
        for above in order:
            order += children[above]
        for i in range(tree * chunks, (tree + 1) * chunks):
            for v in reversed(order[1:]):
                chunk(rank[parent(v, R)], "in", i).reduce(chunk(rank[v], "in", i))
            for v in order[1:]:
                chunk(rank[parent(v, R)], "in", i).copy(rank[v], "in", i)
