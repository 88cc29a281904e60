"""A step that PyTorch recorded, as an execution trace of Chakra.

Two files of a rank are joined. The execution trace (``torch.profiler.ExecutionTraceObserver``, from schema
1.0.2-chakra.0.0.4 on) has the operators with their storages, and so which operator needs what a collective gave. The
profile (``torch.profiler.profile``, ``export_chrome_trace``) has the times. They may be of one step, or of two equal
steps: operators are paired in their order.

Operators that no other contains become nodes that compute, and calls of ``torch.distributed`` (operators ``c10d::``)
become collectives and messages. The next operator waits for a call with ``async_op=False``. For any other call, the
first operator waits that has a storage of the call. The processor that computes is the GPU if the profile has kernels,
and the host otherwise.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gc3 import errors
from gc3.sim.read.chakra import BARRIER_BYTES, COLLECTIVE, COMPUTE, RECEIVE, SEND, Node, Trace
from gc3.support import files, schema

# An event with this name and that of a group, which gc3.torch.record puts into a call.
GROUP_MARK = "gc3 group "
_MOST_BYTES = 1 << 30
_MOST_WHOLE, _LONGEST_S = 1 << 63, 1e9
_MOST_RANKS = 1 << 20
_GZIP = b"\x1f\x8b"
_DEFAULT = "default_pg"
_BACKWARD = "autograd::engine::evaluate_function"
_WAIT = "wait_tensor"
_CALL = "c10d::"
_NO_CALLS = ("c10d::check_for_nan",)
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
_BLOCKING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
             "hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize")  # fmt: skip
# Of each call: the collective, and which argument has what a rank gives.
_CALLS: Mapping[str, tuple[str, int]] = {
    "allreduce_": ("allreduce", 0),
    "allreduce_coalesced_": ("allreduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "allgather_": ("allgather", 1),
    "_allgather_base_": ("allgather", 1),
    "all_gather_single_": ("allgather", 1),
    "allgather_coalesced_": ("allgather", 1),
    "allgather_into_tensor_coalesced_": ("allgather", 1),
    "gather_": ("gather", 1),
    "gather_into_tensor_": ("gather", 1),
    "reduce_scatter_": ("reducescatter", 1),
    "_reduce_scatter_base_": ("reducescatter", 1),
    "reduce_scatter_single_": ("reducescatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reducescatter", 1),
    "scatter_": ("scatter", 0),  # what a rank gets; only the root gives something
    "alltoall_": ("alltoall", 1),
    "alltoall_base_": ("alltoall", 1),
    "all_to_all_single_": ("alltoall", 1),
    "barrier": ("allreduce", -1),
    "monitored_barrier_": ("allreduce", -1),
}
_MESSAGES = {"send": SEND, "recv_": RECEIVE}
_LIST = schema.array({})
_OPERATORS = schema.array(
    schema.record(
        id=schema.COUNT,
        name=schema.TEXT,
        ctrl_deps=schema.COUNT,
        inputs=schema.record(values=_LIST, types=schema.array(schema.TEXT)),
        outputs=schema.record(values=_LIST),
        attrs=schema.array(schema.record(name=schema.TEXT, value={})),
    )
)
_ATTRIBUTES = schema.array(schema.record({"pg_name": schema.TEXT}, tid=schema.COUNT, op_schema=schema.TEXT))
_GROUP = schema.record(
    {"pg_size": schema.COUNT, "pg_desc": schema.TEXT}, pg_name=schema.TEXT, ranks=schema.array(schema.COUNT)
)
_JOB = schema.record(
    {"pg_config": schema.array(_GROUP)},
    rank={"type": "integer"},
    world_size={"type": "integer", "minimum": 1, "maximum": _MOST_RANKS},
)
_KINDS = schema.array(schema.record({"ph": schema.TEXT, "cat": schema.TEXT}))
_NUMBERS = {name: schema.COUNT for name in ("External id", "Ev Idx")}
_EVENTS = schema.array(
    schema.record(name=schema.TEXT, tid=schema.COUNT, ts=schema.TIME, dur=schema.TIME, args=schema.record(_NUMBERS))
)
_FLAGS = schema.array({"type": "boolean"})
_TENSOR = {"prefixItems": [*[{"type": "integer"}] * 5, schema.TEXT], **schema.array(False, minItems=6)}
_TENSORS = {"anyOf": [_TENSOR, schema.array({"anyOf": [_TENSOR, schema.array(_TENSOR)]})]}
_PEER_AND_TAG = {"prefixItems": [schema.COUNT, {"type": "integer"}], **schema.array(False, minItems=2)}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step of one rank."""

    rank: int  # whose it is
    ranks: int  # the number of ranks of the job
    trace: Trace  # its nodes
    groups: dict[str, list[int]]  # the ranks of the groups that the trace names


