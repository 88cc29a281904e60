"""Compute operations, and the values that a postcondition requires of programs that compute.

>>> norm = op("norm")
>>> x = Term.of_input(0, "x", 0)
>>> norm(x + Term.of_input(1, "x", 0)) + x
norm(x[0] of rank 0 + x[0] of rank 1) + x[0] of rank 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from gc3 import _core, errors
from gc3.properties import NONE, Declared, bits, describe
from gc3.support.public import public

# The chunks of a tensor: on every rank, by rank, or a function of the rank.
Sizes: TypeAlias = "int | Sequence[int] | Callable[[int], int]"
Chunk: TypeAlias = "tuple[int, int]"  # (rank, index); (COMPUTED, k): the result of call k
Expectation: TypeAlias = "Callable[[Callable[[int, str, int], Term], int, str, int], Term | None]"
# Operation, result, arguments; of a part of wholes: the arguments of each operand, the part, whether columns are cut.
Call: TypeAlias = "tuple[int, int, list[list[Chunk]], list[int], int, bool]"

# The seconds of an application, or what it takes in FLOP and bytes of memory; or a function of the numbers of elements
# of its operands and results that returns either.
Work: TypeAlias = "float | tuple[float, float]"
Cost: TypeAlias = "Work | Callable[..., Work]"

_MOST_RESULTS = 1 << 16
CUTS = ("rows", "columns")


@dataclass(frozen=True, slots=True)
class Input:
    """An input chunk as a part of a sum."""

    rank: int
    tensor: str
    index: int

    def __repr__(self) -> str:
        """Names it as messages do."""
        return f"{self.tensor}[{self.index}] of rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Made:
    """What an operation makes of its arguments, as a part of a sum."""

    operation: Operation
    result: int
    arguments: tuple[Term, ...]
    pieces: tuple[int, ...] = ()  # of a part of wholes: how many arguments each operand has
    part: int = 0
    cut: str = ""

    def __repr__(self) -> str:
        """Names it as messages do."""
        which = f"#{self.result}" if self.result else ""
        of = f"{self.cut} {self.part} of " if self.cut else ""
        return f"{of}{self.operation.name}{which}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Term:
    """A value that a postcondition requires: a sum of input chunks and of what operations make."""

    parts: tuple[Input | Made, ...]

    @staticmethod
    def of_input(rank: int, tensor: str, index: int) -> Term:
        """Returns an input chunk."""
        return Term((Input(rank, tensor, index),))

    def __add__(self, other: Term) -> Term:
        """The reduction of both."""
        return Term(self.parts + other.parts) if isinstance(other, Term) else NotImplemented  # pyright: ignore[reportUnnecessaryIsInstance]

    def __radd__(self, other: object) -> Term:
        """Lets sum() begin with its 0."""
        return self if other == 0 else NotImplemented

    def __repr__(self) -> str:
        """Names it as messages do."""
        return " + ".join(map(repr, self.parts))


class Operation(_core.ComputeOperation):
    """A compute operation: an uninterpreted function of whole chunks, which equal arguments give equal results.

    Made by `gc3.op`. In an algorithm, ``operation(*references, out=(rank, buffer, index))`` applies it to chunks of one
    rank. In ``expect=`` of `gc3.collectives.custom`, ``operation(*values)`` is the required value. The function that
    computes is bound when a program runs: see `gc3.Program.bind`.
    """

    def __init__(self, name: str, results: int, cost: Cost | None = None, properties: tuple[int, ...] = NONE) -> None:
        """Takes its name, the number of its results, what an application costs, and what is declared of it."""
        super().__init__(name)
        self.results = results
        self.cost = cost
        self.properties = properties

    def term(self, *arguments: object) -> Term | tuple[Term, ...]:
        """Returns what it makes of values; several results as a tuple."""
        given: list[Term] = []
        for argument in arguments:
            if not isinstance(argument, Term):
                raise errors.error(
                    "BadOperands", f"{self.name}: {argument!r} is neither a chunk nor a value of expect="
                )
            given.append(argument)
        if not given:
            raise errors.error("BadOperands", f"{self.name} needs an operand")
        made = tuple(Term((Made(self, k, tuple(given)),)) for k in range(self.results))
        return made if self.results > 1 else made[0]

    def parts(self, *operands: Term | Sequence[Term], cut: str) -> list[Term | tuple[Term, ...]]:
        """Returns the parts of what it makes of whole tensors, in ``expect=`` of `gc3.collectives.custom`.

        Args:
            operands: Values; the chunks of a tensor, in order, as a list.
            cut: Where the tensors and the result are cut into chunks: between "rows" or between "columns".

        >>> norm = op("norm", properties={"rowwise": 0})
        >>> norm.parts([Term.of_input(0, "x", 0), Term.of_input(0, "x", 1)], cut="rows")[1]
        rows 1 of norm(x[0] of rank 0, x[1] of rank 0)
        """
        if cut not in CUTS:
            raise errors.error("BadOperands", f"{self.name}: cut={cut!r}; expected {' or '.join(map(repr, CUTS))}")
        lists = [list(each) if isinstance(each, Sequence) else [each] for each in operands]
        flat = [value for each in lists for value in each]
        if not all(lists) or not lists or not all(isinstance(value, Term) for value in flat):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.error("BadOperands", f"{self.name}.parts: each operand is a value, or a list of some")
        pieces = tuple(map(len, lists))
        made = [
            tuple(Term((Made(self, k, tuple(flat), pieces, part, cut),)) for k in range(self.results))
            for part in range(max(pieces))
        ]
        return [each if self.results > 1 else each[0] for each in made]

    def __reduce__(self) -> tuple[Any, ...]:
        """Is pickled as what it was made of."""
        return Operation, (self.name, self.results, self.cost, self.properties)

    def __repr__(self) -> str:
        """Describes it in one line."""
        return f"<gc3.Operation {self.name}>"


def op(name: str, *, results: int = 1, cost: Cost | None = None, properties: Declared | None = None) -> Operation:
    """Returns a compute operation of that name.

    Args:
        name: Its name in programs and messages; whoever runs the program binds a function to it.
        results: The number of its results.
        cost: What an application costs, for predictions: seconds, or (FLOP, bytes read and written); or a function of
            the numbers of elements of its operands and results that returns that. None: measured runs tell.
        properties: What a proof may assume of it. "linear": what it makes of a sum is the sum of what it makes of the
            terms. "rowwise": of some rows it makes the same rows of its result. "elementwise": the same of any block
            of elements. A mapping names the operands of each, by number, and a property alone is of all operands.
            "linear" is in each operand, the others as they are; the others are of all these operands together, which
            are cut alike. ``bind(check=True)`` tests them.

    >>> op("matmul", cost=lambda a, b, out: (2 * (a * b * out) ** 0.5, 0), properties={"linear": (0, 1), "rowwise": 0})
    <gc3.Operation matmul>
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise errors.error("BadArgument", f"op({name!r}): expected the name of an operation")
    if cost is not None and not callable(cost):
        work(name, cost)
    return Operation(name, errors.whole(results, "results", 1, _MOST_RESULTS), cost, bits(name, properties))


