"""One rank of benchmarks/pytorch.py: calls and training steps on Gloo and both backends of gc3, in turns.

Arguments: a JSON text with what to measure. Rank 0 prints a JSON line for each point.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from steps import STEPS, Step
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import gc3.torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIERS = {"gc3 in Python": "0", "gc3 in C++": ""}
WARMUP = 3
MOST_CALLS = 400
Groups = Mapping[str, dist.ProcessGroup]
TOKEN_BYTES = 16 << 10  # what tensor parallelism adds up for a batch of 8 tokens and a width of 1,024


def groups() -> Groups:
    """The process groups, all of which have all ranks. Gloo's is the default one."""
    dist.init_process_group("cpu:gloo", init_method=os.environ["MEETING"], rank=RANK, world_size=SIZE)
    made: dict[str, dist.ProcessGroup] = {"gloo": dist.group.WORLD}
    for name, build in TIERS.items():
        os.environ["GC3_TORCH_BUILD"] = build
        made[name] = dist.new_group(backend="cpu:gc3")
        if name not in (used := f"gc3 {gc3.torch.tier()}"):
            raise SystemExit(f"{name} was to be measured, and the backend is {used}")
    return made


def call(kind: str, size: int, group: dist.ProcessGroup) -> Callable[[], object]:
    """A call whose largest buffer has `size` bytes."""
    x = torch.zeros(size // 4)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(x, group=group)
    if kind == "all_reduce of bfloat16":
        half = torch.zeros(size // 2, dtype=torch.bfloat16)
        return lambda: dist.all_reduce(half, group=group)
    if kind == "broadcast":
        return lambda: dist.broadcast(x, 0, group=group)
    part = torch.zeros(size // 4 // SIZE)
    whole = torch.zeros(part.numel() * SIZE)
    if kind == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if kind == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    other = torch.zeros_like(whole)
    return lambda: dist.all_to_all_single(other, whole, group=group)


class Calls(TorchDispatchMode):
    """The calls of collectives that are made within it, to be made again without what is around them."""

    def __init__(self) -> None:
        """Knows of none."""
        super().__init__()
        self.made: list[Callable[[], Any]] = []

    def __torch_dispatch__(  # noqa: D105 - PyTorch's name
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if operation.namespace == "c10d":
            own = tree_map_only(torch.Tensor, torch.zeros_like, (args, kwargs or {}))
            self.made.append(lambda: operation(*own[0], **own[1]))
        return operation(*args, **(kwargs or {}))

    def again(self) -> None:
        """Makes each of them, and waits for it."""
        for one in self.made:
            one()[-1].wait()


def calls_of(step: Step) -> Calls:
    """The calls of one step. DDP makes its buckets anew after the first one."""
    for _ in range(2):
        step.run()
    with Calls() as seen:
        step.run()
    return seen


def on_all(step: Step) -> Callable[[], None]:
    """A step that communicates nothing, until the slowest rank has made it, for which the others wait in any step."""

    def run() -> None:
        step.run()
        dist.barrier()

    return run


def agreed(value: float) -> float:
    """The value of rank 0 on all ranks."""
    told = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(told, 0)
    return told.item()


def timed(calls: Mapping[str, Callable[[], object]], seconds: float, warmup: int) -> dict[str, list[float]]:
    """The times of calls, in turns of a few of each, for about so many seconds."""
    once = 0.0
    for one in calls.values():
        for _ in range(warmup):
            began = time.perf_counter()
            one()
        once += time.perf_counter() - began
    count = int(agreed(min(MOST_CALLS, max(3, seconds / max(once, 1e-6)))))
    turns = min(8, max(1, count // 3))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, one in calls.items():
            one()  # the caches are those of this backend, and all ranks have arrived
            for _ in range(max(1, count // turns)):
                began = time.perf_counter()
                one()
                times[name].append(time.perf_counter() - began)
    return times


def tell(what: Mapping[str, Any], times: Mapping[str, list[float]], **more: object) -> None:
    """Prints the median and the 99th percentile, in microseconds, of rank 0."""
    if RANK == 0:
        shown = {
            name: {
                "median": statistics.median(found) * 1e6,
                "p99": sorted(found)[max(0, -(-99 * len(found) // 100) - 1)] * 1e6,
                "calls": len(found),
            }
            for name, found in times.items()
        }
        print(json.dumps({**what, "ranks": SIZE, "us": shown, **more}), flush=True)


def main() -> None:
    """Measures until the time is over; what has begun is finished."""
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    made = groups()
    points = [("call", kind, size) for size in asked["sizes"] for kind in asked["kinds"]]
    if asked["tokens"]:
        points.append(("call", "all_reduce of bfloat16", TOKEN_BYTES))
    points += [("step", name, 0) for name in asked["steps"]]
    end = time.monotonic() + asked["seconds"]
    for index, (what, name, size) in enumerate(points):
        left = agreed(end - time.monotonic())
        if left <= 0:
            break
        seconds = left / (len(points) - index)
        if what == "call":
            times = timed({of: call(name, size, group) for of, group in made.items()}, seconds, WARMUP)
            tell({"call": name, "bytes": size}, times)
        else:
            chosen = {of: STEPS[name](group) for of, group in made.items()}
            runs = {of: step.run for of, step in chosen.items()}
            runs["alone"] = STEPS[name](None).run
            if "DP" in name:  # those that can hide their calls behind what they compute
                runs["alone"] = on_all(STEPS[name](None))
                runs |= {f"calls of {of}": calls_of(step).again for of, step in chosen.items()}
            if "DDP" in name:  # what it does itself, such as copies into buckets
                silent = STEPS[name](made["gloo"])
                silent.net.register_comm_hook(None, noop_hook)
                runs["DDP alone"] = on_all(silent)
            times = timed(runs, seconds, 1)
            losses = {of: step.losses for of, step in chosen.items()}
            tell({"step": name}, times, differs={of: difference(losses["gloo"], found) for of, found in losses.items()})
    dist.destroy_process_group()


def difference(a: list[float], b: list[float]) -> float:
    """The largest relative difference of two lists of losses, whose steps are the same."""
    return max((abs(x - y) / max(abs(x), 1e-30) for x, y in zip(a, b, strict=False)), default=0.0)


main()
