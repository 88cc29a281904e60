"""Counts that do not fit: an error on every rank, and the communicator goes on."""

import numpy as np
from here import RANK, SIZE, error_of

import gc3

with gc3.init() as comm:
    ones = [1] * SIZE
    x = np.arange(SIZE * 3, dtype=np.float32)

    # Rank 1 expects more of rank 0 than that sends.
    expects = [2 if RANK == 1 and source == 0 else 1 for source in range(SIZE)]
    found = error_of(lambda: comm.all_to_all_v(x[:SIZE], ones, expects))
    assert "GC3-R025" in found, found
    assert "the block from rank 0 to rank 1 has 1 rows for rank 0, and 2 for rank 1" in found, found

    # Rows of different shapes; an out that is too short on one rank only.
    found = error_of(lambda: comm.all_gather_v(np.zeros((2, 3 if RANK == 1 else 4))))
    assert "rank 0 has rows of 4 elements, rank 1 of 3" in found, found
    out = np.empty(SIZE - (1 if RANK == 1 else 0))
    found = error_of(lambda: comm.all_gather_v(np.zeros(1), out=out))
    assert f"the out of rank 1 has {SIZE - 1} rows; it gets {SIZE}" in found, found
    found = error_of(lambda: comm.scatter_v(x, [3] * SIZE, out=np.empty(2 if RANK == 1 else 3, np.float32)))
    assert "the out of rank 1 has 2 rows; it gets 3" in found, found

    # More than any memory, and sums that overflow 64 bits.
    for total in (2**61, 2**62):
        given = [total] * SIZE
        found = error_of(lambda given=given: comm.reduce_scatter_v(np.zeros(1), given))
        assert "GC3-R001" in found, found

    # What this rank can tell by itself, before any other takes part.
    for wrong, text in (
        (lambda: comm.all_to_all_v(x, [1] * (SIZE + 1)), f"send_counts has {SIZE + 1} numbers for {SIZE} ranks"),
        (lambda: comm.all_to_all_v(x, [-1] * SIZE), "expected a whole number from 0"),
        (lambda: comm.all_to_all_v(x, ones), f"an array of {3 * SIZE} rows for counts of {SIZE} together"),
        (lambda: comm.all_to_all_v(x, 3), "send_counts is 3, not a number for each rank"),
        (lambda: comm.all_to_all_v(x, [[1, 2], [3]]), "send_counts is [[1, 2], [3]], not rows of equal length"),
        (lambda: comm.all_to_all_v(x), "give send_counts, or x as a list"),
        (lambda: comm.all_to_all_v([x] * (SIZE + 1)), f"a list of {SIZE + 1} arrays, not {SIZE}"),
        (lambda: comm.all_to_all_v([x] * (SIZE - 1) + [x.astype(int)]), "rows differ in type or shape"),
        (lambda: comm.all_to_all_v([x] * SIZE, [1] * SIZE), f"{[3 * SIZE] * SIZE} rows for counts of {ones}"),
        (
            lambda: comm.all_to_all_v(x[:SIZE], [ones] * SIZE, [2] * SIZE),
            f"recv_counts are {[2] * SIZE}, the others send",
        ),
        (lambda: comm.all_gather_v(x, [ones] * SIZE), "counts has lists; expected a number for each rank"),
        (lambda: comm.explain("alltoall", 0, counts=ones), f"expected a list of {SIZE} for each of {SIZE} ranks"),
        (lambda: comm.reduce_scatter_v(np.zeros(SIZE, "i4,S3"), ones), "unknown data type"),
        (lambda: comm.reduce_scatter_v(x), "give counts, or x as a list"),
        (lambda: comm.reduce_scatter_v(x, [3] * SIZE, op="band"), "GC3-M003"),
        (lambda: comm.reduce_scatter_v(x, [3] * SIZE, op=gc3.PreMulSum(2.0)), "multiply the input before the call"),
        (lambda: comm.gather_v(x, root=SIZE), f"root={SIZE}; expected a whole number from 0 to"),
        (lambda: comm.all_gather_v(x, [len(x)] * SIZE, out=np.empty(len(x) * SIZE, int)), "out is of int64"),
        (lambda: comm.all_gather_v(x, [len(x) + 1] * SIZE), "rows for counts of"),
    ):
        found = error_of(wrong)
        assert text in found, (text, found)

    # In place, two ranks that send each other unequally much; overlapping memory that is not in place.
    if SIZE == 2:
        uneven = np.array([[0, 2], [1, 1]])
        both = np.zeros(2)
        found = error_of(lambda: comm.all_to_all_v(both, uneven, out=both if RANK else both[:1]))
        assert "GC3-R001" in found, found
    shared = np.zeros(2 * SIZE)
    found = error_of(lambda: comm.all_to_all_v(shared[:SIZE], [ones] * SIZE, out=shared[1 : SIZE + 1]))
    assert "overlaps" in found, found

    # After all of this the communicator works.
    assert comm.all_to_all_v(x[:SIZE] + RANK, [ones] * SIZE).tolist() == [RANK + r for r in range(SIZE)]
    assert comm.all_gather_v(np.full((RANK, 2), RANK)).tolist() == [[r, r] for r in range(SIZE) for _ in range(r)]
    around = np.full(99, 7)  # rows without elements touch nothing
    comm.all_gather_v(np.zeros((RANK, 0), int), out=around[:0].reshape(SIZE * (SIZE - 1) // 2, 0))
    assert (around == 7).all()
    rows = comm.all_to_all_v([np.full((d, 3), RANK) for d in range(SIZE)])
    assert [part.shape for part in rows] == [(RANK, 3)] * SIZE
    assert all((part == s).all() for s, part in enumerate(rows))
    average = comm.reduce_scatter_v(np.repeat(np.arange(SIZE, dtype=np.float64), 3) + RANK, [3] * SIZE, op="avg")
    assert average.tolist() == [RANK + (SIZE - 1) / 2] * 3
    records = np.zeros(RANK + 1, np.dtype([("a", "i4"), ("b", "S3")]))
    records["a"] = RANK
    assert comm.all_gather_v(records)["a"].tolist() == [r for r in range(SIZE) for _ in range(r + 1)]
    listed = [np.empty(r + 1, records.dtype) for r in range(SIZE)]
    assert comm.gather_v(records, root=1, out=listed) is None or [len(a) for a in listed] == list(range(1, SIZE + 1))
    assert SIZE < 2 or RANK != 1 or all((a["a"] == r).all() for r, a in enumerate(listed))
