"""Topologies of machines. A file of this folder is one family of machines; `catalogue` finds it without a list.

>>> from gc3 import topologies
>>> machine = topologies.load("dgx1")
>>> machine.rank_count, machine.path(0, 5) is None
(8, True)
>>> topologies.load("ndv4:N=2").rank_count
16
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from gc3.support.public import public_names
from gc3.topologies.bounds import cut_bandwidth, diameter, egress, ingress
from gc3.topologies.build import Builder
from gc3.topologies.document import dumps, read
from gc3.topologies.model import Topology
from gc3.topologies.parts import Bound, Fabric, Level, Link, LinkClass, Path, Port, Rank, Resource
from gc3.topologies.preset import Preset, topology
from gc3.topologies.program import check
from gc3.topologies.relation import relation
from gc3.topologies.spec import load_from
from gc3.topologies.without import without

__all__ = [
    "Bound",
    "Builder",
    "Fabric",
    "Level",
    "Link",
    "LinkClass",
    "Path",
    "Port",
    "Preset",
    "Rank",
    "Resource",
    "Topology",
    "catalogue",
    "check",
    "cut_bandwidth",
    "diameter",
    "dumps",
    "egress",
    "ingress",
    "load",
    "read",
    "relation",
    "topology",
    "without",
]


@cache
def _discover() -> tuple[Preset, ...]:
    found: list[Preset] = []
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found += [
            p for p in vars(loaded).values() if isinstance(p, Preset) and p.function.__module__ == loaded.__name__
        ]
    return tuple(sorted(found, key=lambda p: (p.generic, p.name)))


def catalogue() -> dict[str, Preset]:
    """Returns every preset by name, machines that exist first.

    >>> catalogue()["ring"].generic
    True
    """
    return {p.name: p for p in _discover()}


def load(spec: str, **parameters: int) -> Topology:
    """Returns the topology that `spec` names.

    Args:
        spec: A preset, a preset with parameters such as "ndv4:N=2", or a path that ends in .json. Lost links and ranks
            may follow: "dgx1:without=0-1+3" has neither the links between ranks 0 and 1 nor rank 3.
        parameters: Further parameters of the preset.

    Raises:
        gc3.UserError: There is no such preset or file, a parameter is wrong, or the file is not a topology.
    """
    return load_from(catalogue(), spec, parameters)


public_names(__name__)
