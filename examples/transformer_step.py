"""Writes the Chakra execution trace of a training step, for `gc3 sim step`.

    python examples/transformer_step.py examples/transformer.et
    gc3 sim step examples/transformer.et -t ndv4 --use allreduce=ring_allreduce:channels=4,instances=8

A transformer is trained with data parallelism, as by PyTorch's DistributedDataParallel: during the backward pass,
gradients are added over all ranks in buckets of 25 MiB. Nothing was recorded. The times of compute follow from the
shapes: a layer takes 24 b s h^2 + 4 b s^2 h operations forward and twice as many backward (arXiv 2104.04473, appendix),
at half of the 312 TFLOP/s that the data sheet of an A100 gives for bfloat16. That half is an assumption.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from gc3.sim.read import chakra
from gc3.sim.read.chakra import COLLECTIVE, COMPUTE, Node

PEAK = 312e12  # operations per second
REACHED = 0.5
MEMORY = 1.555e12  # bytes per second
BUCKET = 25 << 20  # bytes, the default of DistributedDataParallel
BYTES = 2  # of a gradient, bfloat16


@dataclass(frozen=True)
class Model:
    """A transformer's shapes: layers, hidden size, sequence length, and sequences on each rank."""

    layers: int = 12
    hidden: int = 2048
    sequence: int = 1024
    batch: int = 1

    @property
    def forward_s(self) -> float:
        """Seconds of a layer."""
        tokens = self.batch * self.sequence
        operations = 24 * tokens * self.hidden**2 + 4 * tokens * self.sequence * self.hidden
        return operations / (REACHED * PEAK)

    @property
    def gradient_bytes(self) -> int:
        """Of a layer: attention 4 h^2, the two linear layers 8 h^2, and their biases and norms."""
        return BYTES * (12 * self.hidden**2 + 13 * self.hidden)


def trace(model: Model) -> list[Node]:
    """Returns the step of one rank; all ranks do the same."""
    nodes: list[Node] = []
    reduced: list[int] = []
    filled = 0

    def compute(name: str, after: list[int], seconds: float) -> list[int]:
        nodes.append(Node(len(nodes), name, COMPUTE, tuple(after), duration_s=seconds))
        return [len(nodes) - 1]

    before: list[int] = []
    for layer in range(model.layers):
        before = compute(f"forward {layer}", before, model.forward_s)
    for layer in reversed(range(model.layers)):
        before = compute(f"backward {layer}", before, 2 * model.forward_s)
        filled += model.gradient_bytes
        while filled >= BUCKET or (layer == 0 and filled):
            size = min(filled, BUCKET)
            name = f"gradients {len(reduced)}"
            nodes.append(Node(len(nodes), name, COLLECTIVE, tuple(before), collective="allreduce", size=size))
            reduced.append(len(nodes) - 1)
            filled -= size
    # The optimizer reads and writes 16 bytes for each parameter; an A100 of 40 GB has 1555 GB/s (data sheet).
    parameters = model.layers * model.gradient_bytes / BYTES
    compute("optimizer", [*before, *reduced], 16 * parameters / MEMORY)
    return nodes


def main() -> None:
    """Writes a file."""
    parser = argparse.ArgumentParser(description="Write the Chakra execution trace of a transformer's training step.")
    parser.add_argument("path", metavar="FILE.et")
    for name, default in vars(Model()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    path = given.pop("path")
    chakra.write(path, trace(Model(**given)))


if __name__ == "__main__":
    main()
