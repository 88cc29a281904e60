"""Joins while strangers connect to the port of rank 0: some are silent, some say what is no message of gc3."""

import os
import socket
import threading

import gc3

_SAID = (b"", b"GET / HTTP/1.0\r\n\r\n", b"\x05\x33\x63\x67\xff\xff\xff\xff", bytes(1 << 20), os.urandom(4096))
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1
joined = threading.Event()
open_ones: list[socket.socket] = []


def disturb() -> None:
    while not joined.is_set():
        for said in _SAID:
            stranger = socket.socket()
            stranger.settimeout(1)
            try:
                stranger.connect(address)
                open_ones.append(stranger)
                stranger.sendall(said)
            except OSError:
                continue  # rank 0 does not listen yet, or has turned this one away


thread = threading.Thread(target=disturb)
if os.environ["LOCAL_RANK"] == "1":
    thread.start()
with gc3.init() as comm:
    comm.barrier()
    joined.set()
    comm.barrier()
if thread.ident:
    thread.join()
print("all right")
