"""The CUDA engine from Python and from the command line, with the fake driver and, if there is one, on a device."""

from __future__ import annotations

import ctypes
import itertools
import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fake_arrays
import fake_driver
import gc3
from fake_arrays import InterfaceArray
from gc3 import CommError, EngineOptions, PreMulSum, UserError, cuda, datatypes
from gc3.algorithms import catalogue
from gc3.cli.main import main
from gc3.cuda.arrays import find
from gc3.runtime.checking import Case
from mscclpp_plans import SHIPPED

BY_NAME = catalogue()
RING = ("run", "ring_allreduce:R=4", "--engine", "cuda")


@pytest.fixture(params=fake_driver.DRIVERS)
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake driver, and the real one if there is a device."""
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the fake driver."""
    if not fake_driver.LIBRARY.exists():
        pytest.skip("the fake driver is built by `make cpp-tests`")
    for name, value in fake_driver.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("name", BY_NAME)
def test_the_library_is_exact(name: str) -> None:
    names = [p.name for p in BY_NAME[name].parameters]
    sizes = [{"R": 3}, {"R": 4}] if "R" in names else [{"N": 2, "G": 2}]
    forms = (*({"protocol": p} for p in ("Simple", "LL", "LL128")), {"memory": "direct"}, {"memory": "direct"})
    turns = itertools.product(sizes, forms)
    for (size, form), in_place in zip(turns, itertools.cycle((True, False)), strict=False):
        program = gc3.compile(BY_NAME[name], in_place=in_place, **form, **size)
        engine = cuda.Engine(program)
        for count, dtype in ((1009, "int32"), (5, "bfloat16"), (0, "uint8")):
            case = Case(program.collective, count, dtype)
            inputs = case.inputs()
            outputs = engine.run(inputs, outputs=case.poisoned_outputs(), count=count, dtype=dtype)
            assert case.compare(inputs, outputs).ok, (size, form, in_place, count, dtype)


@pytest.mark.usefixtures("driver")
def test_a_one_sided_program_takes_calls_of_any_size_in_turn() -> None:
    engine = cuda.Engine(gc3.compile(BY_NAME["direct_alltoall"], R=3, memory="direct"))
    for count, dtype in ((9, "int32"), (1009, "int32"), (3, "bfloat16"), (0, "uint8"), (1009, "int32")):
        case = Case(engine.program.collective, count, dtype)
        inputs = case.inputs()
        outputs = engine.run(inputs, outputs=case.poisoned_outputs(), count=count, dtype=dtype)
        assert case.compare(inputs, outputs).ok, (count, dtype)
    assert engine.copies == ""
    with pytest.raises(UserError, match="slots and slot_bytes are for programs of messages"):
        cuda.Engine(engine.program, EngineOptions(slots=4))


@fake_driver.needs_library
@pytest.mark.skipif(not SHIPPED.exists(), reason="the public plans are not here")
def test_plans_run_on_devices_also_through_switches_and_proxies() -> None:
    for name in ("allgather_nvls_zero_copy_pkt_4", "allreduce_pkt_2", "alltoall_pipeline_2"):
        line = ("run", str(SHIPPED / f"{name}.json"), "--engine", "cuda:devices=0+1", "--size", "64KiB")
        done = fake_driver.gc3(*line, settings="devices=2 warps=2")
        assert done.returncode == 0, done.stderr
        assert "all equal to NumPy's" in done.stdout


@fake_driver.needs_library
def test_a_device_has_access_to_what_one_sided_programs_move() -> None:
    line = ("run", "ring_allreduce:R=2,memory=direct", "--engine", "cuda:devices=0+1", "--size", "1KiB")
    apart = fake_driver.gc3(*line, settings="devices=2 pools=1")
    assert "GC3-R001" in apart.stderr
    assert "of rank 1: device 0 (Fake H200) has no access to it" in apart.stderr
    assert fake_driver.gc3(*line, settings="devices=2").returncode == 0


