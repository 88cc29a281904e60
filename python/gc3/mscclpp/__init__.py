"""Execution plans of MSCCL++, read as one-sided programs, and written from them.

The format is that of ``src/core/executor/execution_plan.cc`` of MSCCL++; what its operations do is in
``execution_kernel.hpp``.
"""

from gc3.mscclpp.read import Plan, is_plan, load, read
from gc3.mscclpp.write import check, plan_of, save
from gc3.support.public import public_names

__all__ = ["Plan", "check", "is_plan", "load", "plan_of", "read", "save"]

public_names(__name__)
