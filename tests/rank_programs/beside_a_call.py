"""Objects are received while another thread waits in a collective.

Rank 0's barrier ends only after its last object, because rank 1 joins it then.
"""

import threading
import time

from here import RANK

import gc3

with gc3.init() as comm:
    if RANK == 0:
        waits = threading.Thread(target=comm.barrier)
        waits.start()
        for i in range(20):
            time.sleep(0.02)
            assert comm.recv_object(1) == i
            assert waits.is_alive()
            comm.send_object(i, 1)
        waits.join()
    else:
        for i in range(20):
            comm.send_object(i, 0)
            assert comm.recv_object(0) == i
        comm.barrier()