@fake_driver.needs_library
def test_one_sided_programs_need_counters_that_all_devices_can_add_to() -> None:
    line = ("run", "ring_allreduce:R=3,memory=direct", "--engine", "cuda:devices=0+1")
    apart = fake_driver.gc3(*line, settings="devices=2 nvlink=0")
    assert apart.returncode == 1
    assert "GC3-R019" in apart.stderr
    assert "one-sided programs need NVLink between device 0 (Fake H200) and device 1" in apart.stderr


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", datatypes.DTYPES)
def test_types_and_reductions(dtype: str) -> None:
    engine = cuda.Engine(gc3.compile(BY_NAME["allpairs_allreduce"], protocol="LL", R=2))
    for op in datatypes.OPS:
        if not datatypes.takes(op, dtype):
            with pytest.raises(UserError, match="GC3-M003"):
                engine.run([np.zeros(2, datatypes.dtype(dtype))] * 2, op=op)
            continue
        case = Case(engine.program.collective, 1003, dtype, op)
        inputs = case.inputs()
        assert case.compare(inputs, engine.run(inputs, op=op)).ok, op


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "complex64", "complex128"])
def test_premulsum_gives_the_results_of_the_cpu(dtype: str) -> None:
    op = PreMulSum([2, 3])
    for name, in_place in itertools.product(("allpairs_allreduce", "ring_reducescatter"), (True, False)):
        program = gc3.compile(BY_NAME[name], R=2, in_place=in_place)
        inputs = [(np.arange(334) % 7 + r).astype(datatypes.dtype(dtype)) for r in range(2)]
        before = [a.copy() for a in inputs]
        for got, want in zip(cuda.Engine(program).run(inputs, op=op), program.run(inputs, op=op), strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(inputs, before)


@pytest.mark.usefixtures("fake")
def test_the_engine_says_what_it_is() -> None:
    engine = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=2), EngineOptions(slots=4))
    assert engine.devices == [0]
    assert engine.device_of(1) == 0
    assert cuda.runtime().devices == 1
    assert cuda.runtime().describe(0) == "device 0 (Fake H200)"


@pytest.mark.usefixtures("driver")
def test_times_are_those_of_a_graph_or_of_launches() -> None:
    engine = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=2, protocol="LL", in_place=False))
    inputs = [np.ones(100, np.float32)] * 2
    outputs = [np.empty(100, np.float32) for _ in inputs]
    assert len(engine.time(inputs, outputs=outputs, iterations=3)) == 3
    assert outputs[1].tolist() == [2.0] * 100
    graph = engine.time(inputs, iterations=4, graph=True)
    assert len(set(graph)) == 1


@pytest.mark.usefixtures("driver")
def test_commands_run_on_the_engine() -> None:
    ring = ["run", "ring_allreduce:R=4,protocol=LL128", *RING[2:]]
    run = CliRunner().invoke(main, [*ring, "--size", "100003B", "--dtype", "uint8", "--json"])
    data = json.loads(run.output)
    assert (data["engine"], data["check"]["ok"]) == ("cuda", True)
    line = [
        "bench",
        "direct_alltoall:R=3",
        "--engine",
        "cuda",
        "-b",
        "1KiB",
        "-e",
        "4KiB",
        "-f",
        "4",
        "-n",
        "2",
    ]
    bench = CliRunner().invoke(main, [*line, "--json"])
    assert [row["out_of_place"]["wrong"] for row in json.loads(bench.output)["rows"]] == [0, 0]


@fake_driver.needs_library
def test_several_devices() -> None:
    line = ("run", "ring_allreduce:R=5,protocol=LL", "--engine", "cuda:devices=0+1")
    done = fake_driver.gc3(*line, settings="devices=2 warps=2")
    assert done.returncode == 0, done.stderr
    apart = fake_driver.gc3(*line, settings="devices=2 peer=0")
    assert "GC3-R019" in apart.stderr
    assert "device 0 (Fake H200) cannot access the memory of device 1 (Fake H200)" in apart.stderr


