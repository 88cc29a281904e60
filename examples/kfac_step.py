"""Training steps preconditioned by K-FAC, distributed over ranks by AllReduce and AllGather (004 section II-E).

    python examples/kfac_step.py
    python examples/kfac_step.py --allgather hierarchical_allgather -N 2 -G 4 --steps 10
    python examples/kfac_step.py --allgather all
    mpirun -n 4 python examples/kfac_step.py --processes        # or torchrun, srun: every rank a process

K-FAC approximates the curvature of a layer by a Kronecker product of two small matrices: A, the second moment of the
layer's inputs, and B, the second moment of the gradients of its outputs. The gradient W' of the layer's weights is
replaced by inverse(B) W' inverse(A). Each rank has a part of the batch. A step has three calls, as in Pauloski et al.
2020:

1. AllReduce, average: the gradients.
2. AllReduce, average: the factors A and B of every layer.
3. AllGather: each rank inverts some of the factors, and all ranks need all inverses. The size of this call grows with
   the number of layers; the paper makes it faster.

Then every rank preconditions the gradients and makes the same step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import gc3
from gc3.algorithms import catalogue, load

Array = npt.NDArray[np.float64]
Collective = Callable[[Sequence[Array]], list[Array]]

DAMPING = 0.1
RATE = 0.5
SPENT = ("allreduce", "allgather", "steps")


@dataclass(frozen=True)
class Statistics:
    """What a rank finds from its part of the batch, one entry for each layer.

    Attributes:
        loss: Mean squared error.
        gradients: (outputs, inputs).
        factors: A of the first layer, (inputs, inputs), its B, (outputs, outputs), A of the second, ...
    """

    loss: float
    gradients: list[Array]
    factors: list[Array]


@dataclass
class Calls:
    """The collectives of a step, and the seconds spent in them.

    Attributes:
        allreduce: Averages.
        allgather: Concatenates.
        seconds: Spent in each, and in all steps.
    """

    allreduce: gc3.Program
    allgather: gc3.Program
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SPENT, 0.0))

    @property
    def ranks(self) -> int:
        """Number of ranks of both."""
        return self.allgather.ranks

    def average(self, parts: Sequence[Array]) -> list[Array]:
        """Gives every rank the average of all parts."""
        return self._run("allreduce", self.allreduce, parts, op="avg")

    def gather(self, parts: Sequence[Array]) -> list[Array]:
        """Gives every rank all parts, one after another."""
        return self._run("allgather", self.allgather, parts)

    def _run(self, what: str, program: gc3.Program, parts: Sequence[Array], **options: str) -> list[Array]:
        start = time.perf_counter()
        results = program.run(list(parts), **options)
        self.seconds[what] += time.perf_counter() - start
        return [np.asarray(result) for result in results]


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


def flat(matrices: Sequence[Array]) -> Array:
    """Returns the elements of all matrices, one after another."""
    return np.concatenate([matrix.ravel() for matrix in matrices]) if matrices else np.empty(0)


def unflat(elements: Array, like: Sequence[Array]) -> list[Array]:
    """Returns matrices of the shapes of `like`, cut from `elements`."""
    ends = np.cumsum([matrix.size for matrix in like])
    return [elements[end - matrix.size : end].reshape(matrix.shape) for matrix, end in zip(like, ends, strict=True)]


def step(
    weights: Sequence[Sequence[Array]], parts: Sequence[Sequence[Array]], calls: Calls
) -> tuple[float, list[list[Array]]]:
    """A step on all ranks: returns the loss over the whole batch before it, and each rank's weights after it.

    Args:
        weights: Of each rank; they are the same.
        parts: Each rank's part of the batch, all of one size: inputs, what should come out, and noise.
        calls: The collectives.
    """
    start = time.perf_counter()
    found = [measure(w, *part) for w, part in zip(weights, parts, strict=True)]
    gradients = calls.average([flat(f.gradients) for f in found])
    factors = calls.average([flat(f.factors) for f in found])
    # From here on each line but the AllGather is what one rank does with what it has.
    own = [
        invert_share(unflat(mean, f.factors), rank, calls.ranks)
        for rank, (mean, f) in enumerate(zip(factors, found, strict=True))
    ]
    gathered = calls.gather(own)
    after = [
        update(w, unflat(g, f.gradients), collect(everything, f.factors, calls.ranks))
        for w, g, everything, f in zip(weights, gradients, gathered, found, strict=True)
    ]
    calls.seconds["steps"] += time.perf_counter() - start
    return float(np.mean([f.loss for f in found])), after


def step_part(
    weights: Sequence[Array], part: Sequence[Array], comm: gc3.Communicator, seconds: dict[str, float]
) -> tuple[float, list[Array]]:
    """A step where every rank is a process: returns the loss over the whole batch before it, and the weights after it.

    Args:
        weights: The same on all ranks.
        part: This rank's part of the batch.
        comm: Its calls are served by the programs that were loaded.
        seconds: Where what the calls took is added up.
    """
    clock = time.perf_counter
    found = measure(weights, *part)
    start = clock()
    gradients = comm.all_reduce(flat(found.gradients), "avg")
    factors = comm.all_reduce(flat(found.factors), "avg")
    averaged = clock()
    own = invert_share(unflat(factors, found.factors), comm.rank, comm.size)
    inverted = clock()
    everything = comm.all_gather(own)
    seconds["allreduce"] += averaged - start
    seconds["allgather"] += clock() - inverted
    inverses = collect(everything, found.factors, comm.size)
    loss = float(comm.all_reduce(np.array([found.loss]), "avg")[0])
    return loss, update(weights, unflat(gradients, found.gradients), inverses)


def share_size(factors: Sequence[Array], ranks: int) -> int:
    """The most elements in the factors of any rank: the AllGather takes the same number of all."""
    return max(sum(f.size for f in factors[rank::ranks]) for rank in range(ranks))


def invert_share(factors: Sequence[Array], rank: int, ranks: int) -> Array:
    """Returns the inverses that are this rank's to compute, filled up with zeros to `share_size`."""
    own = flat([invert(factor) for factor in factors[rank::ranks]])
    return np.pad(own, (0, share_size(factors, ranks) - own.size))


