"""Algorithms in the JSON of SCCL-style synthesizers: every kind of collective, and invalid files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gc3
from gc3.algorithms import load
from gc3.cli.main import main
from gc3.errors import UserError
from gc3.lang.stepwise import Chunk, StepList, stepwise
from gc3.runtime.checking import Case
from gc3.runtime.program import verify

pytestmark = pytest.mark.python_only

N = 4
EXAMPLE = Path(__file__).parents[2] / "examples" / "ring_allgather.json"

Condition = Callable[[int, int], bool]
File = dict[str, Any]
Steps = list[list[list[int]]]


def collective(name: str, chunks: int, pre: Condition, post: Condition, addr: Callable[[int], int]) -> File:
    """A collective in the form of synthesizers: conditions on (rank, chunk)."""
    listed = [
        {
            "msccl_type": "chunk",
            "pre": [r for r in range(N) if pre(r, c)],
            "post": [r for r in range(N) if post(r, c)],
            "addr": addr(c),
        }
        for c in range(chunks)
    ]
    about = {"msccl_type": "collective", "name": f"{name}(n={N})", "nodes": N, "chunks": listed}
    return {**about, "triggers": {}, "runtime_name": name.lower()}


def scattered(rank: int, chunk: int) -> bool:
    return rank == chunk % N


def everywhere(_rank: int, _chunk: int) -> bool:
    return True


def transposed(rank: int, chunk: int) -> bool:
    return rank == chunk // N


def on_root(rank: int, _chunk: int) -> bool:
    return rank == 1


def itself(chunk: int) -> int:
    return chunk


def shared(chunk: int) -> int:
    return chunk // N


COLLECTIVES = {
    "Allgather": collective("Allgather", N, scattered, everywhere, itself),
    "Alltoall": collective("Alltoall", N * N, scattered, transposed, itself),
    "Broadcast": collective("Broadcast", 1, on_root, everywhere, itself),
    "Gather": collective("Gather", N, scattered, on_root, itself),
    "Scatter": collective("Scatter", N, on_root, scattered, itself),
    "Reduce": collective("Reduce", N, scattered, on_root, shared),
    "ReduceScatter": collective("Reduce_Scatter", N * N, scattered, transposed, shared),
    "Allreduce": collective("Allreduce", N, scattered, everywhere, shared),
    "Scan": collective("Scan", N, scattered, lambda rank, chunk: rank >= chunk % N, shared),
}

GATHERING: Steps = [[[(r - s) % N, r, (r + 1) % N] for r in range(N)] for s in range(N - 1)]
SCATTERING: Steps = [[[(r - s - 1) % N, r, (r + 1) % N] for r in range(N)] for s in range(N - 1)]
STEPS: dict[str, Steps] = {
    "Allgather": GATHERING,
    "Alltoall": [[[dst * N + src, src, dst] for src in range(N) for dst in range(N) if src != dst]],
    "Broadcast": [[[0, 1, 0], [0, 1, 2]], [[0, 2, 3]]],
    "Gather": [[[0, 0, 3], [2, 2, 3]], [[0, 3, 1], [2, 3, 1], [3, 3, 1]]],  # by way of rank 3
    "Scatter": [[[0, 1, 3], [2, 1, 3], [3, 1, 3]], [[0, 3, 0], [2, 3, 2]]],
    "Reduce": [[[0, 0, 3], [0, 2, 1]], [[0, 3, 1]]],
    "ReduceScatter": SCATTERING,
    # Partners exchange: a rank sends in a step what it had before the step.
    "Allreduce": [[[0, r, r ^ 1] for r in range(N)], [[0, r, r ^ 2] for r in range(N)]],
    "Scan": [[[0, 0, 1]], [[0, 1, 2]], [[0, 2, 3]]],
}


def algorithm(name: str, parts: int = 1, steps: Steps | None = None) -> File:
    """A file with every address cut into `parts`."""
    whole = STEPS[name] if steps is None else steps
    cut = [[[a * parts + i, src, dst] for a, src, dst in sends for i in range(parts)] for sends in whole]
    held: dict[str, dict[str, list[int]]] = {"pre": {}, "post": {}}
    for chunk in COLLECTIVES[name]["chunks"]:
        for when, ranks in held.items():
            for rank in chunk[when]:
                ranks.setdefault(str(rank), []).extend(chunk["addr"] * parts + i for i in range(parts))
    return {
        "msccl_type": "algorithm",
        "name": f"{name}(n={N})-Ring",
        "instance": {"msccl_type": "instance", "steps": len(cut), "extra_rounds": 0, "chunks": parts, "pipeline": None},
        "input_map": {rank: sorted(set(addresses)) for rank, addresses in held["pre"].items()},
        "output_map": {rank: sorted(set(addresses)) for rank, addresses in held["post"].items()},
        "steps": [{"msccl_type": "step", "rounds": 1, "sends": sends} for sends in cut],
        "collective": COLLECTIVES[name],
        "topology": {
            "msccl_type": "topology",
            "name": "FullyConnected(n=4)",
            "switches": [],
            "links": [[int(src != dst) for src in range(N)] for dst in range(N)],
        },
    }


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], str]:
    """Writes a file; text is written unchanged."""

    def write(content: Any) -> str:
        path = tmp_path / "a.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def check_runs(path: str, collective: str, **options: Any) -> gc3.Program:
    """Compiles, proves and runs a file, and compares with NumPy."""
    program = gc3.compile(load(path), **options)
    assert program.collective.name == collective
    assert program.verify().ok
    for count, dtype in ((1, "int32"), (257, "float32")):
        case = Case(program.collective, count, dtype)
        inputs, outputs = case.inputs(), case.poisoned_outputs()
        program.run(inputs, outputs=outputs, count=count, dtype=dtype)
        compared = case.compare(inputs, outputs)
        assert compared.ok
        assert compared.elements > 0
    return program


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", [name for name in STEPS if name != "Scan"])
def test_every_collective(written: Callable[[Any], str], name: str, parts: int, in_place: bool) -> None:
    program = check_runs(written(algorithm(name, parts)), name.lower(), in_place=in_place)
    assert program.collective.chunks == parts
    if name in ("Broadcast", "Gather", "Scatter", "Reduce"):
        assert program.collective.root == 1


def test_instances_and_protocols(written: Callable[[Any], str]) -> None:
    check_runs(written(algorithm("Allreduce", 2)), "allreduce", instances=2, protocol="LL")


def test_a_custom_collective(written: Callable[[Any], str]) -> None:
    program = check_runs(written(algorithm("Scan", 2)), "scan")
    assert program.collective.expected_terms(2, 1) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("parts", [1, 2])
def test_allreduce_by_composition(written: Callable[[Any], str], parts: int) -> None:
    """The steps have an address for each rank and part; the file's own maps have only the parts."""
    scattering, gathering = algorithm("ReduceScatter", parts), algorithm("Allgather", parts)
    composed = algorithm("Allreduce", parts) | {"steps": scattering["steps"] + gathering["steps"]}
    program = check_runs(written(composed), "allreduce")
    assert program.collective.chunks == N * parts
    # A ring: every rank sends 2 (N - 1) of the N parts, whole, and forwards received data at once.
    assert program.verify().transfers == N * 2 * (N - 1)
    assert "rrcs" in program.text


