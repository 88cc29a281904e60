"""Communicators: ranks that are processes of one host, and the collectives that they call on their own arrays."""

from gc3._core import Handle
from gc3.comm.communicator import Communicator
from gc3.comm.joining import empty, init
from gc3.comm.selection import Choice, Row, Spec, Table

__all__ = ["Choice", "Communicator", "Handle", "Row", "Spec", "Table", "empty", "init"]
