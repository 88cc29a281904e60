"""What MSCCL++'s executor can hold (its ``execution_common.hpp``)."""

OPERATIONS = 64  # of a threadblock
SEMAPHORES = 16  # of a rank
CHUNKS = 2**16  # far above any use; offsets are 32-bit bytes there
