"""Who a rank program is: `ranks.start` says so in the environment."""

import os

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
