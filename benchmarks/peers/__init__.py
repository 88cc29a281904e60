"""Other libraries with collectives on one host, measured beside gc3: `make bench-vs`."""

from peers.contest import Contest, Plan, Point
from peers.libraries import PEERS, Missing

__all__ = ["PEERS", "Contest", "Missing", "Plan", "Point"]
