"""Communicators: ranks that are processes of one host, and the collectives that they call on their own arrays."""

from gc3._core import Coalesced, Handle, Status, Transfer
from gc3.comm.communicator import Communicator
from gc3.comm.joining import empty, init
from gc3.comm.messages import Recv, Send
from gc3.comm.selection import Choice, Row, Table
from gc3.comm.spec import Spec
from gc3.support.public import public, public_names

__all__ = [
    "Choice",
    "Communicator",
    "Handle",
    "Recv",
    "Row",
    "Send",
    "Spec",
    "Status",
    "Table",
    "Transfer",
    "empty",
    "init",
]
public_names(__name__)
public(Coalesced)
