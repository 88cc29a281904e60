"""Mixture of experts: every rank has an expert, and sends each of its tokens to the experts that a router has chosen.

    torchrun --standalone --nproc-per-node 4 examples/expert_routing.py     moves tokens there and back
    python examples/expert_routing.py counts 16 >moe.json                   only prints how many go where

Popular experts get many tokens, others few, and the numbers are known only when the call is made. The second form makes
a file for `gc3 sim two_step_alltoall --topology ndv4:N=2 --counts moe.json`.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import gc3

TOKENS = 4096  # of each rank
WIDTH = 64  # numbers in a token
CHOSEN = 2  # experts for each token


def choices(rank: int, experts: int) -> np.ndarray:
    """The experts of every token of a rank: expert e is chosen in proportion to 1 / (e + 1)."""
    rng = np.random.default_rng(rank)
    weights = 1 / np.arange(1, experts + 1)
    return rng.choice(experts, size=TOKENS * CHOSEN, p=weights / weights.sum())


def counts(ranks: int) -> list[list[int]]:
    """How many tokens each rank sends to each."""
    return [np.bincount(choices(rank, ranks), minlength=ranks).tolist() for rank in range(ranks)]


def main() -> None:
    """Sends the tokens to their experts, which double them, and gets them back."""
    with gc3.init() as comm:
        chosen = choices(comm.rank, comm.size)
        tokens = np.random.default_rng(comm.rank).random((TOKENS, WIDTH), np.float32)
        order = np.argsort(chosen, kind="stable")
        sent = tokens[order // CHOSEN]
        send_counts = np.bincount(chosen, minlength=comm.size)
        parts = comm.all_to_all_v(np.split(sent, np.cumsum(send_counts)[:-1]))
        answers = [2 * part for part in parts]
        back = np.concatenate(comm.all_to_all_v(answers))
        if not np.array_equal(back, 2 * sent):
            raise RuntimeError("the tokens that came back are not those that were sent")
        print(f"rank {comm.rank}: {len(sent)} tokens sent, {sum(map(len, parts))} received by its expert")


if __name__ == "__main__":
    if sys.argv[1:2] == ["counts"]:
        print(json.dumps(counts(int(sys.argv[2]))))
    else:
        main()
