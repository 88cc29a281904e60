"""The algorithms of the library, compiled for the ranks of this program."""

from collections.abc import Callable, Iterator

from here import SIZE

import gc3
from gc3 import algorithms

Compile = Callable[..., gc3.Program]  # takes the remaining options of `gc3.compile`


def compilers(kind: str) -> Iterator[Compile]:
    """A function that compiles, for every algorithm of a collective that exists for so many ranks."""
    for name, entry in sorted(algorithms.catalogue().items()):
        if entry.collective_name != kind:
            continue
        algorithm = algorithms.load(name)
        sizes = {"R": SIZE} if any(p.name == "R" for p in algorithm.parameters) else {"N": SIZE // 2, "G": 2}
        if "N" in sizes and SIZE % 2:
            continue
        yield lambda algorithm=algorithm, sizes=sizes, **options: gc3.compile(algorithm, **sizes, **options)
