"""Other libraries that do collectives on one host, measured side by side with gc3: `gc3 bench --vs`."""

from gc3.peers.contest import Contest, Plan, Point
from gc3.peers.libraries import PEERS, Missing

__all__ = ["PEERS", "Contest", "Missing", "Plan", "Point"]
