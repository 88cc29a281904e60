"""The candidates: the library's algorithms, times protocols, instances and slots, as far as they fit."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from gc3 import _core, collectives, datatypes, errors
from gc3.algorithms import catalogue, load
from gc3.algorithms._one_rank import LOOPED
from gc3.comm.adapting import FIRST_READ, READS
from gc3.comm.spec import Spec
from gc3.lang import Algorithm
from gc3.runtime.program import Program
from gc3.sim.nccl.graphs import nics
from gc3.topologies.ring_order import ring_order

if TYPE_CHECKING:
    from gc3.topologies import Topology

Parameters: TypeAlias = tuple[tuple[str, int | str], ...]

FIFOS = ((0, 0), (4, 1 << 20), (8, 512 << 10), (8, 128 << 10))  # slots and bytes of one, with Simple; 0: the preset's
_PIECES = 4  # for a parameter that cuts buffers into chunks, in addition to its default
_CHANNELS = 2
_FEW = 2  # number of instances above which LL and LL128 are not tried, since they serve small messages
# Above these sizes, protocols with a flag for every few bytes are slower.
_LAST_LL = 256 << 10
_LAST_LL128 = 4 << 20
_FIRST_INSTANCES = 16 << 10  # below this size, instances have too little data to share
# Large slots are for large messages; small slots keep small messages in the cache.
_FIRST_LARGE, _LARGE = 256 << 10, 1 << 20
_LAST_SMALL, _SMALL = 256 << 10, 32 << 10

# Below this size what one-sided programs gain is not worth what the others pay: ranks whose memory is not registered
# exchange a word in each call, to agree on that.
FIRST_DIRECT = 64 << 10
_LAST_SPUN = 256 << 10  # above it waits are longer than spins
_SPINS = (250, 8000)
_MOST_MESSAGES = 1 << 18  # of a program for more ranks than loops are written for
_MOST_WORK = 4 << 20  # slice operations of a call of it


def candidates(
    collective: str,
    ranks: int,
    *,
    in_place: bool,
    instances: tuple[int, ...] = (1, 2),
    fifos: tuple[tuple[int, int], ...] = ((0, 0),),
    threadblocks: int = 0,
    protocols: tuple[str, ...] = datatypes.FORMATS,
    own: tuple[str, ...] = (),
) -> tuple[Spec, ...]:
    """Returns every program worth trying, the simplest first; each compiles and is proven for this number of ranks.

    Args:
        collective: Name.
        ranks: Number of ranks.
        in_place: The mode.
        instances: How many instances to try.
        fifos: Numbers of slots and bytes of a slot to try with the protocol Simple; 0: the engine's choice.
        threadblocks: Most of a rank; 0: no limit.
        protocols: Those to try.
        own: Algorithms beside those of the library, as `gc3.algorithms.load` takes them.
    """

    def worth(spec: Spec) -> bool:
        return _compiles(spec, ranks, in_place=in_place, threadblocks=threadblocks)

    found: list[Spec] = []
    algorithms = {**catalogue(), **{spec: load(spec) for spec in own}}
    for name, algorithm in algorithms.items():
        # Engines of CPUs have no such switches. Those of the caller are for this collective.
        if name not in own and (algorithm.collective_name != collective or algorithm.in_switch):
            continue
        for parameters in _parameters(algorithm, ranks):
            first = Spec(name, parameters)
            if worth(first):
                ways = [spec for spec in _ways(first, instances) if spec.protocol in protocols and worth(spec)]
                simple = [spec for spec in ways if spec.protocol == "Simple"]
                found += [replace(spec, slots=slots, slot_bytes=size) for spec in simple for slots, size in fifos]
                found += [spec for spec in ways if spec.protocol != "Simple"]
    return tuple(sorted(found, key=_order))


def check_fits(name: str, ranks: int, *, in_place: bool) -> tuple[_core.Collective, str]:
    """Checks that an algorithm compiles for a number of ranks with some of the parameters that are tried.

    Returns its collective, and what differs after the programs have changed, whichever file of it has.
    Exceptions of its own code are raised, with whichever of these parameters.

    Raises:
        gc3.UserError: It does not, or has parameters that are unknown here.
    """
    algorithm = load(name)
    has = ", ".join(parameter.name for parameter in algorithm.parameters) or "none"
    told = f"{name} has the parameters {has}; expected R, or N and G, to make programs of {ranks} ranks"
    problems: list[errors.Gc3Error] = []
    good: list[Program] = []
    for parameters in _parameters(algorithm, ranks):
        try:
            made = Spec(name, parameters).compile(ranks, in_place=in_place)
            if made.ranks != ranks:  # of a custom collective that has a number of its own
                raise errors.error("BadArgument", f"{name} is for {made.ranks} ranks, not for {ranks}")
            if made.collective.is_custom:
                given = {key: ranks if value == "ranks" else value for key, value in parameters}
                collectives.condition(algorithm.about(**cast("dict[str, int]", given)))
            good.append(made)
        except errors.UserError as problem:
            problems.append(problem)
    if not good:
        raise problems[0] if problems else errors.error("BadArgument", told)
    return good[0].collective, digest(good)


def digest(programs: Iterable[Program]) -> str:
    """Returns the hash of some programs."""
    return hashlib.sha256(b"".join(program.stored.to_bytes(source=False) for program in programs)).hexdigest()


def fits(spec: Spec, size: int) -> bool:
    """Returns whether a program is worth trying at S = `size` bytes.

    >>> fits(Spec("ring_allreduce", (), protocol="LL"), 64 << 20)
    False
    """
    if spec.instances > 1 and size < _FIRST_INSTANCES:
        return False
    if spec.memory == "direct" and size < FIRST_DIRECT:
        return False
    if (spec.slot_bytes >= _LARGE and size < _FIRST_LARGE) or (0 < spec.slot_bytes <= _SMALL and size > _LAST_SMALL):
        return False
    return size <= {"LL": _LAST_LL, "LL128": _LAST_LL128}.get(spec.protocol, size)


def variants(spec: Spec, size: int, *, core_each: bool) -> tuple[Spec, ...]:
    """Returns a program with other thresholds than the measured ones, as far as they matter at S = `size` bytes.

    Args:
        spec: The program.
        size: S in bytes.
        core_each: Whether there is a core for each rank; only then waits spin.

    >>> [v.thresholds for v in variants(Spec("ring_allgather", ()), 1 << 10, core_each=True)]
    [(('spins', 250),), (('spins', 8000),)]
    """
    told: list[tuple[tuple[str, int | None], ...]] = []
    if spec.protocol == "Simple" and size >= FIRST_READ:
        told += [tuple((name, value) for name in READS) for value in (FIRST_READ, None)]
    if core_each and size <= _LAST_SPUN:
        told += [(("spins", spins),) for spins in _SPINS]
    return tuple(replace(spec, thresholds=thresholds) for thresholds in told)


def one_sided(programs: Iterable[Spec]) -> list[Spec]:
    """Returns the one-sided forms of those that have one: they have no FIFOs."""

    def once(spec: Spec) -> bool:
        return spec.protocol == "Simple" and not (spec.slots or spec.thresholds)

    plain = [spec for spec in programs if spec.is_file or spec.memory == "direct" or once(spec)]
    return list(dict.fromkeys(replace(s, slots=0, slot_bytes=0, thresholds=(), memory="direct") for s in plain))


def serves_v(spec: Spec, ranks: int, *, in_place: bool) -> bool:
    """Returns whether a program serves blocks of different lengths."""
    try:
        spec.compile(ranks, in_place=in_place).check_v_form()
    except errors.UserError:
        return False
    return True


def _ways(first: Spec, instances: tuple[int, ...]) -> Iterator[Spec]:
    for count in instances:
        yield replace(first, instances=count)
        if count == 1 or count > _FEW:
            yield replace(first, instances=count, protocol="LL")
            yield replace(first, instances=count, protocol="LL128")


def divisions(algorithm: Algorithm, ranks: int) -> Iterator[Parameters]:
    """Yields the parameters that say for which ranks an algorithm is: their number, or each division into nodes."""
    names = {parameter.name: parameter.default for parameter in algorithm.parameters}
    if "R" in names:
        bases: list[dict[str, int | str]] = [{"R": "ranks"}]
    elif {"N", "G"} <= set(names):
        # With one node or one rank on each, the two levels are one, and other algorithms cover that, as a rule.
        bases = [{"N": n, "G": ranks // n} for n in range(2, ranks) if ranks % n == 0]
        if algorithm.collective_name == "alltonext" or names["N"] == 1:
            bases.append({"N": 1, "G": ranks})
    elif algorithm.ranks is None or algorithm.takes({}):  # those of its custom collective, or its own
        bases = [{}]
    else:
        return
    for base in bases:
        yield tuple({**base, **({"root": "root"} if "root" in names else {})}.items())


def affordable(algorithm: Algorithm, parameters: tuple[tuple[str, int | str], ...], ranks: int) -> bool:
    """Returns whether an algorithm is written for so many ranks in seconds, as far as its cost tells.

    One rank stands for all, or there are few messages.

    >>> affordable(load("binomial_broadcast"), (("R", "ranks"), ("root", "root")), 1 << 14)
    True
    >>> affordable(load("pairwise_alltoall"), (("R", "ranks"),), 1 << 14)
    False
    """
    if ranks <= LOOPED or algorithm.cost is None or _stands_for_all(algorithm):
        return True
    given = {name: {"ranks": ranks, "root": 0}.get(str(value), value) for name, value in parameters}
    cost = algorithm.cost.at(**algorithm.complete(cast("dict[str, int]", given)))
    of_a_rank = cost.steps if collectives.get(algorithm.collective_name).rooted else max(cost.steps, cost.sent)
    return ranks * of_a_rank <= _MOST_MESSAGES


def serves(algorithm: Algorithm, names: Container[str], on: Topology) -> bool:
    """Returns whether an algorithm is for one of these collectives, and the machine's switches do what it needs."""
    return algorithm.collective_name in names and (on.multicasts or not algorithm.in_switch)


