"""Other libraries with collectives on one host, measured beside gc3: `make bench-vs`."""

from peers.contest import Contest, Plan
from peers.libraries import PEERS, Missing
from peers.points import Point, Sample

__all__ = ["PEERS", "Contest", "Missing", "Plan", "Point", "Sample"]
