"""All ranks of a program in this process, on one device or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gc3 import _core, datatypes, errors
from gc3.cuda.arrays import DeviceArray, address, find
from gc3.cuda.driver import runtime
from gc3.runtime.buffers import Span, aliased, bind, check_apart, operation
from gc3.runtime.direct import DirectProgram
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.runtime.program import Program
from gc3.support import knobs

if TYPE_CHECKING:
    import numpy.typing as npt

    from gc3.datatypes import Array


class Engine:
    """Runs one program on devices of this process. If there are more ranks than devices, ranks share a device."""

    def __init__(self, program: Program | DirectProgram, options: EngineOptions = DEFAULT_OPTIONS) -> None:
        """Prepares the program on the devices.

        Args:
            program: The program; a one-sided one is proven first.
            options: slots, slot_bytes, timeout and devices. Each device gets an equal range of ranks: of 8 ranks on
                devices 0 and 1, the first 4 are on device 0.

        Raises:
            gc3.UserError: There is no driver or no such device, a device has too little memory for the program, or the
                program is from a file and cannot be proven.
        """
        if isinstance(program, DirectProgram):
            if options.slots or options.slot_bytes:
                raise errors.error("BadOption", "slots and slot_bytes are for programs of messages")
            program.verify()
        else:
            program.check_proven(options.slots)
        set_up = knobs.read()
        self.program = program
        self._core = _core.CudaEngine(
            runtime(),
            program.core,
            list(options.devices or (0,)),
            options.slots or set_up.slots,
            options.slot_bytes or set_up.slot_bytes,
            set_up.timeout if options.timeout is None else options.timeout,
        )

    @property
    def devices(self) -> list[int]:
        """The devices that run the program."""
        return self._core.devices

    @property
    def copies(self) -> str:
        """Who carries out the messages of a program with the protocol Copy; "" for other programs.

        "copy engines", except for calls that are captured into a graph, or "threadblocks: " and the reason.
        """
        return self._core.copies

    def device_of(self, rank: int) -> int:
        """Returns the device of a rank."""
        return self._core.device_of(rank)

    def run(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
    ) -> list[Array | None]:
        """Like `Program.run`, on device copies of host arrays."""
        bound = bind(self.program.collective, inputs, outputs, count, dtype)
        self._core.run(*bound.call(op))
        return bound.finish()

    def time(
        self,
        inputs: Sequence[npt.ArrayLike | None],
        *,
        op: datatypes.Op = "sum",
        outputs: Sequence[Array | None] | None = None,
        count: int | None = None,
        dtype: npt.DTypeLike | str | None = None,
        warmup: int = 5,
        iterations: int = 20,
        graph: bool = False,
    ) -> list[float]:
        """Like `Program.time`, between events of the device, on device copies of host arrays.

        With `graph`, all iterations are one CUDA graph on one device, and each gets an equal share of its time.
        """
        bound = bind(self.program.collective, inputs, outputs, count, dtype)
        return bound.timed(self._core.time_graph if graph else self._core.time, op, warmup, iterations)

    def enqueue(self, inputs: Sequence[Any | None], outputs: Sequence[Any | None], *, op: datatypes.Op = "sum") -> None:
        """Puts the program on the current streams of the arrays' library, and returns.

        Can be captured into a CUDA graph. If the program is in place, input and output of a rank share memory as its
        collective requires.

        Args:
            inputs: Arrays on the devices, one per rank; None for a rank without input.
            outputs: The same for outputs.
            op: One of `gc3.datatypes.OPS` that takes the type, or `gc3.PreMulSum`.

        Raises:
            gc3.UserError: An array is on the wrong device, has the wrong size, or overlaps an output.
            gc3.CommError: An earlier call has failed.
        """
        model = self.program.collective
        given, written = _on_devices("input", inputs, model.ranks), _on_devices("output", outputs, model.ranks)
        for rank, array in enumerate(written):
            if array is not None and not array.writeable:
                raise errors.error("BadBuffer", f"the output of rank {rank} is read-only")
        sizes = [(a, model.input_blocks(r)) for r, a in enumerate(given)]
        sizes += [(a, model.output_blocks(r)) for r, a in enumerate(written)]
        first, blocks = next(((a, n) for a, n in sizes if a is not None and n), (None, 0))
        if first is None:
            raise errors.error("BadBuffer", "no rank has an array")
        count = first.size // blocks
        streams = dict.fromkeys(self.devices, 0)
        for rank, (array, number) in enumerate(sizes):
            if (0 if array is None else array.size) != number * count:
                raise errors.error(
                    "BadBuffer", f"rank {rank % model.ranks}: expected an array of {number * count} elements"
                )
            if array is None:
                continue
            if array.dtype != first.dtype or array.device != self.device_of(rank % model.ranks):
                raise errors.error(
                    "BadBuffer",
                    f"rank {rank % model.ranks}: an array has another type than the others, or is on another device",
                )
            streams[array.device] = array.stream
        check_apart(span for rank in range(model.ranks) for span in _spans(model, rank, given[rank], written[rank]))
        dtype, on = datatypes.name(first.dtype), [streams[device] for device in self.devices]
        self._core.enqueue(
            [*map(address, given)], [*map(address, written)], count, dtype, operation(op, model, dtype), on
        )

    def synchronize(self) -> None:
        """Waits for all enqueued calls.

        Raises:
            gc3.CommError: One of them has failed.
        """
        self._core.synchronize()

    def abort(self) -> None:
        """Aborts all enqueued calls; the next call raises the error."""
        self._core.abort()


def _spans(
    model: _core.Collective, rank: int, source: DeviceArray | None, target: DeviceArray | None
) -> Iterator[Span]:
    """The memory of one rank; in place, one buffer is part of the other, as the core checks."""
    place = aliased(model, rank)
    if place is not None and source is not None and target is not None:
        outer = target if place[0] == "input" else source
        yield Span(outer.address, outer.nbytes, f"the buffer of rank {rank}", written=True)
        return
    if source is not None:
        yield Span(source.address, source.nbytes, f"the input of rank {rank}", written=False)
    if target is not None:
        yield Span(target.address, target.nbytes, f"the output of rank {rank}", written=True)


def _on_devices(what: str, arrays: Sequence[Any | None], ranks: int) -> list[DeviceArray | None]:
    if len(arrays) != ranks:
        raise errors.error("BadBuffer", f"{len(arrays)} {what}s for {ranks} ranks; pass one per rank")
    found = [None if array is None else find(array) for array in arrays]
    for rank, (array, given) in enumerate(zip(found, arrays, strict=True)):
        if array is None and given is not None:
            raise errors.error("BadBuffer", f"the {what} of rank {rank} is not on a CUDA device")
    return found
