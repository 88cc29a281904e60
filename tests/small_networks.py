"""Networks that the tests of synthesis share."""

from __future__ import annotations

import random
import time
from typing import Any

from gc3 import topologies
from gc3.synth import Network, Session, Solvers

# Seconds, far more than any search of a test takes, also on a slow machine: no result may depend on them.
AMPLE = 600.0


def session(solvers: Solvers, spec: str | Network, seconds: float = AMPLE, **options: Any) -> Session:
    network = spec if isinstance(spec, Network) else Network.of(topologies.load(spec))
    return Session(network, solvers, time.monotonic() + seconds, **options)


def ring(ranks: int) -> Network:
    pairs = [(r, (r + d) % ranks) for r in range(ranks) for d in (1, -1)]
    return Network.of_relation("ring", ranks, [([pair], 1) for pair in pairs])


def switch(ranks: int, chunks: int = 1) -> Network:
    everyone = range(ranks)
    out = [([(r, d) for d in everyone if d != r], chunks) for r in everyone]
    into = [([(s, r) for s in everyone if s != r], chunks) for r in everyone]
    return Network.of_relation("switch", ranks, [*out, *into])


def random_network(seed: int) -> Network:
    chance = random.Random(seed)  # noqa: S311
    ranks = chance.choice((3, 3, 4))
    pairs = {(r, (r + 1) % ranks) for r in range(ranks)}
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and chance.random() < 0.4}
    relation: list[tuple[list[tuple[int, int]], int]] = [([pair], chance.choice((1, 1, 2))) for pair in sorted(pairs)]
    if chance.random() < 0.4:  # a shared bus
        relation.append((chance.sample(sorted(pairs), 3), 1))
    return Network.of_relation(f"random {seed}", ranks, relation)
