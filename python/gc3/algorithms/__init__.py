"""The library: one file, one algorithm. A file in this folder is found, not listed.

>>> catalogue()["ring_allreduce"].collective_name
'allreduce'
>>> load("ring_allreduce").parameters[0].name
'R'
"""

from gc3.algorithms._catalogue import catalogue
from gc3.algorithms._load import load, load_collective
from gc3.support.public import public_names

__all__ = ["catalogue", "load", "load_collective"]
public_names(__name__)
