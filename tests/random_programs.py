"""Random programs with their own collective: what the operations happen to produce is what is demanded."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from gc3 import SourceProgram, collectives
from gc3.lang import chunk, parallelize

Place = tuple[int, str, int]  # rank, buffer, index


@dataclass
class Step:
    """One operation: `reduce` or copy from `source` to `target`, with its directives."""

    reduce: bool
    source: Place
    target: Place
    count: int
    factor: int
    channel: int | None


@dataclass
class RandomProgram:
    """A sequence of valid operations, and what every place holds after them."""

    ranks: int
    inputs: int
    outputs: int
    steps: list[Step] = field(default_factory=list)
    held: dict[Place, Counter[tuple[int, int]]] = field(default_factory=dict)

    def collective(self) -> collectives.Collective:
        """The collective that this program implements."""
        expect = {
            (rank, index): list(terms.elements())
            for (rank, buffer, index), terms in self.held.items()
            if buffer == "out"
        }
        return collectives.custom(
            "random", inputs=[self.inputs] * self.ranks, outputs=[self.outputs] * self.ranks, expect=expect
        )

    def write(self) -> SourceProgram:
        """Writes the program in the language."""
        program = SourceProgram("random", self.collective())
        with program:
            for step in self.steps:
                with parallelize(step.factor):
                    source = chunk(*step.source, step.count)
                    rank, buffer, index = step.target
                    if step.reduce:
                        chunk(rank, buffer, index, step.count).reduce(source, ch=step.channel)
                    else:
                        source.copy(rank, buffer, index, ch=step.channel)
        return program


def random_program(seed: int, steps: int = 30) -> RandomProgram:
    """Makes the program of `seed`: the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    made = RandomProgram(rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4))
    sizes = {"in": made.inputs, "out": made.outputs, "sc": 4}
    factors = rng.choice([[1], [1], [1, 2], [1, 2, 3]])
    for rank in range(made.ranks):
        for index in range(made.inputs):
            made.held[rank, "in", index] = Counter({(rank, index): 1})
    while len(made.steps) < steps:
        count = rng.choice([1, 1, 1, 2, 3])
        source = (rng.randrange(made.ranks), rng.choice(["in", "out", "sc"]))
        target = (rng.randrange(made.ranks), rng.choice(["out", "sc"]))
        if count > sizes[source[1]] or count > sizes[target[1]]:
            continue
        a = rng.randint(0, sizes[source[1]] - count)
        b = rng.randint(0, sizes[target[1]] - count)
        from_places = [(*source, a + i) for i in range(count)]
        to_places = [(*target, b + i) for i in range(count)]
        reduce = rng.random() < 0.4
        known = all(p in made.held for p in from_places + (to_places if reduce else []))
        # Sums of sums grow exponentially; integer test data has to stay exact.
        small = sum(made.held[p].total() for p in from_places if p in made.held) < 60
        if not known or not small or set(from_places) & set(to_places):
            continue
        for p, q in zip(from_places, to_places, strict=True):
            made.held[q] = made.held[q] + made.held[p] if reduce else Counter(made.held[p])
        channel = rng.choice([None, None, None, 0, 1])
        made.steps.append(Step(reduce, (*source, a), (*target, b), count, rng.choice(factors), channel))
    return made
