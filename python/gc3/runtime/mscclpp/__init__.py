"""Execution plans of MSCCL++: written from compiled programs, and read again to prove what was written.

The format and the limits are those of MSCCL++ 0.9: ``src/executor/execution_plan.cc`` and ``execution_common.hpp``.
"""

from gc3.runtime.mscclpp.execute import check
from gc3.runtime.mscclpp.write import plan_of, save

__all__ = ["check", "plan_of", "save"]