def test_inputs_without_new_edges_are_left_out(written: Callable[[Any], str]) -> None:
    doubled: Steps = [*GATHERING, [[2, 1, 3], [2, 0, 3]]]
    again = gc3.compile(load(written(algorithm("Allgather", steps=doubled))))
    assert again.verify().transfers == N * (N - 1)
    # Rank 0 is sent back data that it never moved from its input to its output.
    returned: Steps = [[[0, 0, 3]], [[0, 3, 0]], *STEPS["Alltoall"]]
    check_runs(written(algorithm("Alltoall", steps=returned)), "alltoall")


def test_the_example(tmp_path: Path) -> None:
    """The shipped file runs from the command line like any other algorithm."""
    for line in (
        f"verify {EXAMPLE}",
        f"run {EXAMPLE} --size 64KiB",
        f"bench {EXAMPLE} -b 4KiB -n 1 -w 0",
        f"show {EXAMPLE} --dump trace",
        f"export {EXAMPLE}:instances=2 -o {tmp_path}/x.xml",
        f"verify {tmp_path}/x.xml",
    ):
        result = CliRunner().invoke(main, line.split())
        assert result.exit_code == 0, result.output
    assert "has no parameter" in CliRunner().invoke(main, f"run {EXAMPLE}:R=4".split()).stderr


