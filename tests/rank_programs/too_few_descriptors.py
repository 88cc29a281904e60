"""Joins with too few descriptors, and prints the error."""

import os
import resource

from gc3 import UserError, init
from gc3.comm import Table

Table.default()  # is read before the ranks meet
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
try:
    init()
except UserError as problem:
    print(problem)