def collect(gathered: Array, factors: Sequence[Array], ranks: int) -> list[Array]:
    """Returns all inverses in the order of `factors`, from what the ranks computed."""
    inverses: list[Array] = [np.empty(0)] * len(factors)
    for rank, share in enumerate(gathered.reshape(ranks, -1)):
        own = factors[rank::ranks]
        inverses[rank::ranks] = unflat(share[: sum(f.size for f in own)], own)
    return inverses


@dataclass(frozen=True)
class Problem:
    """A network of layers of `widths` that shall learn to do what another one does.

    Attributes:
        start: Its weights in the beginning.
        inputs: Of all ranks, one after another.
        wanted: What should come out.
        numbers: Where the noise of each step comes from.
    """

    start: list[Array]
    inputs: Array
    wanted: Array
    numbers: np.random.Generator

    @staticmethod
    def of(ranks: int, widths: Sequence[int], samples: int) -> Problem:
        """Makes it, the same in every process; `samples` are those of each rank."""
        numbers = np.random.default_rng(1)
        teacher, start = ([numbers.standard_normal((o, i)) / np.sqrt(i) for i, o in pairwise(widths)] for _ in range(2))
        inputs = numbers.standard_normal((ranks * samples, widths[0]))
        wanted = inputs
        for layer in teacher:
            wanted = np.tanh(wanted @ layer.T)
        return Problem(start, inputs, wanted, numbers)

    def batch(self) -> tuple[Array, Array, Array]:
        """Returns the batch of the next step: inputs, what should come out, and noise."""
        return self.inputs, self.wanted, self.numbers.standard_normal(self.wanted.shape)