def edited(name: str, *path: Any, to: Any) -> File:
    """A file with one value changed; the path may lead to a new member."""
    changed = json.loads(json.dumps(algorithm(name)))
    place = changed
    for key in path[:-1]:
        place = place[key]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return changed


MISTAKES: list[tuple[Any, str]] = [
    ("", "Expecting value"),
    ('{"msccl_type":\n nonsense}', "Expecting value"),
    ("[]", "the file is a list, not an object"),
    ("[" * 100_000, "nested too deeply"),
    (f'{{"msccl_type": {"9" * 5000}}}', r"4300.* digits"),  # Python 3.10 words it differently
    ('{"msccl_type": "topology"}', "msccl_type is 'topology', not 'algorithm'"),
    ('{"7-Flows": []}', "algorithms of SCCL and MSCCL are read; it looks like a schedule of TE-CCL"),
    ('{"rows": [], "average_busbw": 0}', "it looks like what gc3 bench --json prints: its --compare reads it"),
    ('{"format": "gc3-selection-1", "rows": []}', "it looks like a selection table of gc3"),
    ('{"preset": {}, "rows": []}', "it looks like what a command of gc3 prints with --json"),
    (edited("Allgather", "steps", to=...), "the file has no 'steps'"),
    (edited("Allgather", "steps", to={}), "steps is an object, not a list"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 1]), "has 2 numbers"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 0, 1, 5, 0]), "the times of TACCL's sends are not read"),
    (
        edited("Allgather", "steps", 0, "sends", 0, to=[0, 1, N]),
        r"sends\[0\]\[2\] is 4, not a whole number from 0 to 3",
    ),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 1, True]), r"\[2\] is True"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 1, -1]), r"\[2\] is -1"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 1, 1.5]), r"\[2\] is 1.5"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[0, 1, 1]), "from rank 1 to itself"),
    (edited("Allgather", "steps", 0, "sends", 0, to=[9, 0, 1]), "address 9 is sent, but is in no chunk"),
    (edited("Allreduce", "steps", 0, "sends", 0, to=[N, 0, 1]), "address 4 is sent, but is in no chunk"),
    (
        edited("Allgather", "steps", 0, "sends", 0, to=[1, 0, 1]),
        r"steps\[0\]: rank 0 sends address 1, which it does not",
    ),
    (edited("Allgather", "topology", "links", 1, 0, to=0), "the topology has no link from rank 0 to rank 1"),
    (edited("Allgather", "topology", "links", 1, to=[0]), "is not 4 numbers"),
    (edited("Allgather", "topology", "links", to=[]), "has 0 rows for 4 ranks"),
    (
        edited("Allgather", "input_map", "1", to=[0]),
        r"input_map\[1\] does not match .*: expected addresses 1",
    ),
    (edited("Allgather", "output_map", "1", to=["x"]), r"output_map\[1\] does not match"),
    (edited("Allgather", "instance", "chunks", to=0), "instance.chunks is 0"),
    (edited("Allgather", "instance", "chunks", to=10**9), "instance.chunks is 1000000000"),
    (edited("Allgather", "instance", "chunks", to=10**6), "makes 4000000 addresses in 20000000 places, too many"),
    (edited("Allgather", "collective", "nodes", to=10**9), "collective.nodes is 1000000000"),
    (edited("Allgather", "collective", "chunks", to=[]), "collective.chunks is empty"),
    (edited("Allgather", "collective", "chunks", 0, "pre", to=[0, 1]), "begins on 2 ranks"),
    (edited("Allgather", "collective", "chunks", 0, "pre", to=[]), "begins on 0 ranks"),
    (
        edited("Allreduce", "collective", "chunks", 0, "pre", to=[1]),
        "the second chunk of address 0 that begins on rank 1",
    ),
    (
        edited("Allreduce", "steps", to=[{"sends": [[0, 1, 0], [0, 1, 2]]}, {"sends": [[0, 0, 2]]}]),
        "would count the data of rank 1 twice",
    ),
]


