"""Random programs with a custom collective, whose postcondition is the result of the operations."""

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
    """A sequence of valid operations, and the value of every place after them.

    In place, `alias` says how the buffers of each rank overlap; places are then named in the larger buffer.
    """

    ranks: int
    inputs: int
    outputs: list[int]
    alias: list[tuple[str, int] | None] | None = None
    steps: list[Step] = field(default_factory=list)
    held: dict[Place, Counter[tuple[int, int]]] = field(default_factory=dict)

    @property
    def in_place(self) -> bool:
        """Whether buffers overlap."""
        return self.alias is not None

    def place(self, rank: int, buffer: str, index: int) -> Place:
        """The canonical name of a place."""
        outer, offset = (self.alias[rank] if self.alias else None) or ("", 0)
        inner = {"input": "out", "output": "in"}.get(outer)
        return (
            (rank, {"input": "in", "output": "out"}[outer], index + offset)
            if buffer == inner
            else (rank, buffer, index)
        )

    def results(self) -> list[tuple[int, int, Counter[tuple[int, int]]]]:
        """Rank, index and value of every output that has a value."""
        places = [(r, i, self.place(r, "out", i)) for r in range(self.ranks) for i in range(self.outputs[r])]
        return [(rank, index, self.held[place]) for rank, index, place in places if place in self.held]

    def collective(self) -> collectives.Collective:
        """The collective that this program implements."""
        expect = {(rank, index): list(terms.elements()) for rank, index, terms in self.results()}
        return collectives.custom(
            "random", inputs=[self.inputs] * self.ranks, outputs=self.outputs, expect=expect, alias=self.alias
        )

    def write(self) -> SourceProgram:
        """Writes the program in the language."""
        program = SourceProgram("random", self.collective(), in_place=self.in_place)
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


def random_program(seed: int, steps: int = 30, *, in_place: bool = False) -> RandomProgram:
    """Makes the program of `seed`: the same seed gives the same program."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    ranks, inputs, outputs = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
    made = RandomProgram(ranks, inputs, [outputs] * ranks)
    if in_place:
        made.outputs = [rng.choice([0, outputs]) for _ in range(ranks)]
        made.alias = [
            rng.choice([None, _overlap(rng, inputs, size), _overlap(rng, inputs, size)]) for size in made.outputs
        ]
    factors = rng.choice([[1], [1], [1, 2], [1, 2, 3]])
    for rank in range(made.ranks):
        for index in range(made.inputs):
            made.held[made.place(rank, "in", index)] = Counter({(rank, index): 1})
    while len(made.steps) < steps:
        count = rng.choice([1, 1, 1, 2, 3])
        source = (rng.randrange(made.ranks), rng.choice(["in", "out", "sc"]))
        target = (rng.randrange(made.ranks), rng.choice(["in", "out", "sc"] if in_place else ["out", "sc"]))
        sizes = [{"in": made.inputs, "out": made.outputs[rank], "sc": 4}[buffer] for rank, buffer in (source, target)]
        if count > min(sizes):
            continue
        a, b = (rng.randint(0, size - count) for size in sizes)
        from_places = [made.place(*source, a + i) for i in range(count)]
        to_places = [made.place(*target, b + i) for i in range(count)]
        if any(p[1] == "in" and (made.alias or [])[p[0]] is None for p in to_places):
            continue  # the input of a rank whose buffers do not overlap is read-only
        reduce = rng.random() < 0.4
        known = all(p in made.held for p in from_places + (to_places if reduce else []))
        # Sums of sums grow exponentially, but integer test data has to stay exact.
        small = sum(made.held[p].total() for p in from_places if p in made.held) < 60
        if not known or not small or set(from_places) & set(to_places):
            continue
        for p, q in zip(from_places, to_places, strict=True):
            made.held[q] = made.held[q] + made.held[p] if reduce else Counter(made.held[p])
        channel = rng.choice([None, None, None, 0, 1])
        made.steps.append(Step(reduce, (*source, a), (*target, b), count, rng.choice(factors), channel))
    return made


def _overlap(rng: random.Random, inputs: int, outputs: int) -> tuple[str, int]:
    if inputs < outputs:
        return ("output", rng.randint(0, outputs - inputs))
    return ("input", rng.randint(0, inputs - outputs))
