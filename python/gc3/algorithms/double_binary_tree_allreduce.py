"""Double binary tree AllReduce (the trees of Sanders, Speck and Träff as NCCL builds them)."""

from __future__ import annotations

from itertools import pairwise, product

from gc3.algorithms._ring import rings
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
    chunks=lambda chunks, G: 2 * chunks * G,
    in_place=True,
    section="Sanders, Speck, Träff 2009; NCCL 2.4",
    good_for="medium messages on many ranks: a logarithm of steps, and no rank sends more than twice the data",
    cost=Cost(
        steps="2*(ceil_log2(R//G) + G-1)",
        sent="((min(R//G, 4) if R > G else 0) + 4*(G-1)) * chunks",
        of="2 * chunks * G",
    ),
)
def double_binary_tree_allreduce(R: int, chunks: int = 1, G: int = 1) -> None:
    """Reduces half of the data along one binary tree and half along another; no rank is an inner node of both.

    The second tree is the first mirrored, or shifted by one if the number of nodes is odd. On nodes of G ranks, the
    trees join nodes, in each of which the data goes along a chain of all ranks; each part of the data has one of G
    chains, which begin at another rank, so that all NICs are used.
    """
    N = R // G
    below: list[list[int]] = [[] for _ in range(N)]
    for v in range(1, N):
        below[parent(v, N)].append(v)
    for part, (ring, second) in enumerate(product(rings(R, G, G), (False, True))):
        node = [(N - 1 - v if N % 2 == 0 else (v + 1) % N) if second else v for v in range(N)]
        heads = [ring[n * G] for n in node]
        edges: list[tuple[int, int]] = []  # from a rank to one below it, those near the root first
        order = [0]
        for above in order:
            order += below[above]
            edges += [(heads[above], heads[v]) for v in below[above]]
            chain = ring[node[above] * G : (node[above] + 1) * G]
            edges += pairwise(chain)
        for i in range(part * chunks, (part + 1) * chunks):
            for above, rank in reversed(edges):
                chunk(above, "in", i).reduce(chunk(rank, "in", i))
            for above, rank in edges:
                chunk(above, "in", i).copy(rank, "in", i)
