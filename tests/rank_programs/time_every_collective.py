"""Times all collectives, in place and out of place."""

import gc3

with gc3.init() as comm:
    for name in gc3.collectives.BUILTIN:
        for in_place in (False, True) if name not in ("reduce", "gather", "scatter") else (False,):
            seconds = comm.time(name, 1000, in_place=in_place, warmup=1, iterations=3)
            assert len(seconds) == 3
            assert all(0 < s < 10 for s in seconds)
