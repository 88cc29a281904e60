"""The examples work, at small sizes."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gc3
import ranks
from gc3.algorithms import catalogue, load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OF_KIND = {
    kind: [a.name for a in catalogue().values() if a.collective_name == kind]
    for kind in ("alltoall", "allgather", "allreduce")
}


@pytest.fixture(params=["fft3d", "kfac_step"])
def example(request: pytest.FixtureRequest) -> ModuleType:
    return module(request.param)


@pytest.fixture
def fft3d() -> ModuleType:
    return module("fft3d")


@pytest.fixture
def kfac() -> ModuleType:
    return module("kfac_step")


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, loaded)  # dataclasses look up the types of their fields here
        spec.loader.exec_module(loaded)
    return loaded


def compiled(name: str, nodes: int, gpus: int, **options: int | str) -> gc3.Program:
    algorithm = load(name)
    sizes = {"R": nodes * gpus, "N": nodes, "G": gpus}
    parameters = {p.name: sizes[p.name] for p in algorithm.parameters if p.name in sizes}
    return gc3.compile(algorithm, in_place=False, **options, **parameters)  # pyright: ignore[reportArgumentType]


def grid_of(shape: tuple[int, int, int]) -> np.ndarray:
    numbers = np.random.default_rng(3)
    return numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)


@pytest.mark.parametrize("name", OF_KIND["alltoall"])
def test_the_distributed_fft_is_numpys(fft3d: ModuleType, name: str) -> None:
    grid = grid_of((8, 12, 5))
    whole, times = fft3d.transform(grid, compiled(name, 2, 2))
    np.testing.assert_allclose(whole, np.fft.fftn(grid), rtol=0, atol=1e-11)
    assert times.exchange > 0


@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 1, 1), (2, 9, 4), (12, 1, 6)])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_the_fft_of_sizes_that_the_ranks_do_not_divide(
    fft3d: ModuleType, shape: tuple[int, int, int], nodes: int, gpus: int
) -> None:
    grid = grid_of(shape)
    whole, _ = fft3d.transform(grid, compiled("hierarchical_alltoall", nodes, gpus, protocol="LL", instances=2))
    np.testing.assert_allclose(whole, np.fft.fftn(grid), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", OF_KIND["allgather"])
def test_kfac_steps_equal_those_of_one_process(kfac: ModuleType, name: str) -> None:
    for nodes, gpus in ((2, 2), (3, 1)):
        calls = kfac.Calls(compiled("ring_allreduce", nodes, gpus), compiled(name, nodes, gpus))
        losses, right = kfac.train(calls, widths=(6, 9, 4), samples=8, steps=6)
        assert right
        assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("name", OF_KIND["allreduce"])
def test_kfac_averages_alike_with_every_allreduce(kfac: ModuleType, name: str) -> None:
    calls = kfac.Calls(compiled(name, 1, 5), compiled("ring_allgather", 1, 5))
    assert kfac.train(calls, widths=(4, 3), samples=4, steps=2)[1]


def test_a_wrong_exchange_shows(fft3d: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft3d, "exchange", lambda _program, blocks: blocks)
    assert fft3d.main(["--shape", "4", "4", "4", "--repeat", "1"]) == 1


def test_a_wrong_gather_shows(kfac: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    own = kfac.Calls.gather
    monkeypatch.setattr(kfac.Calls, "gather", lambda self, parts: own(self, parts[::-1]))
    assert kfac.main(["--widths", "4", "3", "--samples", "4", "--steps", "2"]) == 1


def test_as_a_script_it_explains_and_times_itself(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    small = {
        "example_fft3d": (["--shape", "6", "4", "3", "--repeat", "1", "--algorithm", "all"], OF_KIND["alltoall"]),
        "example_kfac_step": (["--widths", "5", "3", "--steps", "2", "--allgather", "all"], OF_KIND["allgather"]),
    }
    arguments, names = small[example.__name__]
    assert example.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "4 ranks" in printed
    assert all(f"\n{name} " in printed for name in names)
    assert "NOT" not in printed
    with pytest.raises(SystemExit, match="2"):
        example.main(["-N", "0"])
    assert "0 is less than 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fft3d", ["--shape", "6", "5", "3", "--repeat", "2", "--algorithm", "all"]),
        ("kfac_step", ["--widths", "5", "3", "--steps", "2", "--allreduce", "direct_allreduce"]),
    ],
)
def test_with_ranks_as_processes(name: str, arguments: list[str]) -> None:
    processes = ["--processes", "-N", "3", "-G", "1", *arguments]
    first, *others = ranks.run(EXAMPLES / f"{name}.py", 3, arguments=processes)
    assert others == ["", ""]
    assert "3 ranks" in first
    names = {"fft3d": OF_KIND["alltoall"], "kfac_step": ["hierarchical_allgather"]}[name]
    assert all(f"\n{algorithm} " in first for algorithm in names)
    assert "NOT" not in first


def test_as_processes_the_launcher_says_how_many_ranks(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", str(uuid.uuid4()))):
        monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit, match="2"):
        example.main(["--processes"])
    assert "-N 2 -G 2 are 4 ranks, the launcher has started 1" in capsys.readouterr().err