def left_out(names: Container[str], on: Topology) -> str:
    """Returns which algorithms of these collectives are not tried on so many ranks, and why; or nothing."""
    found: list[str] = []
    for algorithm in map(load, catalogue()):
        if serves(algorithm, names, on):
            forms = [affordable(algorithm, base, on.rank_count) for base in divisions(algorithm, on.rank_count)]
            found += [algorithm.name] if forms and not any(forms) else []
    if not found:
        return ""
    return f"left out, because each of {on.rank_count} ranks has steps of its own in them: {', '.join(found)}"


def most_work(spec: Spec, beside: Iterable[Spec], ranks: int) -> float:
    """Returns the slice operations of a call above which a program is not worth simulating.

    Where one rank of many stands for all in some of the programs `beside` it, these are faster for long messages than
    those that send all data in each of a few steps, of which each rank is simulated.
    """
    library = catalogue()

    def one_rank(name: str) -> bool:
        return name in library and _stands_for_all(load(name))

    looped = ranks > LOOPED and spec.algorithm in library and not one_rank(spec.algorithm)
    return _MOST_WORK if looped and any(one_rank(other.algorithm) for other in beside) else math.inf


def _stands_for_all(algorithm: Algorithm) -> bool:
    return "one_rank" in algorithm.function.__globals__


