"""A script that starts two ranks by `gc3.spawn`, and is interrupted while they work."""

import os
import time

import gc3


def work(comm: gc3.Communicator) -> None:
    os.write(1, b"%d\n" % comm.rank)
    time.sleep(100)


try:
    gc3.spawn(work, 2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
