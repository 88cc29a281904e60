"""What ranks are forked with. Each would spend most of its start on importing these and reading the default table."""

import importlib

from gc3.comm.selection import Table

importlib.import_module("numpy.random")  # NumPy does so only at its first use
Table.default()