@fake_driver.needs_library
def test_ll128_is_refused_where_its_lines_may_be_torn() -> None:
    line = ("--engine", "cuda:devices=0+1")
    whole = fake_driver.gc3("run", "ring_allreduce:R=2,protocol=LL", *line, settings="devices=2 nvlink=0")
    assert whole.returncode == 0
    torn = fake_driver.gc3("run", "ring_allreduce:R=2,protocol=LL128", *line, settings="devices=2 nvlink=0")
    assert "GC3-R019" in torn.stderr
    assert "LL128 needs NVLink between device 0 (Fake H200) and device 1" in torn.stderr


@fake_driver.needs_library
def test_a_launch_that_fails_leaves_everything_usable() -> None:
    code = """
import numpy as np
import gc3
program = gc3.compile(gc3.algorithms.load("ring_allreduce"), R=2, in_place=False)
engine = gc3.cuda.Engine(program)
for _ in range(2):
    try:
        print(engine.run([np.ones(3, np.float32)] * 2)[1])
    except gc3.CommError as problem:
        print(problem.diagnostics[0].code)
"""
    done = fake_driver.python(code, settings="fail=cuLaunchCooperativeKernel:1")
    assert done.stdout.splitlines() == ["GC3-R016", "[2. 2. 2.]"], done.stderr


@fake_driver.needs_library
@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ("fail=cuLaunchCooperativeKernel:1", "GC3-R016", "launch of 4 threadblocks on device 0 (Fake H200)"),
        ("memory=3000000", "GC3-R006", "bytes for"),
        *(
            pytest.param(*error, marks=pytest.mark.python_only)
            for error in (
                ("devices=0", "GC3-R015", "finds no device"),
                ("fail=cuInit:1", "GC3-R015", "does not start: CUDA_ERROR_INVALID_VALUE"),
                ("sms=1 blocks=1", "GC3-R018", "holds 1 threadblocks of 512 threads at once (1 multiprocessors, 1"),
                ("nvrtc=fail", "GC3-R016", "kernel.cu(1): error: said by the fake compiler"),
                ("cuda=14", "GC3-R017", "(of CUDA 14, the driver is of 13)"),
                ("fail=cuModuleLoadData:1", "GC3-R016", "kernel for Simple float32 on device 0 (Fake H200)"),
            )
        ),
    ],
)
def test_errors_of_the_driver_are_reported(settings: str, code: str, text: str) -> None:
    done = fake_driver.gc3(*RING, settings=settings)
    assert done.returncode == 1
    assert code in done.stderr, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("driver")
def test_calls_on_device_arrays_are_asynchronous() -> None:
    ring = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=3, protocol="LL", in_place=True))
    pairs = cuda.Engine(gc3.compile(BY_NAME["allpairs_allreduce"], R=3, protocol="LL128", in_place=False))
    own = [InterfaceArray(np.full(1001, rank, np.float32)) for rank in range(3)]
    sums = [InterfaceArray(np.zeros(1001, np.float32)) for _ in range(3)]
    for _ in range(5):
        ring.enqueue(own, own, op="max")
        pairs.enqueue(own, sums)
    ring.synchronize()
    pairs.synchronize()
    assert all((array.memory.content == 2).all() for array in own)
    assert all((array.memory.content == 6).all() for array in sums)
    for inputs, text in (
        ([None] * 3, "no rank has an array"),
        (own[:2], "2 inputs for 3 ranks"),
        ([np.ones(1001, np.float32)] * 3, "not on a CUDA device"),
        ([*own[:2], InterfaceArray(np.zeros(9, np.float32))], "rank 2: expected an array of 1001 elements"),
        ([*own[:2], InterfaceArray(np.zeros(1001, np.int32))], "rank 2: an array has another type than the others"),
    ):
        with pytest.raises(UserError, match=text):
            pairs.enqueue(inputs, [None] * 3 if text.startswith("no rank") else sums)


