"""A layer of experts as a program that computes: dispatch, expert, combine, and its gradient."""

# ruff: noqa: N806 (R is the number of ranks of every algorithm)

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch

from gc3 import collectives, errors
from gc3.computing import op
from gc3.lang import algorithm, chunk
from gc3.lang import compile as compiled
from gc3.torch.programs import Shape, TensorProgram, as_tensor, on_tensors
from gc3.torch.tensors import array as to_array
from gc3.torch.tensors import contiguous

if TYPE_CHECKING:
    from gc3.datatypes import Array
    from gc3.runtime.program import Program
    from gc3.runtime.with_functions import Bound

Lengths: TypeAlias = "dict[tuple[int, int, int], int]"  # rows by tile: rank, expert, number

Expert = Callable[..., torch.Tensor]

expert, expert_back = op("expert"), op("expert_back")


def _weights(count: int, prefix: str = "") -> dict[str, int]:
    return {f"{prefix}w{k}": 1 for k in range(count)}


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Tiles that each rank has of each other one, and what they are called.

    Attributes:
        R: The number of ranks.
        tiles: Of each pair of ranks.
        uneven: Each tile is a tensor of its own, as long as the call says; else tiles are chunks of one tensor.
    """

    R: int
    tiles: int
    uneven: bool

    def all(self) -> list[tuple[int, int, int]]:
        """The tiles: rank, the other rank, number."""
        return list(itertools.product(range(self.R), range(self.R), range(self.tiles)))

    def sizes(self, name: str) -> dict[str, Any]:
        """The tensors that hold the tiles, and the chunks of each rank in them."""
        if not self.uneven:
            return {name: self.R * self.tiles}
        return {self.place(name, *tile)[1]: [int(q == tile[0]) for q in range(self.R)] for tile in self.all()}

    def place(self, name: str, rank: int, other: int, tile: int) -> tuple[int, str, int]:
        """Where a tile of a rank is."""
        return (rank, f"{name}_{rank}_{other}_{tile}", 0) if self.uneven else (rank, name, other * self.tiles + tile)

    def tile(self, output: str, index: int) -> tuple[str, int, int]:
        """The name, other rank and number of the tile in a place of an output."""
        if not self.uneven:
            return (output, *divmod(index, self.tiles))
        name, _, other, tile = output.rsplit("_", 3)
        return name, int(other), int(tile)

    def of(self, rank: int, name: str) -> list[tuple[int, str, int]]:
        """The places of all tiles of a rank."""
        return [self.place(name, rank, *tile) for tile in itertools.product(range(self.R), range(self.tiles))]


def _there_and_back(on: _Tiles, weights: int, operation: Any, buffers: Sequence[str], saved: str = "") -> None:
    """Sends tiles to the experts, applies an operation, and returns what it makes; a rank's own tiles come last."""
    sent, arrived, made, returned = buffers
    for step in [*range(1, on.R), 0]:
        for to in range(on.R):
            source = (to + step) % on.R
            for tile in range(on.tiles):
                here, there = (to, source, tile), (source, to, tile)
                operands = [chunk(*on.place(sent, *there)).copy(*on.place(arrived, *here))]
                operands += [chunk(*on.place(saved, *here))] if saved else []
                operands += [chunk(to, name, 0) for name in _weights(weights)]
                if source == to:
                    operation(*operands, out=on.place(returned, *there))
                else:
                    operation(*operands, out=on.place(made, *here)).copy(*on.place(returned, *there))


def _experts(on: _Tiles, weights: int) -> Program:
    """Tile t for expert e goes to rank e; arrived is for the gradient."""

    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        name, other, tile = on.tile(output, i)
        if name == "arrived":
            return v(*on.place("tokens", other, rank, tile))
        return expert(v(*on.place("tokens", rank, other, tile)), *(v(other, name, 0) for name in _weights(weights)))

    inputs = {**on.sizes("tokens"), **_weights(weights)}
    outputs = {**on.sizes("answers"), **on.sizes("arrived")}

    made = collectives.custom("moe", ranks=on.R, inputs=inputs, outputs=outputs, expect=expect)

    @algorithm(lambda: made, scratch=[*on.sizes("made")])
    def moe() -> None:
        _there_and_back(on, weights, expert, ("tokens", "arrived", "made", "answers"))

    return compiled(moe)


def _gradient(weights: int) -> Any:
    return op("expert_gradient", results=weights)