def read(operators: str, profile: str) -> Recorded:
    """Returns the step of a rank from the files of the observer and of the profiler, which may be compressed by gzip.

    Raises:
        gc3.UserError: A file cannot be read, or see `convert`.
    """
    return convert(_read(operators), _read(profile))


def convert(operators: Any, profile: Any) -> Recorded:
    """Returns the step of a rank.

    Args:
        operators: The content of the observer's JSON.
        profile: The content of the profiler's JSON.

    Raises:
        gc3.UserError: One of them is something else, they are of different steps, or the group of a call is not known.
    """
    try:
        job = _Job.of(profile)
        found = _operators(operators)
        timed = _paired(found, profile)
        recorded = _Conversion(job, _Kernels.of(profile)).run(timed)
        _check(recorded)
        if not timed:
            raise _bad("no operator computes or communicates in the execution trace")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
        if isinstance(problem, errors.Gc3Error):
            raise
        raise _bad(f"expected the JSON of PyTorch's ExecutionTraceObserver and of its profiler ({problem!r})") from None
    return recorded


def _check(found: Recorded) -> None:
    """Refuses what no step has, and what a trace cannot hold."""
    if not 0 <= found.rank < found.ranks:
        raise _bad(f"the profile is of rank {found.rank} of {found.ranks}")
    for node in found.trace:
        for text in (node.name, node.group):
            text.encode()  # with half of a character: a ValueError
        whole = 0 <= node.size < _MOST_WHOLE and abs(node.tag) < _MOST_WHOLE
        if not whole or not 0 <= node.peer < found.ranks or not 0 <= node.duration_s <= _LONGEST_S:
            told = f"{node.duration_s:g} s, {node.size} B, peer {node.peer}, tag {node.tag}"
            raise _bad(f"'{errors.shown(node.name)}' is outside the ranges of a trace ({told})")


@dataclass(frozen=True, slots=True)
class _Job:
    """The job: a rank, and the members of each group."""

    rank: int
    ranks: int
    groups: dict[str, list[int]]
    default: str

    @classmethod
    def of(cls, profile: Any) -> _Job:
        about = profile.get("distributedInfo")
        if not about:
            raise _bad("the profile has no distributedInfo: it is not of a job of torch.distributed")
        _check_part(about, _JOB, "the distributedInfo of a profile")
        rank, ranks = int(about["rank"]), int(about["world_size"])
        groups: dict[str, list[int]] = {}
        default = ""
        for group in about.get("pg_config") or ():
            name = group["pg_name"]
            all_ranks = range(min(int(group.get("pg_size", ranks)), ranks))
            groups[name] = [int(r) for r in group["ranks"]] or list(all_ranks)
            if group.get("pg_desc") == _DEFAULT:
                default = name
        return cls(rank, ranks, groups, default)


@dataclass(slots=True)
class _Operator:
    """An operator of the execution trace; times are in microseconds."""

    number: int
    name: str
    values: Sequence[Any]
    results: Sequence[Any]
    kinds: Sequence[str]
    group: str | None = None
    start: float = 0.0
    end: float = 0.0
    inner: list[_Operator] = field(default_factory=list["_Operator"])

    @property
    def is_call(self) -> bool:
        return self.name.startswith(_CALL) and self.name not in _NO_CALLS

    @property
    def storages(self) -> set[int]:
        return {tensor[1] for tensor in _tensors([self.values, self.results])}

    @property
    def waits(self) -> bool:
        """Whether the caller of a call waits for it at once."""
        flags = [value for value, kind in zip(self.values, self.kinds, strict=True) if kind == "Bool"]
        _check_part(flags, _FLAGS, f"the flags of {self.name}")
        return bool(flags and not flags[-1])