def work(name: str, cost: Cost, *elements: int) -> Work:
    """Returns what an application on so many elements costs.

    >>> work("norm", lambda x, out: 1e-9 * x, 4096, 4096)
    4.096e-06
    """
    found: Any = cost(*elements) if callable(cost) else cost
    try:
        flop, moved = (0.0, found) if isinstance(found, (int, float)) else found
        right = 0 <= flop < math.inf and 0 <= moved < math.inf
    except (TypeError, ValueError):
        right = False
    if not right:
        raise errors.error(
            "BadArgument", f"the cost of '{errors.shown(name)}' is {found!r}; expected seconds, or (FLOP, bytes)"
        )
    return found


@dataclass(frozen=True, slots=True)
class Tensors:
    """The part of a custom collective's data that is about named tensors, in the form that the core takes."""

    tensors: tuple[tuple[str, bool, tuple[int, ...]], ...]
    operations: tuple[tuple[str, tuple[int, ...]], ...]  # name and properties
    calls: tuple[Call, ...]
    declared: tuple[Operation, ...] = ()


NO_TENSORS = Tensors((), (), ())


class Postcondition:
    """Collects what the outputs of named tensors must hold."""

    def __init__(self, ranks: int, inputs: Mapping[str, Sizes], outputs: Mapping[str, Sizes]) -> None:
        """Takes the chunks of each tensor.

        Raises:
            ValueError: They are not numbers of chunks; the text says which.
        """
        self._ranks = ranks
        self._inputs = {name: _sizes(name, given, ranks) for name, given in inputs.items()}
        self._outputs = {name: _sizes(name, given, ranks) for name, given in outputs.items()}
        self._operations: dict[str, int] = {}
        self._declared: dict[str, Operation] = {}
        self._numbers: dict[Made, int] = {}
        self._calls: list[Call] = []

    def sizes(self, *, of_inputs: bool) -> list[int]:
        """Returns the chunks of the input or output of each rank."""
        tensors = self._inputs if of_inputs else self._outputs
        return [sum(sizes[rank] for sizes in tensors.values()) for rank in range(self._ranks)]

    def value(self, rank: int, tensor: str, index: int) -> Term:
        """Returns an input chunk as a value.

        Raises:
            ValueError: There is none.
        """
        sizes = self._inputs.get(tensor)
        if sizes is None:
            raise ValueError(f"there is no input {tensor!r}, but {', '.join(self._inputs)}")
        if not 0 <= rank < self._ranks or not 0 <= index < sizes[rank]:
            raise ValueError(f"{tensor}[{index}] of rank {rank} does not exist")
        return Term.of_input(int(rank), tensor, int(index))

    def chunks(self, expect: Expectation) -> list[list[Chunk]]:
        """Returns what `expect` requires of every output chunk, by rank.

        Raises:
            ValueError: It is no value; the text says of which.
        """
        listed: list[list[Chunk]] = []
        for rank in range(self._ranks):
            for name, sizes in self._outputs.items():
                for index in range(sizes[rank]):
                    wanted = expect(self.value, rank, name, index)
                    if wanted is not None and not isinstance(wanted, Term):  # pyright: ignore[reportUnnecessaryIsInstance]
                        raise ValueError(f"expect of {name}[{index}] of rank {rank} is {wanted!r}, not a value")
                    listed.append([] if wanted is None else self._sum(wanted))
        return listed

    def at_the_end(self, program: Sequential) -> Expectation:
        """Returns what a sequential program leaves in the outputs.

        Raises:
            ValueError: It makes a wrong call, or other outputs; the text says which.
        """
        calls = Calls(self, self._ranks, self._inputs)
        program.function(calls)
        return calls.outputs(self._outputs)

    def tensors(self) -> Tensors:
        """Returns the tensors, and the operations and calls that `chunks` has met."""
        named = [(name, False, tuple(sizes)) for name, sizes in self._inputs.items()]
        named += [(name, True, tuple(sizes)) for name, sizes in self._outputs.items()]
        operations = tuple((name, self._declared[name].properties) for name in self._operations)
        return Tensors(tuple(named), operations, tuple(self._calls), tuple(self._declared.values()))

    def _sum(self, term: Term) -> list[Chunk]:
        return [self._chunk(part) for part in term.parts]

    def _chunk(self, part: Input | Made) -> Chunk:
        if isinstance(part, Input):
            before = 0
            for name, sizes in self._inputs.items():
                if name == part.tensor:
                    break
                before += sizes[part.rank]
            return part.rank, before + part.index
        number = self._numbers.get(part)
        if number is None:
            arguments = [self._sum(argument) for argument in part.arguments]
            operation = self._operations.setdefault(part.operation.name, len(self._operations))
            self._declare(part.operation)
            whole = (list(part.pieces), part.part, part.cut == "columns")
            self._calls.append((operation, part.result, arguments, *whole))
            number = self._numbers[part] = len(self._calls) - 1
        return _core.COMPUTED, number

    def _declare(self, operation: Operation) -> None:
        known = self._declared.setdefault(operation.name, operation)
        for what, one, other in (
            ("numbers of results", known.results, operation.results),
            ("costs", known.cost, operation.cost),
            ("properties", describe(known.properties) or "none", describe(operation.properties) or "none"),
        ):
            if one != other:
                raise ValueError(f"two operations have the name '{operation.name}' and other {what}: {one}, {other}")


