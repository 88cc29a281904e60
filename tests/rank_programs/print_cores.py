"""Joins, and prints the cores on which the rank may run."""

import os

import gc3

with gc3.init():
    print(*os.sched_getaffinity(0))
