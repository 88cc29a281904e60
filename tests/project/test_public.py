"""Calls with wrong arguments: every public name tells them as errors of gc3, at the user's line."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gc3
from gc3 import errors

_PARTS = [
    "algorithms",
    "collectives",
    "comm",
    "cuda",
    "lang",
    "mscclpp",
    "nccl",
    "sim",
    "synth",
    "topologies",
    "torch",
    "tune",
]
MODULES = ("gc3", *(f"gc3.{part}" for part in _PARTS))
# These end the communicator, or wait for the other ranks.
ENDS = ("close", "abort", "shrink")


class Odd:
    """Something that no function takes."""

    def __repr__(self) -> str:
        """Is short."""
        return "odd"


def functions(module: str) -> Iterator[Any]:
    """The functions and classes of a module."""
    names = vars(importlib.import_module(module))["__all__"]
    found = {name: getattr(importlib.import_module(module), name) for name in names}
    for name, offered in found.items():
        is_error = isinstance(offered, type) and issubclass(offered, BaseException)
        if callable(offered) and not is_error and name != "Order":  # a type of a few texts
            yield offered


def methods(owner: Any) -> Iterator[Any]:
    """The public methods of an object or class."""
    for name in (name for name in dir(owner) if not name.startswith("_") and name not in ENDS):
        method = getattr(owner, name)
        if str(getattr(method, "__module__", "")).startswith("gc3") and callable(method):
            yield method


def told(function: Callable[..., object], *given: object, **named: object) -> errors.Gc3Error | None:
    """The error of a call, or None; an exception that is not of gc3 fails."""
    try:
        function(*given, **named)
    except errors.Gc3Error as problem:
        return problem
    except Exception as problem:
        raise AssertionError(f"{function}{given[:3]}{named}: {problem!r}") from problem
    return None


def check(function: Callable[..., object]) -> None:
    """Calls a function with surplus, missing and odd arguments."""
    for problem in told(function, *[Odd()] * 40), told(function, surplus=1):
        assert problem, function
        assert problem.code == "GC3-L017"

    told(function)
    for count in range(1, 8):
        told(function, *[Odd()] * count)


@pytest.mark.parametrize("module", MODULES)
def test_wrong_calls_of_every_function_and_class(module: str) -> None:
    for offered in functions(module):
        check(offered)
        for method in methods(offered) if isinstance(offered, type) else ():
            told(method, surplus=1)
            told(method)


def test_programs_need_not_be_named_before() -> None:
    """What `gc3.compile` returns is guarded in a process that never asks for `gc3.Program`."""
    made = "gc3.compile(gc3.algorithms.load('ring_allreduce'), R=2{}).verify(surplus=1)"
    for memory in ("", ", memory='direct'"):
        script = f"import gc3.algorithms; {made.format(memory)}"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "GC3-L017 bad argument: " in done.stderr
        assert "Program.verify(): got an unexpected keyword argument 'surplus'" in done.stderr


def test_wrong_calls_of_what_functions_return() -> None:
    """Classes that nobody names, but whose methods users call."""
    program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2)
    for owner in gc3.op("norm"), program.record([np.ones(2)] * 2, most=9), program.bind({}):
        for method in [*methods(owner), *([owner] if callable(owner) else [])]:
            problem = told(method, surplus=1)
            assert problem
            assert problem.code == "GC3-L017"
            for count in (0, 1, 2, 40):
                told(method, *[Odd()] * count)


def test_wrong_calls_of_every_method_of_a_communicator() -> None:
    with gc3.init(rank=0, size=1, job="public") as comm, comm.coalesce() as together:
        comm.send_object("for recv_object, the one call without arguments that would wait", 0)
        for owner in comm, together, comm.all_reduce_async([1.0]), comm.isend([1.0], 0):
            for method in methods(owner):
                assert told(method, surplus=1), method
                assert told(method, *[Odd()] * 40), method
                told(method)
                for count in range(1, 8):
                    told(method, *[Odd()] * count)
        assert comm.recv(np.empty(1)).count == 1


def test_a_communicator_offers_what_users_call_and_nothing_else() -> None:
    with gc3.init(rank=0, size=1, job="public") as comm:
        names = [name for name in dir(comm) if not name.startswith("_")]
    assert len(names) <= 60, names
    used = "".join(page.read_text() for page in (Path(__file__).parents[2] / "docs").glob("*.md"))
    assert [name for name in names if not re.search(rf"\b{name.removesuffix('_async')}\b", used)] == []


def test_wrong_calls_of_those_methods_that_all_ranks_call_are_told_to_them() -> None:
    class Told(gc3.Communicator):
        def _refuse(self, problem: Any) -> None:
            said.append(problem.message)

        _refuse_shrink = _refuse

    said: list[str] = []
    calls = "all_gather all_gather_object all_gather_v all_reduce_async barrier coalesce group load run"
    with gc3.init(rank=0, size=1, job="public") as comm:
        comm.__class__ = Told
        for name in (*calls.split(), "scatter_v_async", "shrink", "split", "time", "reduce_async"):
            told(getattr(comm, name), surplus=1)
            assert len(said) == 1, name
            assert f".{name}(): " in said.pop()
        for name in ("abort", "batch", "close", "empty", "explain", "irecv", "recv_object", "send"):
            told(getattr(comm, name), surplus=1)
        assert not said


def test_the_message_names_the_argument_the_signature_and_the_users_line() -> None:
    with gc3.init(rank=0, size=1, job="public") as comm:
        x = np.ones(1)
        here = inspect.currentframe()
        assert here
        problem = told(lambda: comm.broadcast(x, out=x))  # pyright: ignore[reportCallIssue]
        assert problem
        assert (problem.file, problem.line) == (__file__, here.f_lineno - 2)
        assert problem.message == "bad argument: Communicator.broadcast(): got an unexpected keyword argument 'out'"
        assert "note: it is broadcast(x: typing.Any, root: int = 0, timeout: float | None = None)" in str(problem)
        calls: list[tuple[Callable[..., object], str]] = [
            (lambda: comm.broadcast(x, 0, "soon"), "broadcast(): timeout is 'soon' (str); expected float | None"),
            (comm.split, "split(): missing a required argument: 'color'"),
            (gc3.Handle, "Handle(): functions of gc3 return such objects"),
            (gc3.PreMulSum, "PreMulSum(): missing a required argument: 'factor'"),
            (lambda: gc3.chunk(0, "in", 0, 1, 2), "chunk(): too many positional arguments"),
            (lambda: gc3.topologies.load(5), "spec is 5 (int); expected str"),
        ]
        for call, said in calls:
            assert said in str(told(call))


def test_values_that_take_long_to_show_are_not_shown() -> None:
    class Long(list[int]):
        def __repr__(self) -> str:
            raise AssertionError("shown")

    for value, said in (Long(), "of type Long"), ([Long()], "[<Long>] (list)"), (b"1" * 100, "of type bytes"):
        assert f"spec is {said}; expected str" in str(told(gc3.topologies.load, value))


def test_other_exceptions_are_left_alone() -> None:
    def refuse(_: object) -> None:
        raise TypeError("mine")

    mistaken = type("Mistaken", (), {"__dlpack__": refuse, "__dlpack_device__": refuse})()
    with gc3.init(rank=0, size=1, job="public") as comm, pytest.raises(TypeError, match="mine"):
        comm.all_reduce(mistaken)

    def own(*_: object) -> object:
        try:
            raise KeyError("first")
        except KeyError:
            raise TypeError("mine")  # noqa: B904 - the context is what is tested

    try:
        raise ValueError("outer")
    except ValueError:
        with pytest.raises(TypeError, match="mine") as raised:  # although the annotation of inputs is not met
            gc3.collectives.custom("own", inputs=np.ones(1, int), outputs=(1,), expect=own)  # pyright: ignore[reportArgumentType]
        assert isinstance(raised.value.__context__, KeyError)
    assert weakref.ref(gc3.verify)() is gc3.verify
    assert b"verify" in pickle.dumps(gc3.verify)
    assert list(inspect.signature(gc3.verify).parameters)
