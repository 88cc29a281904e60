"""Bugs that users of fused kernels have met, planted in programs that compute: compiler or verifier refuse each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gc3
from gc3 import _core, chunk, collectives

mm, f, g, layer, halve = gc3.op("mm"), gc3.op("f"), gc3.op("g"), gc3.op("layer"), gc3.op("halve")


def refused(algorithm: Callable[[int], None], collective: Callable[[int], collectives.Collective]) -> str:
    """What the compiler says of a program that is wrong as it is written."""
    with pytest.raises(gc3.UserError) as caught:
        gc3.compile(gc3.algorithm(collective, scratch=["s"])(algorithm), R=2)
    return str(caught.value)


def damaged(program: gc3.Program, *changes: tuple[str, str]) -> str:
    """What the verifier says of a program whose text is changed, as a compiler with a defect would have made it."""
    program.verify()
    text = program.text
    for old, new in changes:
        assert text.count(old) == 1, text
        text = text.replace(old, new)
    found = _core.verify(_core.Program.from_text(text), 0, 0, 0, 1, False)
    assert found.diagnostics, text
    return str(found.diagnostics[0])


def products(R: int) -> collectives.Collective:
    """A product, summed and scattered."""

    def expect(v: Callable[..., Any], rank: int, _: str, __: int) -> Any:
        return sum(mm(v(q, "x", rank), v(q, "w", 0)) for q in range(R)) + halve(v(rank, "w", 0))

    return collectives.custom("products", ranks=R, inputs={"x": R, "w": 1}, outputs={"y": 1}, expect=expect)


def shared(R: int) -> collectives.Collective:
    """An AllToAll and then an AllGather, whose data are used by an operation each."""

    def expect(v: Callable[..., Any], rank: int, output: str, i: int) -> Any:
        return f(v(i, "x", rank)) if output == "a" else g(v(i, "z", 0))

    return collectives.custom("shared", ranks=R, inputs={"x": R, "z": 1}, outputs={"a": R, "b": R}, expect=expect)


@gc3.algorithm(shared, scratch=["s"])
def one_buffer(R: int) -> None:
    """Both arrive in the same place."""
    for rank in range(R):
        for source in range(R):
            f(chunk(source, "x", rank).copy(rank, "s", source), out=(rank, "a", source))
    for rank in range(R):
        for source in range(R):
            g(chunk(source, "z", 0).copy(rank, "s", source), out=(rank, "b", source))


def layers(R: int) -> collectives.Collective:
    """Two layers, whose weights are gathered."""

    def expect(v: Callable[..., Any], rank: int, _: str, __: int) -> Any:
        first = layer(v(rank, "x", 0), *(v(q, "w", 0) for q in range(R)))
        return layer(first, *(v(q, "w", 1) for q in range(R)))

    return collectives.custom("layers", ranks=R, inputs={"x": 1, "w": 2}, outputs={"y": 1}, expect=expect)


# --- wrong reduction after a rewrite


def test_a_mean_in_place_of_a_sum() -> None:
    """Issue 33088 of vLLM: a product and a ReduceScatter used avg, which a test of accuracy did not show."""

    def mean(R: int) -> None:
        for own in range(R):
            parts = [mm(chunk(q, "x", own), chunk(q, "w", 0), out=(q, "s", own)) for q in range(R)]
            total = parts[own].reduce(parts[1 - own])
            halve(total, out=(own, "y", 0)).reduce(halve(chunk(own, "w", 0), out=(own, "s", 2)))

    said = refused(mean, products)
    assert "must hold mm(x[0] of rank 0, w[0] of rank 0) + mm(" in said
    assert "but holds halve(w[0] of rank 0) + halve(mm(x[0] of rank 0, w[0] of rank 0) + mm(" in said


def test_a_mean_where_the_program_is_called() -> None:
    """The same, if the call names the reduction."""

    def nothing(*_: object, out: object) -> None:
        del out

    bound = gc3.compile(one_buffer, R=2).bind({"f": nothing, "g": nothing})
    tensors = {"x": [[[1.0], [2.0]]] * 2, "z": [[[1.0]]] * 2}
    with pytest.raises(gc3.UserError, match="avg"):
        bound.run(tensors, op="avg", shapes={"a": (1,), "b": (1,)})


def test_a_sum_that_is_reduced_again() -> None:
    """SGLang #24785: one path reduced what was reduced already."""

    def twice(R: int) -> None:
        for own in range(R):
            parts = [mm(chunk(q, "x", own), chunk(q, "w", 0), out=(q, "s", own)) for q in range(R)]
            total = parts[1 - own].reduce(parts[own]).copy(own, "y", 0)
            other = total.copy(1 - own, "s", 2)
            total.reduce(other).reduce(halve(chunk(own, "w", 0), out=(own, "s", 3)))

    assert "but holds 2 x mm(x[0] of rank 0, w[0] of rank 0) + 2 x mm(" in refused(twice, products)