def _experts_back(on: _Tiles, weights: int) -> Program:
    """Nobody waits for the gradients of the weights: they come last, each of all tokens at once."""

    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        if output in _weights(weights, "d_"):
            answers = [v(*on.place("d_answers", *tile)) for tile in on.all() if tile[1] == rank]
            own = [v(rank, name, 0) for name in _weights(weights)]
            made = _gradient(weights)(*answers, *(v(*place) for place in on.of(rank, "arrived")), *own)
            return made[int(output.removeprefix("d_w"))] if weights > 1 else made
        _, other, tile = on.tile(output, i)
        own = [v(other, name, 0) for name in _weights(weights)]
        arrived = v(*on.place("arrived", other, rank, tile))
        return expert_back(v(*on.place("d_answers", rank, other, tile)), arrived, *own)

    inputs = {**on.sizes("d_answers"), **on.sizes("arrived"), **_weights(weights)}
    outputs = {**on.sizes("d_tokens"), **_weights(weights, "d_")}
    made = collectives.custom("moe_back", ranks=on.R, inputs=inputs, outputs=outputs, expect=expect)

    @algorithm(lambda: made, scratch=[*on.sizes("dy"), *on.sizes("made")])
    def moe_back() -> None:
        _there_and_back(on, weights, expert_back, ("d_answers", "dy", "made", "d_tokens"), "arrived")
        for rank in range(on.R):
            operands = [chunk(*place) for buffer in ("dy", "arrived") for place in on.of(rank, buffer)]
            operands += [chunk(rank, name, 0) for name in _weights(weights)]
            places = [(rank, name, 0) for name in _weights(weights, "d_")]
            _gradient(weights)(*operands, out=places if weights > 1 else places[0])

    return compiled(moe_back)


