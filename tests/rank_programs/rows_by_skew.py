"""A table's row serves calls of blocks of very different lengths, and another one those of equal blocks."""

import sys

import numpy as np

import gc3

with gc3.init(table=sys.argv[1]) as comm:
    for counts, note in (([[5, 5], [5, 5]], "even"), ([[0, 1], [40, 3]], "uneven"), ([[0, 0], [0, 0]], "even")):
        found = comm.explain("alltoall", 0, counts=counts)
        assert found.note == note, found
        received = comm.all_to_all_v(np.arange(sum(counts[comm.rank]), dtype=np.int32), counts)
        assert len(received) == counts[0][comm.rank] + counts[1][comm.rank]
    found = comm.explain("alltoall", 0, counts=[[0, 1], [40, 3]])
    assert found.call == "alltoall of blocks with a skew of 3.64 float32 (88 B), 2 ranks, out of place", found.call
    assert not found.passed_over
    assert comm.explain("alltoall", 7).passed_over == [("table.json row 1", "for a skew of 1.5 and more")]
    many = comm.explain("allreduce", [1, 40, 3])
    assert many.call.startswith("allreduce of 44 float32 in 3 arrays (176 B)"), many.call
    assert many.arrays == "one run for 3, whose chunks are cut from the arrays as they lie"
    for wrong in ([1, 2], [[1, 2]], [[1, 2], [3]], "x"):
        try:
            comm.explain("alltoall", 0, counts=wrong)
        except gc3.UserError as problem:
            assert "GC3-R001" in str(problem), problem
        else:
            raise AssertionError(wrong)
    try:
        comm.explain("allreduce", 0, counts=[1, 2])
    except gc3.UserError as problem:
        assert "has no v-form" in str(problem), problem
    else:
        raise AssertionError
