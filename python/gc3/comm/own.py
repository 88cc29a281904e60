"""Programs and collectives of the caller, which a communicator runs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gc3 import _core, collectives, datatypes, errors
from gc3.collectives import Collective
from gc3.comm import arrays
from gc3.comm.devices import Devices
from gc3.comm.registered import Registered
from gc3.cuda.arrays import DeviceArray
from gc3.runtime.buffers import bind_rank, operation
from gc3.runtime.direct import DirectProgram
from gc3.runtime.options import DEFAULT_OPTIONS, EngineOptions
from gc3.runtime.program import Program, check_program

if TYPE_CHECKING:
    from gc3.comm.arrays import AnyArray

_MOST_KNOWN = 64


@dataclass(frozen=True, slots=True)
class _Demanded:
    """A custom collective whose programs come from the table."""

    given: Collective  # holds it, so that no other one gets its id
    condition: str
    apart: _core.Collective
    in_place: _core.Collective | None  # None: a rank's buffers never alias, so ranks could not agree on it

    def model(self, given: AnyArray | None, result: AnyArray | None) -> _core.Collective:
        """That of a call with these arrays."""
        if self.in_place is None or not isinstance(given, np.ndarray) or not isinstance(result, np.ndarray):
            return self.apart
        return self.in_place if np.may_share_memory(given, result) else self.apart


class OwnPrograms(Registered):
    """The part of a communicator that runs programs of the caller, and its collectives by the table."""

    _devices: Devices

    def __init__(self, joined: _core.Joined) -> None:
        """To be called by subclasses."""
        super().__init__(joined)
        self._prepared: weakref.WeakKeyDictionary[Program | DirectProgram, _core.RankEngine] = (
            weakref.WeakKeyDictionary()
        )
        self._demanded: dict[int, _Demanded] = {}
        self._of_devices: dict[tuple[int, int, bool], Program] = {}

    def _prepare(
        self,
        program: Program | DirectProgram,
        options: EngineOptions = DEFAULT_OPTIONS,
        thresholds: Sequence[tuple[str, int | None]] = (),
    ) -> _core.RankEngine:
        """Proves a program, and prepares it for this rank."""
        if isinstance(program, Program):
            program.check_proven(options.slots)
            return self._joined.prepare(program.stored, options.slots, options.slot_bytes, thresholds)
        program.verify()
        messages = program.messages and self._joined.prepare(program.messages.stored)
        return self._joined.prepare_direct(program.core, messages)

    def _own(self, collective: Collective) -> _Demanded:
        """What the core needs to know of a custom collective; the digest of its condition takes long."""
        known = self._demanded.get(id(collective))
        if known is None:
            condition = collectives.condition(collective)
            aliases = collective.data is not None and None not in collective.data.alias
            in_place = collective.model(in_place=True) if aliases else None
            if len(self._demanded) == _MOST_KNOWN:
                self._demanded.clear()
            known = self._demanded[id(collective)] = _Demanded(collective, condition, collective.model(), in_place)
        return known

    def _explain_own(self, collective: Collective, count: Any, dtype: Any, *, in_place: bool) -> _core.Explanation:
        own = self._own(collective)
        model = own.in_place if in_place else own.apart
        if model is None:
            raise errors.error("BadArgument", f"'{collective.name}' is never in place by a table: a rank has no alias")
        elements = errors.whole(count, "count", 0, 2**48)
        return self._joined.explain_own(model, own.condition, elements, datatypes.name(datatypes.dtype(dtype)))

    def _run_program(
        self,
        program: Program | DirectProgram | Collective,
        given: AnyArray | None,
        result: AnyArray | None,
        op: datatypes.Op,
        count: int | None,
        dtype: Any,
    ) -> Any:
        own = self._own(program) if isinstance(program, Collective) else None
        model = own.model(given, result) if own else _proven(program).collective
        if model.ranks != self.size:
            what = f"a collective '{model.name}'" if own else "a program"
            raise errors.error("BadArgument", f"{what} of {model.ranks} ranks in a communicator of {self.size}")
        found, count, unknown = self._elements(model, given, result, count, dtype)
        if isinstance(given if given is not None else result, DeviceArray):
            if own is not None:
                elements, element = datatypes.moved(count, found)
                program = self._program_of(self._joined.recipe_of_own(model, own.condition, elements, element))
            mine = cast("Program | DirectProgram", program)
            self._joined.settle()  # first, because this call runs on the caller's thread, which alone knows its stream
            result = self._devices.run(mine, arrays.on_device(given), arrays.on_device(result), count, op)
            return None if result is None else arrays.result(result)
        given, result = arrays.on_host(given), arrays.on_host(result)
        if result is None and isinstance(program, DirectProgram):
            result = self._new_result(model, given, count, found)
        bound = bind_rank(model, self.rank, given, result, count, found)
        how = operation(op, model, bound.dtype, self.rank)
        if own is not None:
            ready = self._joined.find_own(model, own.condition, bound.count, bound.dtype)
        else:
            mine = cast("Program | DirectProgram", program)
            ready = self._prepared[mine] = self._prepare(mine)
        if unknown:
            self._joined.describe(datatypes.identity(found), elements=True)
        self._joined.run_ready(ready, bound.inputs[0], bound.outputs[0], bound.count, bound.dtype, how)
        return bound.finish()[0]

    def _elements(
        self, model: _core.Collective, given: AnyArray | None, result: AnyArray | None, count: int | None, dtype: Any
    ) -> tuple[datatypes.DType, int, bool]:
        """The type and the count of a call, and whether it is a type that GC3 does not have, and moves as bytes."""
        arrays.check_alike(given, result)
        typed = given if given is not None else result
        found = datatypes.movable(typed.dtype if typed is not None else "float32" if dtype is None else dtype)
        if (unknown := datatypes.element(found)[2]) and collectives.reduces(model):
            datatypes.dtype(found)  # raises the error that lists the types that can be reduced
        if dtype is not None and datatypes.movable(dtype) != found:
            raise errors.error("BadBuffer", f"an array is of {found}, but dtype is {dtype}")
        if count is None:
            sizes = (given, model.input_blocks(self.rank)), (result, model.output_blocks(self.rank))
            count = next((a.size // blocks for a, blocks in sizes if a is not None and blocks), None)
        if count is None:
            raise errors.error("BadBuffer", "this rank has no array that gives the count: pass count=")
        return found, errors.whole(count, "count", 0, 2**48, name="BadBuffer"), bool(unknown)

    def _program_of(self, recipe: _core.DeviceRecipe) -> Program:
        """The program of a recipe, made once."""
        if recipe.key not in self._of_devices:
            self._of_devices[recipe.key] = Program(recipe.make())
        return self._of_devices[recipe.key]


def _proven(program: Any) -> Program | DirectProgram:
    """A program of the caller."""
    if isinstance(program, Program):
        program.check_proven()
    elif not isinstance(program, DirectProgram):
        check_program(program)
    return program