# --- a buffer that is reused too early


def test_the_next_call_writes_what_is_still_read() -> None:
    """PyTorch #137171 and #137257, aiter #4346: no barrier between a read and the next call's write."""
    said = damaged(
        gc3.compile(one_buffer, R=2),
        ("2 recv -> sc[1] after (2:1) signals", "2 recv -> sc[1] signals"),
        ('1 apply "f" sc[1] -> out[1]:2 after (1:1) signals', '1 apply "f" sc[1] -> out[1]:2 after (1:1)'),
    )
    assert "GC3-V007" in said
    assert 'apply "f" sc[1]' in said


def test_a_gradient_that_is_freed_while_it_is_needed() -> None:
    """PyTorch #180665: its memory was given to the next one."""

    def freed(R: int) -> None:
        for own in range(R):
            part = mm(chunk(own, "x", own), chunk(own, "w", 0), out=(own, "s", 0))
            mm(chunk(own, "x", 1 - own), chunk(own, "w", 0), out=(own, "s", 0))
            part.copy(own, "y", 0)

    assert "GC3-L001" in refused(freed, products)


# --- a wait for other data than is read


def test_an_operation_waits_for_another_chunk() -> None:
    """rocm-libraries #5776: it waited for chunk N and read another."""
    said = damaged(
        gc3.compile(one_buffer, R=2),
        ('3 apply "g" sc[1] -> out[3]:3 after (1:2)', '3 apply "g" sc[1] -> out[3]:3 after (1:1)'),
        ("2 recv -> sc[1] after (2:1) signals", "2 recv -> sc[1] after (2:1)"),
    )
    assert "GC3-V007" in said
    assert 'apply "g" sc[1]' in said


def test_weights_of_another_bucket() -> None:
    """Megatron #950: buckets were gathered in another order than that of the layers."""

    def swapped(R: int) -> None:
        for rank in range(R):
            x = chunk(rank, "x", 0)
            for k in range(2):
                whole = [chunk(q, "w", 1 - k).copy(rank, "s", 2 * k + q) for q in range(R)]
                x = layer(x, *whole, out=(rank, "y", 0) if k else (rank, "s", 4))

    said = refused(swapped, layers)
    assert (
        "must hold layer(layer(x[0] of rank 0, w[0] of rank 0, w[0] of rank 1), w[1] of rank 0, w[1] of rank 1)" in said
    )
    assert "but holds layer(layer(x[0] of rank 0, w[1] of rank 0, w[1] of rank 1), w[0] of rank 0" in said


# --- orders of calls that differ


def test_ranks_that_send_for_two_calls_in_different_orders() -> None:
    """An AllToAll against another call (as in Megatron #5749): the receiver takes one for the other."""
    said = damaged(gc3.compile(one_buffer, R=2), ("0 send in[1]\n    1 send in[2]", "0 send in[2]\n    1 send in[1]"))
    assert "GC3-V008" in said
    assert "f(z[0] of rank 0)" in said


def test_ranks_that_wait_for_each_other() -> None:
    """PyTorch #189228: each holds the channel until the other has sent."""
    said = damaged(
        gc3.compile(one_buffer, R=2),
        ("0 send in[1]\n", "0 send in[1] after (1:1)\n"),
        ("0 send in[0]\n", "0 send in[0] after (1:1)\n"),
    )
    assert "deadlock" in said