def _operators(data: Any) -> list[_Operator]:
    """The operators of the threads that compute, in the order in which they began, with those inside them."""
    if "chakra" not in str(data.get("schema")):
        raise _bad("the execution trace has no schema of Chakra; use PyTorch 2.3 or newer")
    _check_part(data["nodes"], _OPERATORS, "the list of the nodes of an execution trace")
    nodes: dict[int, Any] = {int(node["id"]): node for node in data["nodes"]}
    above = {number: int(node["ctrl_deps"]) for number, node in nodes.items()}
    told = {number: {a["name"]: a["value"] for a in node["attrs"]} for number, node in nodes.items()}
    _check_part(list(told.values()), _ATTRIBUTES, "the list of the attributes of an execution trace's nodes")
    # The thread of the step begins; others are those of the backward pass, and those of backends, which do not count.
    threads = {told[number]["tid"] for number, node in nodes.items() if node["name"].startswith(_BACKWARD)}
    threads |= {told[number]["tid"] for number in [n for n in sorted(nodes) if told[n]["op_schema"]][:1]}
    made: dict[int, _Operator] = {}
    found: list[_Operator] = []
    for number in sorted(nodes):
        node, about = nodes[number], told[number]
        if about["op_schema"] and about["tid"] in threads:
            values, results = node["inputs"], node["outputs"]
            made[number] = _Operator(number, node["name"], values["values"], results["values"], values["types"])
            found.append(made[number])
    repeated: set[int] = set()
    # What lies between an operator and the one around it has no schema: modules, marks, the engine of autograd. Of
    # these, by number, the operator around them, and the group that a mark on the way names.
    between: dict[int, tuple[int, str | None]] = {}
    for number in sorted(nodes):
        name, at = nodes[number]["name"], above[number]
        outer, mark = (at, None) if at in made and at < number else between.get(at, (0, None))
        if number not in made:
            between[number] = outer, name[len(GROUP_MARK) :] if name.startswith(GROUP_MARK) else mark
        if not outer:
            continue
        if mark is not None and number in made and made[number].name == made[outer].name:
            # The call itself, once more: see gc3.torch.recording.
            made[outer].group = mark
            made[number] = made[outer]
            repeated.add(number)
        elif name == "record_param_comms":
            made[outer].group = _group_of(nodes[number], told[number]) or made[outer].group
        elif number in made:
            made[outer].inner.append(made[number])
    return [operator for operator in found if operator.number not in repeated]


def _group_of(node: Any, about: Mapping[str, Any]) -> str | None:
    """The group that a node record_param_comms names: by an attribute, or (older) by a pair with its description."""
    if about.get("pg_name"):
        return about["pg_name"]
    lists = [cast("list[Any]", value) for value in node["inputs"]["values"] if isinstance(value, list)]
    pairs = [each for each in lists if len(each) == 2 and all(isinstance(word, str) for word in each)]  # noqa: PLR2004
    return pairs[0][0] if pairs else None


def _paired(found: Sequence[_Operator], profile: Any) -> list[_Operator]:
    """Gives operators the times of the profile. Returns those that compute or call, in their order, none in another."""
    names = {operator.name for operator in found}
    _check_part(profile["traceEvents"], _KINDS, "the list of the events of a profile")
    events = [e for e in profile["traceEvents"] if e.get("cat") == "cpu_op" and e.get("ph") == "X"]
    _check_part(events, _EVENTS, "the list of the operators of a profile")
    threads = {e["tid"] for e in events if e["name"].startswith(_BACKWARD)}
    events = [e for e in events if e["name"] in names]
    events.sort(key=lambda e: (float(e["ts"]), -float(e["dur"]), int(e["args"].get("Ev Idx", 0))))
    threads |= {e["tid"] for e in events[:1]}
    events = [e for e in events if e["tid"] in threads]
    for place, operator in enumerate(found):
        name = events[place]["name"] if place < len(events) else "nothing"
        if name != operator.name:
            raise _bad(f"operator {place} is {operator.name} in the execution trace, and {name} in the profile: "
                       "they are of steps that differ")  # fmt: skip
        operator.start = float(events[place]["ts"])
        operator.end = operator.start + float(events[place]["dur"])
    if len(events) > len(found):
        raise _bad(f"the profile has {len(events)} operators, the execution trace {len(found)}: of steps that differ")
    inside = {inner.number for operator in found for inner in operator.inner}
    return [each for operator in found if operator.number not in inside for each in _outermost(operator)]


def _outermost(operator: _Operator) -> Iterator[_Operator]:
    """The operator itself, or, if calls are inside it, those inside it."""
    if operator.is_call or not _calls(operator):
        yield operator
    else:
        for inner in operator.inner:
            yield from _outermost(inner)


