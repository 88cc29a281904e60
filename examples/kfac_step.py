"""Training steps preconditioned by K-FAC, distributed over ranks by AllReduce and AllGather (004 section II-E).

    python examples/kfac_step.py --ranks 4 --vs
    python examples/kfac_step.py --ranks 4 --algorithm hierarchical_allgather --widths 256 256 256 64
    OMP_NUM_THREADS=1 mpirun -n 4 python examples/kfac_step.py --vs         # or torchrun, srun

K-FAC approximates the curvature of a layer by a Kronecker product of two small matrices: A, the second moment of the
layer's inputs, and B, the second moment of the gradients of its outputs. The gradient W' of the layer's weights is
replaced by inverse(B) W' inverse(A). Each rank has a part of the batch. A step has three calls, as in Pauloski et al.
2020:

1. AllReduce: the gradients, averaged.
2. AllReduce: the factors A and B of every layer, averaged.
3. AllGather: each rank inverts some of the factors, and all ranks need all inverses. The size of this call grows with
   the number of layers; the paper makes it faster.

Then every rank preconditions the gradients and makes the same step. One process with the whole batch makes it as well,
to compare.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import beside
import numpy as np
import numpy.typing as npt
from beside import Calls

import gc3

Array = npt.NDArray[np.float64]

DAMPING = 0.1
RATE = 0.5


@dataclass(frozen=True)
class Statistics:
    """What is found from a part of the batch, one entry for each layer.

    Attributes:
        loss: Mean squared error.
        gradients: (outputs, inputs).
        factors: A of the first layer, (inputs, inputs), its B, (outputs, outputs), A of the second, ...
    """

    loss: float
    gradients: list[Array]
    factors: list[Array]


def measure(weights: Sequence[Array], inputs: Array, wanted: Array, noise: Array) -> Statistics:
    """Runs a part of the batch, (samples, features), through tanh layers and back.

    The gradients are those of half the squared error. For the curvature, what goes back is not the error but noise of
    variance 1, as K-FAC wants it: the error that the network would see if the targets were drawn from its own model.
    """
    outputs = [inputs]
    for layer in weights:
        outputs.append(np.tanh(outputs[-1] @ layer.T))
    error = outputs[-1] - wanted
    pulls, draws = backward(weights, outputs, error), backward(weights, outputs, noise)
    gradients: list[Array] = []
    factors: list[Array] = []
    for before, pull, drawn in zip(outputs[:-1], pulls, draws, strict=True):
        gradients.append(pull.T @ before / len(inputs))
        factors += [before.T @ before / len(inputs), drawn.T @ drawn / len(inputs)]
    return Statistics(float(np.mean(error**2)), gradients, factors)


def backward(weights: Sequence[Array], outputs: Sequence[Array], error: Array) -> list[Array]:
    """Returns, for each layer, the derivative of half the squared `error` by what goes into its tanh."""
    pulls: list[Array] = []
    for i in reversed(range(len(weights))):
        pulls.insert(0, error * (1 - outputs[i + 1] ** 2))
        error = pulls[0] @ weights[i]
    return pulls


def invert(factor: Array) -> Array:
    """Returns the inverse of a factor, damped by a part of its average eigenvalue."""
    size = len(factor)
    return np.linalg.inv(factor + DAMPING * np.trace(factor) / size * np.eye(size))


def update(weights: Sequence[Array], gradients: Sequence[Array], inverses: Sequence[Array]) -> list[Array]:
    """Returns the weights after a preconditioned step."""
    return [
        w - RATE * (b @ g @ a) for w, g, a, b in zip(weights, gradients, inverses[::2], inverses[1::2], strict=True)
    ]


def serial_step(weights: Sequence[Array], batch: Sequence[Array]) -> tuple[float, list[Array]]:
    """The step that the distributed one must equal: returns the loss before it, and the weights after it."""
    found = measure(weights, *batch)
    return found.loss, update(weights, found.gradients, [invert(factor) for factor in found.factors])


def step(weights: Sequence[Array], part: Sequence[Array], calls: Calls) -> list[Array]:
    """The same where each rank has a part of the batch: returns the weights after it, the same on all ranks."""
    ranks = calls.comm.size
    found = measure(weights, *part)
    gradients = calls.all_reduce(flat(found.gradients)) / ranks
    factors = unflat(calls.all_reduce(flat(found.factors)) / ranks, found.factors)
    gathered = calls.all_gather(invert_share(factors, calls.comm.rank, ranks))
    return update(weights, unflat(gradients, found.gradients), collect(gathered, factors))


def flat(matrices: Sequence[Array]) -> Array:
    """Returns the elements of all matrices, one after another."""
    return np.concatenate([matrix.ravel() for matrix in matrices]) if matrices else np.empty(0)


def unflat(elements: Array, like: Sequence[Array]) -> list[Array]:
    """Returns matrices of the shapes of `like`, cut from `elements`."""
    ends = np.cumsum([matrix.size for matrix in like])
    return [elements[end - matrix.size : end].reshape(matrix.shape) for matrix, end in zip(like, ends, strict=True)]


def share_size(factors: Sequence[Array], ranks: int) -> int:
    """The most elements in the factors of any rank: the AllGather takes the same number of all."""
    return max(sum(f.size for f in factors[rank::ranks]) for rank in range(ranks))


def invert_share(factors: Sequence[Array], rank: int, ranks: int) -> Array:
    """Returns the inverses that are this rank's to compute, filled up with zeros to `share_size`."""
    own = flat([invert(factor) for factor in factors[rank::ranks]])
    return np.pad(own, (0, share_size(factors, ranks) - own.size))


