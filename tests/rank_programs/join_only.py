"""A rank that joins and compares the launches of the ranks. It does not import NumPy, so it starts quickly.

Ranks of one launch make a communicator of their own. If it is smaller than the job, ranks of two launches have met.

    join_only.py CORE PACKAGE    the file of gc3._core, and the folder of gc3
"""

import importlib.util
import os
import sys
import types

package = sys.modules["gc3"] = types.ModuleType("gc3")
package.__path__ = [sys.argv[2]]
spec = importlib.util.spec_from_file_location("gc3._core", sys.argv[1])
core = package._core = sys.modules["gc3._core"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
launch = core.read_launch()
try:
    limit = float(os.environ["GC3_JOIN_TIMEOUT"])
    joined = core.join(
        launch.rank,
        launch.size,
        launch.job,
        ordinal=0,
        join_timeout=limit,
        timeout=20.0,
        pin="0",
        framework=False,
        wait="auto",
        single_copy=False,
        probe="0",
        cache="off",
        table=core.Selection([]),
    )
    comm = core.Communicator(joined)
    part = core.Communicator(joined.split_off(int(os.environ["LAUNCH"]), 0))
    print("met" if part.size == launch.size else "mixed", flush=True)
    comm.barrier()
except Exception as problem:
    print("refused:", problem, flush=True)
