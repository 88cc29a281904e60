"""Programs on CUDA devices. See docs/cuda.md.

CUDA is loaded only when a device is requested; without a driver, the error says what is missing.

>>> program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=8)  # doctest: +SKIP
>>> gc3.cuda.Engine(program).run([np.ones(1000, np.float32)] * 8)  # doctest: +SKIP
"""

from gc3.cuda.arrays import DeviceArray
from gc3.cuda.driver import compilers, nccl, nccl_libraries, runtime
from gc3.cuda.engine import Engine
from gc3.support.public import public_names

__all__ = ["DeviceArray", "Engine", "compilers", "nccl", "nccl_libraries", "runtime"]
public_names(__name__)