def _parameters(algorithm: Algorithm, ranks: int) -> Iterator[Parameters]:
    names = {parameter.name: parameter.default for parameter in algorithm.parameters}
    for given in divisions(algorithm, ranks):
        yield given
        if names.get("chunks") == 1:
            yield (*given, ("chunks", _PIECES))
        if names.get("channels") == 1:
            yield (*given, ("channels", _CHANNELS))


def _compiles(spec: Spec, ranks: int, *, in_place: bool, threadblocks: int) -> bool:
    try:
        program = spec.compile(ranks, in_place=in_place)
    except errors.UserError:
        return False  # it needs another number of ranks, or does not support this mode
    most = max(program.described.threadblocks_per_rank, default=0)
    return program.ranks == ranks and not 0 < threadblocks < most


def _order(spec: Spec) -> tuple[object, ...]:
    parameters = tuple((name, str(value)) for name, value in spec.parameters)
    return (
        spec.instances,
        datatypes.PROTOCOLS.index(spec.protocol),
        spec.slots,
        spec.slot_bytes,
        len(parameters),
        spec.algorithm,
        parameters,
        len(spec.thresholds),
    )


def on_nodes(algorithm: Algorithm, topology: Topology, ranks: int) -> Parameters:
    """Returns the parameters that tell an algorithm of R ranks the nodes and NICs; empty: it has no use for them."""
    names = {parameter.name for parameter in algorithm.parameters}
    members = Counter(rank.node for rank in topology.ranks[:ranks])
    gpus, rails = members[0], min(nics(topology), members[0])
    several = len(members) > 1 and gpus > 1 and set(members.values()) == {gpus}
    placed = (("G", gpus), *((("rails", rails),) if "rails" in names else ()))
    return placed if several and {"R", "G"} <= names and ("rails" not in names or rails > 1) else ()


def orders_of(collective: str, topology: Topology) -> list[tuple[int, ...]]:
    """Returns the orders of a node's ranks that are tried; empty: that of their numbers."""
    return list(dict.fromkeys(((), ring_order(topology) if _core.is_symmetric(collective) else ())))
