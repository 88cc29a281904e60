"""NCCL as a baseline: what it would choose for a call, and how long that would take.

`tuning` is NCCL's own model, by which it selects algorithm, protocol and channels. It selects well and predicts badly
(on 8 A100s a third to four fifths of the measured times), so what it selects is written as a program by `programs` and
simulated with `rates`, which are NCCL's own and not those of compiled programs.
"""

from gc3.sim.nccl.baseline import Nccl
from gc3.sim.nccl.graphs import Graph
from gc3.sim.nccl.tuning import Choice, choose

__all__ = ["Choice", "Graph", "Nccl", "choose"]