@pytest.mark.usefixtures("driver")
def test_outputs_on_a_device_share_no_memory_with_other_arrays() -> None:
    """Ranks would read data that others have already written, and the sums would be wrong without an error."""

    class Part:
        """Some elements of an array, from `first` on."""

        def __init__(self, whole: InterfaceArray, first: int, count: int) -> None:
            about = whole.__cuda_array_interface__
            begin = about["data"][0] + first * whole.memory.like.itemsize, False
            self.__cuda_array_interface__ = {**about, "data": begin, "shape": (count,)}

    apart = cuda.Engine(gc3.compile(BY_NAME["allpairs_allreduce"], R=2, in_place=False))
    within = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=2, in_place=True))
    gather = cuda.Engine(gc3.compile(BY_NAME["direct_allgather"], R=2, in_place=True))
    a, b, c, d = (InterfaceArray(np.full(1000, value, np.float32)) for value in (1, 2, 0, 0))
    for engine, inputs, outputs, text in (
        (apart, [a, b], [a, c], "the output of rank 0 overlaps the input of rank 0"),
        (apart, [a, b], [b, c], "the output of rank 0 overlaps the input of rank 1"),
        (apart, [a, b], [c, c], "the output of rank 1 overlaps the output of rank 0"),
        (apart, [Part(a, 0, 9), b], [Part(c, 0, 9), Part(c, 8, 9)], "rank 1: expected an array of 9"),
        (
            apart,
            [Part(a, 0, 9), Part(b, 0, 9)],
            [Part(c, 0, 9), Part(c, 8, 9)],
            "of rank 1 overlaps the output of rank 0",
        ),
        (within, [a, a], [a, a], "the buffer of rank 1 overlaps the buffer of rank 0"),
        (gather, [Part(c, 0, 9), Part(c, 19, 9)], [Part(c, 0, 18), Part(c, 10, 18)], "of rank 1 overlaps"),
    ):
        with pytest.raises(UserError, match=text):
            engine.enqueue(inputs, outputs)
    apart.enqueue([a, a], [c, d])  # which are only read
    gather.enqueue([Part(c, 0, 9), Part(c, 27, 9)], [Part(c, 0, 18), Part(c, 18, 18)])
    apart.synchronize()
    gather.synchronize()
    assert (d.memory.content == 2).all()


@pytest.mark.usefixtures("fake")
def test_what_an_array_says_of_itself_is_checked() -> None:
    """A description is read whole, or refused as the user's mistake: see __cuda_array_interface__ of CuPy and Numba."""

    class Said:
        def __init__(self, about: object) -> None:
            self.__cuda_array_interface__ = about

    whole = InterfaceArray(np.arange(12, dtype=np.float32).reshape(3, 4))
    about = whole.__cuda_array_interface__
    for name, dtype in datatypes.DTYPES.items():
        if dtype.kind != "V" and "float8" not in name and name != "bfloat16":  # NumPy's own, which typestr can name
            for order in {dtype.str[0], "=" if dtype.itemsize > 1 else "|"}:
                found = find(Said({**about, "typestr": order + dtype.str[1:]}))
                assert found is not None
                assert found.dtype == dtype
    good = ({"strides": (16, 4)}, {"version": 2}, {"data": (about["data"][0], True)}, {"stream": 2}, {"mask": None},
            {"shape": (0, 4), "data": (0, False)}, {"shape": ()}, {"shape": (1, 4), "strides": (999, 4)})  # fmt: skip
    for change in good:
        assert find(Said({**about, **change})) is not None, change
    types = (">f4", "<f16", "|V8", "<i3", "|O", "<M8[s]", "<U2", "x", "", "(2,", "f4,i4", None, 7, ["<f4"], "\ud800")
    bad = [{"typestr": typestr} for typestr in types]
    bad += [
        {"data": data} for data in (None, 5, (), ("x", False), (-4, False), (1 << 64, False), (1.5, False), (0, False))
    ]
    bad += [{"shape": shape} for shape in (None, 3, "ab", (-3, 4), (1.5,), ("3",))]
    bad += [{"strides": strides} for strides in ((4, 12), (16,), (16, 4, 4), "ab", 5, (-16, 4), (16.0, 4))]
    bad += [{"mask": whole}, {"stream": -1}, {"stream": "x"}, {"version": 1}, {"version": None}, {"version": "3"}]
    for change in [*bad, *({key: ...} for key in ("data", "shape", "typestr", "version"))]:
        with pytest.raises(UserError):
            pytest.fail(f"{change}: {find(Said({k: v for k, v in {**about, **change}.items() if v is not ...}))}")
    for said in (None, 5, [], {}, "x"):
        with pytest.raises(UserError):
            find(Said(said))


