"""The collectives of MSCCLang: what the buffers hold before the program, and a check of what they hold after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from gc3 import collectives
from gc3.mscclang.values import Buffer, Chunk, ReduceChunk

Key: TypeAlias = "Buffer | str"
Value: TypeAlias = "Chunk | ReduceChunk | None"
Buffers: TypeAlias = "list[dict[Any, list[Value]]]"


class Running(Protocol):
    """What check() needs of a program."""

    buffers: Buffers

    def meets(self) -> bool:
        """Returns whether the outputs hold what the known collective requires."""
        ...


class Collective:
    """A collective that a script defines by subclassing."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        """Takes the number of ranks, the chunks per block and whether input and output share memory."""
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace
        self.name = "custom"

    def init_buffers(self) -> Buffers:
        """Returns the buffers of each rank with their inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no init_buffers()")

    def check(self, prog: Running) -> bool | None:
        """Returns whether the buffers of the program hold the result; None: it states no result."""
        del prog
        return None

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for; in place, some stand for places of the other buffer."""
        del rank
        return buffer, index


class Known(Collective):
    """A collective that gc3 knows."""

    known = ""  # its name in gc3

    def blocks(self) -> tuple[int, int]:
        """Returns the number of blocks of the input and of the output."""
        model = collectives.get(self.known).model(self.num_ranks)
        return model.input_blocks(0), model.output_blocks(0)

    def init_buffers(self) -> Buffers:
        """Returns the buffers of each rank with their inputs."""
        there: Buffers = []
        size = [blocks * self.chunk_factor for blocks in self.blocks()]
        for rank in range(self.num_ranks):
            data: list[Value] = [Chunk(rank, i, *self.destination(rank, i)) for i in range(size[0])]
            result: list[Value] = [None] * size[1]
            place, first = self.get_buffer_index(rank, Buffer.input, 0)
            if self.inplace and place is Buffer.output:
                result[first : first + size[0]] = data
            shared = self.inplace and self.get_buffer_index(rank, Buffer.output, 0)[0] is Buffer.input
            there.append({Buffer.input: data, Buffer.output: data if shared and size[0] == size[1] else result})
        return there

    def destination(self, rank: int, index: int) -> tuple[int, int]:
        """Returns rank and index of the output that an input chunk goes to; rank -1: to every rank."""
        del rank
        return -1, index

    def check(self, prog: Running) -> bool:
        """Returns whether the outputs hold what the collective requires so far."""
        return prog.meets()


class AllReduce(Known):
    """Every rank gets the sum of all inputs."""

    known = "allreduce"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        """Takes the number of ranks, the chunks of the buffer and whether input and output share memory."""
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "allreduce"

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for: in place, the output is the input."""
        return (Buffer.input if self.inplace and buffer is Buffer.output else buffer), index


class AllGather(Known):
    """Every rank gets the inputs of all ranks."""

    known = "allgather"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        """Takes the number of ranks, the chunks of an input and whether input and output share memory."""
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "allgather"

    def destination(self, rank: int, index: int) -> tuple[int, int]:
        """Returns the place in every rank's output."""
        return -1, rank * self.chunk_factor + index

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for: in place, the input is a block of the output."""
        if self.inplace and buffer is Buffer.input:
            return Buffer.output, index + rank * self.chunk_factor
        return buffer, index


class AllToAll(Known):
    """Block s of rank r's output is block r of rank s's input."""

    known = "alltoall"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        """Takes the number of ranks, the chunks of a block and whether input and output share memory."""
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "alltoall"

    def destination(self, rank: int, index: int) -> tuple[int, int]:
        """Returns rank and index of the output that an input chunk goes to."""
        return index // self.chunk_factor, rank * self.chunk_factor + index % self.chunk_factor

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for: in place, the output is the input."""
        return (Buffer.input if self.inplace and buffer is Buffer.output else buffer), index


class ReduceScatter(Known):
    """Rank r gets block r of the sum of all inputs."""

    known = "reducescatter"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        """Takes the number of ranks, the chunks of a block and whether input and output share memory."""
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "reduce_scatter"

    def destination(self, rank: int, index: int) -> tuple[int, int]:
        """Returns rank and index of the output that an input chunk goes to."""
        del rank
        return divmod(index, self.chunk_factor)

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Returns the place that a name stands for: in place, the output is a block of the input."""
        if self.inplace and buffer is Buffer.output:
            return Buffer.input, index + rank * self.chunk_factor
        return buffer, index


def model_of(collective: Collective, buffers: Buffers) -> tuple[collectives.Collective, int]:
    """Returns the collective of gc3 that a script's collective describes, and its chunks per block.

    A class of the script gets the result that the program makes, which its check() then judges.
    """
    if type(collective) in KNOWN:
        return collectives.get(KNOWN[type(collective)]), collective.chunk_factor
    alias = [_alias(collective, rank, there) for rank, there in enumerate(buffers)]
    made = collectives.custom(
        collective.name,
        inputs=[len(there.get(Buffer.input, ())) for there in buffers],
        outputs=[len(there.get(Buffer.output, there.get(Buffer.input, ()))) for there in buffers],
        expect=collectives.WHATEVER_IT_MAKES,
        alias=alias,
    )
    return made, 1


def is_in_place(collective: Collective, buffers: Buffers) -> bool:
    """Returns whether input and output share memory: declared, or the same lists."""
    return bool(collective.inplace) or any(_alias(collective, rank, there) for rank, there in enumerate(buffers))


def _alias(collective: Collective, rank: int, there: Mapping[Any, list[Value]]) -> collectives.Place:
    output = there.get(Buffer.output)
    if output is None or output is there.get(Buffer.input):
        return ("input", 0)
    for inner, outer, name in (
        (Buffer.output, Buffer.input, "input"),
        (Buffer.input, Buffer.output, "output"),
    ):
        place, first = collective.get_buffer_index(rank, inner, 0)
        if place is outer:
            return (name, first)
    return None


KNOWN: Mapping[type[Collective], str] = {c: c.known for c in (AllReduce, AllGather, AllToAll, ReduceScatter)}
