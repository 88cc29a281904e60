"""A layer of experts as a program that computes: dispatch, expert, combine, and its gradient."""

# ruff: noqa: N803, N806 (R is the number of ranks of every algorithm)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gc3 import collectives, errors
from gc3.computing import op
from gc3.lang import algorithm, chunk
from gc3.lang import compile as compiled
from gc3.torch.programs import Shape, TensorProgram

Expert = Callable[..., torch.Tensor]

expert, expert_back = op("expert"), op("expert_back")


def _weights(count: int, prefix: str = "") -> dict[str, int]:
    return {f"{prefix}w{k}": 1 for k in range(count)}


def _moe(R: int, tiles: int, weights: int) -> collectives.Collective:
    """Tile t of block e of a rank goes to expert e, which is on rank e; arrived is for the gradient."""

    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        other, tile = divmod(i, tiles)
        if output == "arrived":
            return v(other, "tokens", rank * tiles + tile)
        return expert(v(rank, "tokens", i), *(v(other, name, 0) for name in _weights(weights)))

    inputs, outputs = {"tokens": R * tiles, **_weights(weights)}, {"answers": R * tiles, "arrived": R * tiles}
    return collectives.custom("moe", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


def _there_and_back(R: int, tiles: int, weights: int, operation: Any, buffers: Sequence[str], saved: str = "") -> None:
    """Sends tiles to the experts, applies an operation, and returns what it makes; a rank's own tiles come last."""
    sent, arrived, made, returned = buffers
    for step in [*range(1, R), 0]:
        for to in range(R):
            source = (to + step) % R
            for tile in range(tiles):
                here, there = source * tiles + tile, to * tiles + tile
                operands = [chunk(source, sent, there).copy(to, arrived, here)]
                operands += [chunk(to, saved, here)] if saved else []
                operands += [chunk(to, name, 0) for name in _weights(weights)]
                if source == to:
                    operation(*operands, out=(to, returned, there))
                else:
                    operation(*operands, out=(to, made, here)).copy(source, returned, there)


@algorithm(_moe, scratch=["made"])
def _experts(R: int, tiles: int, weights: int) -> None:
    _there_and_back(R, tiles, weights, expert, ("tokens", "arrived", "made", "answers"))


def _gradient(weights: int) -> Any:
    return op("expert_gradient", results=weights)


def _moe_back(R: int, tiles: int, weights: int) -> collectives.Collective:
    every = range(R * tiles)

    def expect(v: Any, rank: int, output: str, i: int) -> Any:
        if output == "d_tokens":
            other, tile = divmod(i, tiles)
            own = [v(other, name, 0) for name in _weights(weights)]
            return expert_back(v(rank, "d_answers", i), v(other, "arrived", rank * tiles + tile), *own)
        arrived = [v(j // tiles, "d_answers", rank * tiles + j % tiles) for j in every]
        own = [v(rank, name, 0) for name in _weights(weights)]
        made = _gradient(weights)(*arrived, *(v(rank, "arrived", j) for j in every), *own)
        return made[int(output.removeprefix("d_w"))] if weights > 1 else made

    inputs = {"d_answers": R * tiles, "arrived": R * tiles, **_weights(weights)}
    outputs = {"d_tokens": R * tiles, **_weights(weights, "d_")}
    return collectives.custom("moe_back", ranks=R, inputs=inputs, outputs=outputs, expect=expect)


@algorithm(_moe_back, scratch=["dy", "made"])
def _experts_back(R: int, tiles: int, weights: int) -> None:
    """Nobody waits for the gradients of the weights: they come last, each of all tokens at once."""
    _there_and_back(R, tiles, weights, expert_back, ("d_answers", "dy", "made", "d_tokens"), "arrived")
    for rank in range(R):
        operands = [chunk(rank, buffer, j) for buffer in ("dy", "arrived") for j in range(R * tiles)]
        operands += [chunk(rank, name, 0) for name in _weights(weights)]
        places = [(rank, name, 0) for name in _weights(weights, "d_")]
        _gradient(weights)(*operands, out=places if weights > 1 else places[0])


def moe(function: Expert, weights: int, tiles: int, group: Any) -> TensorProgram:
    """The answers of all ranks' experts to this rank's tokens."""
    R = torch.distributed.get_world_size(group)
    every = R * tiles

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
            raise errors.error("BadArgument", what)
        return {"answers": (rows // every, *rest)}

    def shapes_back(of: Mapping[str, Shape]) -> dict[str, Shape]:
        rows, *rest = of["arrived"]
        return {"d_tokens": (rows // every, *rest), **{f"d_{name}": of[name] for name in _weights(weights)}}

    functions = {"expert_back": do_back, "expert_gradient": do_gradient}
    back = TensorProgram(
        compiled(_experts_back, R=R, tiles=tiles, weights=weights), functions, shapes_back, None, None, group
    )
    return TensorProgram(
        compiled(_experts, R=R, tiles=tiles, weights=weights), {"expert": do_expert}, shapes, back, ["answers"], group
    )