def collect(gathered: Array, factors: Sequence[Array]) -> list[Array]:
    """Returns all inverses in the order of `factors`, from what the ranks computed, (ranks, share)."""
    ranks = len(gathered)
    inverses: list[Array] = [np.empty(0)] * len(factors)
    for rank, share in enumerate(gathered):
        own = factors[rank::ranks]
        inverses[rank::ranks] = unflat(share[: sum(f.size for f in own)], own)
    return inverses


def problem(ranks: int, widths: Sequence[int], samples: int) -> tuple[list[Array], list[Array]]:
    """A network of layers of `widths` that shall learn to do what another one does, the same in every process.

    Returns its weights, and the batch of all ranks, one after another: inputs, what should come out, and noise.
    """
    numbers = np.random.default_rng(1)
    teacher, start = ([numbers.standard_normal((o, i)) / np.sqrt(i) for i, o in pairwise(widths)] for _ in range(2))
    inputs = numbers.standard_normal((ranks * samples, widths[0]))
    wanted = inputs
    for layer in teacher:
        wanted = np.tanh(wanted @ layer.T)
    return start, [inputs, wanted, numbers.standard_normal(wanted.shape)]


def train(calls: Calls, weights: list[Array], batch: Sequence[Array], steps: int) -> tuple[list[float], bool]:
    """Makes steps; returns the losses before them, and whether the weights were right after each.

    Right means: all ranks have the same, and these are, but for rounding, the ones of the same steps made by one
    process with the whole batch.
    """
    comm, serial = calls.comm, weights
    losses: list[float] = []
    right = True
    for _ in range(steps):
        loss, serial = serial_step(serial, batch)
        weights = step(weights, own_part(batch, comm), calls)
        least, most = (comm.all_reduce(flat(weights), op) for op in ("min", "max"))
        losses.append(loss)
        right &= np.array_equal(least, most)
        right &= all(np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(weights, serial, strict=True))
    return losses, beside.agreed(comm, right)


def own_part(batch: Sequence[Array], comm: gc3.Communicator) -> list[Array]:
    """This rank's part of the batch."""
    return [np.split(b, comm.size)[comm.rank] for b in batch]


def run(comm: gc3.Communicator, given: argparse.Namespace) -> int:
    """What every rank does."""
    weights, batch = problem(comm.size, given.widths, given.samples)
    variants = beside.libraries(comm, given, "allgather")
    losses: list[float] = []
    for calls in variants:
        losses, right = train(calls, weights, batch, given.steps)
        if not right:
            raise SystemExit(f"{calls.name}: NOT equal to one process with the whole batch")
    pairs = list(pairwise(given.widths))
    gradients, factors = 8 * sum(i * o for i, o in pairs), 8 * sum(i * i + o * o for i, o in pairs)
    if comm.rank == 0:
        print(f"{len(pairs)} layers on {comm.size} ranks: gradients of {gradients} bytes, factors of {factors} bytes.")
        print(f"equal to one process with the whole batch; loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    about = {"name": "kfac_step", "of": 1, "unit": "steps", "widths": given.widths, "bytes": [gradients, factors]}
    part = own_part(batch, comm)
    beside.compare(comm, variants, lambda calls: step(weights, part, calls), given, **about)
    return 0


def main() -> int:
    """Runs the example."""
    parser = beside.parser(__doc__)
    parser.add_argument("--widths", type=beside.positive, nargs="+", default=(128, 256, 256, 64), help="of the layers")
    parser.add_argument("--samples", type=beside.positive, default=512, help="of each rank (default: 512)")
    parser.add_argument("--steps", type=beside.positive, default=5, help="to compare with one process (default: 5)")
    given = parser.parse_args()
    if len(given.widths) < 2:  # noqa: PLR2004  in and out
        parser.error("--widths takes two numbers or more")
    return beside.start(run, given)


if __name__ == "__main__":
    raise SystemExit(main())