@dataclass(frozen=True, slots=True)
class Sequential:
    """A postcondition as a sequential program: made by `sequential`."""

    function: Callable[[Calls], None]


def sequential(function: Callable[[Calls], None]) -> Sequential:
    """Makes ``expect=`` of `gc3.collectives.custom` of a function that makes calls, one after the other.

    ``call(collective, source, target)`` is a collective, by its name or by an algorithm, from one tensor to another;
    ``call(operation, *tensors, out=tensor)`` applies an operation to the chunks of tensors, one by one, on every rank,
    and a tensor of one chunk serves all; with ``cut=`` "rows" or "columns" it applies it once, to the whole tensors of
    a rank, whose chunks are cut there. ``call("add", *tensors, out=tensor)`` reduces tensors on each rank. Names that
    are no inputs are made by the call.

    >>> norm = op("norm")
    >>> def reference(call):
    ...     call("allreduce", "x", "total")
    ...     call(norm, "total", out="y")
    >>> as_data(2, {"x": 1}, {"y": 1}, sequential(reference))[3].calls
    ((0, 0, [[(0, 0), (1, 0)]], [], 0, False),)
    """
    if not callable(function):
        raise errors.error("BadArgument", f"sequential({function!r}): expected a function that makes calls")
    return Sequential(function)


