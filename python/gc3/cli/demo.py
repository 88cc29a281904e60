"""gc3 demo."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

import gc3
from gc3.algorithms import catalogue
from gc3.cli import options, output, report, sizes
from gc3.cli.command import Command
from gc3.collectives import count_for
from gc3.runtime.checking import Case
from gc3.runtime.measure import measure

_STEPS = 4
_NAME = "hierarchical_allreduce"
_SIZE = 64 * 1024**2
_BENCH_SIZES = (64 * 1024, 1024**2, 16 * 1024**2)


@click.command(
    "demo",
    cls=Command,
    examples=[
        "gc3 demo",
    ],
)
@options.json_option
def demo(as_json: bool) -> int:
    """Compile, prove, run and time an algorithm in a few seconds.

    Prints each step with the command that does it.
    """
    with output.progress("demo:", _STEPS, printing=not as_json) as begin:
        return _demo(begin, as_json=as_json)


def _demo(begin: Callable[[str], None], *, as_json: bool) -> int:
    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    def step(number: int, text: str) -> None:
        begin(text.partition("  ")[0])
        say(click.style(f"\n{number}. {text}", bold=True))

    algorithm = catalogue()[_NAME]
    parameters: dict[str, Any] = {"N": 2, "G": 3}
    spec = f"{_NAME}:{','.join(f'{name}={value}' for name, value in parameters.items())}"
    step(1, f"Compile {_NAME} for 2 nodes of 3 GPUs     gc3 compile {spec} -o h.gc3")
    start = time.perf_counter()
    program = gc3.compile(algorithm, memory="fifo", **parameters)
    compile_seconds = time.perf_counter() - start
    say(f"   {report.describe(program)}\n   in {1000 * compile_seconds:.1f} ms")

    step(2, "Prove it     gc3 verify h.gc3")
    start = time.perf_counter()
    proof = gc3.verify(program)
    proof_seconds = time.perf_counter() - start
    say(f"   {report.proof_text(program, proof)}\n   in {1000 * proof_seconds:.1f} ms")

    step(3, "Run it on real data     gc3 run h.gc3 --size 64MiB --dtype float32")
    case = Case(program.collective, count_for(program.collective, _SIZE, 4), "float32")
    with output.working("making data"):
        inputs, outputs = case.inputs(), case.poisoned_outputs()
    with output.working("running"):
        (seconds,) = program.time(inputs, outputs=outputs, count=case.count, dtype="float32", warmup=0, iterations=1)
    with output.working("comparing with NumPy"):
        compared = case.compare(inputs, outputs)
    verdict = "all equal to NumPy's" if compared.ok else f"{compared.wrong} wrong"
    say(
        f"   6 ranks, {sizes.format_size(_SIZE)} each, in {1000 * seconds:.0f} ms; "
        f"{compared.elements} elements checked: {verdict}"
    )

    step(4, f"Time it     gc3 bench {spec},in_place=yes -b 64KiB -e 16MiB -f 16 -w 2 -n 5")
    timings: list[dict[str, Any]] = []
    for size in _BENCH_SIZES:
        count = count_for(program.collective, size, 4)
        with output.working("timing"):
            timing = measure(program, count, warmup=2, iterations=5)
        timings.append({"size": size, "time_us": timing.time_us, "busbw": timing.busbw, "wrong": timing.wrong})
        say(f"   {sizes.format_size(size):>8}  {timing.time_us:>10.0f} us  busbw {timing.busbw:6.2f} GB/s")

    good = compared.ok and not any(t["wrong"] for t in timings)
    if as_json:
        output.emit(
            {
                "program": program.info(),
                "compile_seconds": compile_seconds,
                "proof": report.proof_data(proof),
                "proof_seconds": proof_seconds,
                "run": {"size": _SIZE, "seconds": seconds, "ok": compared.ok, "elements": compared.elements},
                "bench": timings,
            }
        )
    else:
        say(f"\nThe source of the algorithm is {algorithm.file}")
        say("Next: gc3 list, gc3 --help, and examples/my_allgather.py to write your own.")
    return 0 if good else 1
