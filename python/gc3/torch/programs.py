"""Programs that compute as functions of tensors: one operator of PyTorch, which torch.compile calls, with autograd."""

# ruff: noqa: N803, N806 (R is the number of ranks of every algorithm)

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import marshal
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import torch

from gc3 import _core, collectives, datatypes, errors
from gc3.computing import op
from gc3.lang import Algorithm, algorithm, chunk
from gc3.lang import compile as compiled
from gc3.torch.backend import communicator
from gc3.torch.tensors import array, contiguous

if TYPE_CHECKING:
    from gc3.comm import Communicator
    from gc3.datatypes import Array
    from gc3.runtime.program import Program

Shape: TypeAlias = "tuple[int, ...]"
Shapes: TypeAlias = "Callable[[Mapping[str, Shape]], Mapping[str, Shape]]"

_TYPES = {datatypes.DTYPES[name]: getattr(torch, name) for name in datatypes.DTYPES if hasattr(torch, name)}
_PROGRAMS: dict[str, TensorProgram] = {}  # by the key in the graphs of torch.compile, which it keeps on disk


class TensorProgram:
    """A program as a function of tensors, made by `gc3.torch.program`."""

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, Callable[..., None]],
        shapes: Shapes | None,
        backward: TensorProgram | None,
        returns: Sequence[str] | None,
        group: Any,
        *,
        check: bool = False,
    ) -> None:
        """Binds the functions."""
        program.verify()
        tensors = program.core.collective.tensors
        if not tensors:
            raise errors.error("BadArgument", f"{program.name} has no named tensors: it computes nothing")
        self.inputs = {name: chunks for name, is_output, chunks, _ in tensors if not is_output}
        self.outputs = {name: chunks for name, is_output, chunks, _ in tensors if is_output}
        self.lengths = {name: number for number, name in enumerate(program.core.lengths)}
        self.lengths |= {name: length for name, _, _, length in tensors}
        self.name, self.group, self.backward, self.shapes = program.name, group, backward, shapes
        self.returns = tuple(self.outputs if returns is None else returns)
        for name in self.returns:
            if name not in self.outputs:
                raise errors.error("BadArgument", f"returns: {self.name} has no output '{errors.shown(name)}'")
        known = {*self.inputs, *self.outputs, *(f"d_{name}" for name in self.returns)}
        for name in sorted((backward.inputs.keys() if backward is not None else set()) - known):
            what = f"'{name}' of the backward program is no tensor of {self.name}, nor the gradient d_NAME of a result"
            raise errors.error("BadArgument", what)
        if backward is not None:
            for name in sorted(backward.outputs.keys() - {f"d_{name}" for name in self.inputs}):
                what = f"'{name}' of the backward program is no gradient d_NAME of an input of {self.name}"
                raise errors.error("BadArgument", what)
            for name in sorted(self.inputs.keys() & {f"d_{name}" for name in self.outputs}):
                what = f"the input '{name}' of {self.name} has the name of the gradient of its output: rename it"
                raise errors.error("BadArgument", what)
        self.bound = program.bind({name: on_tensors(functions[name]) for name in functions}, check=check)
        applied = sorted((name, _identity(function)) for name, function in functions.items())
        whose = backward and backward.key, getattr(group, "group_name", None)
        digest = hashlib.sha256(program.core.to_bytes(source=False))
        digest.update(ascii((applied, _identity(shapes), self.returns, whose)).encode())
        equal = (f"{errors.shown(self.name)}.{digest.hexdigest()[:32]}.{count}" for count in itertools.count())
        self.key = next(key for key in equal if key not in _PROGRAMS)
        _PROGRAMS[self.key] = self

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Runs it on this rank's tensors, in the order of the program's inputs. Collective."""
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._refuse(errors.error("BadArgument", f"{self.name} takes tensors, not {type(tensor).__name__}"))
        made = dict(zip(self.outputs, _run(list(tensors), self.key), strict=True))
        found = tuple(made[name] for name in self.returns)
        return found[0] if len(found) == 1 else found

    def given(self, tensors: Sequence[torch.Tensor]) -> dict[str, Shape]:
        """The shapes of chunks that no input has."""
        if len(tensors) != len(self.inputs):
            what = f"{self.name} takes {', '.join(self.inputs)}: {len(self.inputs)} tensors, not {len(tensors)}"
            raise errors.error("BadArgument", what)
        found = {name: tuple(tensor.shape) for name, tensor in zip(self.inputs, tensors, strict=True)}
        return dict(self.shapes(found)) if self.shapes is not None else {}

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """On this rank."""
        comm = self._communicator()
        arrays: dict[str, Array | None] = {}
        shapes: dict[str, Shape] = {}
        with self._refusing():
            shapes = self.given(tensors)
            arrays |= {name: array(contiguous(tensor)) for name, tensor in zip(self.inputs, tensors, strict=True)}
        with torch.no_grad():
            made = self.bound.run_rank(comm, arrays, shapes=shapes)
        return [as_tensor(made[name], tensors[0].dtype) for name in self.outputs]

    def _communicator(self) -> Communicator:
        of = torch.distributed.group.WORLD if self.group is None else self.group
        comm = None if of is None else communicator(of.group_name)
        if comm is None:
            raise errors.error("BadArgument", f'{self.name} runs in a process group with the backend "gc3"')
        return comm

    @contextmanager
    def _refusing(self) -> Generator[None]:
        """What is wrong with a call ends it on all ranks."""
        try:
            yield
        except errors.Gc3Error as problem:
            self._refuse(problem)
        except Exception as problem:
            of = problem.__cause__  # of the errors that PyTorch expects of a backend
            what = f"{self.name}: {type(problem).__name__}: {problem}"
            self._refuse(of if isinstance(of, errors.Gc3Error) else errors.error("BadArgument", what))

    def _refuse(self, problem: errors.Gc3Error) -> NoReturn:
        """Ends the call on all ranks."""
        _core.Joined.of(self._communicator()).refuse(problem.diagnostics[0])  # the others, who wait
        raise problem

    def empty(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors like the results, for who traces."""
        rank = torch.distributed.get_rank(self.group)
        chunks: dict[int, Shape] = {self.lengths[name]: shape for name, shape in self.given(tensors).items()}
        for (name, count), tensor in zip(self.inputs.items(), tensors, strict=True):
            if count[rank] != 0:
                chunks[self.lengths[name]] = (tensor.shape[0] // count[rank], *tensor.shape[1:])
        whole = [(chunks[self.lengths[name]], count[rank]) for name, count in self.outputs.items()]
        return [tensors[0].new_empty((count * shape[0], *shape[1:])) for shape, count in whole]


def on_tensors(function: Callable[..., None]) -> Callable[..., None]:
    """A function of tensors for the arrays that a program gives."""

    def call(*arrays: Array, out: Array | tuple[Array, ...]) -> None:
        to = tuple(map(_view, out)) if isinstance(out, tuple) else _view(out)
        made = function(*map(_view, arrays), out=to)
        if made is not None and made is not to:
            raise TypeError(f"{getattr(function, '__name__', function)} has to fill out=")

    return call


def _view(chunk: Array) -> torch.Tensor:
    """The memory of a chunk, which is valid while the function runs; NumPy's view of an operand cannot be written."""
    kind = _TYPES[chunk.dtype]
    if chunk.nbytes == 0:
        return torch.empty(chunk.shape, dtype=kind)
    memory = (ctypes.c_char * chunk.nbytes).from_address(chunk.ctypes.data)
    return torch.frombuffer(memory, dtype=kind).view(chunk.shape)


def as_tensor(made: Array, dtype: torch.dtype) -> torch.Tensor:
    """An output of a program."""
    return torch.from_numpy(made.view(np.uint8) if made.ndim else made).view(dtype).view(made.shape)


def _identity(function: Any) -> str:
    """What a function is, in every process: its name, its code and the plain values that it has from around it."""
    inner = getattr(function, "__func__", function)
    name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    code = getattr(inner, "__code__", None)
    text = "" if code is None else hashlib.sha256(marshal.dumps(code, 2)).hexdigest()
    return f"{name} {text} {[_plain(cell) for cell in getattr(inner, '__closure__', None) or ()]}"


def _plain(cell: Any) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # nothing yet
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _known(key: str) -> TensorProgram:
    if key not in _PROGRAMS:
        what = f"compiled code calls the program {errors.shown(key)}, which this process has not made: make it before"
        raise errors.error("BadArgument", what)
    return _PROGRAMS[key]


def _save(ctx: Any, inputs: tuple[list[torch.Tensor], str], output: list[torch.Tensor]) -> None:
    tensors, ctx.key = inputs
    of = _known(ctx.key)
    known = dict(zip(of.outputs, output, strict=True)) | dict(zip(of.inputs, tensors, strict=True))
    wanted = of.backward.inputs if of.backward is not None else {}
    ctx.save_for_backward(*(known[name] for name in wanted if name in known))


def _differentiate(ctx: Any, gradients: list[torch.Tensor | None]) -> tuple[list[torch.Tensor | None], None]:
    of = _known(ctx.key)
    if of.backward is None:
        raise errors.error("BadArgument", f"{of.name} has no backward program: give backward= to gc3.torch.program")
    arrived = {f"d_{name}": gradient for name, gradient in zip(of.outputs, gradients, strict=True)}
    saved = iter(ctx.saved_tensors)
    known = {name: next(saved) for name in of.backward.inputs if name not in arrived}
    for name in of.backward.inputs:
        gradient = arrived.get(name)
        if name in arrived and gradient is None:
            raise errors.error("BadArgument", f"{of.name}: a result has no gradient, {name}, which its backward reads")
        if gradient is not None:
            known[name] = gradient.contiguous()
    made = dict(
        zip(of.backward.outputs, _run([known[name] for name in of.backward.inputs], of.backward.key), strict=True)
    )
    return [made.get(f"d_{name}") for name in of.inputs], None


def _execute(inputs: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _known(key).run(inputs)


def _trace(inputs: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _known(key).empty(inputs)


_run: Any = torch.library.custom_op(
    "gc3::program", _execute, mutates_args=(), schema="(Tensor[] inputs, str key) -> Tensor[]"
)
_run.register_fake(_trace)
_run.register_autograd(_differentiate, setup_context=_save)
# Every rank makes a call, also where one needs no result, or has the result of an equal call.
torch.fx.node.has_side_effect(torch.ops.gc3.program.default)

multiply, multiply_t, gradient = op("multiply"), op("multiply_t"), op("gradient")
norm, norm_back = op("rms_norm"), op("rms_norm_back", results=2)


def _multiply(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(x, w, out=out)


def _multiply_t(dy: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(dy, w.mH, out=out)


def _gradient(*tiles: torch.Tensor, out: torch.Tensor) -> None:
    half = len(tiles) // 2
    torch.mm(torch.cat(tiles[:half]).mH, torch.cat(tiles[half:]), out=out)


def _column(R: int) -> collectives.Collective:
    return collectives.custom(
        "column_linear",
        ranks=R,
        inputs={"x": 1, "w": 1},
        outputs={"y": R, "all": R},
        expect=lambda v, rank, output, i: v(i, "x", 0) if output == "all" else multiply(v(i, "x", 0), v(rank, "w", 0)),
    )


@algorithm(_column)
def _gather_multiply(R: int) -> None:
    for step in range(R):  # a rank's own rows first: the others are on their way
        for q in range(R):
            source = (q + step) % R
            x = chunk(source, "x", 0).copy(q, "all", source)
            multiply(x, chunk(q, "w", 0), out=(q, "y", source))


def _column_back(R: int) -> collectives.Collective:
    def expect(v: Any, rank: int, output: str, _: int) -> Any:
        if output == "d_x":
            return sum(multiply_t(v(q, "d_y", rank), v(q, "w", 0)) for q in range(R))
        return gradient(*(v(rank, "all", i) for i in range(R)), *(v(rank, "d_y", i) for i in range(R)))

    inputs, outputs = {"d_y": R, "all": R, "w": 1}, {"d_x": 1, "d_w": 1}
    return collectives.custom("column_linear_back", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


def _ring(R: int, operation: Any, read: str, to: str) -> None:
    """A product of each rank and block, whose sums go around to the owners of the blocks."""
    for owner in range(R):
        around = [(owner + step) % R for step in range(1, R + 1)]
        parts = [operation(chunk(q, read, owner), chunk(q, "w", 0), out=(q, "part", owner)) for q in around]
        total = parts[0]
        for part in parts[1:]:
            total = part.reduce(total)
        total.copy(owner, to, 0)


@algorithm(_column_back, scratch=["part"])
def _multiply_scatter_back(R: int) -> None:
    _ring(R, multiply_t, "d_y", "d_x")
    for q in range(R):
        tiles = [chunk(q, buffer, i) for buffer in ("all", "d_y") for i in range(R)]
        gradient(*tiles, out=(q, "d_w", 0))


def _row(R: int) -> collectives.Collective:
    def expect(v: Any, rank: int, _: str, __: int) -> Any:
        return sum(multiply(v(q, "x", rank), v(q, "w", 0)) for q in range(R))

    return collectives.custom("row_linear", ranks=R, inputs={"x": R, "w": 1}, outputs={"y": 1}, expect=expect)


@algorithm(_row, scratch=["part"])
def _multiply_scatter(R: int) -> None:
    _ring(R, multiply, "x", "y")


def _row_back(R: int) -> collectives.Collective:
    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        if output == "d_x":
            return multiply_t(v(i, "d_y", 0), v(rank, "w", 0))
        return gradient(*(v(rank, "x", j) for j in range(R)), *(v(j, "d_y", 0) for j in range(R)))

    inputs, outputs = {"d_y": 1, "x": R, "w": 1}, {"d_x": R, "d_w": 1}
    return collectives.custom("row_linear_back", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


@algorithm(_row_back, scratch=["all"])
def _gather_multiply_back(R: int) -> None:
    for step in range(R):
        for q in range(R):
            source = (q + step) % R
            dy = chunk(source, "d_y", 0).copy(q, "all", source)
            multiply_t(dy, chunk(q, "w", 0), out=(q, "d_x", source))
    for q in range(R):
        tiles = [chunk(q, buffer, i) for buffer in ("x", "all") for i in range(R)]
        gradient(*tiles, out=(q, "d_w", 0))


def _add_norm(R: int) -> collectives.Collective:
    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        own = rank if output == "total" else i
        total = sum(v(q, "x", own) for q in range(R)) + v(own, "residual", 0)
        return total if output == "total" else norm(total, v(own, "gain", 0))

    inputs, outputs = {"x": R, "residual": 1, "gain": 1}, {"y": R, "total": 1}
    return collectives.custom("add_norm", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


# What goes to all ranks is made in scratch, where those of a host read it: an output would be copied for each.
@algorithm(_add_norm, scratch=["normed"])
def _scatter_norm_gather(R: int) -> None:
    for own in range(R):
        total = chunk((own + 1) % R, "x", own).copy(own, "total", 0)
        for step in range(2, R + 1):
            total = total.reduce(chunk((own + step) % R, "x", own))
        y = norm(total.reduce(chunk(own, "residual", 0)), chunk(own, "gain", 0), out=(own, "normed", 0))
        for step in range(1, R + 1):
            y.copy((own + step) % R, "y", own)


def _add_norm_back(R: int) -> collectives.Collective:
    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        own = i if output == "d_x" else rank
        made = norm_back(sum(v(q, "d_y", own) for q in range(R)), v(own, "total", 0), v(own, "gain", 0))
        return made[1] if output == "d_gain" else made[0]

    inputs, outputs = {"d_y": R, "total": 1, "gain": 1}, {"d_x": R, "d_residual": 1, "d_gain": 1}
    return collectives.custom("add_norm_back", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


@algorithm(_add_norm_back, scratch=["sum", "made"])
def _scatter_norm_gather_back(R: int) -> None:
    for own in range(R):
        total = chunk((own + 1) % R, "d_y", own).copy(own, "sum", 0)
        for step in range(2, R + 1):
            total = total.reduce(chunk((own + step) % R, "d_y", own))
        operands = total, chunk(own, "total", 0), chunk(own, "gain", 0)
        made, _ = norm_back(*operands, out=[(own, "made", 0), (own, "d_gain", 0)])
        made.copy(own, "d_residual", 0)
        for step in range(1, R + 1):
            made.copy((own + step) % R, "d_x", own)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Short types are computed as float32, and rounded once."""
    return tensor.float() if tensor.dtype.itemsize < torch.float32.itemsize else tensor


def _norm(x: torch.Tensor, gain: torch.Tensor, out: torch.Tensor, eps: float) -> None:
    x = _wide(x)
    made = torch.mul(x, torch.rsqrt(x.square().mean(-1, keepdim=True) + eps), out=out if x.dtype == out.dtype else None)
    made.mul_(_wide(gain))
    if made is not out:
        out.copy_(made)


def _norm_back(
    dy: torch.Tensor, x: torch.Tensor, gain: torch.Tensor, out: tuple[torch.Tensor, torch.Tensor], eps: float
) -> None:
    dy, x, gain = map(_wide, (dy, x, gain))
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    unit = x * scale
    by_unit = dy * gain
    out[0].copy_(scale * (by_unit - unit * (by_unit * unit).mean(-1, keepdim=True)))
    out[1].copy_((dy * unit).sum_to_size(out[1].shape))


def _check_product(x: Shape, w: Shape) -> None:
    if (len(x), len(w)) != (2, 2) or x[1] != w[0]:
        what = f"x has shape {tuple(x)}, and w {tuple(w)}; expected (rows, in) and (in, out), of 2 axes"
        raise errors.error("BadArgument", what)


def _check_norm(R: int, x: Shape, residual: Shape, gain: Shape) -> None:
    """The gain has the shape of the residual; axes may be 1, or missing in front."""
    fits = bool(gain) and all(size in (1, of) for size, of in zip(gain[::-1], residual[::-1], strict=False))
    if not 1 < len(residual) >= len(gain) or tuple(x) != (R * residual[0], *residual[1:]) or not fits:
        what = f"shapes {tuple(x)}, {tuple(residual)}, {tuple(gain)}; expected x of ({R} rows, width), a residual of "
        raise errors.error("BadArgument", f"{what}(rows, width), and a gain of (width,), (1, width) or (rows, width)")


def of_group(make: Callable[..., TensorProgram], group: Any, *given: Any) -> Any:
    """What is made for a group, or was made for it before from the same.

    Layers share it with its connections, and torch.compile takes the code of one layer for all: it keeps at most eight
    variants of a function.
    """
    if not all(isinstance(each, Hashable) for each in given):  # as a function that is a dataclass
        return make(group, *given)
    return _of_group(make, group, torch.distributed.get_world_size(group), *given)


@functools.cache
def _of_group(make: Callable[..., TensorProgram], group: Any, _: int, *given: Any) -> TensorProgram:
    return make(group, *given)


def column_linear(group: Any) -> TensorProgram:
    """The product of all ranks' rows and this rank's columns of the weights."""
    return _linear(group, _gather_multiply, _multiply_scatter_back, "all")


def row_linear(group: Any) -> TensorProgram:
    """This rank's rows of the sum of all ranks' products."""
    return _linear(group, _multiply_scatter, _gather_multiply_back, "x")


def _linear(group: Any, forward: Algorithm, backward: Algorithm, whole: str) -> TensorProgram:
    """A product y of x and w, and its gradient, which has the tensor `whole` with all rows."""
    R = torch.distributed.get_world_size(group)
    blocks = R if whole == "x" else 1  # of rows of x

    def shapes(of: Mapping[str, Shape]) -> dict[str, Shape]:
        return {"d_x": (of[whole][0] // R, of["w"][0]), "d_w": of["w"]}

    def forward_shapes(of: Mapping[str, Shape]) -> dict[str, Shape]:
        _check_product(of["x"], of["w"])
        return {"y": (of["x"][0] // blocks, of["w"][1])}

    functions = {"multiply_t": _multiply_t, "gradient": _gradient}
    back = TensorProgram(compiled(backward, R=R), functions, shapes, None, None, group)
    functions = {"multiply": _multiply}
    return TensorProgram(compiled(forward, R=R), functions, forward_shapes, back, ["y"], group)


def add_norm(group: Any, eps: float) -> TensorProgram:
    """The sum of all ranks' x and their rows of the residual, normalised."""
    R = torch.distributed.get_world_size(group)

    def shapes(of: Mapping[str, Shape]) -> dict[str, Shape]:
        _check_norm(R, of["x"], of["residual"], of["gain"])
        return {"y": of["residual"]}

    def forward(x: torch.Tensor, gain: torch.Tensor, out: torch.Tensor) -> None:
        _norm(x, gain, out, eps)

    def backward(dy: torch.Tensor, x: torch.Tensor, gain: torch.Tensor, out: tuple[torch.Tensor, torch.Tensor]) -> None:
        _norm_back(dy, x, gain, out, eps)

    back = TensorProgram(
        compiled(_scatter_norm_gather_back, R=R),
        {"rms_norm_back": backward},
        lambda of: {"d_residual": of["total"], "d_gain": of["gain"]},
        None,
        None,
        group,
    )
    return TensorProgram(
        compiled(_scatter_norm_gather, R=R),
        {"rms_norm": forward},
        shapes,
        back,
        ["y"],
        group,
    )