def close(weights: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether weights are equal but for rounding."""
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(weights, others, strict=True))


def train(calls: Calls, widths: Sequence[int], samples: int, steps: int) -> tuple[list[float], bool]:
    """Solves the problem; returns the losses, and whether all is right.

    Right means: all ranks have the same weights, and these are, but for rounding, the ones of the same steps made by
    one process on the whole batch.
    """
    problem = Problem.of(calls.ranks, widths, samples)
    serial, weights = problem.start, [problem.start] * calls.ranks
    losses: list[float] = []
    right = True
    for _ in range(steps):
        batch = problem.batch()
        expected, serial = serial_step(serial, batch)
        loss, weights = step(weights, list(zip(*(np.split(b, calls.ranks) for b in batch), strict=True)), calls)
        losses.append(loss)
        right &= bool(np.isclose(loss, expected))
        right &= all(np.array_equal(a, b) for own in weights for a, b in zip(own, weights[0], strict=True))
        right &= close(weights[0], serial)
    return losses, right


def train_part(
    comm: gc3.Communicator, widths: Sequence[int], samples: int, steps: int, seconds: dict[str, float]
) -> tuple[list[float], bool]:
    """The same where every rank is a process, each of which also makes the steps of one process, to compare."""
    problem = Problem.of(comm.size, widths, samples)
    serial = weights = problem.start
    losses: list[float] = []
    right = True
    for _ in range(steps):
        batch = problem.batch()
        expected, serial = serial_step(serial, batch)
        start = time.perf_counter()
        part = [np.split(b, comm.size)[comm.rank] for b in batch]
        loss, weights = step_part(weights, part, comm, seconds)
        seconds["steps"] += time.perf_counter() - start
        losses.append(loss)
        least, most = (comm.all_reduce(flat(weights), op) for op in ("min", "max"))
        right &= bool(np.isclose(loss, expected)) and np.array_equal(least, most) and close(weights, serial)
    return losses, bool(comm.all_reduce(np.array([right], np.uint8), "min")[0])


def compiled(name: str, nodes: int, gpus: int) -> gc3.Program:
    """Returns a proven program of an algorithm of the library."""
    algorithm = load(name)
    sizes = {"R": nodes * gpus, "N": nodes, "G": gpus}
    program = gc3.compile(algorithm, in_place=False, **{n: sizes[n] for n in needed(name)})
    program.verify()
    return program


def needed(name: str) -> list[str]:
    """Returns the parameters of an algorithm of the library that say how many ranks there are."""
    return [p.name for p in load(name).parameters if p.name in ("R", "N", "G")]


def positive(text: str) -> int:
    """Reads a number of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Runs the example; returns 0 if every result was right."""
    found = {kind: [a.name for a in catalogue().values() if a.collective_name == kind]
             for kind in ("allreduce", "allgather")}  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allgather", choices=[*found["allgather"], "all"], default="hierarchical_allgather",
                        metavar="NAME", help=f"one of {', '.join(found['allgather'])}; or all")  # fmt: skip
    parser.add_argument("--allreduce", choices=found["allreduce"], default="ring_allreduce",
                        metavar="NAME", help=f"one of {', '.join(found['allreduce'])}")  # fmt: skip
    parser.add_argument("-N", type=positive, default=2, help="nodes (default: 2)")
    parser.add_argument("-G", type=positive, default=2, help="GPUs per node (default: 2)")
    parser.add_argument("--widths", type=positive, nargs="+", default=(32, 64, 32, 8), help="of the layers")
    parser.add_argument("--samples", type=positive, default=64, help="of each rank (default: 64)")
    parser.add_argument("--steps", type=positive, default=10, help="(default: 10)")
    parser.add_argument("--processes", action="store_true",
                        help="this process is one of N times G ranks that a launcher has started")  # fmt: skip
    given = parser.parse_args(arguments)
    if len(given.widths) < 2:  # noqa: PLR2004  in and out
        parser.error("--widths takes two numbers or more")
    names = found["allgather"] if given.allgather == "all" else [given.allgather]
    if not given.processes:
        return run(given, names)
    with gc3.init() as comm:
        if comm.size != given.N * given.G:
            parser.error(
                f"-N {given.N} -G {given.G} are {given.N * given.G} ranks, the launcher has started {comm.size}"
            )
        return run(given, names, comm)


def run(given: argparse.Namespace, names: list[str], comm: gc3.Communicator | None = None) -> int:
    """Trains with each AllGather asked for; ranks are threads where there is no communicator."""
    pairs = list(pairwise(given.widths))
    gradients, factors = 8 * sum(i * o for i, o in pairs), 8 * sum(i * i + o * o for i, o in pairs)
    if comm is None or comm.rank == 0:
        print(
            f"A network of {len(pairs)} layers on {given.N * given.G} ranks. In each step the gradients ({gradients}\n"
            f"bytes) and the factors of the curvature ({factors} bytes) are averaged over all ranks, and the inverses\n"
            f"of the factors, of which each rank computes some, are gathered ({factors} bytes and what fills up the\n"
            "smaller shares)."
        )
    good = True
    for name in names:
        calls = Calls(compiled(given.allreduce, given.N, given.G), compiled(name, given.N, given.G))
        if comm is None:
            losses, right = train(calls, given.widths, given.samples, given.steps)
        else:
            comm.load(calls.allreduce)
            comm.load(calls.allgather)
            losses, right = train_part(comm, given.widths, given.samples, given.steps, calls.seconds)
        good &= right
        if comm is not None and comm.rank != 0:
            continue
        per_step = {what: 1e3 * spent / given.steps for what, spent in calls.seconds.items()}
        print(
            f"{name:<30} {per_step['allgather']:.3f} ms of {per_step['steps']:.3f} ms a step, both AllReduces "
            f"{per_step['allreduce']:.3f} ms;\n  loss {losses[0]:.4f} at first, {losses[-1]:.4f} before step "
            f"{given.steps}; {'equal to' if right else 'NOT equal to'} one process with the whole batch"
        )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