def _calls(operator: _Operator) -> bool:
    return operator.is_call or any(_calls(inner) for inner in operator.inner)


@dataclass(slots=True)
class _Kernels:
    """Work on the GPU: seconds that operators ask for, by when they ask, and times when the host waits for it."""

    asked: list[tuple[float, float]]
    blocked: list[tuple[float, float]]

    @classmethod
    def of(cls, profile: Any) -> _Kernels:
        events = [e for e in profile["traceEvents"] if e.get("ph") == "X"]
        began = {e["args"]["External id"]: float(e["ts"]) for e in events
                 if e.get("cat") == "cpu_op" and "External id" in e.get("args", {})}  # fmt: skip
        _check_part(
            kernels := [e for e in events if e.get("cat") in _KERNELS], _EVENTS, "the list of a profile's kernels"
        )
        kernels = (e for e in kernels if "nccl" not in e["name"].lower())
        asked = [(began[e["args"].get("External id")], float(e["dur"])) for e in kernels
                 if e["args"].get("External id") in began]  # fmt: skip
        blocked = [(float(e["ts"]), float(e["dur"])) for e in events if e["name"] in _BLOCKING]
        return cls(sorted(asked), sorted(blocked))


class _Conversion:
    """Makes the nodes. The axis of times has what the processors do, without waits."""

    def __init__(self, job: _Job, kernels: _Kernels) -> None:
        self._job = job
        self._kernels = kernels
        self._on_gpu = bool(kernels.asked)
        self._nodes: list[Node] = []
        self._groups: dict[str, list[int]] = {}
        self._host: list[int] = []  # the nodes that what the host does next waits for
        self._gpu: list[int] = []  # and what the GPU does next
        self._under_way: dict[int, set[int]] = {}  # calls for which nothing waits yet: their storages
        self._busy = self._written = 0.0  # microseconds of the host, and those that nodes have already

    def run(self, timed: Sequence[_Operator]) -> Recorded:
        at = timed[0].start if timed else 0.0
        blocking = False  # whether the operator before is a call for which the host waits
        for operator in timed:
            needs = self._needed(operator)
            gap = max(operator.start - at, 0.0)
            at = max(at, operator.end)
            if not self._on_gpu and (blocking or (needs and not operator.is_call)):
                gap = 0.0  # the host has waited
            begin = operator.start - gap
            blocking = operator.is_call and operator.waits
            if operator.is_call:
                # What the host did before it, and then the call, whose time is that of the simulation.
                self._compute("before " + operator.name, gap - self._blocked(begin, operator.start), ())
                self._call(operator, needs)
            elif operator.name.endswith(_WAIT):
                self._wait(needs)
            else:
                self._compute(operator.name, operator.end - begin - self._blocked(begin, operator.end), needs, operator)
        return Recorded(self._job.rank, self._job.ranks, tuple(self._nodes), self._groups)

    def _needed(self, operator: _Operator) -> list[int]:
        """The calls that an operator has to wait for."""
        storages = operator.storages
        needs = [number for number, has in self._under_way.items() if has & storages]
        for number in needs:
            del self._under_way[number]
        return needs

    def _blocked(self, begin: float, end: float) -> float:
        """Microseconds for which the host waits for the GPU; it continues after what the GPU has to do."""
        if not self._on_gpu:
            return 0.0
        where = slice(bisect_right(self._kernels.blocked, (begin,)), bisect_right(self._kernels.blocked, (end,)))
        waits = self._kernels.blocked[where]
        if waits:
            self._host = sorted({*self._host, *self._gpu})
        return sum(time for _, time in waits)

    def _compute(self, name: str, time: float, needs: Iterable[int], operator: _Operator | None = None) -> None:
        self._busy += max(time, 0.0)
        if not self._on_gpu:
            self._wait(needs)
        # The format has whole microseconds: shorter times are added to those of the next operator.
        if round(self._busy) > round(self._written):
            whole = round(self._busy) - round(self._written)
            self._written = self._busy
            self._host = [self._add(name, self._host, whole, on_cpu=self._on_gpu)]
        if self._on_gpu and operator is not None:
            self._wait(needs)
            asked = self._kernels.asked
            where = slice(bisect_right(asked, (operator.start,)), bisect_right(asked, (operator.end, 0.0)))
            if time := round(sum(each for _, each in asked[where])):
                self._gpu = [self._add(name, [*self._host, *self._gpu], time)]

    def _wait(self, needs: Iterable[int]) -> None:
        if self._on_gpu:
            self._gpu = sorted({*self._gpu, *needs})
        else:
            self._host = sorted({*self._host, *needs})

    def _add(self, name: str, after: Iterable[int], time: int, *, on_cpu: bool = False) -> int:
        number = len(self._nodes)
        self._nodes.append(Node(number, name, COMPUTE, tuple(sorted({*after})), 1e-6 * time, on_cpu=on_cpu))
        return number

    def _call(self, operator: _Operator, needs: Sequence[int]) -> None:
        name = operator.name.removeprefix(_CALL)
        given = [value for value, kind in zip(operator.values, operator.kinds, strict=True) if "Tensor(" in kind]
        _check_part(given, schema.array(_TENSORS), f"the tensors of {operator.name}")
        members, group = self._group(operator)
        after = tuple(sorted({*self._host, *self._gpu, *needs}))
        number = len(self._nodes)
        if name in _MESSAGES:
            numbers = [value for value, kind in zip(operator.values, operator.kinds, strict=True) if kind == "Int"]
            _check_part(numbers, _PEER_AND_TAG, f"the peer and the tag of {operator.name}")
            peer, tag = cast("list[int]", numbers)
            size = _bytes(operator.values[0])
            node = Node(number, operator.name, _MESSAGES[name], after, size=size, peer=members[peer], tag=tag)
        elif name in _CALLS:
            collective, given = _CALLS[name]
            size = _bytes(operator.values[given]) if given >= 0 else BARRIER_BYTES
            size *= len(members) if collective == "scatter" else 1
            node = Node(number, operator.name, COLLECTIVE, after, collective=collective, size=size, group=group)
        else:
            raise _bad(f"{operator.name} is not known here (a message without a source has no sender in a trace)")
        if node.size == 0:
            return  # the calls of empty tensors do nothing
        self._nodes.append(node)
        if operator.waits:
            self._wait([number])
        else:
            self._under_way[number] = operator.storages

    def _group(self, operator: _Operator) -> tuple[list[int], str]:
        """The ranks of a call's group, and its name in a trace: nothing for the default group, which has all ranks."""
        groups = self._job.groups
        name = operator.group
        if name is None and len({tuple(ranks) for ranks in groups.values()}) == 1:
            name = self._job.default or next(iter(groups))
        if name is None or name not in groups:
            told = "is not known" if name is None else f"'{errors.shown(name)}' is not in the profile"
            raise _bad(f"the group of a call of {operator.name} {told}: record with gc3.torch.record, which notes it")
        if name == self._job.default:
            return groups[name], ""
        self._groups[name] = groups[name]
        return groups[name], name


