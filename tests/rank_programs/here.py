"""The rank of this process and the number of ranks, which `ranks.start` sets in the environment."""

import os

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
