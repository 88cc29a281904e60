"""The calls of a communicator on arrays of CUDA devices.

Each rank has the FIFOs of its programs on its device. The other ranks of its host access them as windows.py describes.
Messages to other hosts go through pinned memory, from which a thread of the process sends them, the proxy. The
processes exchange data once for each program, over the communicator of the CPUs. After that, calls are put on streams,
and the CPUs do not wait. A one-sided program works on copies of the arrays in memory that all ranks reach; for a call
that needs more of it than any before, the processes exchange data once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gc3 import _core, datatypes, errors
from gc3.comm.arrays import offset
from gc3.comm.windows import Reach, agree, first_problem
from gc3.cuda import DeviceArray, runtime
from gc3.cuda.arrays import address
from gc3.runtime.buffers import aliased, operation

if TYPE_CHECKING:
    from gc3.runtime.direct import DirectProgram
    from gc3.runtime.program import Program


_BARRIER = b"\0"  # an exchange of nothing would wait for nobody


class Devices:
    """The programs of a communicator on the devices of its process."""

    def __init__(
        self,
        rank: int,
        size: int,
        exchange: Callable[[bytes], list[bytes]],
        make_proxy: Callable[[], _core.CudaProxy | None],
        timeout: float,
    ) -> None:
        """Opens nothing yet.

        Args:
            rank: This rank.
            size: The number of ranks.
            exchange: Returns the bytes of all ranks.
            make_proxy: Returns what carries messages to other hosts; None: there are none.
            timeout: The limit of waits in seconds.
        """
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._exchange = exchange
        self._make_proxy = make_proxy
        self._proxy: _core.CudaProxy | None = None
        self._engines: list[_core.CudaRankEngine] = []
        self._alone = False
        self._reach: dict[int, Reach] = {}
        self._of_recipes: dict[tuple[int, tuple[int, int, bool]], _core.CudaRankEngine] = {}
        self._of_programs: dict[tuple[int, Program | DirectProgram], _core.CudaRankEngine] = {}

    def call(self, recipe: _core.DeviceRecipe, device: int) -> _core.CudaRankEngine:
        """Returns the engine that runs the program of a recipe on a device; the first call makes it."""
        key = device, recipe.key
        engine = self._of_recipes.get(key)
        if engine is None:
            reach = self._reached(device)
            made = self._made(recipe.make(), device, reach, recipe.slots, recipe.slot_bytes)
            engine = self._of_recipes[key] = made
        return engine

    def run(
        self,
        program: Program | DirectProgram,
        given: DeviceArray | None,
        result: DeviceArray | None,
        count: int,
        op: datatypes.Op,
    ) -> DeviceArray | None:
        """Puts a program of the caller on the stream of its arrays, and returns the output. One array must be given."""
        model = program.collective
        typed = given if given is not None else result
        if typed is None:
            raise errors.error("BadBuffer", "no array is on a device; expected an input or an output there")
        inputs, outputs = model.input_blocks(self._rank) * count, model.output_blocks(self._rank) * count
        if result is None and outputs:
            if aliased(model, self._rank) is not None and inputs:
                raise errors.error(
                    "BadBuffer", "an in-place program on a device needs out=, the memory that input and output share"
                )
            result = typed.new((outputs,))
        for what, array, size in (("input", given, inputs), ("output", result, outputs)):
            if (0 if array is None else array.size) != size:
                has = "none" if array is None else f"{array.size} elements"
                raise errors.error("BadBuffer", f"the {what} of rank {self._rank} has {has}; expected {size} elements")
        apart = aliased(model, self._rank) is None
        if given is not None and result is not None and apart and offset(given, result) is not None:
            raise errors.error("BadBuffer", "input and output overlap, but the program is out of place")
        how = operation(op, model, typed.dtype, self._rank)
        engine, dtype = self._of(program, typed.device), datatypes.name(typed.dtype)
        if engine.lacks_room(count, dtype):
            rooms = self._exchange(engine.make_room(count, dtype))
            self._all_do(lambda: engine.share(rooms))  # if a rank has no access to the memory of another, none uses it
            engine.use_rooms()
        _enqueue(engine, (given, result), count, typed, how)
        return result

    def explain(self) -> str:
        """Describes how the devices of other ranks are accessed; "" before the first call on a device."""
        said = dict.fromkeys(reach.how for reach in self._reach.values())
        if self._proxy is not None:
            said[f"to other hosts: a proxy and pinned memory, over {self._proxy.describe()}"] = None
        for engine in self._engines:
            if engine.copies:
                said[f"protocol Copy: {engine.copies}"] = None
        return "; ".join(said)

    def synchronize(self) -> None:
        """Waits for all calls, and raises the error of one that has failed."""
        for engine in self._engines:
            engine.synchronize()

    def abort(self) -> None:
        """Aborts the running calls on this rank's device."""
        for engine in self._engines:
            engine.abort()

    def leave(self) -> None:
        """Aborts the running calls. After this, `close` does not wait for other ranks."""
        self.abort()
        self._alone = True

    def close(self) -> None:
        """Waits for the calls, and frees the memory when no other rank has it mapped any more.

        If a rank has failed, nobody knows whether the others still have it mapped. CUDA does not say what happens when
        such memory is freed, so it is kept until the process ends.
        """
        try:
            self.synchronize()
            if self._engines and not self._alone:
                for engine in self._engines:
                    engine.disconnect()
                self._exchange(_BARRIER)
        except errors.Gc3Error:
            self._alone = True  # the error has been reported
        if self._alone:
            for engine in self._engines:
                _core.keep_until_exit(engine)
        self._of_recipes.clear()
        self._of_programs.clear()
        self._engines.clear()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self._reach.clear()  # windows last

    def _reached(self, device: int) -> Reach:
        if not self._reach:
            self._proxy = self._make_proxy()
        if device not in self._reach:
            several = self._proxy is not None
            self._reach[device] = agree(self._rank, self._size, device, self._exchange, several_hosts=several)
        return self._reach[device]

    def _made(
        self,
        program: _core.Program | _core.DirectProgram,
        device: int,
        reach: Reach,
        slots: int = 0,
        slot_bytes: int = 0,
    ) -> _core.CudaRankEngine:
        """The engine of a program, connected to those of the others: all ranks make the same in the same order."""
        how = slots, slot_bytes, self._timeout, reach.windows, self._proxy
        engine = _core.CudaRankEngine(runtime(), program, self._rank, device, *how)
        handles = self._exchange(engine.handle())
        self._all_do(lambda: engine.connect(handles))  # no rank starts before all are connected
        self._engines.append(engine)
        return engine

    def _all_do(self, work: Callable[[], None]) -> None:
        """Returns when all ranks have done it; what fails on one rank is an error of all."""
        own: errors.Gc3Error | None = None
        try:
            work()
        except errors.Gc3Error as problem:
            own = problem
        found = first_problem("" if own is None else own.diagnostics[0].message, self._exchange)
        if own is not None:
            raise own
        if found is not None:
            raise errors.error("CudaFailed", found)

    def _of(self, program: Program | DirectProgram, device: int) -> _core.CudaRankEngine:
        engine = self._of_programs.get((device, program))
        if engine is None:
            if isinstance(program.core, _core.DirectProgram):
                program.verify()
            engine = self._of_programs[device, program] = self._made(program.core, device, self._reached(device))
        return engine


def _enqueue(
    engine: _core.CudaRankEngine,
    buffers: tuple[DeviceArray | None, DeviceArray | None],
    count: int,
    typed: DeviceArray,
    op: _core.Operation,
) -> None:
    apart = [array for array in buffers if array is not None and array.device != typed.device]
    if apart:
        raise errors.error("BadBuffer", f"one array is on device {typed.device}, another on {apart[0].device}")
    given, result = map(address, buffers)
    engine.enqueue(given, result, count, datatypes.name(typed.dtype), op, typed.stream)