class Experts(TensorProgram):
    """A layer of experts, made by `gc3.torch.moe`."""

    def __init__(self, group: Any, function: Expert, weights: int, tiles: int) -> None:
        """Binds the expert and its gradient."""
        R = torch.distributed.get_world_size(group)
        every, on = R * tiles, _Tiles(R, tiles, uneven=False)

        def do_expert(*operands: torch.Tensor, out: torch.Tensor) -> None:
            made = function(*operands)
            if made.shape != out.shape:
                raise ValueError(f"{tuple(made.shape)} is not the shape of the tokens, {tuple(out.shape)}")
            out.copy_(made)

        def do_back(dy: torch.Tensor, x: torch.Tensor, *own: torch.Tensor, out: torch.Tensor) -> None:
            def of_tokens(x: torch.Tensor) -> torch.Tensor:
                return function(x, *own)

            out.copy_(torch.func.vjp(of_tokens, x)[1](dy)[0])

        def do_gradient(*operands: torch.Tensor, out: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            dy, x = torch.cat(operands[:every]), torch.cat(operands[every : 2 * every])

            def of_weights(*own: torch.Tensor) -> torch.Tensor:
                return function(x, *own)

            made = torch.func.vjp(of_weights, *operands[2 * every :])[1](dy)
            for to, gradient in zip(out if isinstance(out, tuple) else (out,), made, strict=True):
                to.copy_(gradient)

        def shapes(of: Mapping[str, Shape]) -> dict[str, Shape]:
            rows, *rest = of["tokens"] or (1,)
            if rows % every:
                what = f"tokens have shape {of['tokens']}; expected rows that {R} ranks x {tiles} tiles divide"
                raise errors.error("BadArgument", f"{what}, or counts= of the rows for each expert")
            return {"answers": (rows // every, *rest)}

        def shapes_back(of: Mapping[str, Shape]) -> dict[str, Shape]:
            rows, *rest = of["arrived"]
            return {"d_tokens": (rows // every, *rest), **{f"d_{name}": of[name] for name in _weights(weights)}}

        self._functions = {"expert": do_expert}, {"expert_back": do_back, "expert_gradient": do_gradient}
        self._on, self._weights = on, [*_weights(weights)]
        back = TensorProgram(_experts_back(on, weights), self._functions[1], shapes_back, None, None, group)
        super().__init__(_experts(on, weights), self._functions[0], shapes, back, ["answers"], group)

    def __call__(self, *tensors: torch.Tensor, counts: Sequence[int] | torch.Tensor | None = None) -> Any:
        """Runs it on this rank's tokens and weights. Collective.

        Args:
            tensors: The tokens, and the weights.
            counts: How many rows of the tokens, which are sorted by expert, each expert gets; each rank gives its own.
                None: equally many.
        """
        return super().__call__(*tensors) if counts is None else _with_counts(self, counts, *tensors)

    @cached_property
    def _uneven(self) -> tuple[_Tiles, Bound, Bound]:
        """The tiles of calls with counts, and the programs, which are proven."""
        on, programs = replace(self._on, uneven=True), []
        for made, functions in zip((_experts, _experts_back), self._functions, strict=True):
            program = made(on, len(self._weights))
            program.verify()
            programs.append(program.bind({name: on_tensors(functions[name]) for name in functions}))
        return on, *programs

    def _rows(self, tensors: Sequence[torch.Tensor], counts: Sequence[int] | torch.Tensor) -> list[int]:
        """The counts of this rank, if they fit its tokens."""
        if len(tensors) != 1 + len(self._weights) or any(not isinstance(tensor, torch.Tensor) for tensor in tensors):
            what = f"{self.name} takes tensors: tokens, {', '.join(self._weights)}"
            raise errors.error("BadArgument", what)
        rows: Any = np.asarray(counts).tolist()
        right = isinstance(rows, list) and [type(n) is int and n >= 0 for n in cast("list[Any]", rows)]
        shape = tuple(tensors[0].shape)
        if right != [True] * self._on.R or sum(rows) != (*shape, 0)[0]:
            what = f"counts={rows} for tokens of shape {shape}; expected the rows for each of {self._on.R} experts"
            raise errors.error("BadArgument", f"{what}, and all rows")
        return rows

    def run_uneven(
        self, tensors: Sequence[torch.Tensor], counts: Sequence[int] | torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], Lengths]:
        """Returns the answers, what has arrived for this rank's expert, and the rows of all tiles."""
        comm, (on, forward, _) = self._communicator(), self._uneven
        rows: list[int] = []
        given: dict[str, Array | None] = {}
        with self._refusing():
            rows = self._rows(tensors, counts)
            given |= {name: to_array(contiguous(own)) for name, own in zip(self._weights, tensors[1:], strict=True)}
        all_rows = comm.all_gather(np.array(rows, np.int64)).reshape(on.R, on.R)
        lengths = {(q, e, t): (int(all_rows[q, e]) + t) // on.tiles for q, e, t in on.all()}
        tokens, rest = tensors[0], tensors[0].shape[1:]
        with self._refusing():
            given |= self._parts("tokens", tokens, lengths)
        made = forward.run_rank(comm, given, shapes=self._shapes(("tokens", "answers"), lengths, rest))
        answers, arrived = (
            [as_tensor(made[at], tokens.dtype) for at in self._own(name)] for name in ("answers", "arrived")
        )
        return torch.cat(answers), arrived, lengths

    def run_back(
        self, gradient: torch.Tensor, arrived: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], lengths: Lengths
    ) -> list[torch.Tensor]:
        """Returns the gradients of tokens and weights."""
        given = self._parts("d_answers", gradient, lengths)
        given |= self._arrays("arrived", arrived)
        given |= dict(zip(self._weights, map(to_array, weights), strict=True))
        shapes = self._shapes(("d_answers", "d_tokens"), lengths, gradient.shape[1:])
        there = {(expert, rank, tile): n for (rank, expert, tile), n in lengths.items()}
        shapes |= self._shapes(("arrived",), there, gradient.shape[1:])
        shapes |= {f"d_{name}": tuple(own.shape) for name, own in zip(self._weights, weights, strict=True)}
        made = self._uneven[2].run_rank(self._communicator(), given, shapes=shapes)
        tokens = torch.cat([as_tensor(made[at], gradient.dtype) for at in self._own("d_tokens")])
        return [tokens, *(as_tensor(made[f"d_{name}"], gradient.dtype) for name in self._weights)]

    def _own(self, name: str) -> list[str]:
        """The tensors of this rank's tiles."""
        return [at for _, at, _ in self._uneven[0].of(torch.distributed.get_rank(self.group), name)]

    def _parts(self, name: str, whole: torch.Tensor, lengths: Lengths) -> dict[str, Array | None]:
        """The tiles of a tensor, which follow each other."""
        rank = torch.distributed.get_rank(self.group)
        return self._arrays(name, torch.split(contiguous(whole), [n for tile, n in lengths.items() if tile[0] == rank]))

    def _arrays(self, name: str, own: Sequence[torch.Tensor]) -> dict[str, Array | None]:
        """The tiles of this rank; None: those of other ranks."""
        others: dict[str, Array | None] = dict.fromkeys(self._uneven[0].sizes(name))
        return others | dict(zip(self._own(name), map(to_array, own), strict=True))

    def _shapes(self, names: Sequence[str], lengths: Lengths, rest: Sequence[int]) -> dict[str, Shape]:
        on = self._uneven[0]
        return {on.place(name, *tile)[1]: (n, *rest) for name in names for tile, n in lengths.items()}


class _WithCounts(torch.autograd.Function):
    """A call with counts."""

    @staticmethod
    def forward(ctx: Any, layer: Experts, counts: Any, *tensors: torch.Tensor) -> torch.Tensor:
        answers, arrived, ctx.lengths = layer.run_uneven(tensors, counts)
        ctx.layer = layer
        ctx.save_for_backward(*tensors[1:], *arrived)
        return answers

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise errors.error(
                "BadArgument", f"{ctx.layer.name} with counts has no second gradient: leave out create_graph"
            )
        count = len(ctx.saved_tensors) - len(ctx.layer._own("arrived"))
        weights, arrived = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        return None, None, *ctx.layer.run_back(gradient.contiguous(), arrived, weights, ctx.lengths)


def _apply(*given: Any) -> Any:
    return _WithCounts.apply(*given)


_with_counts: Any = torch.compiler.disable(_apply)  # the shapes within depend on what other ranks give
