"""Records a training step as an execution trace of Chakra."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from gc3 import errors
from gc3.sim.read import chakra, pytorch_traces

# The end of a call runs in the step's thread or in the backend's, whichever comes last, so steps can differ by chance.
_ATTEMPTS = 4
_AUTOGRAD = ("AutogradCPU", "AutogradCUDA")


def record(step: Callable[[], Any], path: str) -> None:
    """See `gc3.torch.record`."""
    recorded: pytorch_traces.Recorded | None = None
    told: list[Any] = []
    for _ in range(_ATTEMPTS):
        recorded, problem = _recorded(step)
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, (problem, recorded.groups if recorded else {}))
        if not any(why for why, _ in told):
            break
    # All ranks raise the error of one, so that none of them waits for the others.
    for rank, (why, _) in enumerate(told):
        if why:
            raise errors.error("BadTrace", f"rank {rank}: {why}")
    groups = pytorch_traces.merged(each for _, each in told)
    assert recorded is not None  # noqa: S101  otherwise this rank told a problem
    chakra.write(f"{path}.{recorded.rank}.et", recorded.trace)
    if groups and dist.get_rank() == 0:
        chakra.write_groups(f"{path}.groups.json", groups)


def _recorded(step: Callable[[], Any]) -> tuple[pytorch_traces.Recorded | None, str]:
    """Returns what this rank did, or why that is not known."""
    with tempfile.TemporaryDirectory() as folder:
        operators, times = Path(folder) / "operators.json", Path(folder) / "times.json"
        # Observing takes longer than a small operator. So the times are those of another step.
        _observe(step, operators)
        _time(step, times)
        try:
            return pytorch_traces.read(str(operators), str(times)), ""
        except errors.Gc3Error as failure:
            return None, failure.message.partition(": ")[2]  # without the title, which the error for all has, too


def _observe(step: Callable[[], Any], file: Path) -> None:
    dist.barrier()
    with _marked_groups():
        observer = ExecutionTraceObserver()
        observer.register_callback(str(file))
        observer.start()
        try:
            step()
        finally:
            observer.stop()
            observer.unregister_callback()


def _time(step: Callable[[], Any], file: Path) -> None:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    dist.barrier()
    with profile(activities=activities) as profiler:
        step()
    profiler.export_chrome_trace(str(file))


@contextmanager
def _marked_groups() -> Generator[None, None, None]:
    """Puts a mark with the name of the group around each call, which execution traces have only of some backends."""
    library = torch.library.Library("c10d", "IMPL")
    try:
        for name in sorted({full.split("::")[1].split(".")[0] for full in _names()}):
            operator = getattr(torch.ops.c10d, name).default
            if any("ProcessGroup" in str(argument.type) for argument in operator._schema.arguments):
                for key in _AUTOGRAD:
                    library.impl(name, _marked(operator), key)
        yield
    finally:
        library._destroy()


def _names() -> list[str]:
    return [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")]


def _marked(operator: Any) -> Callable[..., Any]:
    place = next(n for n, argument in enumerate(operator._schema.arguments) if "ProcessGroup" in str(argument.type))

    def call(*arguments: Any) -> Any:
        name = dist.ProcessGroup.unbox(arguments[place]).group_name
        with torch.profiler.record_function(pytorch_traces.GROUP_MARK + name), torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    return call
