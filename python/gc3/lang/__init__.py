"""The language: programs that route chunks between ranks (002 section 3, 000 section 3).

>>> from gc3.lang import algorithm, chunk, compile
>>> @algorithm("allgather", ranks=lambda R: R)
... def direct(R: int) -> None:
...     for source in range(R):
...         mine = chunk(source, "in", 0)
...         for target in range(R):
...             mine.copy(target, "out", source)
>>> compile(direct, R=3).collective.name
'allgather'
"""

from gc3._core import ChunkRef
from gc3.lang.algorithm import Algorithm, Cost, Parameter, Traffic, algorithm
from gc3.lang.build import compile, dump
from gc3.lang.operations import chunk, me, next_step, parallelize
from gc3.lang.source import SourceProgram
from gc3.lang.stepwise import Chunk, StepList, stepwise
from gc3.support.public import public_names

__all__ = [
    "Algorithm",
    "Chunk",
    "ChunkRef",
    "Cost",
    "Parameter",
    "SourceProgram",
    "StepList",
    "Traffic",
    "algorithm",
    "chunk",
    "compile",
    "dump",
    "me",
    "next_step",
    "parallelize",
    "stepwise",
]
public_names(__name__)