@pytest.mark.usefixtures("driver")
def test_two_engines_on_two_streams_do_not_disturb_each_other() -> None:
    driver = fake_arrays.Driver()
    streams = [ctypes.c_void_p(), ctypes.c_void_p()]
    engines: list[cuda.Engine] = []
    buffers: list[list[InterfaceArray]] = []
    for stream, protocol in zip(streams, ("LL", "Simple"), strict=True):
        driver("cuStreamCreate", ctypes.byref(stream), 1)
        engines.append(cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=3, protocol=protocol, in_place=True)))
        buffers.append([InterfaceArray(np.full(501, r + 1, np.uint64), stream=stream.value) for r in range(3)])
    for _ in range(40):
        for engine, arrays in zip(engines, buffers, strict=True):
            engine.enqueue(arrays, arrays)
    for engine, arrays, stream in zip(engines, buffers, streams, strict=True):
        engine.synchronize()
        assert all((a.memory.content == np.uint64(6 * 3**39 % 2**64)).all() for a in arrays)
        driver("cuStreamDestroy_v2", stream)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("how", [*({"protocol": p} for p in ("Simple", "LL", "LL128")), {"memory": "direct"}], ids=str)
def test_a_call_in_a_graph_is_replayed_a_thousand_times(how: dict[str, Any]) -> None:
    driver = fake_arrays.Driver()
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuStreamCreate", ctypes.byref(stream), 1)
    engine = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=3, in_place=True, **how))
    arrays = [InterfaceArray(np.full(33, rank + 1, np.uint64), stream=stream.value) for rank in range(3)]
    engine.enqueue(arrays, arrays)  # as docs/cuda.md says: once before the capture
    engine.synchronize()
    driver("cuStreamBeginCapture_v2", stream, 0)
    engine.enqueue(arrays, arrays)
    driver("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    for _ in range(1000):
        driver("cuGraphLaunch", executable, stream)
    driver("cuStreamSynchronize", stream)
    engine.synchronize()
    wanted = 6 * 3**1000 % 2**64  # the first call adds 1, 2 and 3; each later one makes three times as much
    assert all((array.memory.content == np.uint64(wanted)).all() for array in arrays)
    driver("cuGraphExecDestroy", executable)
    driver("cuGraphDestroy", graph)
    driver("cuStreamDestroy_v2", stream)


@pytest.mark.usefixtures("driver")
def test_an_abort_is_an_error_and_the_device_works_on() -> None:
    engine = cuda.Engine(gc3.compile(BY_NAME["ring_allreduce"], R=2, in_place=False))
    array = [InterfaceArray(np.ones(100, np.float32)) for _ in range(4)]
    engine.abort()
    with pytest.raises(CommError, match="stopped by the caller"):
        engine.enqueue(array[:2], array[2:])
    engine.enqueue(array[:2], array[2:])
    engine.synchronize()
    assert (array[3].memory.content == 2).all()


def test_without_a_driver_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GC3_CUDA_DRIVER", "libno-such-driver.so")
    run = CliRunner().invoke(main, list(RING))
    assert run.exit_code == 1
    assert "GC3-R015" in run.stderr
    assert "--engine threads or processes" in run.stderr
    with pytest.raises(UserError, match="GC3-R015"):
        cuda.runtime()


@pytest.mark.usefixtures("fake")
def test_options_of_other_engines_are_refused() -> None:
    for line in (
        [*RING[:-1], "cuda:workers=2"],
        [*RING[:-1], "cuda:seed=1"],
        ["run", "ring_allreduce", "--engine", "threads:devices=1"],
    ):
        run = CliRunner().invoke(main, line)
        assert run.exit_code == 2, run.output
    assert "GC3-R019" in CliRunner().invoke(main, [*RING[:-1], "cuda:devices=7"]).stderr