def _read(path: str) -> Any:
    data = files.read_bytes(path, _MOST_BYTES)
    if data.startswith(_GZIP):
        try:
            unpacked = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES + 1)
        except zlib.error as problem:
            raise _bad(f"'{path}' is not in the form of gzip: {problem}") from None
        if len(unpacked) > _MOST_BYTES:
            raise _bad(f"'{path}' has more than {_MOST_BYTES} B")
        data = unpacked
    return files.parse_json(data.decode("utf-8", "replace"), "BadTrace", path)


def _tensors(values: Any) -> Iterator[Sequence[Any]]:
    """The tensors in arguments: [tensor, storage, offset, elements, bytes of an element, device]."""
    if not isinstance(values, list):
        return
    items = cast("list[Any]", values)
    if len(items) == 6 and isinstance(items[5], str) and all(type(item) is int for item in items[:5]):  # noqa: PLR2004
        if items[1]:
            yield items
    else:
        for item in items:
            yield from _tensors(item)


def _bytes(values: Any) -> int:
    return sum(tensor[3] * tensor[4] for tensor in _tensors(values))


def merged(groups: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Returns the groups of all ranks.

    Raises:
        gc3.UserError: Groups of different ranks have one name.
    """
    found: dict[str, list[int]] = {}
    for name, ranks in (item for each in groups for item in each.items()):
        if found.setdefault(name, list(ranks)) != list(ranks):
            raise _bad(f"two groups are called '{errors.shown(name)}': {found[name]} and {list(ranks)}")
    return found


def _check_part(data: Any, part: dict[str, Any], what: str) -> None:
    schema.check(data, part, "BadTrace", what=what)


def _bad(what: str) -> errors.Gc3Error:
    return errors.error("BadTrace", what)