@pytest.mark.parametrize(("content", "why"), MISTAKES)
def test_invalid_files_are_refused(written: Callable[[Any], str], content: Any, why: str) -> None:
    path = written(content)
    with pytest.raises(UserError, match=why) as found:
        gc3.compile(load(path))
    assert found.value.code == "GC3-I010"
    assert found.value.file == path
    assert len(found.value.message) < 300


def test_the_line_of_a_syntax_error(written: Callable[[Any], str]) -> None:
    with pytest.raises(UserError) as found:
        load(written('{"msccl_type":\n nonsense}'))
    assert found.value.line == 2


def test_unreadable_files(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate((32 << 20) + 1)
    for path, why in ((tmp_path / "none.json", "No such file"), (big, "larger than the 32 MiB")):
        with pytest.raises(UserError, match=why) as found:
            load(str(path))
        assert found.value.code == "GC3-I001"
    folder = tmp_path / "folder.json"
    folder.mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        load(str(folder))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UserError, match="GC3-I010"):
        load(str(binary))


def test_steps_that_do_not_finish(written: Callable[[Any], str]) -> None:
    """A missing step is found as in any program, at the file."""
    path = written(algorithm("Allgather", steps=GATHERING[:2]))
    with pytest.raises(UserError, match="postcondition not met") as found:
        gc3.compile(load(path))
    assert (found.value.code, found.value.file) == ("GC3-L015", path)
    with pytest.raises(UserError, match="GC3-L015"):
        gc3.compile(load(written(algorithm("ReduceScatter", steps=SCATTERING[:2]))))


def test_only_adjacent_chunks_of_one_buffer_are_one_message() -> None:
    """Rank 1 gets address 0 for its output, and address 1 to forward, in scratch at the place that would follow."""

    def sends(program: gc3.Program) -> list[tuple[int, int]]:
        ranks = program.core.as_dict()["ranks"]
        tbs = [(rank, tb) for rank, about in enumerate(ranks) for tb in about["threadblocks"]]
        steps = [(rank, step) for rank, tb in tbs for step in tb["steps"]]
        return sorted((rank, step["count"]) for rank, step in steps if step["opcode"].endswith("send"))

    chunks = (Chunk(0, frozenset({1}), 0), Chunk(0, frozenset({2}), 1), Chunk(0, frozenset({2}), 2))
    steps = (((2, 0, 1),), ((0, 0, 1), (1, 0, 1)), ((1, 1, 2), (2, 1, 2)))
    program = gc3.compile(stepwise(StepList("", "relay", "relay", 3, chunks, steps)))
    verify(program)
    assert sends(program) == [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]
    # If both are to be forwarded, they are adjacent, and are sent together.
    chunks = (Chunk(0, frozenset({2}), 0), Chunk(0, frozenset({2}), 1))
    steps = (((0, 0, 1), (1, 0, 1)), ((0, 1, 2), (1, 1, 2)))
    program = gc3.compile(stepwise(StepList("", "relay", "relay", 3, chunks, steps)))
    verify(program)
    assert sends(program) == [(0, 2), (1, 2)]