class Calls:
    """What the tensors of all ranks hold, call after call of a sequential program."""

    def __init__(self, post: Postcondition, ranks: int, inputs: Mapping[str, Sequence[int]]) -> None:
        """Begins with the inputs."""
        self._ranks = range(ranks)
        self._held: dict[str, list[list[Term | None]]] = {
            name: [[post.value(rank, name, index) for index in range(sizes[rank])] for rank in self._ranks]
            for name, sizes in inputs.items()
        }
        self._number = 0

    def __call__(self, what: Any, *names: str, out: str | Sequence[str] = "", root: int = 0, cut: str = "") -> None:
        """Makes a call: see `sequential`. `root`: of a collective that has one."""
        self._number += 1
        if cut and (cut not in CUTS or not isinstance(what, Operation)):
            raise self._wrong(what, f"cut={cut!r}; expected {' or '.join(map(repr, CUTS))}, of an operation")
        made = self._names(what, [out] if isinstance(out, str) else out, "out=")
        self._names(what, names, "an operand")
        if isinstance(what, Operation):
            self._apply(what, names, made, cut)
        elif isinstance(what, str) and what == "add":
            sums: list[list[Term | None]] = [
                [self._sum(name, part) for part in rows] for name, rows in self._rows("add", names)
            ]
            self._keep(made[0] if len(made) == 1 else "", sums)
        elif out or len(names) != len(("source", "target")):
            raise self._wrong(what, "a collective has a source and a target")
        else:
            self._move(what, names[0], names[1], root)

    def outputs(self, sizes: Mapping[str, Sequence[int]]) -> Expectation:
        """Returns what the outputs hold at the end."""
        for name, chunks in sizes.items():
            if name not in self._held:
                raise ValueError(f"no call of the sequential program makes '{name}'")
            made = [len(own) for own in self._held[name]]
            if made != list(chunks):
                raise ValueError(f"the sequential program makes {made} chunks of '{name}', not {list(chunks)}")
        return lambda _, rank, name, index: self._held[name][rank][index]

    def _apply(self, operation: Operation, names: Sequence[str], out: Sequence[str], cut: str) -> None:
        if len(out) != operation.results or not all(out):
            raise self._wrong(operation, f"out= names its {operation.results} results")
        made: list[list[list[Term | None]]] = [[] for _ in out]
        for rank, (name, rows) in enumerate(self._rows(operation, names)):
            if cut:
                whole = [[self._value(each, x) for x in self._held[each][rank]] for each in names]
                results = operation.parts(*whole, cut=cut)
            else:
                results = [operation.term(*(self._value(name, x) for x in part)) for part in rows]
            for k in range(operation.results):
                made[k].append([each[k] if isinstance(each, tuple) else each for each in results])
        for target, chunks in zip(out, made, strict=True):
            self._keep(target, chunks)

    def _rows(self, what: object, names: Sequence[str]) -> list[tuple[str, list[tuple[Term | None, ...]]]]:
        """By rank, the chunks of tensors beside each other."""
        found: list[tuple[str, list[tuple[Term | None, ...]]]] = []
        for rank in self._ranks:
            own = [self._tensor(what, name)[rank] for name in names]
            most = max(map(len, own), default=0)
            if not own or any(len(chunks) not in (1, most) for chunks in own):
                counts = ", ".join(f"{len(chunks)} of '{name}'" for name, chunks in zip(names, own, strict=True))
                raise self._wrong(what, f"rank {rank} has {counts or 'no operand'}: expected as many of each, or 1")
            wide = [chunks if len(chunks) == most else chunks * most for chunks in own]
            found.append((names[0], list(zip(*wide, strict=True))))
        return found

    def _move(self, what: Any, source: str, target: str, root: Any) -> None:
        name = str(getattr(what, "collective_name", what))
        held = self._tensor(what, source)
        ranks = len(self._ranks)
        if not isinstance(root, int) or root not in self._ranks:
            raise self._wrong(name, f"root={root!r}; expected a rank below {ranks}")
        try:
            blocks = _core.Collective.builtin(name, ranks, 1, root)
            cuts = {(len(held[r]), blocks.input_chunks(r)) for r in self._ranks if blocks.input_chunks(r)}
            chunks = {size // wanted for size, wanted in cuts}
            if len(chunks) != 1 or 0 in chunks or any(size % wanted for size, wanted in cuts):
                sizes = " or ".join(str(size) for size in sorted({size for size, _ in cuts}))
                raise self._wrong(name, f"'{source}' has {sizes} chunks, which {name} of {ranks} cannot cut")
            model = _core.Collective.builtin(name, ranks, chunks.pop(), root)
        except errors.UserError as problem:
            raise self._wrong(name, problem.diagnostics[0].message) from None
        made: list[list[Term | None]] = []
        for rank in self._ranks:
            sums = [model.expected_terms(rank, index) for index in range(model.output_chunks(rank))]
            made.append([self._sum(source, [held[r][i] for r, i in terms]) if terms else None for terms in sums])
        self._keep(target, made)

    def _tensor(self, what: object, name: str) -> list[list[Term | None]]:
        if name not in self._held:
            raise self._wrong(what, f"there is no '{name}' yet, but {', '.join(self._held)}")
        return self._held[name]

    def _names(self, what: object, given: Any, of: str) -> list[str]:
        """Checks that something is a list of names, which it returns."""
        listed = list(cast("Sequence[Any]", given)) if isinstance(given, Sequence) else [given]
        wrong = [name for name in listed if not isinstance(name, str)]
        if wrong:
            raise self._wrong(what, f"{of} is {wrong[0]!r}; expected the name of a tensor")
        return listed

    def _value(self, name: str, value: Term | None) -> Term:
        if value is None:
            raise self._wrong(name, "it holds nothing on some rank")
        return value

    def _sum(self, name: str, values: Sequence[Term | None]) -> Term:
        return Term(tuple(part for value in values for part in self._value(name, value).parts))

    def _keep(self, name: str, chunks: list[list[Term | None]]) -> None:
        if not name:
            raise self._wrong("add", "out= names the result")
        self._held[name] = chunks

    def _wrong(self, what: object, why: str) -> ValueError:
        name = what.name if isinstance(what, Operation) else str(what)
        return ValueError(f"call {self._number} of the sequential program, {name}: {why}")


def _sizes(name: str, given: Sizes, ranks: int) -> list[int]:
    if not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name!r} cannot name a tensor")
    if callable(given):
        sizes: list[object] = [given(rank) for rank in range(ranks)]
    else:
        sizes = list(given) if isinstance(given, Sequence) else [given] * ranks
    if len(sizes) != ranks:
        raise ValueError(f"'{name}' has chunks for {len(sizes)} ranks, not {ranks}")
    found: list[int] = []
    for rank, size in enumerate(sizes):
        if not isinstance(size, int) or not 0 <= size < 1 << 32:
            raise ValueError(f"'{name}' has {size!r} chunks on rank {rank}")
        found.append(size)
    return found


def as_data(
    ranks: Any,
    inputs: Any,
    outputs: Any,
    expect: Any,
) -> tuple[list[int], list[int], list[list[Chunk]], Tensors]:
    """Returns the chunks of the inputs and outputs of each rank, what the outputs must hold, and the tensors.

    Raises:
        ValueError: Something is no such data; the text says what.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"a collective of named tensors needs ranks=, a number of ranks, not {ranks!r}")
    if not isinstance(inputs, Mapping) or not isinstance(outputs, Mapping):
        raise ValueError("inputs and outputs are both mappings from names to chunks, or both lists")
    if not callable(expect) and not isinstance(expect, Sequential):
        raise ValueError("of named tensors, expect is a function of value, rank, output and index, or gc3.sequential's")
    post = Postcondition(ranks, inputs, outputs)  # pyright: ignore[reportUnknownArgumentType]
    wanted = post.chunks(post.at_the_end(expect) if isinstance(expect, Sequential) else cast("Expectation", expect))
    return post.sizes(of_inputs=True), post.sizes(of_inputs=False), wanted, post.tensors()


public(Operation)
