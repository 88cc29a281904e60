"""GC3 as a backend of PyTorch: ``torch.distributed.init_process_group("gc3")``.

PyTorch finds the backend by its name, because the package has an entry point of the group
``torch.distributed.backends``. This package is imported only then, or by a script that calls what is below; ``import
gc3`` never imports PyTorch.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gc3 import errors
from gc3.support.public import public_names

if TYPE_CHECKING:
    from pathlib import Path

    from gc3 import _core
    from gc3.comm import Communicator
    from gc3.runtime.program import Program
    from gc3.torch.experts import Experts
    from gc3.torch.programs import TensorProgram

FLOOR = (2, 14)  # the first version that was tested
__all__ = [
    "FLOOR",
    "add_norm",
    "build",
    "column_linear",
    "communicator",
    "empty",
    "explain",
    "load",
    "moe",
    "program",
    "record",
    "register",
    "row_linear",
    "tier",
]


def register() -> None:
    """Makes the backend "gc3" known to ``torch.distributed``. PyTorch calls this; calling it again does nothing.

    Raises:
        gc3.UserError: PyTorch is not installed, or older than `FLOOR`.
    """
    distributed = _distributed()
    backend = importlib.import_module("gc3.torch.backend")
    if "GC3" not in distributed.Backend._plugins:
        distributed.Backend.register_backend("gc3", backend.create, extended_api=True, devices=["cpu"])


def communicator(group: Any = None) -> Communicator:
    """Returns the communicator behind a process group, after the calls that were started; None: the default group.

    Raises:
        gc3.UserError: The tensors of the group on the CPU are not served by gc3.
    """
    distributed = _distributed()
    backend = importlib.import_module("gc3.torch.backend")
    if not distributed.is_initialized():
        raise errors.error("BadArgument", 'call torch.distributed.init_process_group("gc3") first')
    of = distributed.group.WORLD if group is None else group
    found = backend.communicator(of.group_name)
    if found is None:
        name = distributed.get_backend_config(of)
        raise errors.error("BadArgument", f'a process group with the backend "{name}"; expected "gc3", or "cpu:gc3"')
    return found


def empty(*size: Any, dtype: Any = None, group: Any = None, requires_grad: bool = False) -> Any:
    """Returns a tensor of zeros in memory that all ranks of this host reach, so that large calls need fewer copies.

    One-sided programs move data straight between such tensors. Local. The memory is freed with the tensor.

    Args:
        size: The lengths of the axes, or one sequence of them, as for `torch.empty`.
        dtype: A type of PyTorch; None: its default one.
        group: A process group of the job; None: the default group.
        requires_grad: As for `torch.empty`.

    Raises:
        gc3.UserError: An argument is invalid, the tensors of the group are not served by gc3, or there is not enough
            memory.
    """
    shape = size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size  # torch.Size is a tuple
    lengths = [errors.whole(length, "size", 0, 2**63 - 1) for length in shape]
    torch = _torch()
    if not isinstance(dtype, torch.dtype | None):
        raise errors.error("BadDataType", f"dtype={dtype!r}; expected a type of PyTorch, as torch.float32")
    tensors = importlib.import_module("gc3.torch.tensors")
    return tensors.empty(communicator(group), lengths, dtype or torch.get_default_dtype()).requires_grad_(requires_grad)


def build() -> Path:
    """Builds the backend in C++ for this machine, if that was not done, and returns its file.

    Raises:
        gc3.UserError: PyTorch is not installed, there is no C++ compiler, or it does not compile.
    """
    _distributed()
    return importlib.import_module("gc3.torch.native").build()


def tier() -> str:
    """Returns which backend process groups get, in C++ or in Python, and why.

    Raises:
        gc3.UserError: PyTorch is not installed, or other users can write to the library.
    """
    _distributed()
    return importlib.import_module("gc3.torch.native").load().why


def load(
    program: Program | str | os.PathLike[str], group: Any = None, *, min_size: int = 0, max_size: int | None = None
) -> Program:
    """Makes a program serve the calls of its collective in a process group. All ranks of the group must load it.

    Args:
        program: A compiled program, or the path of a program file. It is verified first.
        group: The process group; None: the default group.
        min_size: The program serves calls of S >= `min_size` bytes ...
        max_size: ... and S < `max_size`; None: no limit.

    Raises:
        gc3.UserError: The program does not fit the group, or does not implement its collective.
    """
    return communicator(group).load(program, min_size=min_size, max_size=max_size)


def explain(collective: str, count: int, dtype: Any = "float32", group: Any = None) -> _core.Explanation:
    """Explains which program serves a call of `count` elements per block in a process group, and why.

    Args:
        collective: A name such as "allreduce".
        count: Elements per block.
        dtype: The name of a type, or a type of PyTorch.
        group: The process group; None: the default group.

    Raises:
        gc3.UserError: An argument is invalid.
    """
    in_place = collective == "allreduce"  # as PyTorch calls it
    return communicator(group).explain(collective, count, str(dtype).removeprefix("torch."), in_place=in_place)


def program(
    program: Program,
    functions: Mapping[str, Callable[..., None]],
    *,
    shapes: Callable[[Mapping[str, tuple[int, ...]]], Mapping[str, tuple[int, ...]]] | None = None,
    backward: TensorProgram | None = None,
    returns: Sequence[str] | None = None,
    group: Any = None,
    check: bool = False,
) -> TensorProgram:
    """Makes a program that computes a function of this rank's tensors, one operator for autograd and torch.compile.

    The function takes the program's inputs in their order, and returns its outputs. It is collective, and so is its
    gradient, that of the sum of all ranks' losses.

    Args:
        program: It is verified first.
        functions: By the names of its operations, as for `gc3.Program.bind`, but of tensors.
        shapes: From the shapes of the inputs, by name, to those of chunks that no input has, as for `run_rank`.
        backward: A program whose inputs are inputs and outputs of this one, and d_NAME for the gradient of result
            NAME; its output d_NAME is the gradient of input NAME. Without it there is no gradient.
        returns: The outputs that are returned; the others are for `backward`. None: all.
        group: The process group; None: the default group.
        check: As for `gc3.Program.bind`.

    Raises:
        gc3.UserError: The program is wrong, has no named tensors, or the arguments do not fit it.
    """
    _distributed()
    programs = importlib.import_module("gc3.torch.programs")
    return programs.TensorProgram(program, functions, shapes, backward, returns, group, check=check)


def column_linear(group: Any = None) -> TensorProgram:
    """Returns a function of x and w: all ranks' rows of x, gathered, times this rank's columns of the weights w.

    Args:
        group: The process group; None: the default group.
    """
    return _of_group("programs", "column_linear", group)


def row_linear(group: Any = None) -> TensorProgram:
    """Returns a function of x and w: this rank's rows of the sum of all ranks' x w, which have all rows.

    Args:
        group: The process group; None: the default group.
    """
    return _of_group("programs", "row_linear", group)


def add_norm(group: Any = None, *, eps: float = 1e-6) -> TensorProgram:
    """Returns a function of x, residual and gain: RMSNorm of the sum of all ranks' x and their rows of the residual.

    Args:
        group: The process group; None: the default group.
        eps: Is added to the mean of the squares.
    """
    return _of_group("programs", "add_norm", group, eps)


def moe(expert: Callable[..., Any], weights: int, *, tiles: int = 1, group: Any = None) -> Experts:
    """Returns a function of tokens and the weights of this rank's expert: the answers of all ranks' experts.

    Block r of the rows of the tokens goes to the expert of rank r, and its answers come back to the same place. With
    ``counts=`` each rank says how many rows each expert gets, and blocks are of so many: ranks tell each other first,
    and torch.compile leaves such a call as it is.

    Args:
        expert: From tokens and weights to answers of the shape of the tokens; each row by itself, as it gets some of
            them at a time. It has to be differentiable by `torch.func.vjp`.
        weights: How many tensors of weights it takes.
        tiles: Each block is sent and computed in so many parts.
        group: The process group; None: the default group.
    """
    communicator(group)
    if not callable(expert):
        raise errors.error("BadArgument", f"expert={expert!r} is no function")
    weights, tiles = errors.whole(weights, "weights", 1), errors.whole(tiles, "tiles", 1)
    return _of_group("experts", "Experts", group, expert, weights, tiles)


def _of_group(module: str, name: str, group: Any, *given: Any) -> Any:
    """What a function of a module makes for a group."""
    communicator(group)
    make = getattr(importlib.import_module(f"gc3.torch.{module}"), name)
    return importlib.import_module("gc3.torch.programs").of_group(make, group, *given)


def record(step: Callable[[], Any], path: str) -> None:
    """Records a training step of this job as an execution trace of Chakra, for ``gc3 sim step`` and others' tools.

    All ranks call it. Each writes PATH.RANK.et; rank 0 also writes PATH.groups.json if the step has groups beside the
    default one. The step is executed twice: once to observe its operators, once to measure their times. Both must call
    the same operators, or it is executed twice again, up to four times in all. So do a few steps before, until buckets,
    caches and compiled code are what they stay.

    Args:
        step: Executes one step. Any backend serves, and DDP, FSDP2 or calls of `torch.distributed`.
        path: The beginning of the names of the files.

    Raises:
        gc3.UserError: PyTorch is missing, there is no default group, the two steps differ, or a file cannot
            be written. If the steps of one rank differ, all ranks raise it, and nothing is written.
    """
    distributed = _distributed()
    if not distributed.is_initialized():
        message = "gc3.torch.record needs a job: call torch.distributed.init_process_group first"
        raise errors.error("BadArgument", message)
    importlib.import_module("gc3.torch.recording").record(step, path)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as problem:
        message = f"gc3.torch needs PyTorch {_text(FLOOR)} or newer ({problem}): pip install torch"
        raise errors.error("MissingPackage", message) from problem


def _distributed() -> Any:
    torch = _torch()
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version is None or tuple(map(int, version.groups())) < FLOOR:
        message = f"PyTorch {torch.__version__}; the backend gc3 needs {_text(FLOOR)} or newer: pip install -U torch"
        raise errors.error("MissingPackage", message)
    if not torch.distributed.is_available():
        raise errors.error("MissingPackage", f"PyTorch {torch.__version__} was built without torch.distributed")
    return torch.distributed


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


public_names(__name__)
