"""NCCL as a baseline: its choice for a call, and the time of that choice.

`tuning` is NCCL's own model, by which it selects algorithm, protocol and channels. It selects well but predicts badly
(on 8 A100s a third to four fifths of the measured times). So `programs` writes its selection as a program, which is
simulated with `rates`: NCCL's own rates, not those of compiled programs.
"""

from gc3.sim.nccl.baseline import Nccl
from gc3.sim.nccl.graphs import Graph
from gc3.sim.nccl.tuning import Choice, choose

__all__ = ["Choice", "Graph", "Nccl", "choose"]
